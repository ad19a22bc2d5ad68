"""A follower of a real ensemble that is behind: the leader's commits reach it late.

What the leader says to one follower passes through a relay here. While the follower lags, the relay
keeps everything back, in order, except for the two kinds of packet that are no part of the data:
pings, and the leader's word on whose sessions are alive. So the follower takes sessions over and
answers reads, from a past that it does not know to be one, just as a follower does whose machine
is slow to apply what it was told.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from tests.server_control import Backend, Ensemble, Settings, ZooKeeperServer
from zkwire import Client

_PING, _REVALIDATE, _SNAPSHOT = 5, 6, 15
_OVERTAKING = {_PING, _REVALIDATE}
_SNAPSHOT_END = b"\x00\x00\x00\x0aBenWasHere"
_CHUNK = 64 * 1024
# The ensemble must bear the silence of an experiment, pauses of the machine included.
_SYNC_LIMIT_TICKS = "300"


class Packets:
    """Cuts what a leader sends into its packets; jute's QuorumPacket has no length in front."""

    def __init__(self) -> None:
        self._buffer = b""
        self._in_snapshot = False

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The whole packets, each with its type; pieces of a snapshot count as type 15."""
        self._buffer += data
        while self._buffer:
            size = self._snapshot_size() if self._in_snapshot else self._packet_size()
            if not size:
                return
            piece, self._buffer = self._buffer[:size], self._buffer[size:]
            if self._in_snapshot:
                self._in_snapshot = False
                yield _SNAPSHOT, piece
                continue
            kind = int.from_bytes(piece[:4], "big", signed=True)
            self._in_snapshot = kind == _SNAPSHOT
            yield kind, piece

    def _snapshot_size(self) -> int:
        at = self._buffer.find(_SNAPSHOT_END)
        return at + len(_SNAPSHOT_END) if at >= 0 else 0

    def _packet_size(self) -> int:
        """Type, zxid, data, authinfo; 0 if it is not whole yet."""
        with suppress(struct.error):
            (length,) = struct.unpack_from(">i", self._buffer, 12)
            at = 16 + max(0, length)
            (count,) = struct.unpack_from(">i", self._buffer, at)
            at += 4
            for _ in range(2 * max(0, count)):
                (text,) = struct.unpack_from(">i", self._buffer, at)
                at += 4 + max(0, text)
            return at if at <= len(self._buffer) else 0
        return 0


class Relay:
    """A port that stands for another server's, for one follower; see the module's docstring."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._lagging = False
        self._kept: list[bytes] = []
        self._follower: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
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
                    leader = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    follower.close()
                    continue
                self._sockets += follower, leader
                self._start(self._up, follower, leader)
                self._start(self._down, leader, follower)

    def _up(self, follower: socket.socket, leader: socket.socket) -> None:
        with suppress(OSError):
            while data := follower.recv(_CHUNK):
                leader.sendall(data)
        _shut(leader, follower)

    def _down(self, leader: socket.socket, follower: socket.socket) -> None:
        packets = Packets()
        with suppress(OSError):
            while data := leader.recv(_CHUNK):
                for kind, packet in packets.feed(data):
                    with self._lock:
                        self._follower = follower
                        if self._lagging and kind not in _OVERTAKING:
                            self._kept.append(packet)
                        else:
                            follower.sendall(packet)
        _shut(leader, follower)

    def keep_back(self) -> None:
        """From now on the follower hears of no change."""
        with self._lock:
            self._lagging = True

    def let_go(self) -> None:
        """The follower hears of all that was kept back, in order."""
        with self._lock:
            self._lagging = False
            if self._follower is not None:
                for packet in self._kept:
                    self._follower.sendall(packet)
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
    """An ensemble of three whose third member can be made to lag."""

    def __init__(self, ensemble: Ensemble, relays: list[Relay], view: Client) -> None:
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

    def end(self) -> None:
        """Let it catch up."""
        for relay in self._relays:
            relay.let_go()


@contextmanager
def lagging_follower(backend: Backend) -> Iterator[Lag]:
    """Start an ensemble; its first two members elect a leader before the third comes."""
    with ExitStack() as stack:
        settings = Settings(options={"syncLimit": _SYNC_LIMIT_TICKS})
        ensemble = stack.enter_context(backend.make_ensemble(settings))
        relays: list[Relay] = []
        for number in (1, 2):
            relays.append(stack.enter_context(closing_relay(ensemble, number)))
        for server in ensemble.servers[:2]:
            server.start(wait=False)
        ensemble.servers[0].wait_serving()
        ensemble.servers[2].start()
        view = stack.enter_context(Client(ensemble.servers[2].hosts, session_timeout=30.0))
        yield Lag(ensemble, relays, view)


@contextmanager
def closing_relay(ensemble: Ensemble, number: int) -> Iterator[Relay]:
    """Put a relay between the third member and another one, in its configuration alone."""
    config = ensemble.servers[2].directory / "zoo.cfg"  # type: ignore[attr-defined]
    lines = config.read_text().splitlines()
    prefix = f"server.{number}="
    (line,) = [line for line in lines if line.startswith(prefix)]
    host, quorum, election = line.removeprefix(prefix).split(":")
    relay = Relay(int(quorum))
    try:
        lines[lines.index(line)] = f"{prefix}{host}:{relay.port}:{election}"
        config.write_text("\n".join(lines) + "\n")
        yield relay
    finally:
        relay.close()
