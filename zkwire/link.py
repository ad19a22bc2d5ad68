"""One connection: its socket, who may read and write it, what the kernel has taken, why it ends.

Any thread may have a role, and an interrupt (KeyboardInterrupt, or an exception thrown into the
thread from outside) may hit it wherever Python calls something or begins a function.  Hence:

* A role is an attribute that holds whatever its owner has put there, under the pump's mutex; a
  ``finally`` looks whether that is its own and takes it out, without a call in between.
* What an interrupted thread has done to the connection cannot be known, so it stores a reason in
  ``end``.  From then on no byte is believed or sent; only the I/O thread acts on it.
"""

from __future__ import annotations

import socket

from zkwire.dial import kernel_says, shut_down
from zkwire.endings import CLOSED

# Asked for at a time.  Python allocates as much before it knows how much there is, so MANY only
# when there was more than FEW.
FEW_BYTES = 16 * 1024
MANY_BYTES = 64 * 1024

# A server that answers a long pipeline one by one would have every few answers cost a receive and a
# switch, and under asyncio a turn of the loop.  Where so many are expected, and so few bytes came
# last, it pays to let more of them arrive first: with 1,000 in flight a sixth less CPU time than
# with pauses of a millisecond, under asyncio a quarter.  Few servers answer in less than PAUSE
# (seconds for each answer that is expected), so that the last one is read no later.
LONG_LINE = 32
SPARSE = 4096
PAUSE, LONGEST_PAUSE = 1e-5, 1e-2
_DONTWAIT = int(socket.MSG_DONTWAIT)
INTERRUPTED = "a thread was interrupted while it used the connection"


class Link:
    """``receive`` is for who has the read role, ``send`` for who has the write role."""

    __slots__ = (
        "broken_pipe", "end", "got", "look_at", "reader", "reads", "room", "sock", "unsent",
        "writer", "written",
    )  # fmt: skip

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reader: object = None  # who has the read role
        self.writer: object = None  # who has the write role
        self.reads = 0
        self.got = 0  # bytes, by the last receive
        self.room = FEW_BYTES
        self.look_at = 0.0  # when the reader looks at the deadlines
        self.written = 0  # what the kernel may have taken
        self.unsent = memoryview(b"")  # what it did not take at once
        self.broken_pipe: str | None = None
        self.end: str | None = None

    @property
    def pending(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self.unsent)

    @property
    def writable(self) -> bool:
        """Whether the next bytes may be sent now."""
        return not (self.unsent or self.broken_pipe or self.end)

    def receive(self, *, block: bool) -> bytes | None:
        """The bytes that have come; None for none yet.  An end of the stream is noted down."""
        try:
            data = self.sock.recv(self.room, 0 if block else _DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            why = kernel_says(error)
            self.end = self.broken_pipe or why
            return None
        if not data:
            self.end = self.broken_pipe or CLOSED
        self.got = got = len(data)
        self.room = FEW_BYTES if got < self.room else MANY_BYTES
        return data

    def send(self, data: bytes | memoryview) -> None:
        """Send what the kernel takes, of bytes that ``written`` counts already, and keep the rest.

        Until the kernel has said what it took, all of it may have been sent.
        """
        try:
            sent = self.sock.send(data, _DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            # It took nothing.  Answers may have come before, so the readers get to the end first.
            self.broken_pipe = kernel_says(error)
            self.written -= len(data)
            shut_down(self.sock)
            return
        if sent < len(data):
            self.written -= len(data) - sent
            self.unsent = memoryview(data)[sent:]
