"""A relay before a server that cuts connections in the middle of whatever they carry."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from typing import Self


class CuttingRelay:
    """Relays bytes from a port of its own to a server, in a thread; knows nothing of frames."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._writers: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        start = asyncio.start_server(self._relay, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        self.hosts = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers[writer] = to_server[1]
            await asyncio.gather(self._pump(reader, to_server[1]), self._pump(to_server[0], writer))
        self._abort(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        other = self._writers.pop(writer, None)
        writer.transport.abort()
        if other is not None:
            other.transport.abort()

    def cut(self, rng: random.Random, most: int) -> None:
        """Cut some of the connections, at random; what is on its way is lost."""

        def cut() -> None:
            for writer in rng.sample(list(self._writers), min(most, len(self._writers))):
                self._abort(writer)

        self._loop.call_soon_threadsafe(cut)
