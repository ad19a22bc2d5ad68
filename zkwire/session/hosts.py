"""The connect string, and which server to try when.

Decides the order of servers, and of the addresses of a name: both are shuffled once, then tried in
turn.  Decides also how long to pause.  The first round after a connection that was of use has no
pause.  Later rounds have one before each attempt; it doubles from round to round, has jitter, and
is at most a second.

If there is only one server, and it has closed the connection, the client waits for a moment before
it connects again.  Another client may be about to end the session, and has to take the session over
for that.  A client that takes it back before the end would wait for answers that never come (hazard
A55).

This module must not resolve names.  Randomness is passed in as ``rng``.
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
# How many addresses keep their place in the order: containers get new addresses again and again.
MOST_RANKS = 1000

# How a configuration says that clients may use any address of a server.
_EVERY_ADDRESS = {"", "0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"}


def parse_hosts(text: str) -> tuple[list[tuple[str, int]], str]:
    """``"a:2181,[::1]:2182,b/chroot"`` as a list of (host, port), and the chroot ("" for none).

    Empty places between commas and after the last one are skipped, as by ZooKeeper's own clients.
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

    A line is ``server.1=zoo1:2888:3888:participant;[zoo1:]2181`` (Java's ``QuorumServer``).  If the
    address for clients is missing, or means every address, the server's own address is used.
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

        Without ``shuffle`` it is the resolver's order, which is the same for all clients.  In both
        cases the resolver decides which family comes first: it knows what this machine can reach
        (RFC 6724).
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

        ``closed``: it was the server that ended the connection, whether cleanly or not.
        """
        rounds, self._failures = self._failures // len(self._hosts), self._failures + 1
        if closed and len(self._hosts) == 1:
            rounds = max(rounds, 1)
        if rounds == 0:
            return 0.0
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(rounds - 1, 10))
        return pause * (0.5 + 0.5 * self._rng.random())
