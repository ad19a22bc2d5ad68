"""aiozk, the other client for asyncio; its operations are coroutines, so a window is gathered."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from benchmarks.candidate import Arguments
from benchmarks.tasks import AsyncCandidate
from benchmarks.wire import SESSION_MS

CLOSE_SECONDS = 2.0
NAMES = {"get": "get", "children": "get_children", "create": "create", "exists": "exists"}


class AiozkTasks(AsyncCandidate):
    """See the module's docstring."""

    async def connect(self) -> None:
        self._client = await self._connected()

    async def _connected(self) -> Any:
        logging.getLogger("aiozk").setLevel(logging.ERROR)
        host, port = self.address
        aiozk = importlib.import_module("aiozk")
        client = aiozk.ZKClient(f"{host}:{port}", session_timeout=SESSION_MS / 1000)
        await asyncio.wait_for(client.start(), 10)
        return client

    async def disconnect(self) -> None:
        with suppress(TimeoutError):  # it may wait for as long as the session lasts
            await asyncio.wait_for(self._client.close(), CLOSE_SECONDS)

    def call(self, verb: str) -> Callable[..., Awaitable[object]]:
        if verb == "set":  # else it would insist on a version that it has seen
            return partial(self._client.set_data, force=True)
        if verb == "delete":
            return partial(self._client.delete, force=True)
        call: Callable[..., Awaitable[object]] = getattr(self._client, NAMES[verb])
        return call

    async def all_of(self, call: Callable[..., Awaitable[object]], window: Arguments) -> None:
        await asyncio.gather(*[call(*each) for each in window])

    def opened(self) -> Callable[[], None]:
        client = self.wait(self._connected())
        return lambda: self.wait(client.close())
