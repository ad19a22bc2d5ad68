"""The thread of the embedded servers: it moves bytes between sockets and the processor.

Decides when something is read and written; must not know what the bytes mean.  A `Peer` is the
socket of one client, with TLS in between.

Only the loop's thread touches the processor.  If a peer does not read and `HIGH_WATER` bytes wait
for it, its requests wait, too; requests are carried out one by one for that reason.
"""

from __future__ import annotations

import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from zkwire.testing import socket_thread
from zkwire.testing.proxy.faults import Hold
from zkwire.testing.server.faultpoints import FaultPoints
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.sessions import Connection
from zkwire.testing.socket_thread import CHUNK, HIGH_WATER, RESET, SocketThread

if TYPE_CHECKING:
    from zkwire.testing.server.tls import ServerTls

    NewTls = Callable[[], ServerTls]

T = TypeVar("T")
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_NOTHING = memoryview(b"")
_NO_WORK: Iterator[Hold] = iter(())


class VirtualClock:
    """A call returns the time in seconds.  `Server(now=clock)` runs on this time.

    ``advance`` returns when the server has done everything that is due by the new time.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._listeners: list[Callable[[], object]] = []

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once."""
        later = self._now + seconds
        if not (seconds >= 0 and later < math.inf):
            raise ValueError(f"the seconds to advance must be finite and not negative: {seconds!r}")
        self._now = later
        for listener in list(self._listeners):
            listener()

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` after each move."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[], object]) -> None:
        """End a :meth:`subscribe`."""
        self._listeners.remove(listener)


@dataclass(slots=True, eq=False)
class Peer:
    """A socket, its connection, the requests to carry out and the bytes to send."""

    sock: socket.socket
    connection: Connection
    tls: ServerTls | None
    interest: int = selectors.EVENT_READ
    requests: Iterator[bytes] | None = None
    begun: Iterator[Hold] = _NO_WORK  # the request that is carried out, ...
    hold: Hold | None = None  # ... and the gate at which it waits
    unsent: memoryview[int] = _NOTHING

    @property
    def backlog(self) -> int:
        return len(self.unsent) + self.connection.waiting

    def receive(self) -> bytes | None:
        """The bytes that have arrived; None if there are none yet, empty at the end."""
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        if self.tls is None or not data:
            return data
        plaintext = self.tls.receive(data)
        if self.tls.subject is not None and plaintext and self.connection.first_bytes is not None:
            self.connection.credentials.add("x509", self.tls.subject)
        return plaintext or (b"" if self.tls.eof or self.tls.error else None)

    def take_output(self) -> bytes:
        """The next bytes for the kernel."""
        data = self.connection.take_output()
        return data if self.tls is None else self.tls.encrypt(data)


class Loop(SocketThread):
    """See the module's docstring.  It runs from its creation until :meth:`close`."""

    def __init__(
        self, processor: Processor, now: Callable[[], float], new_tls: NewTls | None = None
    ) -> None:
        super().__init__("zkwire-server", "the embedded server")
        self.processor = processor
        self._new_tls = new_tls
        self.faults: FaultPoints = FaultPoints(processor)
        self._now = now
        self._listeners: dict[socket.socket, int] = {}
        self._peers: dict[Connection, Peer] = {}
        self._thread.start()
        if isinstance(now, VirtualClock):
            now.subscribe(self._catch_up)

    # --- for other threads ------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """As in any such thread; in the thread itself ``function`` runs at once."""
        return function() if threading.current_thread() is self._thread else super().call(function)

    def _catch_up(self) -> None:
        self.call(self._advance)

    # --- through a call ---------------------------------------------------------------------------

    def listen(self, listener: socket.socket, member: int) -> None:
        """Accept connections for a member."""
        self._listeners[listener] = member
        self.watch(listener, _READ, partial(self._accept, listener))

    def stop_listening(self, listener: socket.socket) -> None:
        """Stop accepting at this address, and close the connections to its member."""
        member = self._listeners.pop(listener)
        self.watch(listener, 0)
        listener.close()
        self.cut(member)

    def cut(self, member: int | None = None) -> None:
        """Close the connections to one member, or all."""
        for connection in list(self._peers):
            if member in {None, connection.member}:
                self.processor.end(connection)
                self._close_peer(self._peers[connection])

    # --- the thread -------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._now() >= self.processor.next_deadline:
            self._advance()
        self._flush_ready()

    def _seconds_left(self) -> float:
        """A command wakes the selector when virtual time advances."""
        is_virtual = isinstance(self._now, VirtualClock)
        return math.inf if is_virtual else self.processor.next_deadline - self._now()

    def _advance(self) -> None:
        self.processor.advance(self._now())
        self._flush_ready()

    def _stop(self) -> None:
        super()._stop()
        if isinstance(self._now, VirtualClock):
            self._now.unsubscribe(self._catch_up)
        self.cut()
        for listener in self._listeners:
            listener.close()

    # --- connections ------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, _: int) -> None:
        member = self._listeners.get(listener)
        while member is not None:
            accepted = socket_thread.accept(listener)
            if accepted is None:
                return
            sock, address = accepted
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self.processor.connect(member=member, address=address[0], now=self._now())
            tls = self._new_tls and self._new_tls()
            peer = self._peers[connection] = Peer(sock, connection, tls)
            connection.queued = partial(self._queued, peer)
            self.watch(sock, _READ, partial(self._serve, peer))

    def _serve(self, peer: Peer, mask: int) -> None:
        if peer.connection not in self._peers:
            return  # closed earlier in this round
        if mask & _WRITE:
            self._flush(peer)
        if mask & _READ and peer.requests is None:
            data = peer.receive()
            if peer.tls is not None:
                self._flush(peer)  # the answer of TLS
            if data is None or peer.connection not in self._peers:
                return
            if not data:
                self.processor.lost(peer.connection)
                self._close_peer(peer)
                return
            peer.requests = self.processor.frames(peer.connection, data)
        self._work(peer)

    def _work(self, peer: Peer) -> None:
        """Carry out the requests of a peer, as long as it reads the replies and no gate is closed.

        The release of a gate calls this again.
        """
        connection = peer.connection
        while peer.requests is not None and connection in self._peers:
            if connection.mute or not (peer.hold is None or peer.hold.gate.is_open):
                break
            if peer.backlog > HIGH_WATER:
                self._flush(peer)
                if peer.backlog > HIGH_WATER:
                    break
            if peer.hold is None:
                body = next(peer.requests, None)
                if body is None:
                    peer.requests = None
                    break
                peer.begun = self.faults.process(connection, body, self._now())
            try:
                hold = peer.hold = next(peer.begun, None)
            except Exception as error:
                # A bug in a test's action or in the server: it must not look like a fault.
                self._failure = self._failure or error
                self.processor.end(connection)
                break
            if hold is not None:
                hold.gate.arrive(hold.frame, partial(self.post, partial(self._work, peer)))
        self._listen_to(peer)

    def _queued(self, peer: Peer) -> Iterator[bytes]:
        """The requests of a peer that wait: at a gate, or because it reads no replies."""
        hold, peer.hold = peer.hold, None
        if hold is not None:
            yield hold.frame.raw[4:]
        yield from peer.requests or ()

    def _flush_ready(self) -> None:
        while ready := self.processor.take_ready():
            for connection in ready:
                peer = self._peers.get(connection)
                if peer is None:
                    continue
                self._flush(peer)
                if not peer.unsent:  # no event of the selector would continue its requests
                    self._work(peer)

    def _flush(self, peer: Peer) -> None:
        """Send what the kernel takes; close an ended connection after its last byte."""
        try:
            if not peer.unsent:
                peer.unsent = memoryview(peer.take_output())
            while peer.unsent:
                peer.unsent = peer.unsent[peer.sock.send(peer.unsent) :]
                if not peer.unsent:
                    peer.unsent = memoryview(peer.take_output())
        except BlockingIOError:
            pass
        except OSError:
            self.processor.lost(peer.connection)
            peer.unsent = _NOTHING
        if peer.connection.ended and not peer.unsent:
            self._close_peer(peer)
        else:
            self._listen_to(peer)

    def _listen_to(self, peer: Peer) -> None:
        """Register the peer for the events that the loop can use now."""
        if peer.connection not in self._peers:
            return
        # While requests wait, the loop reads no more: the kernel then makes the peer wait.
        interest = _READ * (peer.requests is None) | _WRITE * bool(peer.unsent)
        if interest != peer.interest:  # the usual case first, for speed
            self.watch(peer.sock, interest, partial(self._serve, peer))
            peer.interest = interest

    def _close_peer(self, peer: Peer) -> None:
        if self._peers.pop(peer.connection, None) is None:
            return  # it is closed already
        self.watch(peer.sock, 0)
        if peer.connection.reset:
            with suppress(OSError):
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            if peer.tls is not None and not peer.unsent:
                with suppress(OSError):
                    peer.sock.send(peer.tls.close_notify())
            # Unread input would turn the FIN into a reset, which can destroy the last reply.
            with suppress(OSError):
                while peer.sock.recv(CHUNK):
                    pass
        peer.sock.close()


def monotonic_epoch() -> float:
    """The difference between seconds since 1970 and ``time.monotonic()``."""
    return time.time() - time.monotonic()
