"""What a partitioner does in moments that no server can be made to choose; who gets which items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from zkwire.blocking.run import run
from zkwire.errors import (
    ClientClosedError,
    LockLostError,
    NoNodeError,
    NotReadOnlyError,
    ThrottledOpError,
)
from zkwire.recipes._service import Problem
from zkwire.recipes.partitioner import (
    LISTED,
    MARK,
    AsyncPartitioner,
    AsyncShare,
    ItemLock,
    ItemOwnership,
    Partition,
    Rebalance,
    difference,
    digest,
    rendezvous_assign,
    same,
)
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.session.watch import Watch

ITEMS = [f"item-{number}" for number in range(50)]


class Sessions:
    """Nothing is run; what is waited for has just come."""

    def __init__(self) -> None:
        self.dismissed: list[object] = []

    def check(self) -> None:
        pass

    def check_callback(self, function: object) -> None:
        pass

    @property
    def _sessions(self) -> Sessions:
        return self

    def serve(self, service: object) -> None:
        pass

    def dismiss(self, service: object) -> None:
        self.dismissed.append(service)

    async def holds(self, condition: Any, timeout: float | None) -> bool:
        return True

    def dispatch(self, function: Callable[[], object]) -> None:
        raise NotImplementedError


# --- who gets what --------------------------------------------------------------------------------


def test_the_allotment_is_even_and_the_same_everywhere() -> None:
    rng = Random(1)
    for number in range(1, 12):
        members = [f"member-{one}" for one in range(number)]
        owners = rendezvous_assign(ITEMS, members)
        assert sorted(owners) == sorted(ITEMS)
        sizes = Counter(owners.values())
        assert max(sizes.values()) - min(sizes[member] for member in members) <= 1
        assert rendezvous_assign(rng.sample(ITEMS, 50), rng.sample(members, number)) == owners


@pytest.mark.parametrize(("members", "most"), [(2, 40), (5, 20), (10, 15)])
def test_few_items_move(members: int, most: int) -> None:
    """Of 50 items 25, 10 and 5 have to when a member dies."""
    names = [f"member-{one}" for one in range(members)]
    before, after = rendezvous_assign(ITEMS, names), rendezvous_assign(ITEMS, names[:-1])
    assert sum(before[item] != after[item] for item in ITEMS) <= most


def test_the_digest_is_about_the_items() -> None:
    assert digest(["b", "a"]) == digest(["a", "b"])
    assert digest(["a", "b"]) != digest(["a", "c"])


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


def test_a_release_that_names_no_items_shares_them_out() -> None:
    assert same(digest(ITEMS).partition(b"\n")[0], digest(ITEMS))


def test_a_share_is_the_same_in_every_release() -> None:
    """Members of several releases work side by side."""
    assert rendezvous_assign("abcdef", ["m0", "m1"]) == {
        "a": "m1", "b": "m0", "c": "m0", "d": "m1", "e": "m0", "f": "m1",
    }  # fmt: skip
    assert digest("ab").startswith(b"zkwire partition of 2 items ")


# --- the lock of an item --------------------------------------------------------------------------


class Refused:
    """A lock that raises these errors one after the other."""

    lost: Any = None

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.released = 0

    async def acquire(self) -> bool:
        if self.errors:
            raise self.errors.pop(0)
        return True

    def _release_in_background(self) -> None:
        self.released += 1


class Runtime:
    states = 0

    async def another_state(self) -> None:
        self.states += 1

    async def wait_for(self, *conditions: object) -> None:
        pass


def ownership(lock: Any) -> Any:
    made: Any = ItemOwnership.__new__(ItemOwnership)
    made.lock, made._tell, made._trouble = lock, lambda: None, Problem(None, print)
    made._left_out = made._trouble
    return made


def test_a_refusal_for_now_is_followed_by_another_try() -> None:
    lock, runtime = Refused(ThrottledOpError(), NotReadOnlyError()), Runtime()
    run(ownership(lock)._serve(runtime))
    assert (lock.errors, lock.released, runtime.states) == ([], 1, 1)


def test_a_lock_lost_in_the_moment_it_is_acquired_ends_the_tenure() -> None:
    lock = Refused(LockLostError("lost"))
    run(ownership(lock)._serve(Runtime()))
    assert lock.released == 1


def test_a_lock_that_waits_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_again(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(AsyncSequentialLock, "_look_again", look_again)
    lock, told = ItemLock.__new__(ItemLock), list[bool]()
    lock.tell = lambda: told.append(lock.waits)
    for _ in range(2):
        attempt: Any = None
        assert run(lock._look_again(attempt, [], [], None)) == []
    assert told == [True]


# --- sessions and readers -------------------------------------------------------------------------


def test_a_session_that_ends_before_it_has_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    def closing(*_: object) -> None:
        raise ClientClosedError("closing")

    monkeypatch.setattr(Partition, "join", closing)
    sessions: Any = Sessions()
    partitioning = AsyncPartitioner(sessions, "/p", ["a"], name="me")
    runtime: Any = None
    run(partitioning._run(runtime))
    assert partitioning._error is None
    assert not partitioning._serving


def test_members_that_an_outsider_has_deleted() -> None:
    class Operations:
        def get_children(self, path: str, watch: Watch) -> Any:
            raise NoNodeError(path=path)

    class Member:
        _stat = 1
        _error = None

    class World:
        operations = Operations()

    sessions: Any = Sessions()
    partitioning = AsyncPartitioner(sessions, "/p", ["a"], name="me")
    partitioning._member = Member()
    partitioning._plan = run(partitioning._look(World(), Watch(), {}))
    assert partitioning._plan is None
    partitioning._step(World())
    assert partitioning._state == "allocating"


def test_an_end_of_the_session_ends_what_was_being_closed() -> None:
    sessions: Any = Sessions()
    sharing = Rebalance(sessions, "/p")
    sharing._leaving = True
    sharing._session_ended()
    assert sharing._closed


def test_a_share_that_its_session_has_taken_away_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions: Any = Sessions()
    sharing, asked = Rebalance(sessions, "/p"), list[object]()
    share: Any = AsyncShare(sharing, {})

    async def until(*_: object) -> bool:
        asked.append(sharing._asked)
        if len(asked) == 2:
            sharing._next = share
        return len(asked) < 3

    monkeypatch.setattr(sharing, "_until", until)
    assert run(sharing.next()) is share
    assert len(set(asked)) == 2
    assert run(sharing.next()) is None


def test_a_call_with_a_wrong_time_limit_confirms_nothing() -> None:
    sessions: Any = Sessions()
    sharing = Rebalance(sessions, "/p")
    with pytest.raises(ValueError, match="must not be negative"):
        run(sharing.next(-1.0))
    assert sharing._asked is None


def test_the_error_that_each_call_raises_does_not_grow() -> None:
    sessions: Any = Sessions()
    sharing, lengths = Rebalance(sessions, "/p"), set[int]()
    sharing._error = ValueError("others share out other items")
    for _ in range(3):
        with pytest.raises(ValueError, match="other items") as caught:
            run(sharing.next())
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1


@pytest.mark.parametrize("leaving", [True, False])
def test_a_loop_ends_quietly_if_the_partitioner_was_closed(
    monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    sessions: Any = Sessions()
    sharing = Rebalance(sessions, "/p")

    async def closed(*_: object) -> object:
        sharing._leaving = leaving
        raise ClientClosedError("closed")

    async def read() -> list[object]:
        return [share async for share in sharing]

    monkeypatch.setattr(sharing, "next", closed)
    if leaving:
        assert run(read()) == []
    else:
        with pytest.raises(ClientClosedError):
            run(read())


def test_what_another_member_has_written_is_shown_escaped_and_shortened() -> None:
    partition = Partition("/p", ["a"], "me", None)
    hostile = MARK + b"\x1b[31m" + b"x" * 5000
    with pytest.raises(ValueError, match=r"b'zkwire partition of \\x1b\[31mx+', and") as caught:
        partition.assigned({"me": (2, partition.data), "old": (1, hostile)})
    assert len(str(caught.value)) < 400
