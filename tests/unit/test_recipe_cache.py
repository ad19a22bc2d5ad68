"""The parts of a cache, each alone: what a change is, what belongs to it, what it keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scripted import Answer
from zkwire.blocking.sync import run
from zkwire.errors import BUSY, NotSentError, error_for
from zkwire.jute.records import Stat
from zkwire.recipes._cache_tree import (
    CHILDREN,
    CachedNode,
    CacheFullError,
    Reading,
    Scope,
    Stale,
    Tree,
)
from zkwire.recipes.cache import AsyncCacheEvents, CacheEvent, between
from zkwire.session.waitable import Watch


def stat(mzxid: int, children: int = 0, pzxid: int = 0) -> Stat:
    return Stat(1, mzxid, 0, 0, 0, 0, 0, 0, 0, children, pzxid)


def node(mzxid: int | None) -> CachedNode | None:
    return None if mzxid is None else CachedNode("/a", b"", stat(mzxid), None)


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [(None, 1, "added"), (1, 2, "changed"), (1, None, "removed"), (1, 1, None), (None, None, None)],
)
def test_what_a_change_is(before: int | None, now: int | None, kind: str | None) -> None:
    """A node that could not be read for a while has not changed."""
    event = between("/a", node(before), node(now))
    assert (event and event.kind) == kind


def test_children_go_before_their_parent_and_leave_nothing() -> None:
    changes: list[str] = []
    tree = Tree(lambda path, _: changes.append(path), None, None)
    for path in ("/", "/a", "/a/b", "/a/c", "/d"):
        tree.put(path, b"1", stat(1))
    changes.clear()
    tree.remove("/a")
    assert changes[-1] == "/a"
    assert sorted(changes) == ["/a", "/a/b", "/a/c"]
    assert tree.below("/") == ["/d"]
    tree.remove("/")
    assert (tree.nodes, tree.size, tree._below) == ({}, 0, {})


@pytest.mark.parametrize("by_data", [True, False])
@pytest.mark.parametrize("mzxid", [1, 2])
def test_hazard_A56_a_first_stat_behind_a_gap_tells_of_children(by_data: bool, mzxid: int) -> None:
    """An event of the node itself has its data read before the comparison is answered."""
    tree = Tree(lambda *_: None, None, None)
    stale = Stale(tree, Scope("/a", None, None))
    tree.put("/a", b"", stat(1))
    stale.compare()
    for children in (CHILDREN, 0):  # found once; what follows is told by events
        stale.paths.clear()
        newer = stat(mzxid, 1, pzxid=9 + children)
        if by_data:
            stale.has_data("/a", b"", newer)
        else:
            stale.has_stat("/a", newer)
        assert stale.paths.get("/a", 0) & CHILDREN == children


def test_the_limit_counts_paths_and_data() -> None:
    tree = Tree(lambda path, _: None, None, 10)
    tree.put("/a", b"12345678", stat(1))
    tree.put("/a", b"1234", stat(2))
    tree.put("/b", b"12", stat(2))
    with pytest.raises(CacheFullError):
        tree.put("/c", b"", stat(3))
    assert tree.size == 10


def test_a_change_that_comes_while_a_callback_runs_is_told_once() -> None:
    calls = deque[Callable[[], object]]()
    nodes, told = {"/a": node(1)}, list[CacheEvent]()
    cache: Any = SimpleNamespace(_closed=False, _over=False, _tree=SimpleNamespace(nodes=nodes))
    cache._sessions = SimpleNamespace(dispatch=calls.append, awaits=False)
    cache._wanted, cache._changed = SimpleNamespace(notify=lambda: None), lambda: None

    def change() -> None:
        nodes["/a"] = node(len(told) + 2)
        reader._note("/a", node(1))
        reader._hand_over()

    def callback(event: CacheEvent) -> None:
        told.append(event)
        if len(told) == 1:
            change()

    reader = AsyncCacheEvents(cache, callback)
    reader._hand_over()
    while calls:
        calls.popleft()()
    assert [event.kind for event in told] == ["added", "changed"]
    change()
    cache._closed = True
    calls.popleft()()
    assert len(told) == 2


@pytest.mark.parametrize(
    "refusal",
    [NotSentError("lost"), *(error_for(kind.code, "exists", "/a") for kind in BUSY)],
    ids=lambda error: type(error).__name__,
)
def test_what_says_nothing_about_a_node_is_read_again(refusal: Exception) -> None:
    tree = Tree(lambda path, _: None, None, None)
    tree.put("/a", b"", stat(1))
    reading, answers = Reading(tree, Scope("/a", 0, None)), [stat(1), refusal]

    class Server:
        def exists(self, path: str, *, watch: object) -> Answer:
            return Answer(answers.pop())

    server: Any = Server()
    reading.begin(server, Watch(), recursive=False)
    while not reading.done:
        run(reading.step())
    assert answers == []
    assert "/a" in tree.nodes
