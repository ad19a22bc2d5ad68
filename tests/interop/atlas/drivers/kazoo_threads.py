"""kazoo, as docs/basic_usage.rst and docs/api/recipe/lock.rst use it: kazoo_threads.py [MODULE].

The module is where KazooClient is from: `kazoo.client`, or `zkwire.kazoo`.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

from kazoo.exceptions import LockTimeout
from kazoo.security import CREATOR_ALL_ACL
from kazoo.version import __version__

from tests.interop.atlas.drivers import lines

KazooClient = importlib.import_module(
    sys.argv[1] if len(sys.argv) > 1 else "kazoo.client"
).KazooClient


class Session(lines.Session):
    def connect(self, hosts: str, milliseconds: str) -> None:
        self.client = KazooClient(hosts, timeout=int(milliseconds) / 1000)
        self.client.add_listener(self.state)
        self.locks: dict[str, Any] = {}
        self.client.start(60)

    def create(self, path: str, data: str) -> Any:
        return self.client.create(path, data.encode())

    def retried(self, path: str, data: str) -> Any:
        return self.client.retry(self.client.create, path, data.encode())

    def sequential(self, path: str, data: str) -> Any:
        return self.client.create(path, data.encode(), sequence=True)

    def ephemeral(self, path: str, data: str) -> Any:
        return self.client.create(path, data.encode(), ephemeral=True)

    def set(self, path: str, data: str, version: str) -> None:
        self.client.set(path, data.encode(), int(version))

    def delete(self, path: str, version: str) -> None:
        self.client.delete(path, int(version))

    def multi(self, path: str, other: str, version: str) -> None:
        transaction = self.client.transaction()
        transaction.create(path, b"")
        transaction.set_data(other, b"x", int(version))
        for result in transaction.commit():
            if isinstance(result, Exception):
                raise result

    def get(self, path: str) -> str:
        return str(self.client.get(path)[0].decode())

    def children(self, path: str) -> str:
        return ",".join(sorted(self.client.get_children(path)))

    def stat(self, path: str) -> str:
        seen = self.client.exists(path)
        if seen is None:
            return "none"
        versions = seen.version, seen.cversion, seen.aversion
        return lines.stat(*versions, seen.dataLength, seen.numChildren, seen.ephemeralOwner)

    def auth(self, scheme: str, credentials: str) -> None:
        self.client.add_auth(scheme, credentials)

    def mine(self, path: str, data: str) -> Any:
        return self.client.create(path, data.encode(), CREATOR_ALL_ACL)

    def flood(self, path: str, count: str, size: str, close: str = "") -> str:
        replies = [self.client.set_async(path, b"x" * int(size)) for _ in range(int(count))]
        if close:
            self.client.stop()
            self.client.close()
        ends = []
        for reply in replies:
            try:
                reply.get(timeout=20)
                ends.append("ok")
            except Exception as error:
                ends.append(lines.name_of(error))
        return lines.outcomes(ends)

    def watch(self, kind: str, path: str) -> None:
        if kind == "data":
            self.client.get(path, watch=self._told)
        elif kind == "children":
            self.client.get_children(path, watch=self._told)
        elif kind == "exists":
            self.client.exists(path, watch=self._told)
        elif kind == "follow":
            self.client.DataWatch(path, self._followed)
        else:
            raise lines.Lacks

    def _told(self, event: Any) -> None:
        if event.type == "NONE":
            self.state(f"watch:{event.state}")
        else:
            self.event(event.type, event.path)

    def _followed(self, data: bytes | None, _: object) -> None:
        if data:
            self.event("data", "-")

    def lock(self, path: str, milliseconds: str) -> str:
        lock = self.locks[path] = self.client.Lock(path, self.name)
        try:
            return "held" if lock.acquire(timeout=int(milliseconds) / 1000) else "not held"
        except LockTimeout:
            return "not held"

    trylock = lock

    def held(self, path: str) -> str:
        return "yes" if self.locks[path].is_acquired else "no"

    def work(self, path: str) -> None:
        """Write elsewhere while the lock says that it is acquired."""
        while self.locks[path].is_acquired:
            self.event("wrote", path)
            time.sleep(0.01)

    def unlock(self, path: str) -> None:
        self.locks[path].release()

    def close(self) -> None:
        self.client.stop()
        self.client.close()


lines.serve(Session, __version__)
