"""Which thread the kernel wakes when bytes have come: one that waits for an answer, else one that
waits for an event, else the I/O thread.

They wait for the same socket, each by an epoll of its own, exclusively (Linux 4.5): the kernel
wakes the first of them in which a thread waits.  So the I/O thread is woken at once by bytes that
come when no other thread waits (or the one that does is held up), and by no others: to check from
time to time whether callers still read costs a switch of threads for each check.

A listener is woken by threads without a role, which may be held up in that while the connection is
closed; its number could mean another file by then.  So a ring is closed when no thread uses it.

It must not read: which thread has the read role is decided in :mod:`zkwire.blocking.leader`.
Invariant: the epolls are registered in this order, so one thread is woken and no other beside it.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


class Ring:
    """An eventfd, closed with the last reference."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.number)


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
        self._rings: list[Ring] = []
        for epoll in (self.caller, self.listener):
            self._rings.append(Ring(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)))
            epoll.register(self._rings[-1].number, select.EPOLLIN | select.EPOLLET)  # counts once

    def ring(self) -> None:
        """Wake the caller: another thread may have received what it waits for."""
        os.eventfd_write(self._rings[0].number, 1)

    def listen(self, seconds: float) -> bool:
        """Wait as the listener, until bytes have come or it is woken; whether bytes have come."""
        ring = self._rings[1].number
        return any(number != ring for number, _ in self.listener.poll(seconds, 2))

    def ring_listener(self) -> None:
        """Wake the listener, if there may be one: by any thread, at any time."""
        for ring in self._rings[1:]:
            os.eventfd_write(ring.number, 1)

    def close(self) -> None:
        """Close the descriptors, not the socket."""
        for epoll in (self.caller, self.listener, self.io):
            epoll.close()
        self._rings.clear()


def bell_for(sock: socket.socket) -> Bell | None:
    """A bell for this socket; None where the kernel has no exclusive wake-up, or no descriptor."""
    if not (hasattr(select, "epoll") and hasattr(select, "EPOLLEXCLUSIVE")):
        return None  # gevent takes away the first: its threads must not wait in the kernel
    try:
        return Bell(sock)
    except OSError:
        return None  # no descriptors are left: a check from time to time will do
