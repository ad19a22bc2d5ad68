"""What a partitioner does in moments that no server can be made to choose; who gets which items."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from zkwire.blocking.sync import run
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
    ItemOwnership,
    Partition,
    Rebalance,
    difference,
    digest,
    rendezvous_assign,
    same,
)
from zkwire.session.waitable import Watch

ITEMS = [f"item-{number}" for number in range(50)]


def sessions() -> Any:
    """Nothing is run; what is waited for has just come."""

    async def holds(*_: object) -> bool:
        return True

    def ignore(*_: object) -> None: ...

    quiet = dict.fromkeys(["check", "check_callback", "serve", "dismiss"], ignore)
    made = SimpleNamespace(holds=holds, dispatch=None, **quiet)
    made._sessions = made
    return made


def members(number: int) -> list[str]:
    return [f"member-{one}" for one in range(number)]


# --- who gets what --------------------------------------------------------------------------------


def test_the_allotment_is_even_and_the_same_everywhere() -> None:
    rng = Random(1)
    for number in range(1, 12):
        names = members(number)
        owners = rendezvous_assign(ITEMS, names)
        assert sorted(owners) == sorted(ITEMS)
        sizes = Counter(owners.values())
        assert max(sizes.values()) - min(sizes[member] for member in names) <= 1
        assert rendezvous_assign(rng.sample(ITEMS, 50), rng.sample(names, number)) == owners
    for number, most in ((2, 40), (5, 20), (10, 15)):
        # Of 50 items 25, 10 and 5 have to move when a member dies.
        before = rendezvous_assign(ITEMS, members(number))
        after = rendezvous_assign(ITEMS, members(number - 1))
        assert sum(before[item] != after[item] for item in ITEMS) <= most


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
    partition = Partition("/p", ["a"], "me", None)
    hostile = MARK + b"\x1b[31m" + b"x" * 5000
    with pytest.raises(ValueError, match=r"b'zkwire partition of \\x1b\[31mx+', and") as caught:
        partition.assigned({"me": (2, partition.data), "old": (1, hostile)})
    assert len(str(caught.value)) < 400


# --- the lock of an item --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "states"),
    [([ThrottledOpError(), NotReadOnlyError()], 1), ([LockLostError("as it is acquired")], 0)],
)
def test_a_refusal_for_now_is_followed_by_another_try_and_a_loss_is_not(
    errors: list[Exception], states: int
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
    made._left_out = made._trouble
    runtime: Any = SimpleNamespace(another_state=another_state, wait_for=wait_for)
    run(made._serve(runtime))
    assert (left, len(released), len(awaited)) == ([], 1, states)


# --- sessions and readers -------------------------------------------------------------------------


def test_a_session_that_ends_before_it_has_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    def closing(*_: object) -> None:
        raise ClientClosedError("closing")

    monkeypatch.setattr(Partition, "join", closing)
    partitioning = AsyncPartitioner(sessions(), "/p", ["a"], name="me")
    runtime: Any = None
    run(partitioning._run(runtime))
    assert partitioning._error is None
    assert not partitioning._serving


def test_members_that_an_outsider_has_deleted() -> None:
    def get_children(path: str, watch: Watch) -> Any:
        raise NoNodeError(path=path)

    world: Any = SimpleNamespace(operations=SimpleNamespace(get_children=get_children))
    partitioning: Any = AsyncPartitioner(sessions(), "/p", ["a"], name="me")
    partitioning._member = SimpleNamespace(_stat=1, _error=None)
    partitioning._plan = run(partitioning._look(world, Watch(), {}))
    assert partitioning._plan is None
    partitioning._step(world)
    assert partitioning._state == "allocating"


def test_a_share_that_its_session_has_taken_away_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sharing, asked = Rebalance(sessions(), "/p"), list[object]()
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


def test_a_call_that_raises_confirms_nothing_and_its_error_does_not_grow() -> None:
    sharing, lengths = Rebalance(sessions(), "/p"), set[int]()
    with pytest.raises(ValueError, match="must not be negative"):
        run(sharing.next(-1.0))
    assert sharing._asked is None
    sharing._error = ValueError("others share out other items")
    for _ in range(3):
        with pytest.raises(ValueError, match="other items") as caught:
            run(sharing.next())
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1


def test_a_loop_ends_quietly_if_the_partitioner_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = Rebalance(sessions(), "/p")

    async def closed(*_: object) -> object:
        raise ClientClosedError("closed")

    async def read() -> list[object]:
        return [share async for share in sharing]

    monkeypatch.setattr(sharing, "next", closed)
    with pytest.raises(ClientClosedError):
        run(read())
    sharing._leaving = True
    assert run(read()) == []
