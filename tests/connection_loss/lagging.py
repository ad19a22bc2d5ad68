"""A follower of a real ensemble that is behind, or cut off: what its leader says reaches it late.

What the leader says to one follower passes through a relay here. While the follower lags, the relay
keeps everything back, in order, except for the two kinds of packet that are no part of the data:
pings, and the leader's word on whose sessions are alive. So the follower takes sessions over and
answers reads, from a past that it does not know to be one, just as a follower does whose machine
is slow to apply what it was told. While it is cut off, nothing passes in either direction, as on a
network that drops packets.

Members tell each other the ensemble's configuration and believe it, so the relay cannot stand in
the `zoo.cfg` of one of them. Instead the first two members have names, and the third finds other
addresses under them: there the relays stand, at the same ports.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

from tests.support.server_control import Backend, Ensemble, Settings, ZooKeeperServer
from zkwire import Client

T = TypeVar("T")

_PING, _REVALIDATE, _SNAPSHOT = 5, 6, 15
_OVERTAKING = {_PING, _REVALIDATE}
_SNAPSHOT_END = b"\x00\x00\x00\x0aBenWasHere"
_CHUNK = 64 * 1024
_SETTINGS = Settings(
    options={
        # The ensemble must bear the silence of an experiment, pauses of the machine included.
        "syncLimit": "300",
        # When a leader is removed, the one that shall follow it now and then waits for so long for
        # others that do not know (seen on 3.8.0), and only then is there an election.
        "initLimit": "10",
        # Any client may reconfigure it: it serves these experiments alone.
        "reconfigEnabled": "true",
        "skipACL": "yes",
    },
    # A file of each server's own, as each runs in its own directory.
    java_flags=("-Djdk.net.hosts.file=hosts",),
)
_NAMES = {1: "one", 2: "two"}
_HERE, _RELAYED = "127.0.0.1", "127.0.0.2"


def packets(leader: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """What a leader sends: each packet with its type; pieces of a snapshot count as type 15.

    A jute QuorumPacket has no length in front: type, zxid, data, and names of who asks.
    """
    packet = bytearray()

    def more(size: int) -> bytes:
        data = leader.read(size)
        if len(data) < size:
            raise EOFError
        packet.extend(data)
        return data

    def number() -> int:
        return int.from_bytes(more(4), "big", signed=True)

    while True:
        packet.clear()
        kind = number()
        more(8)
        more(max(0, number()))
        for _ in range(2 * max(0, number())):
            more(max(0, number()))
        yield kind, bytes(packet)
        if kind == _SNAPSHOT:
            packet.clear()
            while not packet.endswith(_SNAPSHOT_END):
                more(1)
            yield _SNAPSHOT, bytes(packet)


def pieces(source: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """What is no conversation of a leader with a follower: as it comes, like pings."""
    while data := source.read1(_CHUNK):
        yield _PING, data


class Relay:
    """Stands for another server's port, for one follower; see the module's docstring.

    What is no conversation between leader and follower passes as it comes, ``plain``.
    """

    def __init__(self, port: int, *, plain: bool = False) -> None:
        self._target = port
        self._plain = plain
        self._lock = threading.Lock()
        self._lagging = self._silent = False
        self._kept: list[tuple[socket.socket, bytes]] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((_RELAYED, port))
        self._start(self._accept)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                follower, _ = self._listener.accept()
                try:
                    leader = socket.create_connection((_HERE, self._target))
                except OSError:
                    follower.close()
                    continue
                self._sockets += follower, leader
                self._start(self._pump, follower, leader, pieces)
                self._start(self._pump, leader, follower, pieces if self._plain else packets)

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        cut: Callable[[BufferedReader], Iterator[tuple[int, bytes]]],
    ) -> None:
        with suppress(OSError, EOFError), source.makefile("rb") as stream:
            for kind, data in cut(stream):
                self._pass_on(target, data, overtakes=kind in _OVERTAKING)
        _shut(source, target)

    def _pass_on(self, target: socket.socket, data: bytes, *, overtakes: bool) -> None:
        with self._lock:
            if self._silent or (self._lagging and not overtakes):
                self._kept.append((target, data))
            else:
                target.sendall(data)

    def keep_back(self, *, everything: bool = False) -> None:
        """From now on the follower hears of no change; or of nothing, and is not heard either."""
        with self._lock:
            self._lagging, self._silent = True, everything

    def let_go(self) -> None:
        """All that was kept back arrives, in order."""
        with self._lock:
            self._lagging = self._silent = False
            for target, data in self._kept:
                with suppress(OSError):  # it has crashed meanwhile
                    target.sendall(data)
            self._kept.clear()

    def close(self) -> None:
        """End all connections and threads."""
        # Closing alone does not wake a thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        _shut(*self._sockets)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Lag:
    """An ensemble of three whose third member can be made to lag, or be cut off."""

    def __init__(self, ensemble: Ensemble, relays: list[Relay], view: Client) -> None:
        self.ensemble = ensemble
        self.up_to_date: ZooKeeperServer = ensemble.servers[0]
        self.hosts = ensemble.servers[2].hosts
        self._relays = relays
        self.view = view

    def catch_up(self) -> None:
        """Wait until the follower has all that was finished before."""
        self.view.sync()

    def begin(self) -> None:
        """From now on it lags."""
        for relay in self._relays:
            relay.keep_back()

    def cut_off(self) -> None:
        """From now on it can do nothing with the others."""
        for relay in self._relays:
            relay.keep_back(everything=True)

    def around(self, experiment: Callable[..., T]) -> Callable[..., T]:
        """The same experiment, behind which it is let catch up."""

        def run(*arguments: Any) -> T:
            try:
                return experiment(*arguments)
            finally:
                self.end()

        return run

    def end(self) -> None:
        """Let it catch up."""
        for relay in self._relays:
            relay.let_go()


@contextmanager
def lagging_follower(backend: Backend) -> Iterator[Lag]:
    """Start an ensemble; its first two members elect a leader before the third comes."""
    with ExitStack() as stack:
        ensemble = stack.enter_context(backend.make_ensemble(_SETTINGS))
        relays: list[Relay] = []
        for quorum, election in named(ensemble):
            relays.append(stack.enter_context(closing(Relay(quorum))))
            stack.enter_context(closing(Relay(election, plain=True)))
        for server in ensemble.servers[:2]:
            server.start(wait=False)
        ensemble.servers[0].wait_serving()
        ensemble.servers[2].start()
        view = stack.enter_context(Client(ensemble.servers[2].hosts, session_timeout=30.0))
        yield Lag(ensemble, relays, view)


def named(ensemble: Ensemble) -> Iterator[tuple[int, int]]:
    """Give the first two members their names, and all members their address books.

    Yields the ports of the two, for followers and for elections.
    """
    for member, server in enumerate(ensemble.servers, 1):
        directory: Path = server.directory  # type: ignore[attr-defined]
        address = _RELAYED if member == 3 else _HERE
        (directory / "hosts").write_text("".join(f"{address} {n}\n" for n in _NAMES.values()))
        config = (directory / "zoo.cfg").read_text()
        for number, name in _NAMES.items():
            config = config.replace(f"server.{number}={_HERE}:", f"server.{number}={name}:")
        (directory / "zoo.cfg").write_text(config)
    for name in _NAMES.values():
        (ports,) = re.findall(rf"={name}:(\d+):(\d+)", config)
        yield int(ports[0]), int(ports[1])
