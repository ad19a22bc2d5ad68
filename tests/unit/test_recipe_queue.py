"""Single steps of a queue, each with answers that the test has written down."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.scripted import STAT
from tests.unit.test_recipe_steps import OWN, Runtime
from zkwire.blocking.run import run
from zkwire.errors import (
    BadVersionError,
    MultiError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    RequestTimeoutError,
    RuntimeInconsistencyError,
    SequenceExhaustedError,
    ServerError,
    SessionExpiredError,
    ThrottledOpError,
)
from zkwire.jute.records import Stat
from zkwire.operations.multi import Create, Delete
from zkwire.recipes.classic.marks import USES, Marks
from zkwire.recipes.classic.once import Mark
from zkwire.recipes.classic.queue import ItemQueue
from zkwire.recipes.classic.queue_items import is_item
from zkwire.recipes.classic.queue_taking import Taking
from zkwire.wire.model import DataAndStat

WORK = [Delete("/x")]
ZXID = STAT.mzxid


def at(version: int) -> Stat:
    return Stat(11, ZXID, 13, 14, version, 2, 3, 0, 5, 0, 16)


def refused(error: ServerError, index: int, of: int = 3) -> MultiError:
    results: list[ServerError | None] = [RuntimeInconsistencyError() for _ in range(of)]
    results[index] = error
    return MultiError(results, index)


def made() -> list[object]:
    """The results of the multi that makes the mark."""
    return ["/m/id", at(1), None]


def changed(version: int) -> list[object]:
    return [at(version), None]


def mark(**answers: list[object]) -> tuple[Mark, Any]:
    world: Any = Runtime(**answers)
    return Mark(world, "/q/marks", "/q"), world


def executed(own: Mark) -> int:
    return run(own.execute(list(WORK), None))[1]


def test_a_mark_is_made_once_and_then_changed() -> None:
    own, world = mark(multi=[made(), changed(2), changed(3)])
    assert [executed(own) for _ in range(3)] == [ZXID] * 3
    assert own in world.engaged
    own.discard()
    own.discard()
    assert own not in world.engaged
    assert len(world.spawned) == 1


@pytest.mark.parametrize("lost", [NotSentError(), ThrottledOpError()])
def test_what_was_not_executed_is_sent_again(lost: Exception) -> None:
    own, world = mark(multi=[lost, made()])
    assert executed(own) == ZXID
    assert world.asked == ["multi", "multi"]


@pytest.mark.parametrize("doubt", [OutcomeUnknownError(maybe_applied=True), "busy"])
def test_the_mark_tells_what_a_lost_reply_would_have(doubt: Any) -> None:
    if doubt == "busy":
        doubt = RequestTimeoutError()
        doubt.maybe_applied = True
    seen = DataAndStat(b"1", at(1))
    own, world = mark(
        multi=[doubt, refused(NodeExistsError(), 0)], get_data=[OutcomeUnknownError(), seen]
    )
    assert executed(own) == ZXID
    assert world.asked == ["multi", "multi", *["sync", "get_data"] * 2]


def test_an_outsider_that_writes_into_the_mark_decides_nothing() -> None:
    """With the number there it was executed, at an unknown zxid; without, it was not."""
    lost, bad = OutcomeUnknownError(), refused(BadVersionError(), 0, 2)
    theirs = DataAndStat(b"scribble", at(9))
    touched = DataAndStat(b"3", at(12))
    own, world = mark(multi=[made(), lost, bad, changed(10), lost, bad], get_data=[theirs, touched])
    assert [executed(own) for _ in range(3)] == [ZXID, ZXID, 0]
    assert world.asked.count("multi") == 6


@pytest.mark.parametrize("seen", [True, False])
def test_an_outsider_that_deletes_the_mark_leaves_a_doubt_or_none(seen: bool) -> None:
    gone = refused(BadVersionError() if seen else NoNodeError(), 0, 2)
    answers: Any = {"get_data": [NoNodeError()] if seen else []}
    own, world = mark(multi=[made(), gone, made()], **answers)
    assert [executed(own), executed(own)] == [ZXID, ZXID]
    answers = {"get_data": [NoNodeError()] if seen else []}
    own, world = mark(multi=[made(), OutcomeUnknownError(), gone], **answers)
    executed(own)
    with pytest.raises(OutcomeUnknownError, match="outsider") as caught:
        executed(own)
    assert caught.value.maybe_applied
    assert len(world.spawned) == 1


def test_a_refusal_of_the_work_leaves_the_mark_as_it_was() -> None:
    own, world = mark(multi=[refused(NoNodeError(), 2), made(), refused(NoNodeError(), 1, 2)])
    for known in (False, True):
        if known:
            executed(own)
        with pytest.raises(MultiError) as caught:
            executed(own)
        assert caught.value.index == 0
        assert (own in world.engaged) == known
    assert world.spawned == []


@pytest.mark.parametrize("error", [SessionExpiredError(), refused(NoAuthError(), 0)])
def test_what_ends_it_behind_a_lost_reply_says_that_it_is_in_doubt(error: Exception) -> None:
    for before, doubt in (([], False), ([OutcomeUnknownError()], True)):
        own, _ = mark(multi=[*before, error])
        with pytest.raises((SessionExpiredError, NoAuthError)) as caught:
            executed(own)
        assert caught.value.maybe_applied == doubt
        caught.value.maybe_applied = False


def test_a_folder_that_is_missing_is_made() -> None:
    own, world = mark(multi=[refused(NoNodeError(), 0), made()])
    assert executed(own) == ZXID
    assert "create" in world.asked


def test_marks_are_lent_again_until_they_are_idle_or_used_up() -> None:
    world: Any = Runtime(multi=[made(), made()])
    marks = Marks(world, "/q/marks", "/q")
    first, second = marks.lend(), marks.lend()
    executed(first)
    executed(second)
    marks.give_back(first)
    assert marks.lend() is first
    marks.give_back(first)
    first._version = USES + 1
    second._version = USES + 1
    marks.give_back(second)
    assert len(world.spawned) == 1
    for late in world.late:
        late()
    assert len(world.spawned) == 2
    marks.give_back(marks.lend())
    assert not marks._idle


def test_a_mark_goes_with_its_session() -> None:
    world: Any = Runtime(multi=[made()])
    marks = Marks(world, "/q/marks", "/q")
    own = marks.lend()
    executed(own)

    def ended() -> None:
        raise SessionExpiredError

    world.check_open = ended
    marks.give_back(own)
    assert (marks._idle, world.late, own in world.engaged) == ([], [], False)


def test_a_mark_that_another_thread_borrows_meanwhile_is_not_deleted() -> None:
    class Borrowed(list[Any]):
        def pop(self, *_: Any) -> Any:
            raise IndexError

    marks = Marks(Runtime(), "/q/marks", "/q")  # type: ignore[arg-type]
    marks._idle = Borrowed(["a mark"])
    marks._tidy()
    assert marks._idle == ["a mark"]


# --- the queue ------------------------------------------------------------------------------------


def a_queue(**answers: list[object]) -> tuple[ItemQueue, Any]:
    world: Any = Runtime(**answers)
    return ItemQueue(world, "/q"), world


ITEM = "entry-100-0000000001"


def test_a_server_whose_counter_is_at_its_end_is_told_of() -> None:
    queue, _ = a_queue(multi=[refused(NodeExistsError(), 2)])
    with pytest.raises(SequenceExhaustedError):
        run(queue.put(b""))


def test_an_item_that_goes_before_it_is_read_is_left_out() -> None:
    seen = DataAndStat(b"data", STAT)
    queue, _ = a_queue(get_children=[[ITEM], [], [ITEM], []], get_data=[NoNodeError(), seen])
    found = run(queue.peek())
    assert found is not None
    assert found.data == b"data"


@pytest.mark.parametrize("gone", [True, False])
def test_a_read_that_is_lost_is_repeated(gone: bool) -> None:
    again: object = NoNodeError() if gone else DataAndStat(b"data", STAT)
    queue, _ = a_queue(get_data=[OutcomeUnknownError(), again])
    queue._choice.share([ITEM])
    found = run(queue._choice.known(None))
    assert (found is None) == gone


def test_the_folder_of_the_claims_is_made_where_it_is_missing() -> None:
    queue, world = a_queue(multi=[refused(NoNodeError(), 2, 5), made()])
    claim = [Create("/claim"), *WORK]
    assert run(queue._claimed(queue._marks.lend(), claim, None))
    assert "create" in world.asked


@pytest.mark.parametrize("own", [True, False])
def test_a_claim_in_doubt_is_looked_for_and_only_an_own_one_deleted(own: bool) -> None:
    queue, world = a_queue(
        get_children=[[ITEM], []],
        get_data=[DataAndStat(b"data", STAT)],
        multi=[OutcomeUnknownError(), SessionExpiredError()],
    )
    taking = Taking(queue, None)
    with pytest.raises(SessionExpiredError):
        run(taking._enter())
    data = f"{OWN:016x}-unique".encode() if own else b"another"
    world.answers["get_data"] = [DataAndStat(data, at(0))]
    world.asked.clear()
    for work in world.spawned:
        run(work(world))
    assert world.asked.count("delete") == 1 + own  # of the mark, and of the claim


def test_names_of_other_clients_nodes_are_no_items() -> None:
    assert is_item(ITEM)
    for name in ("lock", "entry-1x0-0000000001", "entry-100-000000000a", "other-100-0000000001"):
        assert not is_item(name)
