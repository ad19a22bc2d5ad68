"""One connection: its socket, who may read and write it, what the kernel has taken, why it ends.

Any thread may have a role or receive, and an interrupt (KeyboardInterrupt, or an exception thrown
into the thread from outside) may hit it wherever Python calls something or begins a function:

* A role is an attribute that holds whatever its owner has put there, under the pump's mutex; a
  ``finally`` looks whether that is its own and takes it out, without a call in between.
* A receive stores what has come in the step in which Python takes it from the kernel (one call, of
  C functions only), so an interrupt can be before or behind it, and loses nothing.
* A send stores what the kernel has taken in the same way.
* How far an interrupted thread has got in having the automaton take in what has come, or say what
  is to be sent, cannot be known, so it stores a reason in ``end``.  From then on no byte is
  believed or sent; only the I/O thread acts on it.
"""

from __future__ import annotations

import socket
from collections import deque

from zkwire.net.dial import kernel_says, readable_within, shut_down
from zkwire.session.outcomes import CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.net.bell import Bell

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
# Seconds: somebody else may have received what a thread waits for, and without a bell not say so.
WAIT = 0.05
FLAGS = (int(socket.MSG_DONTWAIT),)
INTERRUPTED = "a thread was interrupted while it used the connection"


class Connection:
    """``wait`` is for who has the read role, ``send`` for who has the write role.

    ``receive`` is for anybody under the mutex.  ``wait(seconds, 1)``: until bytes may have come, or
    the end of the stream; None: for ever.
    """

    __slots__ = (
        "_recv", "_send", "_taken", "bell", "broken_pipe", "end", "full", "got", "inbox",
        "look_at", "reader", "reads", "room", "sock", "unsent", "wait", "writer", "written",
    )  # fmt: skip

    exact = True  # an interrupt before the automaton has begun changes nothing

    def __init__(self, sock: socket.socket) -> None:
        self.sock: socket.socket = sock
        self._recv = sock.recv
        self._send = sock.send
        self._taken: deque[int] = deque()  # by the kernel, of what is being sent
        self.wait: Callable[[float | None, int], object] = self._wait
        self.bell: Bell | None = None  # while there is none everybody hears of everything
        self.inbox: deque[bytes] = deque()  # received and not taken in
        self.reader: object = None  # who has the read role
        self.writer: object = None  # who has the write role
        self.reads: int = 0
        self.got: int = 0  # bytes, by the last receive
        self.room: int = FEW_BYTES
        self.full: bool = False  # there may be more than the last receive took
        self.look_at: float = 0.0  # when the reader looks at the deadlines
        self.written: int = 0  # what the kernel may have taken
        self.unsent: memoryview[int] = memoryview(b"")  # what it did not take at once
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

    def hang(self, bell: Bell | None) -> None:
        """Have this bell from now on."""
        self.bell = bell
        if bell is not None:
            self.wait = bell.caller.poll

    def _wait(self, seconds: float | None, _: int) -> bool:
        return readable_within(self.sock, WAIT if seconds is None else min(seconds, WAIT))

    def ring(self) -> None:
        """Have who waits look whether somebody else has received its answer."""
        if self.bell is not None:
            self.bell.ring()

    def receive(self) -> bytes | None:
        """What has come, None for nothing; it stays the first in ``inbox`` until it is taken in.

        An end of the stream is noted down.
        """
        inbox = self.inbox
        try:
            inbox.extend(map(self._recv, (self.room,), FLAGS))
        except BlockingIOError:
            self.full = False
            if not inbox:
                return None
        except OSError as error:
            why = kernel_says(error)
            self.end = self.broken_pipe or why
            return None
        data = inbox[0]
        self.got = got = len(data)
        if not got:
            self.end = self.broken_pipe or CLOSED
        self.full = got >= self.room
        self.room = MANY_BYTES if self.full else FEW_BYTES
        return data

    def close(self) -> None:
        """Close the descriptors."""
        self.sock.close()
        if self.bell is not None:
            self.bell.close()

    def send(self, data: bytes | memoryview) -> None:
        """Send what the kernel takes, of bytes that ``written`` counts already, and keep the rest.

        Until the kernel has said what it took, all of it may have been sent.  Who is interrupted
        has not got the write role any more when it is known all the same.
        """
        taken, size, sent, interrupt = self._taken, len(data), 0, None
        try:
            taken.extend(map(self._send, (data,), FLAGS))
        except BlockingIOError:
            pass
        except BaseException as error:
            if isinstance(error, OSError) and error.errno is not None:
                # It took nothing.  Answers may have come before, so the readers get to the end
                # first.
                self.broken_pipe = kernel_says(error)
                self.written -= size
                shut_down(self.sock)
                return
            interrupt = error
        if taken:
            sent = taken[0]
            del taken[0]
        if sent < size:
            self.written -= size - sent
            self.unsent = memoryview(data)[sent:]
        if interrupt is not None:
            self.writer = None
            raise interrupt
