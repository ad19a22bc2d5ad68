"""Which thread the kernel wakes when bytes have come.

It is a thread that waits for an answer; if there is none, a thread that waits for an event; else
the I/O thread.  All wait for the same socket, each kind with an epoll of its own, exclusively
(Linux 4.5): the kernel wakes the first epoll in which a thread waits.  So bytes wake the I/O thread
at once if no other thread waits (or if the waiting thread is held up), and only then.  Without
epolls the I/O thread has to check from time to time whether callers still read, and each check
costs a switch of threads.

Each of these epolls also knows an :class:`EventFd`, which is always readable, but does not listen
to it.  To wake a thread is to have its epoll listen to the eventfd once: no byte is written, and
none is read.  One eventfd serves all epolls of a client, so that a client has five descriptors.

A thread without a role may wake another thread while the connection is being closed.  By then the
number of an epoll can belong to another file.  The kernel refuses that, or a thread of another
client wakes and finds nothing to do.

A thread that waits for no bytes sleeps on a lock of its own (`Sleeper`).

It must not read: which thread has the read role is decided in :mod:`zkwire.blocking.leader`.
Invariant: the epolls are registered with the socket in the order caller, listener, I/O thread, so
that exactly one thread is woken.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from contextlib import suppress

from zkwire.net.dial import kernel_says

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from zkwire.session.waitable import Waitable

    Poller: TypeAlias = "EpollPoller | PairPoller"
    Ready = list[tuple[socket.socket | None, int]]


# A signal can come after the interpreter has last checked for signals, and before the system call.
# It is then not noticed until that call returns (CPython's lock.acquire).  So no sleep is too long:
# otherwise a Ctrl-C would have to wait until something else wakes the thread.
LONGEST_SLEEP = 1.0


class EventFd:
    """An eventfd that is always readable, until it is closed.  Then it wakes nothing.

    An epoll that is to be woken registers its ``number``, for no event.
    """

    __slots__ = ("_open", "number")

    def __init__(self) -> None:
        self._open: list[int] = []
        # One call, of C functions only: an interrupt after it loses no descriptor.
        self._open.extend(map(os.eventfd, (1,), (os.EFD_NONBLOCK | os.EFD_CLOEXEC,)))
        self.number: int = self._open[0]

    def wake(self, epoll: select.epoll) -> None:
        """End the wait of ``epoll``, or the next one: by any thread, at any time."""
        if epoll.closed or not self._open:
            return
        try:
            epoll.modify(self.number, select.EPOLLIN | select.EPOLLONESHOT)
        except ValueError:
            if not epoll.closed:
                raise  # a signal handler has
        except OSError as error:
            kernel_says(error)  # one of them has just been closed, so nothing waits there

    def close(self, close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor.  Idempotent."""
        while self._open:
            close(self._open.pop())

    __del__ = close


class WakeupEpolls:
    """``caller`` is for the one thread that waits for an answer, ``listener`` for a thread that
    waits for events; ``eventfd`` wakes either.
    """

    __slots__ = ("caller", "eventfd", "listener")

    def __init__(self, sock: socket.socket, eventfd: EventFd) -> None:
        self.eventfd: EventFd = eventfd
        self.caller: select.epoll = select.epoll()
        self.listener: select.epoll = select.epoll()
        for epoll in (self.caller, self.listener):  # in this order, see above
            epoll.register(sock, select.EPOLLIN | select.EPOLLEXCLUSIVE)
            epoll.register(eventfd.number, 0)

    def close(self) -> None:
        """Close the descriptors, not the socket."""
        for epoll in (self.caller, self.listener):
            epoll.close()


class Sleeper:
    """Lets one thread sleep until any other has called it, now or before."""

    __slots__ = ("_lock", "thread", "waitable")

    def __init__(self, waitable: Waitable) -> None:
        self.waitable: Waitable = waitable
        self.thread: int | None = None  # until it runs again, if others may leave work to it
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        """End the sleep.  Idempotent."""
        try:
            self._lock.release()
        except RuntimeError:
            return  # already awake

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken, at most ``seconds``, and never longer than LONGEST_SLEEP.

        Whether it was woken.
        """
        seconds = LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)
        return seconds > 0 and self._lock.acquire(timeout=seconds)


class Listener(Sleeper):
    """The same, until bytes have come that no reader waits for."""

    __slots__ = ("_asleep", "_epolls")

    def __init__(self, waitable: Waitable, epolls: WakeupEpolls) -> None:
        self.waitable: Waitable = waitable
        self.thread: int | None = None
        self._epolls = epolls
        self._asleep = False

    def __call__(self) -> None:
        """End the sleep.  Idempotent."""
        if self._asleep:  # it calls itself as well, with what it has read
            self._epolls.eventfd.wake(self._epolls.listener)

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken, at most ``seconds``, and never longer than LONGEST_SLEEP.

        Whether bytes have come: the kernel has told no other thread of them.
        """
        seconds = LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)
        self._asleep, woken = True, self._epolls.eventfd.number
        ready = [] if self.waitable.ready else self._epolls.listener.poll(max(0.0, seconds), 2)
        self._asleep = False
        return any(number != woken for number, _ in ready)


class EpollPoller:
    """A selector that is woken by an eventfd.  What is registered is exclusive."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._eventfd = EventFd()
        self._epoll.register(self._eventfd.number, 0)
        self._registered: dict[int, tuple[socket.socket | None, int]] = {}

    def register(self, sock: socket.socket, events: int, /) -> None:
        """Have :meth:`select` return these events of the socket."""
        number = sock.fileno()
        flags = select.EPOLLEXCLUSIVE
        flags |= select.EPOLLIN if events & selectors.EVENT_READ else 0
        flags |= select.EPOLLOUT if events & selectors.EVENT_WRITE else 0
        self._epoll.register(number, flags)
        self._registered[number] = sock, events

    def unregister(self, sock: socket.socket, /) -> None:
        """Forget the socket."""
        number = sock.fileno()
        self._epoll.unregister(number)
        del self._registered[number]

    def select(self, seconds: float | None, /) -> Ready:
        """Wait, at most so many seconds (None: forever)."""
        registered, ready = self._registered, list[tuple[socket.socket | None, int]]()
        for number, events in self._epoll.poll(seconds, len(registered) + 1):
            sock, wanted = registered.get(number, (None, 0))  # None: it was woken
            mask = selectors.EVENT_READ if events & ~select.EPOLLOUT else 0
            mask |= selectors.EVENT_WRITE if events & ~select.EPOLLIN else 0
            ready.append((sock, mask & wanted))
        return ready

    def wake(self) -> None:
        """End a wait, or the next one."""
        self._eventfd.wake(self._epoll)

    def epolls_for(self, sock: socket.socket, /) -> WakeupEpolls | None:
        """The epolls for a socket that is not registered yet; None if no descriptors are left."""
        try:
            return WakeupEpolls(sock, self._eventfd)
        except OSError:
            return None  # a check from time to time will do

    def close(self) -> None:
        """Close the descriptors."""
        self._epoll.close()
        self._eventfd.close()  # what waits for its epolls now is woken by the end of its connection
        self._registered.clear()


class PairPoller:
    """The same where there is no epoll: any selector, woken by a byte in a pair of sockets."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.register: Any = self._selector.register
        self.unregister: Any = self._selector.unregister
        self._listening, self._waking = socket.socketpair()
        self._listening.setblocking(False)
        self._waking.setblocking(False)
        self.register(self._listening, selectors.EVENT_READ)

    def select(self, seconds: float | None, /) -> Ready:
        """Wait, at most so many seconds (None: forever)."""
        ready: Any = self._selector.select(seconds)
        with suppress(BlockingIOError):
            self._listening.recv(4096)
        return [(key.fileobj, events) for key, events in ready]

    def wake(self) -> None:
        """End a wait, or the next one."""
        try:
            self._waking.send(b"\0")
        except OSError as error:
            kernel_says(error)  # it is full, so nothing waits; or closed

    def epolls_for(self, sock: socket.socket, /) -> None:
        """None: all threads are woken."""

    def close(self) -> None:
        """Close the descriptors."""
        self._selector.close()
        self._listening.close()
        self._waking.close()


def poller() -> Poller:
    """What the I/O thread waits for, as good as this system has it."""
    # gevent takes away epoll: its threads must not wait in the kernel.
    if all(hasattr(select, name) for name in ("epoll", "EPOLLEXCLUSIVE")):
        return EpollPoller()
    return PairPoller()
