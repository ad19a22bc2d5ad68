"""A thread that serves sockets: one selector, and between its rounds the commands of other threads.

The embedded server's loop and the proxy's relay are such threads.

Rules of such a thread:

* It alone touches the sockets and the selector.  :meth:`SocketThread.call` runs a function of
  another thread there, between two rounds, so that no event of a round is for a socket that the
  function has closed.
* Only ``select`` blocks, and :func:`accept` for a moment if no descriptor is free.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from time import sleep
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK = 64 * 1024  # bytes of one receive
HIGH_WATER = 1024 * 1024  # bytes that may wait for a receiver
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST
_BACKLOG = 512
_LONGEST_WAIT = 3600.0  # a selector takes no more than 24 days
_PAUSE = 0.01  # seconds without a free descriptor
_NONE_FREE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that accepts connections, and never blocks; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def accept(listener: socket.socket) -> tuple[socket.socket, Any] | None:
    """A connection, which never blocks, and its peer's address; None if no connection waits.

    It sleeps a moment if no descriptor is free, since the selector reports the listener until then.
    """
    try:
        sock, address = listener.accept()
    except OSError as error:
        if error.errno in _NONE_FREE:
            sleep(_PAUSE)
        return None
    sock.setblocking(False)
    return sock, address


class SocketThread:
    """See the module's docstring.  Subclasses start the ``_thread``, and say what a round does.

    The data of a key of the selector is the function that is called with its events.
    """

    def __init__(self, name: str, called: str) -> None:
        self._called = called  # in messages
        self._selector = selectors.DefaultSelector()
        self._commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._failure: Exception | None = None
        self._open = True  # the thread runs
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_woken)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- for other threads ------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the thread, between two rounds, and return its outcome."""
        future: Future[T] = Future()
        self._commands.append((function, future))
        if not self._open:
            raise RuntimeError(self._refusal())
        self._wake_up()
        return future.result()

    def post(self, function: Callable[[], object]) -> None:
        """Have the thread call ``function`` between two rounds; nobody waits for it."""
        self._commands.append((function, Future()))
        self._wake_up()

    def close(self) -> None:
        """Close all sockets and end the thread; a second call does nothing.

        Raises the error that has ended the thread before, if there was one.
        """
        with suppress(RuntimeError):  # the thread has ended already
            self.call(self._stop)
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _wake_up(self) -> None:
        with suppress(OSError):  # the thread is awake already, or has ended
            self._waker.send(b"\0")

    # --- the thread -------------------------------------------------------------------------------

    def _seconds_left(self) -> float:
        """The time until :meth:`_turn` must be called, if no socket has an event before."""
        raise NotImplementedError

    def _turn(self) -> None:
        """Do what there is to do after the events and commands of a round."""
        raise NotImplementedError

    def watch(
        self, end: socket.socket, events: int, handler: Callable[[int], object] | None = None
    ) -> None:
        """Call ``handler`` with exactly these events of a socket from now on."""
        key = self._selector.get_map().get(end)
        if key is None:
            if events:
                self._selector.register(end, events, handler)
        elif not events:
            self._selector.unregister(end)
        elif key.events != events or key.data is not handler:
            self._selector.modify(end, events, handler)

    def _stop(self) -> None:
        """Close all sockets."""
        self._open = False

    def _run(self) -> None:
        try:
            while self._open:
                timeout = min(max(self._seconds_left(), 0.0), _LONGEST_WAIT)
                for key, events in self._selector.select(timeout):
                    key.data(events)
                self._run_commands()
                if self._open:
                    self._turn()
        except Exception as error:  # a bug: no caller may wait for ever
            self._failure = self._failure or error
            with suppress(Exception):
                self._stop()
            while self._commands:
                self._commands.popleft()[1].set_exception(RuntimeError(self._refusal()))
        self._run_commands()  # later calls see that the thread has ended
        for end in (self._waker, self._woken):
            end.close()
        self._selector.close()

    def _run_commands(self) -> None:
        while self._commands:
            function, future = self._commands.popleft()
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def _refusal(self) -> str:
        """The message for a call that comes too late."""
        failure = self._failure
        return f"{self._called} {f'has failed: {failure!r}' if failure else 'is closed'}"

    def _on_woken(self, _: int) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
