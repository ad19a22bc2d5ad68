"""One connection: its socket, its two roles, what the kernel has taken of it, why it ends.

The *read role* is for a thread that waits for bytes, the *write role* for one that sends.  Any
thread may have a role or receive, and an interrupt (KeyboardInterrupt, or an exception thrown into
the thread from outside) may hit it wherever Python calls something or begins a function:

* A role is an attribute that holds whatever its owner has put there, under the driver's mutex; a
  ``finally`` compares that with its own and removes it, without a call in between.
* A receive stores what has come in the step in which Python takes it from the kernel (one call, of
  C functions only).  So an interrupt can come only before or after that step, and loses nothing.
* A send stores what the kernel has taken in the same way.
* A thread may be interrupted while the session takes in what has come, or says what is to be sent.
  How far it got cannot be known, so the thread stores a reason in ``closed_because``.  From then on
  no byte is believed or sent; only the I/O thread acts on the reason.
"""

from __future__ import annotations

import socket
from collections import deque

from zkwire.net.dial import kernel_says, readable_within, shut_down
from zkwire.session.outcomes import CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.net.wakeup import WakeupEpolls

# Asked for at a time.  Python allocates as much before it knows how much there is, so MANY only
# when there was more than FEW.
FEW_BYTES = 16 * 1024
MANY_BYTES = 64 * 1024

# If a server answers a long pipeline one by one, every few answers cost a receive and a switch of
# threads; under asyncio, a turn of the loop.  Where many answers are expected, and the last receive
# left nothing, it pays to let more of them arrive first.  With 1,000 requests in flight that takes
# a sixth less CPU time than pauses of a millisecond; under asyncio, a quarter less.  Few servers
# answer in less than PAUSE (seconds for each expected answer), so the last answer is not read later
# than without a pause.  An event loop cannot pause for less than a millisecond, so it pauses only
# for a LONGER_LINE, and only if few bytes came last.  Where other threads sleep until the answers
# come, a pause delays their next requests, so it pays in longer lines only.
LONG_LINE, LONG_LINE_OF_THREADS, LONGER_LINE = 6, 12, 32
SPARSE = 4096
PAUSE, LONGEST_PAUSE = 1e-5, 1e-2
# Events that come one by one cost a wake-up each.  So after STREAM receives in a row, each within
# GATHER seconds of the one before, a thread first waits for that long while more events arrive.
STREAM, GATHER = 8, 0.0008
EVENT = 33  # bytes that one takes at least
# Seconds: another thread may have received what this thread waits for, and without epolls it cannot
# say so.
WAIT = 0.05
FLAGS = (int(getattr(socket, "MSG_DONTWAIT", 0)),)  # no socket blocks; a system may lack it
INTERRUPTED = "a thread was interrupted while it used the connection"


class Connection:
    """``wait`` needs the read role, ``send`` the write role, ``opened`` the mutex; one thread at a
    time may ``fetch``.

    ``wait(seconds, 1)``: until bytes may have come, or the end of the stream; None: forever.
    """

    __slots__ = (
        "_recv", "_send", "_taken", "backlog", "broken_pipe", "closed_because", "deadlines_at",
        "epolls", "full", "gathering", "got", "inbox", "least", "listener", "read_at", "reader",
        "room", "sock", "stream", "taken", "wait", "writable", "writer", "written",
    )  # fmt: skip

    exact = True  # an interrupt before the session has begun changes nothing

    def __init__(self, sock: socket.socket, epolls: WakeupEpolls | None = None) -> None:
        self.sock: socket.socket = sock
        self._recv = sock.recv
        self._send = sock.send
        self._taken: deque[int] = deque()  # by the kernel, of what is being sent
        self.epolls: WakeupEpolls | None = epolls  # without one all threads are woken
        self.wait: Callable[[float | None, int], object] = (
            epolls.caller.poll if epolls else self._wait
        )
        self.inbox: deque[bytes] = deque()  # received and not taken in
        self.reader: object = None  # what a thread with the read role has put there
        self.writer: object = None  # the same for the write role
        self.listener: object = None  # a thread that waits for an event, and reads if none does
        self.read_at: float = 0.0  # when something was taken in last
        self.taken: tuple[float, float] = 0.0, 0.0  # that and the time, when events were it last
        self.stream: int = 0  # how often in a row that was right after the time before
        self.least: int = 0  # bytes, by a receive of these
        self.gathering: bool = False  # a thread lets events gather, and will read
        self.got: int = 0  # bytes, by the last receive
        self.room: int = FEW_BYTES
        self.full: bool = False  # there may be more than the last receive took
        self.deadlines_at: float = 0.0  # when the reader checks the deadlines
        self.written: int = 0  # what the kernel may have taken
        self.backlog: memoryview[int] = memoryview(b"")  # what it did not take at once
        self.writable: bool = True  # it has taken all, and the pipe is not known to be broken
        self.broken_pipe: str | None = None
        self.closed_because: str | None = None

    @property
    def pending(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self.backlog)

    def _wait(self, seconds: float | None, _: int) -> bool:
        return readable_within(self.sock, WAIT if seconds is None else min(seconds, WAIT))

    def wake_reader(self) -> None:
        """Wake the thread that waits: another one may have received its answer."""
        if self.epolls is not None:
            self.epolls.eventfd.wake(self.epolls.caller)

    def streams(self, now: float) -> bool:
        """Whether events come one by one, so that it pays to let more of them arrive first.

        Called by a thread that is about to receive, and expects nothing but events.
        """
        read_at, at = self.taken
        behind = read_at == self.read_at and now - at < GATHER and self.got < SPARSE
        if self.stream >= STREAM and self.got < self.least + EVENT:
            behind = False  # none has come meanwhile, as where each event answers the one before
        self.least = min(self.least, self.got) if self.stream else self.got
        self.stream = self.stream + 1 if behind else 0
        return self.stream >= STREAM

    def fetch(self) -> None:
        """Take what has come into ``inbox``.  An end of the stream is noted down."""
        try:
            self.inbox.extend(map(self._recv, (self.room,), FLAGS))
        except BlockingIOError:
            self.full = False
            return
        except OSError as error:
            why = kernel_says(error)
            self.closed_because = self.broken_pipe or why
            return
        # A signal handler may have taken it in by now.
        self.got = got = len(self.inbox[-1]) if self.inbox else self.got
        if not got:
            self.closed_because = self.broken_pipe or CLOSED
        self.full = full = got >= self.room
        self.room = MANY_BYTES if full else FEW_BYTES

    def opened(self) -> bytes | None:
        """The next bytes of ``inbox``, as the session takes them in; None if there are none yet."""
        return self.inbox[0]

    def close(self) -> None:
        """Close the descriptors."""
        self.sock.close()
        if self.epolls is not None:
            self.epolls.close()

    def send(self, data: bytes | memoryview) -> None:
        """Send what the kernel takes, of bytes that ``written`` counts already, and keep the rest.

        Until the kernel has said how much it took, all of the data may have been sent.  If this is
        interrupted after the kernel has said so, the write role is free again.
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
                self.broken_pipe, self.writable = kernel_says(error), False
                self.written -= size
                shut_down(self.sock)
                return
            interrupt = error
        if taken:
            sent = taken[0]
            del taken[0]
        if sent < size:
            self.written -= size - sent
            self.backlog, self.writable = memoryview(data)[sent:], False
        if interrupt is not None:
            self.writer = None
            raise interrupt
