"""kazoo and Curator with the same calls, for the scenarios of `tests.interop.neighbours`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.interop.curator.process import Curator
from tests.support.lock_helpers import PATIENCE

LIMIT = int(PATIENCE * 1000)  # milliseconds, as Curator takes them
TRIES = 1000
"""Of one change of a counter."""


class KazooMember:
    """`has_listed` returns when `enter` has nothing to do but to wait for the others."""

    def __init__(self, barrier: Any) -> None:
        self._barrier = barrier
        self._listed = threading.Event()

    def enter(self) -> bool:
        client, listed = self._barrier.client, self._listed

        class Telling:
            def get_children(self, path: str) -> list[str]:
                children: list[str] = client.get_children(path)
                listed.set()
                return children

            def __getattr__(self, name: str) -> Any:
                return getattr(client, name)

        self._barrier.client = Telling()
        self._barrier.enter()
        return bool(self._barrier.participating)

    def leave(self) -> bool:
        self._barrier.leave()
        return True

    def has_listed(self) -> None:
        # A request that the end of its session meets would be made again, with the member's node.
        assert self._listed.wait(PATIENCE)


class KazooSide:
    """A client of kazoo's; the id of its `session` is 0 while there is none."""

    comes_back = False
    """Whether its member of a group is there again with its next session."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._party: Any = None

    def session(self) -> tuple[int, bytes]:
        session_id, password = self.client.client_id or (0, b"")
        return (session_id, password) if self.client.connected else (0, b"")

    def add(self, path: str, format: str, times: int) -> None:
        counter = self.client.Counter(path, support_curator=format == "int32")
        for _ in range(times):
            counter += 1

    def close(self, path: str) -> None:
        self.client.Barrier(path).create()

    def open(self, path: str) -> None:
        self.client.Barrier(path).remove()

    def wait(self, path: str, milliseconds: int = LIMIT) -> bool:
        return bool(self.client.Barrier(path).wait(milliseconds / 1000))

    def member(self, path: str, count: int) -> KazooMember:
        return KazooMember(self.client.DoubleBarrier(path, count))

    def join(self, path: str, data: str) -> None:
        self._party = self.client.Party(path, data)
        self._party.join()

    def members(self) -> set[str]:
        return set(self._party)

    def leave(self) -> None:
        self._party.leave()


@contextmanager
def kazoo_side(hosts: str) -> Iterator[KazooSide]:
    """A client of kazoo's."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts)
    client.start(PATIENCE)
    try:
        yield KazooSide(client)
    finally:
        client.stop()
        client.close()


class CuratorMember:
    def __init__(self, curator: Curator, path: str, count: int, name: str) -> None:
        self._curator, self._path, self._count, self._name = curator, path, count, name

    def enter(self, milliseconds: int = LIMIT) -> bool:
        arguments = (milliseconds, self._path, self._count)
        return self._curator.call("double", self._name, "enter", *arguments) == "true"

    def leave(self) -> bool:
        return self._curator.call("double", self._name, "leave", LIMIT) == "true"

    def has_listed(self) -> None:
        pass  # an `enter` that a lost session has ended is not made again


class CuratorSide:
    comes_back = True

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._made = 0
        self._group = ""

    def session(self) -> tuple[int, bytes]:
        session_id, password = self._curator.call("session", "-").split()
        return int(session_id), bytes.fromhex(password)

    def add(self, path: str, format: str, times: int) -> None:
        recipe = {"int32": "count", "int64": "long"}[format]
        added = failed = 0
        while added < times:  # a DistributedAtomicLong says at times that it has not succeeded
            now = times - added
            missed = int(self._curator.call(recipe, path, now, 1).split()[1])
            failed += missed
            added += now - (missed if recipe == "long" else 0)
            assert failed < TRIES * times

    def close(self, path: str) -> None:
        self._curator.call("barrier", path, "set")

    def open(self, path: str) -> None:
        self._curator.call("barrier", path, "remove")

    def wait(self, path: str, milliseconds: int = LIMIT) -> bool:
        return self._curator.call("barrier", path, "wait", milliseconds) == "true"

    def member(self, path: str, count: int) -> CuratorMember:
        self._made += 1
        return CuratorMember(self._curator, path, count, f"{path}/{self._made}")

    def join(self, path: str, data: str) -> None:
        self._group = f"in{path.replace('/', '-')}"
        self._curator.call("group", self._group, "join", path, data)

    def members(self) -> set[str]:
        shown = self._curator.call("group", self._group, "members").strip("{}")
        return {one.partition("=")[2] for one in shown.split(", ") if one}

    def leave(self) -> None:
        self._curator.call("group", self._group, "leave")


Side = KazooSide | CuratorSide
