"""``delete_tree`` on trees that are larger than what it remembers, on a server of a few lines."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from zkwire.errors import NoNodeError, NotEmptyError
from zkwire.recipes import runtime

MOST = 8 << 10


class Enough(Exception):
    """The server has answered enough."""


class Runtime:
    """Its own operations, each of which is executed when its answer is taken."""

    def __init__(self, get_children: Callable[[str], list[str]], nodes: set[str]) -> None:
        self.operations = self
        self._listing = get_children
        self._nodes = nodes

    def get_children(self, path: str) -> Callable[[], list[str]]:
        return lambda: self._listing(path)

    def delete(self, path: str) -> Callable[[], None]:
        def executed() -> None:
            if any(self._listing(path)):
                raise NotEmptyError
            self._nodes.remove(path)

        return executed

    async def until(self, reply: Callable[[], Any], _: object) -> Any:
        return reply()


def finish(work: Awaitable[None]) -> None:
    """Run what never waits."""
    with pytest.raises(StopIteration):
        next(work.__await__())


@pytest.mark.parametrize("width", [1, 40])
def test_endless_tree_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(runtime, "MOST_BYTES", MOST)
    left = 2000

    def endless(_: str) -> list[str]:
        nonlocal left
        left -= 1
        if not left:
            raise Enough
        return [str(number) for number in range(width)]

    tracemalloc.start()
    try:
        with pytest.raises(Enough):
            finish(runtime.delete_tree(Runtime(endless, set()), "/a", None))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 20 * MOST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("width", "depth"), [(1, 150), (3, 6), (60, 2), (2, 9)])
def test_tree_larger_than_what_is_remembered_is_deleted(
    monkeypatch: pytest.MonkeyPatch, width: int, depth: int
) -> None:
    monkeypatch.setattr(runtime, "MOST_BYTES", MOST)
    level, children = ["/a"], dict[str, set[str]]()
    for _ in range(depth):
        children |= {node: {f"{node}/{n}" for n in range(width)} for node in level}
        level = [below for node in level for below in sorted(children[node])][:300]
    nodes = {"/a", *(below for each in children.values() for below in each)}

    def listing(path: str) -> list[str]:
        if path not in nodes:
            raise NoNodeError
        return [below.rpartition("/")[2] for below in children.get(path, ()) if below in nodes]

    finish(runtime.delete_tree(Runtime(listing, nodes), "/a", None))  # type: ignore[arg-type]
    assert nodes == set()
