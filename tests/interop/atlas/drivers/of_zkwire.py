"""zkwire's clients, as docs/client.md and docs/locks.md use them: of_zkwire.py [Async].

What both do is written once: a call of the client for threads returns its result, that of the one
for asyncio is awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from typing import Any

import zkwire
from tests.interop.atlas.drivers import lines
from zkwire import Create, Event, EventType, LockLostError, SeenData, SetData, Watch
from zkwire.blocking.sync import run

PREFIX = "".join(sys.argv[1:])


async def end(result: Any) -> Any:
    """The result of a call."""
    return await result if inspect.isawaitable(result) else result


class Session(lines.LoopSession):
    client: Any
    locks: dict[str, Any]

    if not PREFIX:
        _run = staticmethod(run)
        get_in_child = lines.Session.get_in_child

    async def connect(self, hosts: str, milliseconds: str) -> None:
        kind = getattr(zkwire, f"{PREFIX}Client")
        self.client, self.locks = kind(hosts, session_timeout=int(milliseconds) / 1000), {}
        self.client.add_state_listener(lambda state: self.state(state.name))
        await end(self.client.connect())

    async def create(self, path: str, data: str) -> Any:
        return await end(self.client.create(path, data.encode()))

    async def sequential(self, path: str, data: str) -> Any:
        return await end(self.client.create(path, data.encode(), sequential=True))

    async def ephemeral(self, path: str, data: str) -> Any:
        return await end(self.client.create(path, data.encode(), ephemeral=True))

    async def set(self, path: str, data: str, version: str) -> None:
        await end(self.client.set_data(path, data.encode(), version=int(version)))

    async def delete(self, path: str, version: str) -> None:
        await end(self.client.delete(path, version=int(version)))

    async def multi(self, path: str, other: str, version: str) -> None:
        await end(self.client.multi([Create(path), SetData(other, b"x", int(version))]))

    async def get(self, path: str) -> Any:
        return (await end(self.client.get_data(path))).data.decode()

    async def flood(self, path: str, count: str, size: str, close: str = "") -> str:
        ask = self.client if PREFIX else self.client.pipeline
        replies = [ask.set_data(path, b"x" * int(size)) for _ in range(int(count))]
        if close:
            await end(self.client.close())
        ends = []
        for reply in replies:
            try:
                await reply if PREFIX else reply.result()
                ends.append("ok")
            except Exception as error:
                ends.append(lines.name_of(error))
        return lines.outcomes(ends)

    async def watch(self, kind: str, path: str) -> None:
        watch = Watch(self._told)
        if kind == "data":
            await end(self.client.get_data(path, watch=watch))
        elif kind == "children":
            await end(self.client.get_children(path, watch=watch))
        elif kind == "follow":
            self.followed = self.client.watch_data(path, callback=self._followed)
        else:
            await end(self.client.add_watch(path, watch, recursive=kind == "recursive"))

    def _told(self, event: Event) -> None:
        self.event(EventType(event.type).name, event.path)

    def _followed(self, seen: SeenData) -> None:
        if seen.data:
            self.event("data", "-")

    async def lock(self, path: str, milliseconds: str) -> str:
        lock = self.locks[path] = getattr(zkwire, f"{PREFIX}SequentialLock")(self.client, path)
        lock.lost.add_callback(lambda lost: self.state(f"lost:{lost.reason}".replace(" ", "_")))
        held = await end(lock.acquire(timeout=int(milliseconds) / 1000))
        return "held" if held else "not held"

    trylock = lock

    async def held(self, path: str) -> str:
        return "yes" if self.locks[path].held else "no"

    async def fence(self, path: str) -> str:
        return f"fence {self.locks[path].fence}"

    async def work(self, path: str) -> None:
        """Write elsewhere while the lock says that it is held."""
        while self.locks[path].held:
            self.event("wrote", path)
            await asyncio.sleep(0.01) if PREFIX else time.sleep(0.01)

    async def guarded(self, path: str, target: str, data: str) -> str:
        """One write that the server refuses when the lock is lost."""
        try:
            await end(self.locks[path].guard([SetData(target, data.encode())]))
        except LockLostError:
            return "refused"
        return "written"

    async def unlock(self, path: str) -> None:
        await end(self.locks[path].release())

    async def close(self) -> None:
        await end(self.client.close())


lines.serve(Session, zkwire.__version__, loop=bool(PREFIX))
