"""aiozk, as its README.rst uses it, with its recipes Lock, DataWatcher and ChildrenWatcher."""

from __future__ import annotations

import asyncio
import importlib.metadata
from typing import Any

from aiozk import ACL, WatchEvent, ZKClient, exc, protocol
from aiozk.states import States

from tests.interop.atlas.drivers import lines

STATES = (States.CONNECTED, States.SUSPENDED, States.LOST)


class Session(lines.LoopSession):
    async def connect(self, hosts: str, milliseconds: str) -> None:
        hosts, _, chroot = hosts.partition("/")
        self.client = ZKClient(
            hosts, chroot=chroot or None, session_timeout=int(milliseconds) / 1000
        )
        self.locks: dict[str, Any] = {}
        self.told = asyncio.create_task(self._tell())
        await self.client.start()

    async def _tell(self) -> None:
        session = self.client.session.state
        while True:
            others = [state for state in STATES if session != state]
            await session.wait_for(*others)
            self.state(session.current_state.upper())

    async def create(self, path: str, data: str) -> Any:
        return await self.client.create(path, data.encode())

    async def sequential(self, path: str, data: str) -> Any:
        return await self.client.create(path, data.encode(), sequential=True)

    async def ephemeral(self, path: str, data: str) -> Any:
        return await self.client.create(path, data.encode(), ephemeral=True)

    async def set(self, path: str, data: str, version: str) -> None:
        await self.client.set(path, data.encode(), int(version))

    async def delete(self, path: str, version: str) -> None:
        if version == "-1":
            await self.client.delete(path, force=True)
        else:
            await self.client.exists(path)  # whose version it takes
            await self.client.delete(path)

    async def multi(self, path: str, other: str, version: str) -> None:
        transaction = self.client.begin_transaction()
        transaction.create(path, b"")
        transaction.set_data(other, b"x", int(version))
        result = await transaction.commit()
        if not result:
            raise exc.TransactionFailed(str(result))

    async def get(self, path: str) -> str:
        return str((await self.client.get_data(path)).decode())

    async def children(self, path: str) -> str:
        return ",".join(sorted(await self.client.get_children(path)))

    async def stat(self, path: str) -> str:
        _, seen = await self.client.get(path)
        versions = seen.version, seen.child_version, seen.acl_version
        return lines.stat(*versions, seen.data_length, seen.num_children, seen.ephemeral_owner)

    async def auth(self, scheme: str, credentials: str) -> None:
        """It has no method for that."""
        await self.client.send(protocol.AuthRequest(0, scheme, credentials.encode()))

    async def mine(self, path: str, data: str) -> Any:
        every = ACL.make("auth", "", read=True, write=True, create=True, delete=True, admin=True)
        return await self.client.create(path, data.encode(), acl=[every])

    async def flood(self, path: str, count: str, size: str, close: str = "") -> str:
        calls = [self.client.set(path, b"x" * int(size), -1) for _ in range(int(count))]
        replies = [asyncio.ensure_future(call) for call in calls]
        if close:
            await asyncio.sleep(0)  # so that they are sent
            await self.client.close()
        done, _ = await asyncio.wait(replies, timeout=20)
        ends = []
        for reply in replies:
            if reply not in done:
                ends.append("no answer")
            elif error := reply.exception():
                ends.append(lines.name_of(error))
            else:
                ends.append("ok")
        return lines.outcomes(ends)

    async def watch(self, kind: str, path: str) -> None:
        if kind == "follow":
            self.watcher = self.client.recipes.DataWatcher()
            self.watcher.add_callback(path, self._followed)
            await asyncio.sleep(1.0)  # it does not say when it has begun
            return
        if kind not in ("data", "children"):
            raise lines.Lacks
        types = [WatchEvent.DATA_CHANGED if kind == "data" else WatchEvent.CHILDREN_CHANGED]
        event = self.client.wait_for_events(types, path)
        event.add_done_callback(lambda _: self.event("changed", path))
        if kind == "data":
            await self.client.get(path, watch=True)
        else:
            await self.client.get_children(path, watch=True)

    def _followed(self, data: Any) -> None:
        if data:
            self.event("data", "-")

    async def lock(self, path: str, milliseconds: str) -> str:
        lock = self.locks[path] = self.client.recipes.Lock(path)
        try:
            await lock.acquire(timeout=int(milliseconds) / 1000)
        except exc.TimeoutError:
            return "not held"
        return "held" if lock.locked() else "not held"

    trylock = lock

    async def held(self, path: str) -> str:
        return "yes" if self.locks[path].locked() else "no"

    async def work(self, path: str) -> None:
        """Write elsewhere while the lock says that it is locked."""
        while self.locks[path].locked():
            self.event("wrote", path)
            await asyncio.sleep(0.01)

    async def unlock(self, path: str) -> None:
        await self.locks[path].release()

    async def close(self) -> None:
        await self.client.close()


lines.serve(Session, importlib.metadata.version("aiozk"), loop=True)
