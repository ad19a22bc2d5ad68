"""Single steps of recipes, each with answers that the test has written down: what is hard to make
happen on a server at the right moment. No client, no time, no thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, nullcontext
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

import zkwire
from tests.support.both_clients import done, entered
from tests.support.scripted import STAT, Answer
from zkwire import Client
from zkwire.aio.driver import value_of_each_task
from zkwire.blocking.driver import _Owner, value_of_each_thread
from zkwire.blocking.sync import Entered, run
from zkwire.errors import (
    BadVersionError,
    LockCancelledError,
    LockLostError,
    LockTimeoutError,
    MultiError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotReadOnlyError,
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
from zkwire.net.driver import IDS_AT_ONCE, Driver
from zkwire.operations.multi import Delete
from zkwire.recipes import runtime
from zkwire.recipes._node import Attempt, OwnNodeWatch, TemporaryTokens
from zkwire.recipes._recipe import LockInUseError, Lost
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.recipes.queue import AsyncQueue, Search, Taking, is_item
from zkwire.recipes.read_write import AsyncReadLock
from zkwire.recipes.semaphore import AsyncLease, KazooLease
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.wire.model import DataAndStat, Event, EventType, State

Base: Any = runtime.Runtime
OWN = STAT.ephemeral_owner
QUIET = {"check", "check_open", "hold", "unhold", "withdraw", "drop", "wake", "caller"}
QUIET |= {"when_ready", "when_caller_ends", "waiter", "check_callback", "close_watch"}


class Runtime(Base):  # type: ignore[misc]
    """A client of which only the answers exist, by the names of verbs; ``asked`` is what it saw.

    A lock's own node is made and listed without being written down.
    """

    session_id = OWN
    session = SimpleNamespace(
        state=None, timeout=9.0, send_limit=0xFFFFF, resumed=True, connection="first",
        lease_holders=(), session_id=OWN,
    )  # fmt: skip
    operation_timeout = None
    lease_deadline = 100.0
    usable, _chroot = True, ""
    mutex = nullcontext()

    def __init__(self, **answers: list[object]) -> None:
        self._answers = answers
        self.asked: list[str] = []
        self.spawned: list[Callable[[Any], Coroutine[Any, Any, object]]] = []
        self.late: list[Callable[[], object]] = []
        self.time = 0.0
        self.active_locks: set[Any] = set()
        self.unfinished = False
        self.pending_cleanups: set[str] = set()
        self._made: list[str] = []
        self.now = lambda: self.time
        self.jitter, self.unique = lambda: 1.0, lambda: "unique"
        self.defer = self.late.append

    def spawn(self, work: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
        self.spawned.append(work)

    @property
    def operations(self) -> Runtime:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in QUIET:
            return lambda *_: None
        return lambda *arguments, **_: self._answer(name, *arguments)

    def _answer(self, name: str, *arguments: Any) -> Answer:
        self.asked.append(name)
        if self._answers.get(name):
            return Answer(self._answers[name].pop(0))
        if name == "create_with_stat":
            self._made.append(f"{arguments[0]}0000000001")
            return Answer((self._made[-1], STAT))
        if name == "get_children":
            return Answer([node.rpartition("/")[2] for node in self._made])
        return Answer(None)

    def _watch_own_node(self, node: str, fence: int, guard: Any) -> Answer:
        return Answer(None)

    def local(self, make: Callable[[], object]) -> Callable[[], object]:
        in_a_task, in_a_thread = (
            value_of_each_task(asyncio.current_task, make),
            value_of_each_thread(make),
        )
        return lambda: in_a_task() if asyncio._get_running_loop() else in_a_thread()

    async def connected(self, deadline: float | None) -> None: ...

    async def until(self, reply: Awaitable[Any], deadline: float | None) -> Any:
        return await reply

    async def event(self, watch: object, deadline: float | None) -> Event:
        raise OperationTimeoutError("late")


def sequential(
    kind: type[AsyncSequentialLock] = AsyncSequentialLock, /, **answers: list[object]
) -> tuple[Any, Any]:
    """A lock, and its world."""
    world: Any = Runtime(**answers)
    return kind(world, "/lock"), world


def held(
    kind: type[AsyncSequentialLock] = AsyncSequentialLock, /, **answers: list[object]
) -> tuple[Any, Any]:
    """A lock that is acquired, and its world."""
    core, world = sequential(kind, **answers)
    assert run(core._acquire_by(None, True))
    return core, world


def an_attempt(node: str | None = None) -> Attempt:
    attempt = Attempt(Runtime())
    attempt.node = node
    return attempt


def client_of(world: Runtime, kind: type[Any] = Client) -> Any:
    client = object.__new__(kind)
    client._driver = world
    return client


def refused(index: int, error: ServerError) -> MultiError:
    return MultiError([None] * index + [error], index)


def own() -> DataAndStat:
    return DataAndStat(an_attempt().id.encode(), STAT)


# --- what all share -------------------------------------------------------------------------------


def test_a_recipe_that_suspends_under_the_blocking_client_is_refused() -> None:
    with pytest.raises(RuntimeError, match="suspended"):
        run(asyncio.sleep(0))


OLD = UnimplementedError("before 3.5.3")
LOST = OutcomeUnknownError("lost")


@pytest.mark.parametrize(
    ("path", "creates", "there", "error"),
    [
        ("/a", [NoAuthError("no")], STAT, None),
        ("/a", [NoAuthError("no")], None, NoAuthError),
        ("/a", [NotSentError("lost"), NodeExistsError("there")], None, None),
        ("/a", [OLD, None], None, None),
        ("/a", [OLD, OLD], None, UnimplementedError),
        ("/", [NoNodeError("no root")], None, NoNodeError),
    ],
)
def test_a_path_that_cannot_be_made_is_made_otherwise_or_refused(
    path: str, creates: list[object], there: object, error: Any
) -> None:
    """It will do if it is there; a server without containers is asked for one once."""
    world: Any = Runtime(create=creates[:], exists=[there])
    with pytest.raises(error) if error else nullcontext():
        run(world.ensure_path(path, (), None, containers=OLD in creates))
    assert world.asked.count("create") == len(creates)


# --- the end of a lock ----------------------------------------------------------------------------


def test_an_owner_of_locks_that_was_never_made_tells_nothing() -> None:
    _Owner.__new__(_Owner).__del__()


@pytest.mark.parametrize("twice", [True, False])
def test_hazard_B42_an_interrupt_is_raised_when_the_clean_up_is_done(twice: bool) -> None:
    core, world = held()
    errors: list[BaseException] = [KeyboardInterrupt()] * (1 + twice)

    def unhold(hold: object) -> None:
        if errors:
            raise errors.pop()

    world.unhold = unhold
    with pytest.raises(KeyboardInterrupt):  # it is raised all the same
        core._release_in_background()
    assert len(world.spawned) == 1
    assert not core._is_active


def test_what_a_holder_writes_is_refused_as_its_own_and_not_after_the_lease() -> None:
    """The check of the lock is no operation of the caller's."""
    core, world = held(multi=[MultiError([None, None, NoAuthError("no")], 2)])
    with pytest.raises(MultiError) as caught:
        run(core.guard([Delete("/x"), Delete("/y")]))
    assert (caught.value.index, len(caught.value.results)) == (1, 2)
    world.time = Runtime.lease_deadline
    with pytest.raises(LockLostError, match="had been lost before it was used"):
        run(core.guard([Delete("/x")]))
    assert world.asked.count("multi") == 1


def test_a_lock_that_is_acquired_again_after_a_loss_leaves_the_node_of_before() -> None:
    """It may still stand, as where it may not be watched, and the new one would wait for it."""
    core, world = held()
    core.lost._lose("stolen")
    assert run(core._acquire_by(None, True))
    assert len(world.spawned) == 1


@pytest.mark.parametrize("holds", [True, False])
def test_a_claim_that_the_client_takes_over_ends_its_own_loss_alone(holds: bool) -> None:
    core, world = held()
    assert core._is_active
    let_go, lost = list[object](), core.lost
    world.unhold, world.session = let_go.append, SimpleNamespace(lease_holders=[lost] * holds)
    core._granted, core._pending_cleanup = None, core._granted
    core._take_over()
    assert (lost.ready, let_go) == (holds, [lost])


def test_a_watch_that_comes_after_the_release_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    core, world = held()
    made = "zkwire.recipes._lock.OwnNodeWatch"
    monkeypatch.setattr(made, lambda: core._end_claim() or OwnNodeWatch())
    world.late[0]()
    assert (core._own_watch, core._deferred) == (None, None)


def test_no_two_ids_are_equal_and_a_session_below_zero_has_its_digits() -> None:
    driver: Any = SimpleNamespace(_ids=deque(), _batches=count(), _prefix="")
    assert len({Driver.unique(driver) for _ in range(3 * IDS_AT_ONCE)}) == 3 * IDS_AT_ONCE
    driver.session, driver.unique, driver.pending_cleanups = SimpleNamespace(session_id=-1), str, ()
    assert Attempt(driver).id == "f" * 16 + "-"


@pytest.mark.parametrize("why", ["for a session timeout", "session has expired", "has prolonged"])
def test_a_release_that_comes_too_late_says_that_the_lock_was_lost(why: str) -> None:
    """The lease has run out; the session has expired; no server is found until the lease ends."""
    expired = why == "session has expired"
    core, world = held(delete=[SessionExpiredError("over")] if expired else [])

    async def wait_in_vain(deadline: float | None) -> None:
        assert deadline == world.lease_deadline
        world.time = world.lease_deadline
        raise OperationTimeoutError("no server could be reached in time")

    if why == "for a session timeout":
        world.time = Runtime.lease_deadline
    elif not expired:
        world.usable, world.connected = False, wait_in_vain
    with pytest.raises(LockLostError, match=why):
        run(core._release_by(None))
    assert len(world.spawned) == 1
    assert ("delete" in world.asked) == expired
    assert not core._is_active


# --- an acquisition, and who comes between --------------------------------------------------------


@pytest.mark.parametrize("granted", [True, False])
def test_an_interrupt_at_the_grant_leaves_nothing_and_forgets_no_release(granted: bool) -> None:
    class Interrupted(AsyncSequentialLock):
        def _grant(self, attempt: Attempt) -> None:
            if granted:
                super()._grant(attempt)
            raise KeyboardInterrupt

        def _clean_up_pending(self) -> None:
            super()._clean_up_pending()
            if world.spawned and not granted:
                self._pending_cleanup = an_attempt()  # by a release, in another thread

    core, world = sequential(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(core._acquire_by(None, True))
    assert not core.held
    assert len(world.spawned) == 1
    assert world.active_locks == (set() if granted else {core})


def test_a_cancel_right_after_the_call_has_begun_ends_it() -> None:
    core, world = sequential()
    world.mutex = ExitStack()
    world.mutex.callback(core.cancel)
    with pytest.raises(LockCancelledError):
        run(core._acquire_by(None, True))
    assert not world.asked


def test_a_body_that_another_thread_overtakes_leaves_the_lock_to_it() -> None:
    core, world = sequential()

    def overtake() -> None:
        del world.check
        assert run(core._acquire(None, True))

    world.check = overtake
    with pytest.raises(LockInUseError):
        run(core.__aenter__())
    assert core.held
    assert not world.spawned


def test_a_loss_shows_what_has_become_of_it() -> None:
    core, _ = held()
    released, _ = sequential()
    released.lost._let_go()
    both: Any = zkwire.AsyncMultiLock(core)._lost
    assert (repr(core.lost), repr(both)) == ("<Lost: not lost>", "<AnyLost: not lost>")
    core.lost._lose("stolen")
    for lost, said in ((core.lost, "stolen"), (released.lost, "released")):
        both._parts = [lost]
        assert (repr(lost), repr(both)) == (f"<Lost: {said}>", f"<AnyLost: {said}>")


# --- both clients ---------------------------------------------------------------------------------

PREFIXES = ["", "Async"]


def a_lock(prefix: str, name: str, *arguments: Any, world: Runtime | None = None) -> Any:
    """A lock of the kind of client; one that stands on a path is made with a client."""
    if arguments and isinstance(arguments[0], str):
        client = client_of(world or Runtime(), getattr(zkwire, f"{prefix}Client"))
        arguments = (client, *arguments)
    return getattr(zkwire, prefix + name)(*arguments)


def test_the_locks_of_a_multi_lock_are_of_one_client() -> None:
    with pytest.raises(ValueError, match="one client"):
        zkwire.AsyncMultiLock(sequential()[0], a_lock("Async", "SequentialLock", "/other"))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_lock_taken_twice_says_that_and_why_it_is_lost(prefix: str) -> None:
    async def scenario() -> None:
        lock = a_lock(prefix, "ReentrantLock", "/b")
        assert await done(lock.acquire())
        lock.check()
        lock.lost._lose("stolen")
        with pytest.raises(LockLostError, match="/b is not held: stolen"):
            lock.check()
        with pytest.raises(LockLostError, match="stolen"):
            async with entered(lock):
                pytest.fail("the body runs")
        assert getattr(lock, "_algorithm", lock)._owned, "it is still to be released"
        with pytest.raises(LockLostError):
            await done(lock.release())

    asyncio.run(scenario())


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_place_in_the_queue_is_told_to_what_can_be_called(prefix: str) -> None:
    lock = a_lock(prefix, "SequentialLock", "/a")
    with pytest.raises(TypeError, match="on_position must be callable, not 1"):
        asyncio.run(done(lock.acquire(on_position=1)))


async def refuse(*_: object) -> bool:
    return False


class Nodes(Runtime):
    """A client whose server knows which nodes there are; somebody else's lease is one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = ["/s/leases/other-lease-0000000000"]

    def _answer(self, name: str, *arguments: Any) -> Answer:
        self.asked.append(name)
        path = arguments[0] if arguments else ""
        if name == "create_with_stat":
            self.nodes.append(f"{path}{len(self.nodes):010}")
            return Answer((self.nodes[-1], STAT))
        if name == "delete":
            if path not in self.nodes:
                return Answer(NoNodeError("gone"))
            self.nodes.remove(path)
        if name == "get_children":
            pairs = [node.rpartition("/") for node in self.nodes]
            return Answer([child for parent, _, child in pairs if parent == path])
        return Answer(DataAndStat(b"1", STAT) if name == "get_data" else None)

    def clean_up(self) -> list[str]:
        """What is left when everything has run that was to clean up."""
        if self.unfinished:
            for lock in list(self.active_locks):
                lock._take_over()
        for work in self.spawned:
            run(work(self))
        return self.nodes[1:]


# --- what each kind asks for, and what it makes of the answers ------------------------------------

LAST = 2147483647
ID = an_attempt().id
NAME = f"{ID}-lock-0000000001"
GONE, LATE = NoNodeError("gone"), OperationTimeoutError("no answer in time")
CREATE, LIST = "create_with_stat", "get_children"


def single(**answers: list[object]) -> tuple[Any, Any]:
    world: Any = Runtime(**answers)
    return AsyncBlockingLock(world, "/lock"), world


# --- the sequential lock --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("creates", "error"),
    [
        ({CREATE: [OLD], "create": [UnimplementedError("odd")]}, UnimplementedError),
        ({CREATE: [(f"/lock/{ID}-lock--000000001", STAT)]}, SequenceExhaustedError),
        ({CREATE: [(f"/lock/{ID}-lock-{LAST - 999:010}", STAT)]}, SequenceExhaustedError),
    ],
)
def test_hazard_B15_a_server_that_has_no_number_left_is_not_asked_for_ever(
    creates: dict[str, list[object]], error: type[Exception]
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
        (NotReadOnlyError("read-only"), ["another_state", "delete"]),
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


def taken() -> MultiError:
    return refused(0, NodeExistsError("there"))


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


def test_a_node_that_is_the_attempts_own_after_all_is_not_waited_for() -> None:
    core, _ = single(multi=[taken()], get_data=[own()], get_children=[[]], exists=[STAT])
    assert run(core._acquire_by(None, True))


# --- the time limit, and what takes all places ----------------------------------------------------

FIRST, OWN_LEASE = "x-0000000000", f"{ID}-lease-0000000001"


@pytest.mark.parametrize("late", [False, True])
def test_a_semaphore_that_was_full_waits_until_its_leases_are_gone(late: bool) -> None:
    world: Any = Runtime(get_children=[[FIRST, OWN_LEASE], NoNodeError("a container")])
    lease = AsyncLease(world, "/s", 2)
    lease._on_position = print

    async def event(watch: object, deadline: float | None) -> Event:
        if late and deadline is not None:
            raise OperationTimeoutError("late")
        return Event(EventType.NODE_CHILDREN_CHANGED, "/s/leases", State.CONNECTED)

    world.event = event
    assert run(lease._vacant(None, True))
    assert world.asked == [LIST, "dispatch", *["exists"] * late, LIST]


def test_a_lease_whose_queue_an_interrupt_has_left_held_is_acquired() -> None:
    core = a_lock("", "Semaphore", "/t", 1, world=Nodes()).lease()._algorithm
    assert run(core._queue._acquire_by(None, True))
    assert run(core._acquire_by(None, True))
    assert not core._queue._owned


def test_kazoos_lease_is_taken_again_when_its_lock_was_gone() -> None:
    """Its own leases stand where kazoo's do, and are nothing to warn of."""
    full = DataAndStat(b"2", STAT._replace(num_children=9))
    lists: list[object] = [[], [f"{ID}-__lock__0000000001"], []] * 2
    world: Any = Runtime(get_data=[full, full], get_children=lists, exists=[None, STAT])
    assert run(KazooLease(world, "/s", 2)._acquire_by(None, True))
    assert (world.asked.count("multi"), world.asked.count("warn")) == (2, 0)


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


def made() -> list[object]:
    """The results of the multi that makes the token."""
    return [None, "/m/id", Stat(11, STAT.mzxid, 13, 14, 1, 2, 3, 0, 5, 0, 16)]


def marked(*answers: object) -> tuple[Any, Any, Any]:
    """A queue's tokens, one of them that is in use, and its world."""
    world: Any = Runtime(multi=list(answers))
    world.idle_tokens = []
    tokens = TemporaryTokens(world, "/q/marks")
    return tokens, run(tokens.acquire(None)), world


def test_a_mark_goes_with_its_session_and_stays_with_who_has_borrowed_it() -> None:
    class Borrowed(list[Any]):
        """By another thread, meanwhile."""

        def remove(self, _: Any) -> None:
            raise ValueError

    def ended() -> None:
        raise SessionExpiredError

    tokens, token, world = marked(made())
    run(tokens.execute(token, [Delete("/x")], None))
    world.check_open = ended
    tokens.release(token)
    assert world.late == []
    tokens, token, world = marked()
    world.idle_tokens = Borrowed([token])
    tokens._tidy()
    assert world.idle_tokens == [token]
    assert world.spawned == []


# --- the queue ------------------------------------------------------------------------------------

ITEM = "entry-100-0000000001"
DATA = DataAndStat(b"data", STAT)


def a_queue(**answers: list[object]) -> tuple[AsyncQueue, Any]:
    world: Any = Runtime(**answers)
    world.idle_tokens = []
    return AsyncQueue(world, "/q"), world


@pytest.mark.parametrize("answer", [NoNodeError(), LOST])
def test_an_item_that_goes_or_is_not_read_is_left_out(answer: Exception) -> None:
    queue, _ = a_queue(get_children=[[ITEM], [], [ITEM], []], get_data=[NoNodeError(), DATA])
    found = run(queue.peek())
    assert found is not None
    assert found.data == b"data"
    queue, _ = a_queue(get_data=[answer])
    queue._share([ITEM])
    assert run(queue._known(None)) is None


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
