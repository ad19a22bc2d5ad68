"""Single steps of a queue, each with answers that the test has written down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scripted import STAT
from tests.unit.test_recipe_steps import OWN, Runtime
from zkwire.blocking.sync import Entered, run
from zkwire.errors import (
    BadVersionError,
    LockLostError,
    MultiError,
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
from zkwire.operations.multi import Delete
from zkwire.recipes._node import TemporaryTokens
from zkwire.recipes._recipe import Lost
from zkwire.recipes.queue import AsyncQueue, Search, Taking, is_item
from zkwire.wire.model import ChildrenAndStat, DataAndStat

WORK = [Delete("/x")]
ZXID = STAT.mzxid
LOST, THROTTLED = OutcomeUnknownError(), ThrottledOpError()


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


def in_doubt() -> RequestTimeoutError:
    error = RequestTimeoutError()
    error.maybe_applied = True
    return error


class Marked:
    """Changes with one token of a queue."""

    def __init__(self, **answers: list[object]) -> None:
        world: Any = Runtime(**answers)
        self.world = world
        self.world.idle_tokens = []
        self.tokens = TemporaryTokens(world, "/q/marks", "/q")
        self.token = run(self.tokens.acquire(None))

    def execute(self, times: int = 1) -> list[int]:
        """So many changes; their zxids."""
        return [run(self.tokens.execute(self.token, [*WORK], None))[1] for _ in range(times)]


SEEN = DataAndStat(b"unique", at(1))


@pytest.mark.parametrize(
    ("answers", "version", "asked"),
    [
        ({"multi": [made()]}, 1, ["multi"]),
        ({"multi": [NotSentError(), made()]}, 1, ["multi"] * 2),
        ({"multi": [THROTTLED, made()]}, 1, ["multi"] * 2),
        ({"multi": [LOST], "get_data": [LOST, SEEN]}, 1, ["multi", *["sync", "get_data"] * 2]),
        (
            {"multi": [in_doubt(), refused(NodeExistsError(), 1)], "get_data": [LOST, SEEN]},
            1,
            ["multi", "multi", *["sync", "get_data"] * 2],
        ),
    ],
)
def test_the_mark_tells_what_a_lost_reply_would_have(
    answers: dict[str, list[object]], version: int, asked: list[str]
) -> None:
    """It is made once and then changed; what was not executed is sent again."""
    own = Marked(**{name: values[:] for name, values in answers.items()})
    assert own.execute() == [ZXID]
    assert own.world.asked == asked
    own.world.answers["multi"] = [changed(2), changed(3)]
    assert own.execute(2) == [ZXID] * 2
    assert own.token.version == 3


def test_a_mark_that_an_outsider_has_written_into_is_taken_as_it_is() -> None:
    """With the token there the change was made, at an unknown zxid."""
    bad, touched = refused(BadVersionError(), 1, 2), DataAndStat(b"unique", at(12))
    own = Marked(multi=[made(), bad, changed(10), LOST], exists=[at(9)], get_data=[touched])
    assert own.execute(3) == [ZXID, ZXID, 0]
    assert own.token.version == 12


def test_an_outsider_that_deletes_the_mark_leaves_a_doubt_or_none() -> None:
    own = Marked(multi=[made(), refused(NoNodeError(), 1, 2), made()], exists=[None])
    assert own.execute(2) == [ZXID] * 2
    assert "create" in own.world.asked  # the folder may have gone with it
    own = Marked(multi=[made(), LOST], get_data=[NoNodeError()])
    own.execute()
    with pytest.raises(OutcomeUnknownError, match="its mark was deleted") as caught:
        own.execute()
    assert caught.value.maybe_applied
    own.tokens.release(own.token)
    assert len(own.world.spawned) == 1


def test_a_mark_goes_with_its_session_and_stays_with_who_has_borrowed_it() -> None:
    class Borrowed(list[Any]):
        """By another thread, meanwhile."""

        def remove(self, _: Any) -> None:
            raise ValueError

    def ended() -> None:
        raise SessionExpiredError

    own = Marked(multi=[made()])
    own.execute()
    own.world.check_open = ended
    own.tokens.release(own.token)
    assert own.world.late == []
    own = Marked()
    own.world.idle_tokens = Borrowed([own.token])
    own.tokens._tidy()
    assert own.world.idle_tokens == [own.token]
    assert own.world.spawned == []


# --- the queue ------------------------------------------------------------------------------------

ITEM = "entry-100-0000000001"
DATA = DataAndStat(b"data", STAT)


def a_queue(**answers: list[object]) -> tuple[AsyncQueue, Any]:
    world: Any = Runtime(**answers)
    world.idle_tokens = []
    return AsyncQueue(world, "/q"), world


def test_a_server_whose_counter_is_at_its_end_is_told_of() -> None:
    numbers: list[Any] = [*STAT[:5], -2, *STAT[6:9], 0, *STAT[10:]]
    end = ChildrenAndStat([], Stat(*numbers))
    queue, _ = a_queue(multi=[refused(NodeExistsError(), 0)], get_children_with_stat=[end])
    with pytest.raises(SequenceExhaustedError):
        run(queue.put(b""))


@pytest.mark.parametrize("gone", [True, False])
def test_an_item_that_goes_is_left_out_and_a_read_that_is_lost_repeated(gone: bool) -> None:
    queue, _ = a_queue(get_children=[[ITEM], [], [ITEM], []], get_data=[NoNodeError(), DATA])
    found = run(queue.peek())
    assert found is not None
    assert found.data == b"data"
    queue, _ = a_queue(get_data=[LOST, NoNodeError() if gone else DATA])
    queue._selector.share([ITEM])
    assert (run(queue._selector.known(None)) is None) == gone


def test_an_interrupt_behind_the_claim_gives_the_item_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Search) -> None:
        raise KeyboardInterrupt

    queue, world = a_queue(get_children=[[ITEM], []], get_data=[DATA], multi=[made(), []])
    monkeypatch.setattr(Search, "end", interrupted)
    taking = Taking(queue, None)
    with pytest.raises(KeyboardInterrupt):
        Entered(taking, None).__enter__()
    assert world.spawned, "the claim is given back"
    assert not taking._is_active


def test_what_a_queue_takes_for_a_limit_and_for_an_item() -> None:
    world: Any = Runtime()
    for wrong in (0, True, 1.5, "3"):
        with pytest.raises(ValueError, match="max_items must be at least 1, or None"):
            AsyncQueue(world, "/q", max_items=wrong)  # type: ignore[arg-type]
    assert is_item(ITEM)
    for name in ("lock", "entry-1x0-0000000001", "entry-100-000000000a", "other-100-0000000001"):
        assert not is_item(name)


def test_a_put_whose_time_is_over_before_it_looks_for_room_says_no_more_than_that() -> None:
    """The wait for the connection has taken all of it."""

    async def connected(deadline: float | None) -> None:
        world.time = 6.0

    async def until(reply: Any, deadline: float | None) -> Any:
        raise OperationTimeoutError("no answer in time")

    world: Any = Runtime()
    world.idle_tokens, world.connected, world.until = [], connected, until
    with pytest.raises(OperationTimeoutError) as caught:
        run(AsyncQueue(world, "/q", max_items=1).put(b"", timeout=5.0))
    assert not caught.value.maybe_applied


@pytest.mark.parametrize("gone", ["over", "lost", "lapsed", None])
def test_a_claim_that_is_gone_at_once_is_raised_and_not_watched(gone: str | None) -> None:
    held: list[Lost] = []

    def hold(lost: Lost) -> None:
        held.append(lost)
        if gone == "lost":
            lost._lose("said while it was held")

    def check_open() -> None:
        if gone == "over":
            raise SessionExpiredError

    world: Any = SimpleNamespace(
        session_id=OWN, lease_deadline=100.0, now=lambda: 100.0 - (gone != "lapsed"),
        hold=hold, unhold=held.remove, check_open=check_open,
    )  # fmt: skip
    lost = Lost(world)
    if gone is None:
        lost._begin("/q/a")
        assert held == [lost]
        return
    with pytest.raises(SessionExpiredError if gone == "over" else LockLostError) as caught:
        lost._begin("/q/a")
    assert not held
    assert ("said while it was held" in str(caught.value)) == (gone == "lost")
