"""The least that threads pay which share one socket, each with one request at a time.

Ready frames, replies of a known length that are counted, and nothing else.  Either the threads
read for themselves (leader and followers): one that waits for its reply takes the role of reader,
wakes those whose replies pass by, and hands the role on.  Or one more thread reads for all.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from benchmarks.candidate import Arguments
from benchmarks.floor import Floor
from benchmarks.jobs import Job, Outcome
from benchmarks.measure import NotOffered
from benchmarks.threads import timed_beside, timed_threads
from benchmarks.wire import CHUNK, Address


class Waiter:
    """A request without its reply, and the lock on which its thread sleeps."""

    __slots__ = ("done", "sleep")

    def __init__(self) -> None:
        self.done = False
        self.sleep = threading.Lock()
        self.sleep.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is being woken already
            self.sleep.release()


class Shared(Floor):
    """What both ways have in common."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._sending = threading.Lock()
        self._pending = deque[Waiter]()
        self._rest = 0  # bytes of a reply whose end has not come

    def run(self, job: Job) -> Outcome:
        """Measure one segment of threads."""
        if job.kind not in ("threads-get", "busy-get"):
            raise NotOffered
        return super().run(job)

    def call(self, frame: bytes) -> None:
        """One request and its reply."""
        raise NotImplementedError

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return timed_threads(self.call, arguments, threads)

    def beside_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return timed_beside(self.call, arguments, threads)

    def sent(self, frame: bytes) -> Waiter:
        """Send; the order of the waiters is that of the replies."""
        waiter = Waiter()
        with self._sending:
            self._pending.append(waiter)
            self.connection.socket.sendall(frame)
        return waiter

    def receive(self, me: Waiter | None = None) -> bool:
        """Receive once, and wake whose reply has come; whether the connection goes on."""
        received = self.connection.socket.recv(CHUNK)
        replies, self._rest = divmod(self._rest + len(received), self._reply)
        for _ in range(replies):
            waiter = self._pending.popleft()
            waiter.done = True
            if waiter is not me:
                waiter.wake()
        return bool(received)


class LeaderFloor(Shared):
    """The threads read for themselves."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._reading = threading.Lock()

    def call(self, frame: bytes) -> None:
        me = self.sent(frame)
        while not me.done:
            if self._reading.acquire(blocking=False):
                try:
                    while not me.done:
                        if not self.receive(me):
                            raise ConnectionError("the server has closed the connection")
                finally:
                    self._reading.release()
                    with suppress(IndexError):
                        self._pending[0].wake()
            else:
                me.sleep.acquire()


class ReaderFloor(Shared):
    """One more thread reads for all."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._thread: threading.Thread | None = None

    def call(self, frame: bytes) -> None:
        self.sent(frame).sleep.acquire()

    def _with_reader(self, measure: Callable[[], Outcome]) -> Outcome:
        """Begun when replies have a length: the connection asks by itself before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read)
            self._thread.start()
        return measure()

    def _read(self) -> None:
        going_on = True
        while going_on:
            with suppress(BlockingIOError):  # the socket's own limit, between two segments
                going_on = self.receive()

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return self._with_reader(lambda: timed_threads(self.call, arguments, threads))

    def beside_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return self._with_reader(lambda: timed_beside(self.call, arguments, threads))

    def _reply_size(self, verb: str, path: str, data: bytes) -> int:
        """Learned once, while nobody reads."""
        return self._reply or super()._reply_size(verb, path, data)

    def close(self) -> None:
        with suppress(OSError):
            self.connection.socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()
        super().close()
