"""Which thread the kernel wakes when bytes have come: a caller that waits, or else the I/O thread.

Both wait for the same socket, each by an epoll of its own, exclusively (Linux 4.5): the kernel
wakes the first of them in which a thread waits.  So the I/O thread is woken at once by bytes that
come when no caller waits (none reads, or the one that does is held up), and by no others: to check
from time to time whether callers still read costs a switch of threads for each check.

It must not read: which thread has the read role is decided in :mod:`zkwire.blocking.leader`.
Invariant: the caller's epoll is registered first, so the I/O thread is not woken beside a caller.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class Bell:
    """``caller`` is for the one thread that waits for an answer, ``io`` for the I/O thread."""

    __slots__ = ("_ring", "caller", "io")

    def __init__(self, sock: socket.socket) -> None:
        events = select.EPOLLIN | select.EPOLLEXCLUSIVE
        self.caller: select.epoll = select.epoll()
        self.io: select.epoll = select.epoll()
        self.caller.register(sock, events)  # first, see above
        self.io.register(sock, events)
        self._ring = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.caller.register(self._ring, select.EPOLLIN | select.EPOLLET)  # each ring counts once

    def ring(self) -> None:
        """Wake the caller: another thread may have received what it waits for."""
        os.eventfd_write(self._ring, 1)

    def close(self) -> None:
        """Close the descriptors, not the socket."""
        self.caller.close()
        self.io.close()
        if self._ring >= 0:
            os.close(self._ring)
            self._ring = -1


def bell_for(sock: socket.socket) -> Bell | None:
    """A bell for this socket; None where the kernel has no exclusive wake-up, or no descriptor."""
    if not (hasattr(select, "epoll") and hasattr(select, "EPOLLEXCLUSIVE")):
        return None  # gevent takes away the first: its threads must not wait in the kernel
    try:
        return Bell(sock)
    except OSError:
        return None  # no descriptors are left: a check from time to time will do
