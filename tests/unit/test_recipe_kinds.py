"""Recipes, step by step: what each kind asks for, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scripted import STAT
from tests.unit.test_recipe_steps import OWN, Runtime, an_attempt, own, refused, sequential
from zkwire.blocking.sync import Entered, run
from zkwire.errors import (
    BadVersionError,
    LockLostError,
    LockTimeoutError,
    MultiError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    SequenceExhaustedError,
    ServerError,
    SessionExpiredError,
    ThrottledOpError,
    UnimplementedError,
)
from zkwire.jute.records import Stat
from zkwire.operations.multi import Delete
from zkwire.recipes._node import TemporaryTokens
from zkwire.recipes._recipe import Lost
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.recipes.queue import AsyncQueue, Search, Taking, is_item
from zkwire.recipes.read_write import AsyncReadLock
from zkwire.recipes.semaphore import AsyncLease
from zkwire.wire.model import DataAndStat, Event, EventType, State

Answers = dict[str, list[object]]
LAST = 2147483647
ID = an_attempt().id
NAME = f"{ID}-lock-0000000001"
NODE = f"/lock/{NAME}"
GONE, LATE = NoNodeError("gone"), OperationTimeoutError("no answer in time")
UNSENT, LOST = NotSentError("lost"), OutcomeUnknownError("lost")
OLD = UnimplementedError("old")
CREATE, LIST = "create_with_stat", "get_children"


def single(**answers: list[object]) -> tuple[Any, Any]:
    world: Any = Runtime(**answers)
    return AsyncBlockingLock(world, "/lock"), world


def changed(**fields: int) -> Stat:
    """A stat as usual, but for these."""
    named = zip(Stat.__fields__, STAT, strict=True)
    return Stat(*(fields.get(name, value) for name, value in named))


# --- the sequential lock --------------------------------------------------------------------------


def nothing(core: Any, world: Any) -> None:
    """Nothing happens beside the event."""


WITHOUT_CREATE2 = [CREATE, LIST, "create", LIST, "exists"]
OLD_SERVER: Answers = {CREATE: [OLD], "create": [NODE], LIST: [[], [NAME]]}


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ({LIST: [UNSENT]}, [CREATE, LIST, LIST]),
        ({LIST: [LOST]}, [CREATE, LIST, LIST]),
        ({CREATE: [UNSENT], LIST: [["x"]]}, [CREATE, LIST] * 2),
        (OLD_SERVER | {"exists": [STAT]}, WITHOUT_CREATE2),
        (OLD_SERVER | {"exists": [UNSENT, STAT]}, [*WITHOUT_CREATE2, "exists"]),
        (OLD_SERVER | {"exists": [LOST, STAT]}, [*WITHOUT_CREATE2, "exists"]),
        (OLD_SERVER | {"exists": [None]}, [*WITHOUT_CREATE2, CREATE, LIST]),
    ],
)
def test_what_is_lost_on_the_way_into_the_queue_is_asked_again(
    answers: Answers, asked: list[str]
) -> None:
    """And nothing else; without create2 each create is followed by a look for its stat."""
    core, world = sequential(**{name: values[:] for name, values in answers.items()})
    assert run(core._acquire_by(None, True))
    assert core.fence == STAT.czxid
    assert world.asked == asked


@pytest.mark.parametrize(
    ("creates", "error"),
    [
        ({CREATE: [OLD], "create": [UnimplementedError("odd")]}, UnimplementedError),
        ({CREATE: [(f"/lock/{ID}-lock--000000001", STAT)]}, SequenceExhaustedError),
        ({CREATE: [(f"/lock/{ID}-lock-{LAST - 999:010}", STAT)]}, SequenceExhaustedError),
    ],
)
def test_hazard_B15_a_server_that_has_no_number_left_is_not_asked_for_ever(
    creates: Answers, error: type[Exception]
) -> None:
    core, world = sequential(**{name: values[:] for name, values in creates.items()})
    with pytest.raises(error):
        run(core._acquire_by(None, True))
    assert len(world.spawned) == 1


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (GONE, []),
        (BadVersionError("written into"), ["delete"]),
        (ThrottledOpError("busy"), ["delete"]),
        (NoAuthError("no"), ["warn", "pause", "delete"]),
        (ServerError("no", code=-9999), ["warn", "pause", "delete"]),
    ],
)
def test_a_clean_up_that_is_refused_is_tried_again(error: Exception, then: list[str]) -> None:
    """A node that may not be deleted blocks everybody until its session ends: so it is told of."""
    core, world = sequential(delete=[error, None])
    run(core._clean_up(world, an_attempt("/lock/x-lock-0000000002")))
    assert world.asked == ["delete", *then]


def test_a_lock_that_was_seen_taken_is_taken_at_the_time_limit() -> None:
    """Also where the request that looks again is not answered in time."""
    for core, _ in (
        sequential(get_children=[["x-0000000000", NAME]], get_data=[LATE]),
        single(multi=[refused(0, NodeExistsError("there"))], get_data=[LATE]),
    ):
        with pytest.raises(LockTimeoutError, match="/lock is held by another contender"):
            run(core._acquire_by(1.0, True))


# --- the read-write lock --------------------------------------------------------------------------

WRITER = "w-__WRIT__0000000001"


def downgrade(**answers: list[object]) -> tuple[Any, Any]:
    """A reader beside a write lock whose node is there at the first look."""
    names = iter([WRITER])

    class Writer:
        @property
        def _own_place(self) -> str | None:
            return next(names, None)

    world: Any = Runtime(**answers)
    loose: Any = Writer()
    read = AsyncReadLock(world, "/lock")
    read._write = loose
    return read, world


def test_a_downgrade_that_is_refused_says_why_and_one_that_is_alone_sees_nobody() -> None:
    core, _ = downgrade(multi=[MultiError([None, NoAuthError("no")], 1)])
    with pytest.raises(NoAuthError):
        run(core._stand_beside(WRITER, an_attempt(), None))
    core, _ = downgrade(exists=[STAT], get_children=[GONE])
    assert run(core._stand_beside(WRITER, an_attempt(), None)) == []


# --- the locks of one node ------------------------------------------------------------------------

ALONE = changed(num_children=1)  # of the tokens' parent
OTHER = changed(czxid=STAT.czxid + 1)


def taken() -> MultiError:
    return refused(0, NodeExistsError("there"))


@pytest.mark.parametrize("lost", [False, True])
def test_a_node_that_is_not_ephemeral_is_no_lock(lost: bool) -> None:
    """A try finds it taken, a wait would have no end."""
    creates: list[object] = [LOST] if lost else []
    theirs = DataAndStat(b"", STAT)
    core, _ = single(multi=[*creates, taken()] * 2, get_data=[theirs] * 3, delete=[None] * 2)
    assert not run(core._acquire_by(None, False))
    with pytest.raises(NodeExistsError, match="/lock is no lock"):
        run(core._acquire_by(None, True))


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (refused(1, BadVersionError("written into")), ["sync", "get_data", "multi"]),
        (refused(0, NoNodeError("its token is deleted")), ["sync", "get_data", "delete"]),
        (refused(0, NoAuthError("closed")), None),
    ],
)
def test_a_node_that_an_outsider_has_changed_is_still_cleaned_up(
    error: Exception, then: list[str] | None
) -> None:
    """A token that may not be deleted is told."""
    core, world = single(multi=[error], get_data=[own()])
    with nullcontext() if then else pytest.raises(NoAuthError):
        run(core._leave(world, an_attempt()))
    assert world.asked == ["multi", *(then or [])]


@pytest.mark.parametrize("written", [True, False])
def test_a_release_looks_whose_node_it_is_that_has_another_version(written: bool) -> None:
    """Somebody has written into it, or has made it anew by hand."""
    core, world = single(multi=[[None, STAT, None, ALONE], refused(1, BadVersionError("2"))])
    assert run(core._acquire_by(None, False))
    world.answers["get_data"] = [own() if written else DataAndStat(b"", OTHER)]
    with nullcontext() if written else pytest.raises(LockLostError):
        run(core._release_by(None))
    assert world.asked == ["multi", "multi", "sync", "get_data"]
    assert world.spawned


# --- the time limit, and what takes all places ----------------------------------------------------

FIRST, OWN_LEASE = "x-0000000000", f"{ID}-lease-0000000001"


@pytest.mark.parametrize("late", [False, True])
def test_a_semaphore_that_was_full_waits_until_its_leases_are_gone(late: bool) -> None:
    world: Any = Runtime(get_children=[[FIRST, OWN_LEASE], NoNodeError("a container")])
    lease = AsyncLease(world, "/s", 2)
    lease._on_position = print

    async def event(watch: object, deadline: float | None) -> Event | None:
        if late and deadline is not None:
            return None
        return Event(EventType.NODE_CHILDREN_CHANGED, "/s/leases", State.CONNECTED)

    world.event = event
    assert run(lease._vacant(None, True))
    assert world.asked == [LIST, "dispatch", *["exists"] * late, LIST]


def test_a_node_from_before_the_resumption_that_is_gone_takes_no_place() -> None:
    core, world = sequential(exists=[None, STAT])
    names = [f"{OWN:016x}-{number:016x}-lock-0000000001" for number in range(2)]
    with pytest.raises(NodeExistsError, match=names[1]):
        run(core._refuse_former(an_attempt(), names, None))
    assert world.asked == ["exists", "exists"]


# --- claims, kept nodes, barriers -----------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("error", [LATE, asyncio.CancelledError()])
def test_a_claim_that_ends_in_doubt_is_given_back(there: bool, error: BaseException) -> None:
    """Whether it creates the node or writes into one that was given back."""
    lost: list[object] = [OutcomeUnknownError("lost", maybe_applied=True)]
    given_back, claimed = (DataAndStat(data, STAT) for data in (b"", b"%016x-unique " % OWN))
    world: Any = Runtime(sync=[error], get_data=[given_back, claimed], set_data=lost)
    if not there:
        world = Runtime(sync=[error], get_data=[NoNodeError("free"), claimed], create=[None, *lost])
    with pytest.raises(type(error)):
        run(AsyncOncePer(world, "/job", 60).claim())
    assert len(world.spawned) == 1
    run(world.spawned[0](world))
    assert world.asked[-3:] == ["sync", "get_data", "set_data"]


WORK = [Delete("/x")]
ZXID = STAT.mzxid


def at(version: int) -> Stat:
    return Stat(11, ZXID, 13, 14, version, 2, 3, 0, 5, 0, 16)


def made() -> list[object]:
    """The results of the multi that makes the token."""
    return [None, "/m/id", at(1)]


def written(version: int) -> list[object]:
    return [None, at(version)]


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


@pytest.mark.parametrize("own", [True, False])
def test_a_claim_in_doubt_is_looked_for_and_only_an_own_one_deleted(own: bool) -> None:
    queue, world = a_queue(
        get_children=[[ITEM], []], get_data=[DATA, SessionExpiredError()], multi=[LOST]
    )
    with pytest.raises(SessionExpiredError):
        run(Taking(queue, None)._enter_body())
    data = f"{OWN:016x}-unique".encode() if own else b"another"
    world.answers["get_data"] = [DataAndStat(data, at(0))]
    world.asked.clear()
    for work in world.spawned:
        run(work(world))
    assert world.asked.count("delete") == 1 + own  # of the token, and of the claim


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
