"""zkwire's asyncio client as a user would write it: all started, then awaited one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks.jobs import Job, Outcome
from benchmarks.measure import from_marks
from benchmarks.tasks import AsyncCandidate
from benchmarks.wire import SESSION_MS
from benchmarks.zkwire_blocking import NAMES
from zkwire import AsyncClient, AsyncSequentialLock


class ZkwireAsyncio(AsyncCandidate):
    """See the module's docstring."""

    async def connect(self) -> None:
        self._client = await self._connected()

    async def _connected(self) -> AsyncClient:
        host, port = self.address
        client = AsyncClient(f"{host}:{port}", session_timeout=SESSION_MS / 1000)
        await client.connect(10.0)
        return client

    async def disconnect(self) -> None:
        await self._client.close()

    def call(self, verb: str) -> Callable[..., Awaitable[object]]:
        call: Callable[..., Awaitable[object]] = getattr(self._client, NAMES[verb])
        return call

    def opened(self) -> Callable[[], None]:
        client: AsyncClient = self.wait(self._connected())
        return lambda: self.wait(client.close())

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        return {"lock": self._free_lock, "contended": self._contended}

    def _free_lock(self, job: Job) -> Outcome:
        async def work() -> Outcome:
            lock = AsyncSequentialLock(self._client, "/bench/locks/asyncio-free")
            cpu = time.process_time()
            marks = [time.perf_counter()]
            for _ in range(job.count):
                await lock.acquire()
                await lock.release()
                marks.append(time.perf_counter())
            return from_marks(marks, time.process_time() - cpu)

        return self.wait(work())

    def _contended(self, job: Job) -> Outcome:
        async def contend(client: AsyncClient) -> None:
            lock = AsyncSequentialLock(client, "/bench/locks/asyncio-contended")
            for _ in range(job.count // 2):
                await lock.acquire()
                await lock.release()

        other: AsyncClient = self.wait(self._connected())

        async def work() -> None:
            await asyncio.gather(contend(self._client), contend(other))

        try:
            return self.timed(job.count // 2 * 2, work())
        finally:
            self.wait(other.close())
