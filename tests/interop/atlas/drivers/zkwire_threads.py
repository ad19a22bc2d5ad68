"""zkwire's client for threads, as docs/client.md and docs/locks.md use it."""

from __future__ import annotations

import time

import zkwire
from tests.interop.atlas.drivers import lines
from zkwire import (
    Client,
    Create,
    Event,
    EventType,
    LockLostError,
    SeenData,
    SequentialLock,
    SetData,
    Watch,
)


class Session(lines.Session):
    def connect(self, hosts: str, milliseconds: str) -> None:
        self.client = Client(hosts, session_timeout=int(milliseconds) / 1000)
        self.client.add_state_listener(lambda state: self.state(state.name))
        self.locks: dict[str, SequentialLock] = {}
        self.client.connect()

    def create(self, path: str, data: str) -> str:
        return self.client.create(path, data.encode())

    def sequential(self, path: str, data: str) -> str:
        return self.client.create(path, data.encode(), sequential=True)

    def ephemeral(self, path: str, data: str) -> str:
        return self.client.create(path, data.encode(), ephemeral=True)

    def set(self, path: str, data: str, version: str) -> None:
        self.client.set_data(path, data.encode(), version=int(version))

    def delete(self, path: str, version: str) -> None:
        self.client.delete(path, version=int(version))

    def multi(self, path: str, other: str, version: str) -> None:
        self.client.multi([Create(path), SetData(other, b"x", int(version))])

    def get(self, path: str) -> str:
        return self.client.get_data(path).data.decode()

    def flood(self, path: str, count: str, size: str, close: str = "") -> str:
        replies = [self.client.pipeline.set_data(path, b"x" * int(size)) for _ in range(int(count))]
        if close:
            self.client.close()
        ends = []
        for reply in replies:
            try:
                reply.result()
                ends.append("ok")
            except Exception as error:
                ends.append(lines.name_of(error))
        return lines.outcomes(ends)

    def watch(self, kind: str, path: str) -> None:
        watch = Watch(self._told)
        if kind == "data":
            self.client.get_data(path, watch=watch)
        elif kind == "children":
            self.client.get_children(path, watch=watch)
        elif kind == "follow":
            self.followed = self.client.watch_data(path, callback=self._followed)
        else:
            self.client.add_watch(path, watch, recursive=kind == "recursive")

    def _told(self, event: Event) -> None:
        self.event(EventType(event.type).name, event.path)

    def _followed(self, seen: SeenData) -> None:
        if seen.data:
            self.event("data", "-")

    def lock(self, path: str, milliseconds: str) -> str:
        lock = self.locks[path] = SequentialLock(self.client, path)
        lock.lost.add_callback(lambda lost: self.state(f"lost:{lost.reason}".replace(" ", "_")))
        return "held" if lock.acquire(timeout=int(milliseconds) / 1000) else "not held"

    trylock = lock

    def held(self, path: str) -> str:
        return "yes" if self.locks[path].held else "no"

    def fence(self, path: str) -> str:
        return f"fence {self.locks[path].fence}"

    def work(self, path: str) -> None:
        """Write elsewhere while the lock says that it is held."""
        while self.locks[path].held:
            self.event("wrote", path)
            time.sleep(0.01)

    def guarded(self, path: str, target: str, data: str) -> str:
        """One write that the server refuses when the lock is lost."""
        try:
            self.locks[path].guard([SetData(target, data.encode())])
        except LockLostError:
            return "refused"
        return "written"

    def unlock(self, path: str) -> None:
        self.locks[path].release()

    def close(self) -> None:
        self.client.close()


lines.serve(Session, zkwire.__version__)
