"""Parts of caches, partitioners and trees, each alone."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from zkwire.blocking.sync import run
from zkwire.errors import LockLostError, NoNodeError, NotReadOnlyError, ThrottledOpError
from zkwire.jute.records import Stat
from zkwire.recipes import runtime
from zkwire.recipes._cache_tree import CHILDREN, DATA, CachedNode, Reading, Scope, Tree
from zkwire.recipes._service import FIRST_PAUSE, Problem
from zkwire.recipes.cache import AsyncCacheEvents, CacheEvent, between
from zkwire.recipes.partitioner import (
    LISTED,
    MARK,
    AsyncPartitioner,
    ItemOwnership,
    difference,
    digest,
    rendezvous_assign,
    same,
)
from zkwire.session.waitable import Watch

MOST = 8 << 10


class Enough(Exception):
    """The server has answered enough."""


@pytest.mark.parametrize("width", [1, 40])
def test_endless_tree_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(runtime, "MOST_BYTES", MOST)
    left = iter(range(2000))

    def listing() -> list[str]:
        if next(left, None) is None:
            raise Enough
        return [str(number) for number in range(width)]

    async def until(reply: Callable[[], Any], _: object) -> Any:
        return reply()  # which is executed when its answer is taken

    operations = SimpleNamespace(get_children=lambda _: listing)
    world: Any = SimpleNamespace(operations=operations, until=until)
    tracemalloc.start()
    try:
        with pytest.raises(Enough):
            run(runtime.delete_tree(world, "/a", None))
        assert tracemalloc.get_traced_memory()[1] < 20 * MOST
    finally:
        tracemalloc.stop()


ITEMS = [f"item-{number}" for number in range(50)]


def sessions() -> Any:
    """Nothing is run; what is waited for has just come."""

    async def holds(*_: object) -> bool:
        return True

    def ignore(*_: object) -> None: ...

    quiet = dict.fromkeys(["check", "check_callback", "serve", "dismiss"], ignore)
    made = SimpleNamespace(holds=holds, dispatch=None, forked=False, **quiet)
    made._sessions = made
    return made


# --- who gets what --------------------------------------------------------------------------------


def test_a_share_is_the_same_in_every_release() -> None:
    """Members of several releases work side by side; one that names no items shares them out."""
    shares = rendezvous_assign("abcdef", ["m0", "m1"])
    assert [shares[item] for item in "abcdef"] == ["m1", "m0", "m0", "m1", "m0", "m1"]
    assert digest("ab").startswith(b"zkwire partition of 2 items ")
    assert digest(["b", "a"]) == digest(["a", "b"]) != digest(["a", "c"])
    assert same(digest(ITEMS).partition(b"\n")[0], digest(ITEMS))


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        (["a", "b", "c"], ["b", "d"], "it alone has 'd'; it has not 'a', 'c'"),
        (ITEMS[:9], [*ITEMS[:2]], f"it has not {', '.join(map(repr, ITEMS[2:7]))} and 2 more"),
        (["a"], ["x" * LISTED, "y"], f"{digest(['x' * LISTED, 'y'])[:60]!r}, and this one has 1"),
    ],
)
def test_items_that_differ_are_named(mine: list[str], theirs: list[str], said: str) -> None:
    assert not same(digest(mine), digest(theirs))
    assert difference(mine, digest(theirs)) == said


def test_what_another_member_has_written_is_shown_escaped_and_shortened() -> None:
    partitioning = AsyncPartitioner(sessions(), "/p", ["a"], name="me")
    hostile = MARK + b"\x1b[31m" + b"x" * 5000
    with pytest.raises(ValueError, match=r"b'zkwire partition of \\x1b\[31mx+', and") as caught:
        partitioning._assigned({"me": (2, partitioning._data), "old": (1, hostile)})
    assert len(str(caught.value)) < 400


# --- the lock of an item --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "states", "tries"),
    [
        ([ThrottledOpError(), NotReadOnlyError()], 1, 3),
        ([LockLostError("as it is acquired")], 0, 1),
    ],
)
def test_a_refusal_for_now_is_followed_by_another_try_and_a_loss_is_not(
    errors: list[Exception], states: int, tries: int
) -> None:
    left, released, awaited = errors[:], list[object](), list[object]()

    async def acquire() -> bool:
        if left:
            raise left.pop(0)
        return True

    async def another_state() -> None:
        awaited.append(None)

    async def wait_for(*_: object) -> None: ...

    made: Any = ItemOwnership.__new__(ItemOwnership)
    made.lock = SimpleNamespace(
        lost=None, acquire=acquire, _release_in_background=lambda: released.append(None)
    )
    made._tell, made._trouble = lambda: None, Problem(None, print)
    made._left_out, made._asked_try, made._waiting = made._trouble, 0, {}
    made._sessions = SimpleNamespace(dismiss=lambda _: None)
    runtime: Any = SimpleNamespace(another_state=another_state, wait_for=wait_for)
    run(made._run(runtime))
    assert (left, len(released), len(awaited)) == ([], tries, states)


def test_what_is_left_out_is_tried_again_in_its_time_however_many_events_come() -> None:
    async def pause(*_: object) -> None: ...

    service: Any = AsyncPartitioner(sessions(), "/p", ["a"])
    service._left_out = Problem(None, print)
    runtime: Any = SimpleNamespace(now=float, jitter=lambda: 1.0, pause=pause, warn=print)
    for _ in range(2):
        service._is_right_but(NotReadOnlyError(), runtime)
        assert service._again_at == FIRST_PAUSE
        assert not run(service._idle(runtime, Watch()))
    service._retry()
    assert run(service._idle(runtime, Watch()))


# --- sessions and readers -------------------------------------------------------------------------


def test_members_that_an_outsider_has_deleted() -> None:
    def get_children(path: str, watch: Watch) -> Any:
        raise NoNodeError(path=path)

    world: Any = SimpleNamespace(operations=SimpleNamespace(get_children=get_children))
    partitioning: Any = AsyncPartitioner(sessions(), "/p", ["a"], name="me")
    partitioning._given = {"a": SimpleNamespace(kept=False)}
    assert partitioning.state == "allocating"
    partitioning._given.clear()
    partitioning._member = SimpleNamespace(_stat=1, _error=None)
    partitioning._plan = run(partitioning._look(world, Watch(), {}))
    assert partitioning._plan is None
    partitioning._step(world)
    assert partitioning.state == "allocating"
    for error, ownerships in ((None, {"a": SimpleNamespace(_error=Enough())}), (Enough(), {})):
        partitioning._member._error, partitioning._ownerships = error, ownerships
        with pytest.raises(Enough):
            partitioning._step(world)


def test_a_call_that_raises_confirms_nothing_and_its_error_does_not_grow() -> None:
    sharing, lengths = AsyncPartitioner(sessions(), "/p", ["a"]), set[int]()
    with pytest.raises(ValueError, match="must not be negative"):
        run(sharing.next(-1.0))
    assert sharing._asked is None
    sharing._error = ValueError("others share out other items")
    for _ in range(3):
        with pytest.raises(ValueError, match="other items") as caught:
            run(sharing.next())
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1


def stat(mzxid: int, children: int = 0, pzxid: int = 0, time: int = 0) -> Stat:
    return Stat(1, mzxid, time, time, 0, 0, 0, 0, 0, children, pzxid)


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


def test_the_same_zxids_say_nothing_where_the_servers_have_lost_their_data() -> None:
    tree = Tree(lambda *_: None, None, None)
    reading = Reading(tree, Scope("/a", None, None))
    tree.put("/a", b"lost", stat(1))
    reading.compare()
    reading.stale.clear()
    reading.has_stat("/a", stat(1, 1, time=5))
    assert reading.stale["/a"] == DATA | CHILDREN
    tree.put("/a", b"new", stat(1, time=5))
    event = between("/a", node(1), tree.nodes["/a"])
    assert (event and event.data) == b"new"


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
    reading = Reading(tree, Scope("/a", None, None))
    tree.put("/a", b"", stat(1))
    reading.compare()
    for children in (CHILDREN, 0):  # found once; what follows is told by events
        reading.stale.clear()
        newer = stat(mzxid, 1, pzxid=9 + children)
        if by_data:
            reading.has_data("/a", b"", newer)
        else:
            reading.has_stat("/a", newer)
        assert reading.stale.get("/a", 0) & CHILDREN == children


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
