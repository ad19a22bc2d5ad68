"""Which thread the kernel wakes when bytes have come: one that waits for an answer, else one that
waits for an event, else the I/O thread.

They wait for the same socket, each by an epoll of its own, exclusively (Linux 4.5): the kernel
wakes the first of them in which a thread waits.  So the I/O thread is woken at once by bytes that
come when no other thread waits (or the one that does is held up), and by no others: to check from
time to time whether callers still read costs a switch of threads for each check.

It must not read: which thread has the read role is decided in :mod:`zkwire.blocking.leader`.
Invariant: the epolls are registered in this order, so one thread is woken and no other beside it.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class Bell:
    """``caller`` is for the one thread that waits for an answer, ``listener`` for one of those that
    wait for events, ``io`` for the I/O thread.
    """

    __slots__ = ("_rings", "caller", "io", "listener")

    def __init__(self, sock: socket.socket) -> None:
        events = select.EPOLLIN | select.EPOLLEXCLUSIVE
        self.caller: select.epoll = select.epoll()
        self.listener: select.epoll = select.epoll()
        self.io: select.epoll = select.epoll()
        for epoll in (self.caller, self.listener, self.io):  # in this order, see above
            epoll.register(sock, events)
        self._rings: list[int] = []
        for epoll in (self.caller, self.listener):
            self._rings.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
            epoll.register(self._rings[-1], select.EPOLLIN | select.EPOLLET)  # each counts once

    def ring(self) -> None:
        """Wake the caller: another thread may have received what it waits for."""
        os.eventfd_write(self._rings[0], 1)

    def listen(self, seconds: float) -> bool:
        """Wait as the listener, until bytes have come or it is woken; whether bytes have come."""
        return any(number != self._rings[1] for number, _ in self.listener.poll(seconds, 2))

    def ring_listener(self) -> None:
        """Wake the listener."""
        os.eventfd_write(self._rings[1], 1)

    def close(self) -> None:
        """Close the descriptors, not the socket."""
        for epoll in (self.caller, self.listener, self.io):
            epoll.close()
        while self._rings:
            os.close(self._rings.pop())


def bell_for(sock: socket.socket) -> Bell | None:
    """A bell for this socket; None where the kernel has no exclusive wake-up, or no descriptor."""
    if not (hasattr(select, "epoll") and hasattr(select, "EPOLLEXCLUSIVE")):
        return None  # gevent takes away the first: its threads must not wait in the kernel
    try:
        return Bell(sock)
    except OSError:
        return None  # no descriptors are left: a check from time to time will do
