"""zkwire's client for asyncio, as docs/client.md and docs/locks.md use it."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import zkwire
from tests.interop.atlas.drivers import lines
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    Create,
    Event,
    EventType,
    LockLostError,
    SeenData,
    SetData,
    Watch,
)

LOOP = asyncio.new_event_loop()


class Session(lines.Session):
    """Each command is a coroutine in the one loop."""

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(found):
            return found
        return lambda *words: asyncio.run_coroutine_threadsafe(found(*words), LOOP).result()

    async def connect(self, hosts: str, milliseconds: str) -> None:
        self.client = AsyncClient(hosts, session_timeout=int(milliseconds) / 1000)
        self.client.add_state_listener(lambda state: self.state(state.name))
        self.locks: dict[str, AsyncSequentialLock] = {}
        await self.client.connect()

    async def create(self, path: str, data: str) -> str:
        return await self.client.create(path, data.encode())

    async def sequential(self, path: str, data: str) -> str:
        return await self.client.create(path, data.encode(), sequential=True)

    async def ephemeral(self, path: str, data: str) -> str:
        return await self.client.create(path, data.encode(), ephemeral=True)

    async def set(self, path: str, data: str, version: str) -> None:
        await self.client.set_data(path, data.encode(), version=int(version))

    async def delete(self, path: str, version: str) -> None:
        await self.client.delete(path, version=int(version))

    async def multi(self, path: str, other: str, version: str) -> None:
        await self.client.multi([Create(path), SetData(other, b"x", int(version))])

    async def get(self, path: str) -> str:
        return (await self.client.get_data(path)).data.decode()

    def get_in_child(self, path: str) -> str:
        """In a loop of the child's: the thread of the parent's is not there."""
        get = object.__getattribute__(self, "get")
        return str(asyncio.new_event_loop().run_until_complete(get(path)))

    async def flood(self, path: str, count: str, size: str, close: str = "") -> str:
        replies = [self.client.set_data(path, b"x" * int(size)) for _ in range(int(count))]
        if close:
            await self.client.close()
        ends = []
        for reply in replies:
            try:
                await reply
                ends.append("ok")
            except Exception as error:
                ends.append(lines.name_of(error))
        return lines.outcomes(ends)

    async def watch(self, kind: str, path: str) -> None:
        watch = Watch(self._told)
        if kind == "data":
            await self.client.get_data(path, watch=watch)
        elif kind == "children":
            await self.client.get_children(path, watch=watch)
        elif kind == "follow":
            self.followed = self.client.watch_data(path, callback=self._followed)
        else:
            await self.client.add_watch(path, watch, recursive=kind == "recursive")

    def _told(self, event: Event) -> None:
        self.event(EventType(event.type).name, event.path)

    def _followed(self, seen: SeenData) -> None:
        if seen.data:
            self.event("data", "-")

    async def lock(self, path: str, milliseconds: str) -> str:
        lock = self.locks[path] = AsyncSequentialLock(self.client, path)
        lock.lost.add_callback(lambda lost: self.state(f"lost:{lost.reason}".replace(" ", "_")))
        return "held" if await lock.acquire(timeout=int(milliseconds) / 1000) else "not held"

    trylock = lock

    async def held(self, path: str) -> str:
        return "yes" if self.locks[path].held else "no"

    async def fence(self, path: str) -> str:
        return f"fence {self.locks[path].fence}"

    async def work(self, path: str) -> None:
        """Write elsewhere while the lock says that it is held."""
        while self.locks[path].held:
            self.event("wrote", path)
            await asyncio.sleep(0.01)

    async def guarded(self, path: str, target: str, data: str) -> str:
        """One write that the server refuses when the lock is lost."""
        try:
            await self.locks[path].guard([SetData(target, data.encode())])
        except LockLostError:
            return "refused"
        return "written"

    async def unlock(self, path: str) -> None:
        await self.locks[path].release()

    async def close(self) -> None:
        await self.client.close()


def main() -> None:
    """The lines in a thread, the loop in another."""
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    lines.serve(Session, zkwire.__version__)
    sys.exit()


main()
