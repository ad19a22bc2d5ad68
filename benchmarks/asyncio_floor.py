"""The floor under asyncio: a bare protocol, frames that are ready, one future for each request.

Decodes nothing but lengths; the futures are resolved in the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct

from benchmarks.candidate import Arguments
from benchmarks.tasks import AsyncCandidate
from benchmarks.wire import SESSION_GREETING, request

LENGTH = Struct(">i")


class Frames(asyncio.Protocol):
    """Resolves the oldest future for each whole frame that comes."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._tail:
            data = self._tail + data
        start, end = 0, len(data)
        while end - start >= 4:
            following = start + 4 + LENGTH.unpack_from(data, start)[0]
            if following > end:
                break
            self.waiting.popleft().set_result(None)
            start = following
        self._tail = data[start:]

    def connection_lost(self, error: Exception | None) -> None:
        for future in self.waiting:
            future.set_exception(error or ConnectionError("the server has closed the connection"))


class AsyncioFloor(AsyncCandidate):
    """See the module's docstring."""

    async def connect(self) -> None:
        _, self._frames = await self.loop.create_connection(Frames, *self.address)
        await self.call("greeting")(SESSION_GREETING)

    async def disconnect(self) -> None:
        self._frames.transport.close()

    def arguments(self, verb: str, paths: Sequence[str], data: bytes) -> Arguments:
        return [(request(verb, path, data),) for path in paths]

    def call(self, verb: str) -> Callable[..., Awaitable[object]]:
        create, wait = self.loop.create_future, self._frames.waiting.append
        write = self._frames.transport.write

        def call(frame: bytes) -> asyncio.Future[None]:
            future: asyncio.Future[None] = create()
            wait(future)
            write(frame)
            return future

        return call

    async def all_of(self, call: Callable[..., Awaitable[object]], window: Arguments) -> None:
        """One write for all, which no client that is asked for one at a time can do."""
        waiting = self._frames.waiting
        futures = [self.loop.create_future() for _ in window]
        waiting.extend(futures)
        self._frames.transport.write(b"".join([frame for (frame,) in window]))
        for future in futures:
            await future
