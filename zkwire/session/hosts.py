"""The connect string, which server to try when, and the search for a read-write server.

Decides the order of servers, and of the addresses of a name (shuffled once, then in turn), and how
long to pause: not at all in the first round after a connection that was of use, then before each
attempt, twice as long from round to round, with jitter, up to a second.  The only server, if it has
closed the connection, is left alone for a moment: another client that ends the session takes it
over first, and a client that takes it back before the end waits for answers that never come
(hazard A55).  This module must not resolve names or make randomness: that is passed in as ``rng``.
"""

from __future__ import annotations

from zkwire.wire.paths import check_chroot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import Any

    Address = tuple[int, Any]  # address family, socket address


DEFAULT_PORT = 2181
FIRST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 1.0
# How many addresses keep their place in the order; those of containers change forever.
MOST_RANKS = 1000

# How a configuration says that clients may use any address of a server.
_EVERY_ADDRESS = {"", "0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"}


def parse_hosts(text: str) -> tuple[list[tuple[str, int]], str]:
    """``"a:2181,[::1]:2182,b/chroot"`` as a list of (host, port), and the chroot ("" for none).

    Empty places between commas and behind the last are left out, as ZooKeeper's own clients do.
    """
    if not isinstance(text, str):
        raise TypeError(f"hosts must be a str such as 'host:2181,...', not {type(text).__name__}")
    if "://" in text:
        raise ValueError(f"hosts has no scheme: 'host:port,...', not {text!r}")
    servers, slash, chroot = text.partition("/")
    hosts = [_parse_host(server.strip(), text) for server in servers.split(",") if server.strip()]
    if not hosts:
        raise ValueError(f"hosts names no server: {text!r}")
    for rest in chroot.split(",")[1:]:
        host, _, port = rest.partition("/")[0].strip().rpartition(":")
        if host and port.isdigit():
            raise ValueError(f"hosts: write the chroot once, behind the last server: {text!r}")
    try:
        return hosts, check_chroot(slash + chroot)
    except ValueError as error:
        raise ValueError(f"hosts: what stands behind the servers is the chroot: {error}") from None


def _parse_host(server: str, text: str) -> tuple[str, int]:
    if server.startswith("["):
        host, bracket, rest = server[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"hosts: bad address {server!r} in {text!r}")
        port = rest[1:]
    elif server.count(":") > 1:
        if ";" in server or " " in server:
            raise ValueError(f"hosts: write commas between servers: {server!r}")
        raise ValueError(f"hosts: write IPv6 addresses as [address]:port: {server!r} in {text!r}")
    else:
        host, _, port = server.partition(":")
    if not host:
        raise ValueError(f"hosts: a server without a name in {text!r}")
    if len(host.split()) > 1:
        raise ValueError(f"hosts: write commas between servers: {server!r}")
    if not port and not server.endswith(":"):
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"hosts: bad port in {server!r}")
    return host, int(port)


def parse_config(data: bytes) -> list[tuple[str, int]]:
    """The (host, port) of each server in an ensemble's configuration that has a port for clients.

    A line is ``server.1=zoo1:2888:3888:participant;[zoo1:]2181`` (Java's ``QuorumServer``).  A
    missing address for clients, or one that means every address, is the server's own.
    """
    hosts: list[tuple[str, int]] = []
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        server, semicolon, client = value.partition(";")
        if not (name.strip().startswith("server.") and semicolon):
            continue
        host, _, port = client.strip().rpartition(":")
        if host in _EVERY_ADDRESS:
            # The first of several addresses ("a:2888:3888|b:2888:3888", since 3.6).
            host = server.strip()
            host = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
        try:
            hosts.append(_parse_host(f"{host}:{port}", line))
        except ValueError:
            continue  # the client cannot connect to it
    return hosts


class HostList:
    """The servers in the order in which they are tried; without ``shuffle`` as they are given."""

    def __init__(self, hosts: list[tuple[str, int]], rng: Random, *, shuffle: bool = True) -> None:
        self._rng = rng
        self._shuffle = shuffle
        self._hosts = self._ordered(hosts)
        self._next = 0
        self._failures = 0
        self._ranks: dict[Address, float] = {}

    def _ordered(self, hosts: list[tuple[str, int]]) -> list[tuple[str, int]]:
        ordered = list(hosts)
        if self._shuffle and len(ordered) > 1:  # else no randomness is to be loaded
            self._rng.shuffle(ordered)
        return ordered

    def __len__(self) -> int:
        return len(self._hosts)

    def next(self) -> tuple[str, int]:
        """The server to try now."""
        host = self._hosts[self._next]
        self._next = (self._next + 1) % len(self._hosts)
        return host

    def arrange(self, addresses: list[Address]) -> list[Address]:
        """The addresses of one name, in a random order that stays the same for this client.

        Without ``shuffle`` in the resolver's, which gives all clients the same order.  Which family
        goes first stays the resolver's choice: it knows what this machine can reach (RFC 6724).
        """
        if len(addresses) < 2 or not self._shuffle:
            return addresses
        if len(self._ranks) > MOST_RANKS:
            self._ranks.clear()
        for address in addresses:
            if address not in self._ranks:
                self._ranks[address] = self._rng.random()
        ranked = sorted(addresses, key=self._ranks.__getitem__)
        turns = {family: iter([a for a in ranked if a[0] == family]) for family, _ in addresses}
        return [next(turns[family]) for family, _ in addresses]

    def prefer(self, server: tuple[str, int]) -> None:
        """Try ``server`` next, if it is still in the list."""
        if server in self._hosts:
            self._next = self._hosts.index(server)

    def replace(self, hosts: list[tuple[str, int]]) -> None:
        """The ensemble has these servers now."""
        same = sorted(hosts) == sorted(self._hosts) if self._shuffle else hosts == self._hosts
        if not same:
            self._hosts = self._ordered(hosts)
            self._next = 0

    def served(self) -> None:
        """The last connection was of use: the next round starts without a pause."""
        self._failures = 0

    @property
    def exhausted(self) -> bool:
        """Whether every server has failed since the last connection of use."""
        return self._failures >= len(self._hosts)

    def pause(self, *, closed: bool = False) -> float:
        """Seconds to wait before :meth:`next`, after an attempt failed or a connection broke.

        With ``closed`` the server has ended the connection, in good order or not.
        """
        rounds, self._failures = self._failures // len(self._hosts), self._failures + 1
        if closed and len(self._hosts) == 1:
            rounds = max(rounds, 1)
        if rounds == 0:
            return 0.0
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(rounds - 1, 10))
        return pause * (0.5 + 0.5 * self._rng.random())


FIRST_SEARCH_PAUSE = 0.1
LONGEST_SEARCH_PAUSE = 60.0
READ_WRITE = b"rw"


class ReadWriteSearch:
    """The search for a read-write server while the client is connected to a read-only one.

    Decides which server is asked and when: 100 ms after the connection was made, then after pauses
    that double up to a minute (Java's ``ClientCnxn.pingRwServer``).  The I/O layer asks, with the
    four-letter word ``isro``.

    ``asking`` is the server that the I/O layer must ask now, ``at`` the time in seconds at which
    the next one is asked; both are None outside a search.
    """

    __slots__ = ("_hosts", "_pause", "asking", "at")

    def __init__(self, hosts: HostList) -> None:
        self._hosts = hosts
        self._pause = 0.0
        self.asking: tuple[str, int] | None = None
        self.at: float | None = None

    def start(self, now: float) -> None:
        """The client has connected to a read-only server."""
        self._pause, self.asking, self.at = FIRST_SEARCH_PAUSE, None, now + FIRST_SEARCH_PAUSE

    def stop(self) -> None:
        """The client is no longer connected to a read-only server."""
        self.asking = self.at = None

    def on_deadline(self, now: float) -> None:
        """Ask the next server if that is due."""
        if self.at is not None and now >= self.at:
            self.asking, self.at = self._hosts.next(), None

    def answered(self, answer: bytes, now: float) -> bool:
        """The server's answer, b"" for none; True if it is read-write: it is tried next then."""
        server, self.asking = self.asking, None
        if server is None:
            return False  # the connection has been lost meanwhile
        if answer.startswith(READ_WRITE):
            self._hosts.prefer(server)
            return True
        self._pause = min(self._pause * 2, LONGEST_SEARCH_PAUSE)
        self.at = now + self._pause
        return False
