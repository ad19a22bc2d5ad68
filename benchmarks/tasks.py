"""What candidates for asyncio share: a loop of their own that runs during segments only."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from benchmarks.candidate import Arguments, Candidate
from benchmarks.jobs import Outcome
from benchmarks.measure import NotOffered, from_marks, outcome
from benchmarks.wire import Address


class AsyncCandidate(Candidate):
    """A client whose operations are awaited."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.loop = asyncio.new_event_loop()
        self.wait(self.connect())

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let the loop run until this is done."""
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.wait(self.disconnect())
        self.loop.close()

    def one(self, verb: str) -> Callable[..., object]:
        raise NotOffered

    def many(self, verb: str, window: Arguments) -> None:
        raise NotOffered

    # --- what a client is -------------------------------------------------------------------------

    @abstractmethod
    async def connect(self) -> None:
        """Connect the one client."""

    @abstractmethod
    async def disconnect(self) -> None:
        """End its session."""

    @abstractmethod
    def call(self, verb: str) -> Callable[..., Awaitable[object]]:
        """A function that starts one operation; its result is awaited."""

    async def all_of(self, call: Callable[..., Awaitable[object]], window: Arguments) -> None:
        """All operations of a window in flight, and all their results."""
        started = [call(*each) for each in window]
        for each in started:
            await each

    # --- what is done with it ---------------------------------------------------------------------

    def time_calls(self, verb: str, arguments: Arguments) -> Outcome:
        async def work() -> Outcome:
            call, now = self.call(verb), time.perf_counter
            cpu = time.process_time()
            marks = [now()]
            mark = marks.append
            for each in arguments:
                await call(*each)
                mark(now())
            return from_marks(marks, time.process_time() - cpu)

        return self.wait(work())

    def time_windows(self, verb: str, windows: Sequence[Arguments]) -> Outcome:
        async def work() -> None:
            call = self.call(verb)
            for window in windows:
                await self.all_of(call, window)

        return self.timed(sum(map(len, windows)), work())

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        """So many tasks instead of threads."""

        async def one_task(share: Arguments) -> None:
            call = self.call(verb)
            for each in share:
                await call(*each)

        async def work() -> None:
            await asyncio.gather(*(one_task(arguments[n::threads]) for n in range(threads)))

        return self.timed(len(arguments), work())

    def timed(self, ops: int, work: Coroutine[Any, Any, Any]) -> Outcome:
        """Run a coroutine, which does so many operations."""

        async def measured() -> Outcome:
            cpu, started = time.process_time(), time.perf_counter()
            await work
            seconds, used = time.perf_counter() - started, time.process_time() - cpu
            return outcome(ops, seconds, used, ())

        return self.wait(measured())
