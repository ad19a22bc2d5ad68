"""The thread of the embedded servers: it moves bytes between sockets and the processor.

Decides when something is read and written; must not know what the bytes mean.

Rules of this file:

* Only the loop's thread touches sockets, selector and processor.  Others hand it commands with
  :meth:`Loop.call`, which run between two rounds and whose outcome is handed back.
* Nothing blocks but the one ``select``.  Of a peer that does not read, no more requests are carried
  out once `_HIGH_WATER` bytes wait for it; requests are carried out one by one for that reason.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from zkwire.testing.server.clock import VirtualClock
from zkwire.testing.server.connection import Connection
from zkwire.testing.server.faultpoints import FaultPoints
from zkwire.testing.server.peer import Peer
from zkwire.testing.server.processor import Processor

if TYPE_CHECKING:
    import ssl

    from zkwire.testing.server.tls import ServerTls

T = TypeVar("T")

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_RESET = struct.pack("ii", 1, 0)
_CHUNK = 64 * 1024
_HIGH_WATER = 1024 * 1024
_BACKLOG = 512
_LONGEST_WAIT = 3600.0
_DEAF = 0.5  # seconds
_NONE_FREE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Loop:
    """See the module's docstring.  It runs from its creation until :meth:`close`."""

    def __init__(
        self, processor: Processor, now: Callable[[], float], tls: ssl.SSLContext | None = None
    ) -> None:
        self.processor = processor
        self._tls = tls
        self.faults: FaultPoints = FaultPoints(processor, self._wake_up)
        self._now = now
        self._failure: Exception | None = None
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[socket.socket, int] = {}
        self._deaf: list[socket.socket] = []  # listeners that wait for a free descriptor
        self._deaf_until = 0.0  # descriptors are freed by others as well
        self._peers: dict[Connection, Peer] = {}
        self._commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._open = True  # its thread lives
        self._closed = False
        self._waker, self._woken = socket.socketpair()
        for sock in (self._waker, self._woken):
            sock.setblocking(False)
        self._selector.register(self._woken, _READ, self._drain_waker)
        self._thread = threading.Thread(target=self._run, name="zkwire-server", daemon=True)
        self._thread.start()
        if isinstance(now, VirtualClock):
            now.subscribe(self._catch_up)

    # --- for other threads ------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the loop's thread, between two rounds, and return its outcome."""
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()
        self._commands.append((function, future))
        if not self._open:
            raise RuntimeError("the embedded server is closed")
        self._wake_up()
        return future.result()

    def close(self) -> None:
        """End all connections and the thread; may be called again."""
        if not self._closed:
            self._closed = True
            if isinstance(self._now, VirtualClock):
                self._now.unsubscribe(self._catch_up)
            with suppress(RuntimeError):  # it has failed, which is told below
                self.call(self._stop)
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def listen(self, host: str, port: int, member: int) -> socket.socket:
        """Accept connections for a member; port 0 takes a free one."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        listener.setblocking(False)

        def register() -> None:
            self._listeners[listener] = member
            self._selector.register(listener, _READ, partial(self._accept, listener))

        self.call(register)
        return listener

    def silence(self, listener: socket.socket) -> None:
        """Stop accepting, and close the connections that came this way."""

        def silence() -> None:
            member = self._listeners.pop(listener)
            if listener in self._deaf:
                self._deaf.remove(listener)
            else:
                self._selector.unregister(listener)
            listener.close()
            self.cut(member)

        self.call(silence)

    def cut(self, member: int | None = None) -> None:
        """Close the connections to one member, or all; to be called through :meth:`call`."""
        for connection in list(self._peers):
            if member in {None, connection.member}:
                self.processor.end(connection)
                self._close_peer(self._peers[connection])

    def _catch_up(self) -> None:
        self.call(self._advance)

    def _wake_up(self) -> None:
        with suppress(OSError):  # it is awake, or has come by meanwhile and closed everything
            self._waker.send(b"\0")

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._open:
                self._round()
        except Exception as error:  # a mistake of ours: nobody may wait for what is no more
            self._failure = self._failure or error
            with suppress(Exception):
                self._stop()
            self._refuse(error)
        self._obey()  # whoever asks from now on sees that it is closed
        for sock in (self._waker, self._woken):
            sock.close()
        self._selector.close()

    def _round(self) -> None:
        for key, mask in self._selector.select(self._patience()):
            key.data(mask)
        if self._deaf and time.monotonic() >= self._deaf_until:
            self._hear()
        self._obey()
        if self._now() >= self.processor.next_deadline:
            self._advance()
        for connection in self.faults.free():
            self._try(connection, partial(self.faults.go_on, connection))
            if connection in self._peers:
                self._work(self._peers[connection])
        self._flush_ready()

    def _patience(self) -> float:
        """How long the selector may wait; virtual time is moved by a command."""
        longest = _DEAF if self._deaf else _LONGEST_WAIT
        if isinstance(self._now, VirtualClock):
            return longest
        return min(max(self.processor.next_deadline - self._now(), 0.0), longest)

    def _obey(self) -> None:
        while self._commands:
            function, future = self._commands.popleft()
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def _refuse(self, error: Exception) -> None:
        while self._commands:
            _, future = self._commands.popleft()
            future.set_exception(RuntimeError(f"the embedded server has failed: {error!r}"))

    def _advance(self) -> None:
        self.processor.advance(self._now())
        self._flush_ready()

    def _stop(self) -> None:
        self._open = False
        self.cut()
        for listener in self._listeners:
            listener.close()

    def _drain_waker(self, _: int) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    # --- connections ------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, _: int) -> None:
        member = self._listeners.get(listener)
        while member is not None:
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NONE_FREE:
                    # The selector would report the listener until a descriptor is free.
                    self._selector.unregister(listener)
                    self._deaf.append(listener)
                    self._deaf_until = time.monotonic() + _DEAF
                return  # else it is about one peer that has gone already
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self.processor.connect(member=member, address=address[0], now=self._now())
            peer = self._peers[connection] = Peer(sock, connection, self._new_tls())
            self._selector.register(sock, _READ, partial(self._serve, peer))

    def _new_tls(self) -> ServerTls | None:
        if self._tls is None:
            return None
        from zkwire.testing.server.tls import ServerTls

        return ServerTls(self._tls)

    def _serve(self, peer: Peer, mask: int) -> None:
        if peer.connection not in self._peers:
            return  # closed earlier in this round
        if mask & _WRITE:
            self._flush(peer)
        if mask & _READ and peer.requests is None:
            data = peer.receive()
            if peer.tls is not None:
                self._flush(peer)  # what TLS has to say of it
            if data is None or peer.connection not in self._peers:
                return
            if not data:
                self.processor.lost(peer.connection)
                self._close_peer(peer)
                return
            peer.requests = self.processor.frames(peer.connection, data)
        self._work(peer)

    def _work(self, peer: Peer) -> None:
        """Carry out the requests of a peer, as far as it takes the replies."""
        connection = peer.connection
        while peer.requests is not None and connection in self._peers:
            if self.faults.holds(connection):
                break
            if peer.backlog > _HIGH_WATER:
                self._flush(peer)
                if peer.backlog > _HIGH_WATER:
                    break
            body = next(peer.requests, None)
            if body is None:
                peer.requests = None
                break
            process = self.faults.process
            self._try(connection, partial(process, connection, body, self._now()))
        self._listen_to(peer)

    def _try(self, connection: Connection, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            # A mistake in a test's action, or one of ours: it must not look like a fault.
            self._failure = self._failure or error
            self.processor.end(connection)

    def _flush_ready(self) -> None:
        while ready := self.processor.take_ready():
            for connection in ready:
                peer = self._peers.get(connection)
                if peer is None:
                    continue
                self._flush(peer)
                if not peer.unsent:  # nobody else would tell of room for its next replies
                    self._work(peer)

    def _flush(self, peer: Peer) -> None:
        """Send what the kernel takes; close behind the last byte if the connection has ended."""
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
            peer.unsent = memoryview(b"")
        if peer.connection.ended and not peer.unsent:
            self._close_peer(peer)
        else:
            self._listen_to(peer)

    def _listen_to(self, peer: Peer) -> None:
        """Have the selector report what can be used now."""
        if peer.connection not in self._peers:
            return
        # While requests wait, nothing more is read: the kernel makes the peer wait.
        interest = _READ * (peer.requests is None) | _WRITE * bool(peer.unsent)
        if interest == peer.interest:
            return
        handler = partial(self._serve, peer)
        if not interest:
            self._selector.unregister(peer.sock)
        elif not peer.interest:
            self._selector.register(peer.sock, interest, handler)
        else:
            self._selector.modify(peer.sock, interest, handler)
        peer.interest = interest

    def _close_peer(self, peer: Peer) -> None:
        self._peers.pop(peer.connection, None)
        self.faults.forget(peer.connection)
        if peer.interest:
            self._selector.unregister(peer.sock)
            peer.interest = 0
        if peer.connection.reset:
            with suppress(OSError):
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            if peer.tls is not None and not peer.unsent:
                with suppress(OSError):
                    peer.sock.send(peer.tls.goodbye())
            # Unread input would turn the FIN into a reset, which can eat the last reply.
            with suppress(OSError):
                while peer.sock.recv(_CHUNK):
                    pass
        peer.sock.close()
        self._hear()

    def _hear(self) -> None:
        while self._deaf:
            listener = self._deaf.pop()
            self._selector.register(listener, _READ, partial(self._accept, listener))


def monotonic_epoch() -> float:
    """What is to be added to ``time.monotonic()`` to have seconds since 1970."""
    return time.time() - time.monotonic()
