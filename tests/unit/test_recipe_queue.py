"""Single steps of a queue, each with answers that the test has written down."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.support.scripted import STAT
from tests.unit.test_recipe_steps import OWN, Runtime
from zkwire.blocking.sync import Entered, run
from zkwire.errors import (
    BadVersionError,
    LockLostError,
    MultiError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
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
from zkwire.recipes._node import USES, TemporaryTokens
from zkwire.recipes._recipe import Lost
from zkwire.recipes.queue import AsyncQueue, Search, Taking, is_item
from zkwire.wire.model import ChildrenAndStat, DataAndStat

WORK = [Delete("/x")]
ZXID = STAT.mzxid
IDLE = "unique"


def at(version: int) -> Stat:
    return Stat(11, ZXID, 13, 14, version, 2, 3, 0, 5, 0, 16)


def refused(error: ServerError, index: int, of: int = 3) -> MultiError:
    results: list[ServerError | None] = [RuntimeInconsistencyError() for _ in range(of)]
    results[index] = error
    return MultiError(results, index)


def made() -> list[object]:
    """The results of the multi that makes the token."""
    return [None, "/m/id", at(1)]


def changed(version: int) -> list[object]:
    return [None, at(version)]


class Marked:
    """Changes with one token of a queue."""

    def __init__(self, **answers: list[object]) -> None:
        world: Any = Runtime(**answers)
        self.world = world
        self.world.idle_tokens = []
        self.tokens = TemporaryTokens(world, "/q/marks", "/q")
        self.token = run(self.tokens.acquire(None))

    def execute(self) -> int:
        """One change; its zxid."""
        return run(self.tokens.execute(self.token, list(WORK), None))[1]


def test_a_mark_is_made_once_and_then_changed() -> None:
    own = Marked(multi=[made(), changed(2), changed(3)])
    assert [own.execute() for _ in range(3)] == [ZXID] * 3
    assert own.token.version == 3


@pytest.mark.parametrize("lost", [NotSentError(), ThrottledOpError()])
def test_what_was_not_executed_is_sent_again(lost: Exception) -> None:
    own = Marked(multi=[lost, made()])
    assert own.execute() == ZXID
    assert own.world.asked == ["multi", "multi"]


@pytest.mark.parametrize("doubt", ["lost", "busy"])
def test_the_mark_tells_what_a_lost_reply_would_have(doubt: str) -> None:
    error: Any = OutcomeUnknownError() if doubt == "lost" else RequestTimeoutError()
    error.maybe_applied = True
    more = [] if doubt == "lost" else [refused(NodeExistsError(), 1)]
    seen = DataAndStat(IDLE.encode(), at(1))
    own = Marked(multi=[error, *more], get_data=[OutcomeUnknownError(), seen])
    assert own.execute() == ZXID
    assert own.world.asked == ["multi"] * (1 + len(more)) + ["sync", "get_data"] * 2


def test_a_mark_that_an_outsider_has_written_into_is_taken_as_it_is() -> None:
    """With the token there the change was made, at an unknown zxid."""
    bad, lost = refused(BadVersionError(), 1, 2), OutcomeUnknownError()
    touched = DataAndStat(IDLE.encode(), at(12))
    own = Marked(multi=[made(), bad, changed(10), lost], exists=[at(9)], get_data=[touched])
    assert [own.execute() for _ in range(3)] == [ZXID, ZXID, 0]
    assert own.token.version == 12


def test_an_outsider_that_deletes_the_mark_leaves_a_doubt_or_none() -> None:
    own = Marked(multi=[made(), refused(NoNodeError(), 1, 2), made()], exists=[None])
    assert [own.execute(), own.execute()] == [ZXID] * 2
    assert "create" in own.world.asked  # the folder may have gone with it
    own = Marked(multi=[made(), OutcomeUnknownError()], get_data=[NoNodeError()])
    own.execute()
    with pytest.raises(OutcomeUnknownError, match="its mark was deleted") as caught:
        own.execute()
    assert caught.value.maybe_applied
    own.tokens.release(own.token)
    assert len(own.world.spawned) == 1


def test_a_refusal_of_the_work_leaves_the_mark_as_it_was() -> None:
    own = Marked(multi=[refused(NoNodeError(), 0), made(), refused(NoNodeError(), 0, 2)])
    for known in (False, True):
        if known:
            own.execute()
        with pytest.raises(MultiError):
            own.execute()
        own.tokens.release(own.token)
        assert own.world.idle_tokens == [own.token] * known
    assert own.world.spawned == []


@pytest.mark.parametrize("error", [SessionExpiredError(), refused(NoAuthError(), 1)])
def test_what_ends_it_behind_a_lost_reply_says_that_it_is_in_doubt(error: Exception) -> None:
    """A look that tells has the last word."""
    told, busy = isinstance(error, MultiError), RequestTimeoutError()
    busy.maybe_applied = True
    for before, doubt in (([], False), ([ThrottledOpError()], False), ([busy], True)):
        own = Marked(multi=[*before, error], get_data=[DataAndStat(b"another", at(1))])
        with pytest.raises((SessionExpiredError, NoAuthError)) as caught:
            own.execute()
        assert caught.value.maybe_applied == (doubt and not told)
        caught.value.maybe_applied = False


def test_marks_are_lent_again_until_they_are_idle_or_used_up() -> None:
    own = Marked(multi=[made(), changed(USES + 1), made()])
    own.execute()
    own.tokens.release(own.token)
    assert run(own.tokens.acquire(None)) is own.token
    own.execute()
    own.tokens.release(own.token)
    assert (own.world.idle_tokens, len(own.world.spawned)) == ([], 1)
    own.token = run(own.tokens.acquire(None))
    own.execute()
    own.tokens.release(own.token)
    for late in own.world.late:
        late()
    assert (own.world.idle_tokens, len(own.world.spawned)) == ([], 2)


def test_a_mark_goes_with_its_session() -> None:
    own = Marked(multi=[made()])
    own.execute()

    def ended() -> None:
        raise SessionExpiredError

    own.world.check_open = ended
    own.tokens.release(own.token)
    assert own.world.late == []


def test_a_mark_that_another_thread_borrows_meanwhile_is_not_deleted() -> None:
    class Borrowed(list[Any]):
        def remove(self, _: Any) -> None:
            raise ValueError

    own = Marked()
    own.world.idle_tokens = Borrowed([own.token])
    own.tokens._tidy()
    assert own.world.idle_tokens == [own.token]
    assert own.world.spawned == []


# --- the queue ------------------------------------------------------------------------------------


def a_queue(**answers: list[object]) -> tuple[AsyncQueue, Any]:
    world: Any = Runtime(**answers)
    world.idle_tokens = []
    return AsyncQueue(world, "/q"), world


ITEM = "entry-100-0000000001"


def test_a_server_whose_counter_is_at_its_end_is_told_of() -> None:
    numbers: list[Any] = [*STAT[:5], -2, *STAT[6:9], 0, *STAT[10:]]
    end = ChildrenAndStat([], Stat(*numbers))
    queue, _ = a_queue(multi=[refused(NodeExistsError(), 0)], get_children_with_stat=[end])
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
    queue._selector.share([ITEM])
    found = run(queue._selector.known(None))
    assert (found is None) == gone


def test_the_folder_of_the_claims_is_made_where_it_is_missing() -> None:
    queue, world = a_queue(multi=[refused(NoNodeError(), 0, 4), made()])
    claim = [Create("/claim"), *WORK]
    assert run(queue._claimed(run(queue._tokens.acquire(None)), claim, None))
    assert "create" in world.asked[world.asked.index("multi") :]


def test_a_removal_in_doubt_whose_first_mark_an_outsider_has_deleted_says_so() -> None:
    """Else it would be made again, be refused, and the item be lost without an error."""
    creates: list[object] = [OutcomeUnknownError(), NodeExistsError()]
    queue, world = a_queue(create=creates, multi=[OutcomeUnknownError()], get_data=[NoNodeError()])
    with pytest.raises(OutcomeUnknownError, match="its mark was deleted"):
        run(queue._claimed(run(queue._tokens.acquire(None)), WORK, None))
    assert world.asked == ["create", "create", "multi", "sync", "get_data"]


@pytest.mark.parametrize("own", [True, False])
def test_a_claim_in_doubt_is_looked_for_and_only_an_own_one_deleted(own: bool) -> None:
    queue, world = a_queue(
        get_children=[[ITEM], []],
        get_data=[DataAndStat(b"data", STAT), SessionExpiredError()],
        multi=[OutcomeUnknownError()],
    )
    taking = Taking(queue, None)
    with pytest.raises(SessionExpiredError):
        run(taking._enter_body())
    data = f"{OWN:016x}-unique".encode() if own else b"another"
    world.answers["get_data"] = [DataAndStat(data, at(0))]
    world.asked.clear()
    for work in world.spawned:
        run(work(world))
    assert world.asked.count("delete") == 1 + own  # of the token, and of the claim


def test_an_interrupt_behind_the_claim_gives_the_item_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Search) -> None:
        raise KeyboardInterrupt

    queue, world = a_queue(
        get_children=[[ITEM], []], get_data=[DataAndStat(b"data", STAT)], multi=[made(), []]
    )
    monkeypatch.setattr(Search, "end", interrupted)
    taking = Taking(queue, None)
    with pytest.raises(KeyboardInterrupt):
        Entered(taking, None).__enter__()
    assert world.spawned, "the claim is given back"
    assert not taking._is_active


@pytest.mark.parametrize("wrong", [0, True, 1.5, "3"])
def test_a_queue_is_limited_to_a_number_of_items(wrong: Any) -> None:
    world: Any = Runtime()
    with pytest.raises(ValueError, match="max_items must be at least 1, or None"):
        AsyncQueue(world, "/q", max_items=wrong)


def test_names_of_other_clients_nodes_are_no_items() -> None:
    assert is_item(ITEM)
    for name in ("lock", "entry-1x0-0000000001", "entry-100-000000000a", "other-100-0000000001"):
        assert not is_item(name)


def test_a_put_whose_time_is_over_before_it_looks_for_room_says_no_more_than_that() -> None:
    """The wait for the connection has taken all of it."""

    class Slow(Runtime):
        idle_tokens: ClassVar[list[object]] = []

        async def connected(self, deadline: float | None) -> None:
            self.time = 6.0

        async def until(self, reply: Any, deadline: float | None) -> Any:
            raise OperationTimeoutError("no answer in time")

    world: Any = Slow()
    with pytest.raises(OperationTimeoutError) as caught:
        run(AsyncQueue(world, "/q", max_items=1).put(b"", timeout=5.0))
    assert not caught.value.maybe_applied


@pytest.mark.parametrize("gone", ["over", "lost", "lapsed", None])
def test_a_claim_that_is_gone_at_once_is_raised_and_not_watched(gone: str | None) -> None:
    held: list[Lost] = []

    class Moment:
        session_id, lease_deadline = OWN, 100.0

        def hold(self, lost: Lost) -> None:
            held.append(lost)
            if gone == "lost":
                lost._lose("said while it was held")

        def unhold(self, lost: Lost) -> None:
            held.remove(lost)

        def check_open(self) -> None:
            if gone == "over":
                raise SessionExpiredError

        def now(self) -> float:
            return self.lease_deadline - (gone != "lapsed")

    world: Any = Moment()
    lost = Lost(world)
    if gone is None:
        lost._begin("/q/a")
        assert held == [lost]
        return
    with pytest.raises(SessionExpiredError if gone == "over" else LockLostError) as caught:
        lost._begin("/q/a")
    assert not held
    assert ("said while it was held" in str(caught.value)) == (gone == "lost")
