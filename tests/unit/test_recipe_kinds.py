"""Recipes, step by step: what each kind of lock asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.scripted import STAT
from tests.unit.test_recipe_steps import OWN, Runtime, an_attempt, own, refused, sequential
from zkwire.blocking.run import run
from zkwire.errors import (
    BadVersionError,
    ConnectionLossError,
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
    SessionMovedError,
    ThrottledOpError,
    UnimplementedError,
)
from zkwire.jute.records import Stat
from zkwire.recipes._node import OwnNodeWatch
from zkwire.recipes._recipe import Lost
from zkwire.recipes.barrier import AsyncDoubleBarrier, Seen
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.recipes.persistent_node import AsyncPersistentNode
from zkwire.recipes.read_write import AsyncReadLock
from zkwire.recipes.semaphore import AsyncLease
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.session.watch import Watch
from zkwire.wire.model import DataAndStat, Event, EventType, State

LAST = 2147483647


def single(**answers: list[object]) -> tuple[AsyncBlockingLock, Runtime]:
    world: Any = Runtime(**answers)
    return AsyncBlockingLock(world, "/lock"), world


# --- the sequential lock --------------------------------------------------------------------------


def nothing(core: AsyncSequentialLock, world: Runtime) -> None:
    """Nothing happens beside the event."""


def reconnect(core: AsyncSequentialLock, world: Runtime) -> None:
    """Set again on a new connection, watches fire in another order."""
    world.connection = "another"


def sleep_too_long(core: AsyncSequentialLock, world: Runtime) -> None:
    """The session may be gone, and the node with it; the look would tell, and renews the lease."""
    world.time = world.lease_deadline


def lose_the_place(core: AsyncSequentialLock, world: Runtime) -> None:
    """Somebody has deleted the node of the one that waits."""
    assert core._own_watch is not None
    core._own_watch._deliver(Event(EventType.NODE_DELETED, "/lock/own", State.CONNECTED))
    assert not core.lost.is_set(), "it has never held"


@pytest.mark.parametrize("meanwhile", [nothing, reconnect, sleep_too_long, lose_the_place])
def test_whose_turn_it_is_by_the_event_alone(
    meanwhile: Callable[[AsyncSequentialLock, Runtime], None],
) -> None:
    """Only a child that was the next one and still stands, on one connection, in its lease."""
    own = f"{OWN:016x}-unique-lock-0000000001"
    theirs = DataAndStat(b"", Stat(*[*STAT[:7], 5, *STAT[8:]]))
    core, world = sequential(get_children=[["x-lock-0000000000", own]], get_data=[theirs])

    async def event(watch: object, deadline: float | None) -> Event:
        meanwhile(core, world)
        return Event(EventType.NODE_DELETED, "/lock/x-lock-0000000000", State.CONNECTED)

    world.event = event  # type: ignore[method-assign]
    if meanwhile in (sleep_too_long, lose_the_place):  # here, where the answers do not change
        with pytest.raises(LockLostError, match="in the moment"):
            run(core._acquire_by(None, True))
    else:
        assert run(core._acquire_by(None, True))
    looks = world.asked.count("get_children")
    assert looks == (1 if meanwhile is nothing else 2)


@pytest.mark.parametrize("loss", [NotSentError, OutcomeUnknownError])
def test_a_place_in_the_queue_is_kept_when_only_the_listing_is_lost(
    loss: type[ConnectionLossError],
) -> None:
    core, world = sequential(get_children=[loss("lost")])
    assert run(core._acquire_by(None, True))
    assert world.asked == ["create_with_stat", "get_children", "get_children"]


def test_a_create_that_was_not_sent_is_repeated_without_a_look() -> None:
    core, world = sequential(create_with_stat=[NotSentError("lost")], get_children=[["x"]])
    assert run(core._acquire_by(None, True))
    assert world.asked == ["create_with_stat", "get_children"] * 2


@pytest.mark.parametrize("loss", [None, NotSentError, OutcomeUnknownError])
def test_without_create2_a_create_is_followed_by_a_look(loss: type[ConnectionLossError]) -> None:
    name = f"{an_attempt().id}-lock-0000000001"
    lost = [loss("lost")] if loss else []
    core, world = sequential(
        create_with_stat=[UnimplementedError("old")],
        create=[f"/lock/{name}"],
        get_children=[[], [name]],
        exists=[*lost, STAT],
    )
    assert run(core._acquire_by(None, True))
    assert core.fence == STAT.czxid
    asked = ["create_with_stat", "get_children", "create", "get_children", "exists"]
    assert world.asked == [*asked, *(["exists"] if loss else [])]


def test_a_node_that_is_gone_before_the_look_is_made_again() -> None:
    name = f"{an_attempt().id}-lock-0000000001"
    core, world = sequential(
        create_with_stat=[UnimplementedError("old")],
        create=[f"/lock/{name}"],
        get_children=[[], [name]],
        exists=[None],
    )
    assert run(core._acquire_by(None, True))
    assert world.asked.count("create_with_stat") == 2


def test_a_server_that_refuses_every_create_is_not_asked_for_ever() -> None:
    core, _ = sequential(
        create_with_stat=[UnimplementedError("old")], create=[UnimplementedError("odd")]
    )
    with pytest.raises(UnimplementedError):
        run(core._acquire_by(None, True))


def test_who_does_not_hold_has_nothing_to_leave() -> None:
    core, world = sequential()
    run(core._step_out(None))
    assert world.asked == []


@pytest.mark.parametrize(
    ("error", "spawned"), [(NoNodeError, 0), (OutcomeUnknownError, 1), (OperationTimeoutError, 1)]
)
def test_stepping_back_leaves_in_the_background_what_it_cannot_see_done(
    error: type[Exception], spawned: int
) -> None:
    core, world = sequential(delete=[error("no")])
    attempt = an_attempt("/lock/x-lock-0000000002")
    attempt.entered = True
    run(core._leave_queue(attempt, None))
    assert len(world.spawned) == spawned
    assert not attempt.entered


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (NoNodeError("gone"), []),
        (BadVersionError("written into"), ["delete"]),
        (NoAuthError("no"), ["warn", "pause", "delete"]),
        (ServerError("no", code=-9999), ["warn", "pause", "delete"]),
    ],
)
def test_a_clean_up_that_is_refused_is_tried_again(error: Exception, then: list[str]) -> None:
    """A node that may not be deleted blocks everybody until its session ends: so it is told of."""
    core, world = sequential(delete=[error, None])
    operations: Any = world
    run(core._clean_up(operations, an_attempt("/lock/x-lock-0000000002")))
    assert world.asked == ["delete", *then]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (EventType.NODE_DELETED, "was deleted"),
        (EventType.NODE_CHILDREN_CHANGED, "was deleted"),
        (EventType.CHILD_WATCH_REMOVED, "may not be watched"),
    ],
)
def test_a_holder_is_told_what_has_happened_to_its_node(kind: EventType, why: str) -> None:
    world: Any = Runtime()
    own = OwnNodeWatch()
    own.lost = Lost(world)
    own._deliver(Event(kind, "/lock/x", State.CONNECTED))
    assert own.gone
    assert own.lost.reason == f"its node /lock/x {why}"


def test_a_clean_up_that_is_refused_for_now_is_repeated() -> None:
    core, world = sequential(delete=[ThrottledOpError("busy")])
    operations: Any = world
    run(core._clean_up(operations, an_attempt("/lock/x-lock-0000000002")))
    assert world.asked == ["delete", "delete"]


@pytest.mark.parametrize("number", [-1, LAST - 999])
def test_near_the_end_of_the_numbers_nobody_enters(number: int) -> None:
    node = f"/lock/{an_attempt().id}-lock-{number:010d}"
    core, world = sequential(create_with_stat=[(node, STAT)])
    with pytest.raises(SequenceExhaustedError):
        run(core._acquire_by(None, True))
    assert len(world.spawned) == 1


# --- the read-write lock --------------------------------------------------------------------------


def downgrade(*writers: str | None, **answers: list[object]) -> tuple[AsyncReadLock, Runtime]:
    """A reader beside a write lock whose node has these names, one at each look."""
    names = iter(writers)

    class Writer:
        @property
        def _own_place(self) -> str | None:
            return next(names, None)

    world, writer = Runtime(**answers), Writer()
    loose: Any = (world, "/lock", "", writer)
    return AsyncReadLock(*loose), world


@pytest.mark.parametrize("made", [True, False])
def test_a_downgrade_in_doubt_looks_for_its_node_when_the_writer_has_gone(made: bool) -> None:
    reader = f"{an_attempt().id}-__READ__0000000001"
    core, world = downgrade(
        "w-__WRIT__0000000001",
        multi=[OutcomeUnknownError("lost")],
        exists=[None, STAT],
        get_children=[[], [reader] if made else []],
    )
    attempt = an_attempt()
    run(core._join(attempt, None))
    assert attempt.node is not None
    assert ("create_with_stat" in world.asked) != made


def test_a_downgrade_that_is_refused_says_why() -> None:
    core, _ = downgrade(multi=[MultiError([None, NoAuthError("no")], 1)])
    with pytest.raises(NoAuthError):
        run(core._stand_beside("w-__WRIT__0000000001", an_attempt(), None))


def test_a_downgrade_whose_queue_is_gone_at_once_sees_nobody() -> None:
    core, _ = downgrade(exists=[STAT], get_children=[NoNodeError("gone")])
    attempt = an_attempt()
    assert run(core._stand_beside("w-__WRIT__0000000001", attempt, None)) == []


# --- the locks of one node ------------------------------------------------------------------------


def changed(**fields: int) -> Stat:
    """A stat as usual, but for these."""
    return Stat(
        *(fields.get(name, value) for name, value in zip(Stat.__fields__, STAT, strict=True))
    )


ALONE = changed(num_children=1)  # of the tokens' parent
OTHER = changed(czxid=STAT.czxid + 1)


def taken() -> MultiError:
    return refused(0, NodeExistsError("there"))


def test_an_own_node_that_only_the_wait_finds_is_taken_over() -> None:
    core, _ = single(multi=[taken()], get_data=[own()], get_children=[[]], exists=[STAT])
    assert run(core._acquire_by(None, True))
    assert core.held


@pytest.mark.parametrize("lost", [False, True])
def test_an_own_node_that_is_gone_as_it_is_found_is_made_again(lost: bool) -> None:
    """An outsider deletes it between the two looks."""
    tries: list[object] = [OutcomeUnknownError("lost")] if lost else []
    core, world = single(
        multi=[*tries, taken(), [None, OTHER, None, ALONE]],
        get_data=[own()], get_children=[[]], exists=[None],
    )  # fmt: skip
    assert run(core._acquire_by(None, True))
    assert core.fence == OTHER.czxid
    assert world.asked.count("multi") == len(tries) + 2


@pytest.mark.parametrize("error", [NotSentError("lost"), refused(0, SessionMovedError("moved"))])
def test_a_create_of_the_one_node_that_was_not_executed_leaves_no_doubt(error: Exception) -> None:
    """Servers of 3.4 tell in a multi that the session has moved."""
    core, world = single(multi=[error, taken()])
    assert not run(core._acquire_by(None, False))
    assert world.asked == ["multi", "multi", "exists"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_node_that_is_not_ephemeral_is_no_lock(lost: bool) -> None:
    """A try finds it taken, a wait would have no end."""
    creates: list[object] = [OutcomeUnknownError("lost")] if lost else []
    theirs = DataAndStat(b"", STAT)
    core, _ = single(multi=[*creates, taken()] * 2, get_data=[theirs] * 3, delete=[None] * 2)
    assert not run(core._acquire_by(None, False))
    with pytest.raises(NodeExistsError, match="/lock is no lock"):
        run(core._acquire_by(None, True))


def test_a_node_that_somebody_writes_into_is_still_cleaned_up() -> None:
    core, world = single(multi=[refused(1, BadVersionError("written"))], get_data=[own()])
    operations: Any = world
    run(core._leave(operations, an_attempt()))
    assert world.asked == ["multi", "sync", "get_data", "multi"]


def test_a_node_whose_token_somebody_deletes_is_still_cleaned_up() -> None:
    core, world = single(multi=[refused(0, NoNodeError("gone"))], get_data=[own()])
    operations: Any = world
    run(core._leave(operations, an_attempt()))
    assert world.asked == ["multi", "sync", "get_data", "delete"]


def test_a_token_that_may_not_be_deleted_is_told() -> None:
    core, world = single(multi=[refused(0, NoAuthError("closed"))])
    operations: Any = world
    with pytest.raises(NoAuthError):
        run(core._leave(operations, an_attempt()))


@pytest.mark.parametrize("written", [True, False])
def test_a_release_looks_whose_node_it_is_that_has_another_version(written: bool) -> None:
    """Somebody has written into it, or has made it anew by hand."""
    core, world = single(multi=[[None, STAT, None, ALONE], refused(1, BadVersionError("2"))])
    assert run(core._acquire_by(None, False))
    world.answers["get_data"] = [own() if written else DataAndStat(b"", OTHER)]
    with contextlib.nullcontext() if written else pytest.raises(LockLostError):
        run(core._release_by(None))
    assert world.asked == ["multi", "multi", "sync", "get_data"]
    assert world.spawned


# --- the time limit -------------------------------------------------------------------------------

ID = an_attempt().id
FIRST, OWN_PLACE, OWN_LEASE = "x-0000000000", f"{ID}-lock-0000000001", f"{ID}-lease-0000000001"
LATE = OperationTimeoutError("no answer in time")
THEIRS = DataAndStat(b"", changed(ephemeral_owner=OWN + 1))
ONE = DataAndStat(b"1", STAT)


@pytest.mark.parametrize("seen", [LATE, THEIRS], ids=["no answer", "no event"])
def test_a_lock_that_was_seen_taken_is_taken_at_the_time_limit(seen: object) -> None:
    """Also where the request that looks again is not answered in time."""
    in_line, _ = sequential(get_children=[[FIRST, OWN_PLACE]], get_data=[seen])
    alone, world = single(multi=[taken()], get_data=[seen])
    for core in (in_line, alone):
        with pytest.raises(LockTimeoutError, match="/lock is held by another contender"):
            run(core._acquire_by(1.0, True))
    assert not world.spawned, "there is no node to clean up"


@pytest.mark.parametrize("silent", ["exists", "get_children"])
def test_a_semaphore_that_was_seen_full_is_full_at_the_time_limit(silent: str) -> None:
    lists: list[object] = [[OWN_PLACE], [FIRST, OWN_LEASE], LATE]
    looks: list[object] = [LATE if silent == "exists" else THEIRS.stat]
    world: Any = Runtime(get_data=[ONE], get_children=lists, exists=looks)
    world.resumed = False
    with pytest.raises(LockTimeoutError, match="none of 1 leases was free"):
        run(AsyncLease(world, "/s", 1)._acquire_by(1.0, True))


# --- what takes all places ------------------------------------------------------------------------


def test_a_node_from_before_the_resumption_that_is_gone_takes_no_place() -> None:
    core, world = sequential(exists=[None, STAT])
    names = [f"{OWN:016x}-{number:016x}-lock-0000000001" for number in range(2)]
    with pytest.raises(NodeExistsError, match=names[1]):
        run(core._refuse_former(an_attempt(), names, None))
    assert world.asked == ["exists", "exists"]


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
    assert world.asked == ["get_children", "dispatch", *["exists"] * late, "get_children"]


@pytest.mark.parametrize("made", [True, False])
def test_a_claim_that_the_end_of_the_session_hides_may_be_made(made: bool) -> None:
    over = SessionExpiredError("over")
    world: Any = Runtime(get_data=[NoNodeError("free") if made else over], create=[None, over])
    with pytest.raises(SessionExpiredError) as caught:
        run(AsyncOncePer(world, "/job", 60).claim())
    assert caught.value.maybe_applied == made


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("error", [OperationTimeoutError("late"), asyncio.CancelledError()])
def test_a_claim_that_ends_in_doubt_is_given_back(there: bool, error: BaseException) -> None:
    """Whether it creates the node or writes into one that was given back."""
    lost: list[object] = [OutcomeUnknownError("lost", maybe_applied=True)]
    given_back, claimed = (DataAndStat(data, Stat(*STAT)) for data in (b"", b"%016x-unique " % OWN))
    world: Any = Runtime(sync=[error], get_data=[given_back, claimed], set_data=lost)
    if not there:
        world = Runtime(sync=[error], get_data=[NoNodeError("free"), claimed], create=[None, *lost])
    world.session_id = OWN
    with pytest.raises(type(error)):
        run(AsyncOncePer(world, "/job", 60).claim())
    assert len(world.spawned) == 1
    run(world.spawned[0](world))
    assert world.asked[-3:] == ["sync", "get_data", "set_data"]


@pytest.mark.parametrize("lost", [NotSentError(), OutcomeUnknownError(maybe_applied=True)])
def test_a_kept_node_is_in_doubt_if_it_may_have_been_made(lost: ConnectionLossError) -> None:
    world: Any = Runtime()
    keeper = AsyncPersistentNode(world, "/kept")
    world.answers["create"] = [lost]  # behind the rehearsal
    with pytest.raises(ConnectionLossError):
        run(keeper._create(world, b"", Watch()))
    assert keeper._doubt == lost.maybe_applied


def test_a_member_that_has_left_waits_until_no_other_is_left() -> None:
    seen, last = Seen(["#", ID, "z"], 0, 7), Seen(["z"], 0, 7)
    world: Any = Runtime()
    core, gone = AsyncDoubleBarrier(world, "/b", 3), list[str]()
    core._inside, core._round = an_attempt(f"/b/{ID}"), 7

    class AllThere:
        looks = (seen, last, Seen([], 0, 7))

        async def look(self, deadline: float | None) -> Seen:
            return self.looks[len(gone)]

        async def members(self, seen: Seen, round: int, deadline: float | None) -> list[str]:
            return seen.names

        async def end(self, seen: Seen, own: str | None, deadline: float | None) -> bool:
            return True

    async def note(name: str, deadline: float | None) -> None:
        gone.append(name)

    core._generations, core._gone = AllThere(), note  # type: ignore[assignment,method-assign]
    run(core._exit(None))
    assert gone == ["#", "z"]
    assert world.asked == ["delete"]
