"""Single steps of recipes, each with answers that the test has written down: what is hard to make
happen on a server at the right moment. No client, no time, no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest

import zkwire
from tests.support.both_clients import done, entered
from tests.support.scripted import STAT, Answer
from zkwire import Client
from zkwire.blocking.driver import _Owner, value_of_each_thread
from zkwire.blocking.sync import run
from zkwire.errors import (
    LockLostError,
    LockTakenError,
    MultiError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ServerError,
    SessionExpiredError,
    UnimplementedError,
)
from zkwire.net.one_thread import value_of_each_task
from zkwire.recipes._node import Attempt
from zkwire.recipes._recipe import LockInUseError
from zkwire.recipes.runtime import ensure_path, walk
from zkwire.recipes.semaphore import AsyncLease
from zkwire.recipes.sequential import AsyncSequentialLock, contenders
from zkwire.wire.model import DataAndStat, Event, EventType, State

OWN = STAT.ephemeral_owner
QUIET = {"check", "check_open", "hold", "unhold", "forget", "withdraw", "drop", "wake", "caller"}
QUIET |= {"when_ready", "when_caller_ends", "waiter", "check_callback"}


class Runtime:
    """A client of which only the answers exist, by the names of verbs; ``asked`` is what it saw.

    A lock's own node is made and listed without being written down.
    """

    session_id = OWN
    session_timeout = 9.0
    send_limit = 0xFFFFF
    operation_timeout = None
    lease_deadline = 100.0
    connection = "the first"
    mutex = nullcontext()

    def __init__(self, **answers: list[object]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.spawned: list[Callable[[Any], Coroutine[Any, Any, object]]] = []
        self.late: list[Callable[[], object]] = []
        self.usable = True
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

    _recipe_runtime = _sessions = operations

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in QUIET:
            return lambda *_: None
        return lambda *arguments, **_: self._answer(name, *arguments)

    def _answer(self, name: str, *arguments: Any) -> Answer:
        self.asked.append(name)
        if self.answers.get(name):
            return Answer(self.answers[name].pop(0))
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

    async def event(self, watch: object, deadline: float | None) -> Event | None:
        return None


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
    attempt = Attempt(OWN, "unique")
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


def test_what_a_lost_connection_or_an_outsider_hides_is_read_again() -> None:
    lost = [OutcomeUnknownError("lost"), DataAndStat(b"text", STAT)]
    world: Any = Runtime(get_children=[["x-0000000004"]], get_data=lost)
    assert [seen.text for seen in run(contenders(world, "/lock"))] == ["text"]
    world = Runtime(get_children=[NoNodeError("gone"), ["b"]])
    assert run(AsyncLease(world, "/s", 1, "")._await_change(["a"], None)) == ["b"]


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
        ("/", [NoNodeError("no chroot")], None, NoNodeError),
    ],
)
def test_a_path_that_cannot_be_made_is_made_otherwise_or_refused(
    path: str, creates: list[object], there: object, error: Any
) -> None:
    """It will do if it is there; a server without containers is asked for one once."""
    world: Any = Runtime(create=creates[:], exists=[there])
    with pytest.raises(error) if error else nullcontext():
        run(ensure_path(world, path, (), None, containers=OLD in creates))
    assert world.asked.count("create") == len(creates)


@pytest.mark.parametrize(
    ("lists", "found"),
    [
        # The readings of one level leave together, so the second of /a comes behind that of /b.
        ([LOST, ["a", "b"], LOST, LOST, [], NoNodeError("gone")], ["/", "/a"]),
        ([["a"], NotSentError("lost"), []], ["/", "/a"]),
        ([["a", "b"], NoNodeError("gone"), []], ["/", "/b"]),
    ],
    ids=["lost", "not sent", "gone before its turn"],
)
def test_each_step_of_a_walk_is_repeated_and_has_its_own_deadline(
    lists: list[object], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world: Any = Runtime(get_children=lists)
    until, deadlines = world.until, list[float | None]()

    async def noting(reply: Awaitable[Any], deadline: float | None) -> Any:
        deadlines.append(deadline)
        return await until(reply, deadline)

    async def walked() -> list[str]:
        return [node async for node in walk(world, "/", map(float, count()).__next__)]

    monkeypatch.setattr(world, "until", noting)
    assert run(walked()) == found
    assert deadlines == list(range(len(world.asked)))


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


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


def test_a_lock_that_cannot_be_cleaned_up_now_is_cleaned_up_later() -> None:
    core, world = sequential(get_children=[NoAuthError("no")])
    spawn, world.spawn = world.spawn, raising(RecursionError())
    with pytest.raises(RecursionError):
        run(core._acquire_by(None, True))
    assert world.active_locks == {core}
    world.spawn = spawn
    core._resume_cleanup()
    assert world.spawned
    assert not world.active_locks


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


def test_a_multi_lock_leaves_a_lock_that_is_in_use_to_its_user() -> None:
    core, world = held()
    other = AsyncSequentialLock(world, "/a")
    with pytest.raises(LockInUseError):
        run(zkwire.AsyncMultiLock(other, core).acquire())
    assert core.held
    assert not other.held


def test_a_barrier_is_looked_at_again_after_an_event() -> None:
    world: Any = Runtime(get_data=[own(), own(), NoNodeError("gone")])
    events = [Event(EventType.NODE_DATA_CHANGED, "/b", State.CONNECTED)] * 2

    async def event(watch: object, deadline: float | None) -> Event | None:
        return events.pop()

    world.event = event
    assert run(zkwire.AsyncBarrier(world, "/b").wait())
    assert not events


def test_who_has_lost_a_lock_can_acquire_it_again_without_a_release() -> None:
    """What the lost attempt may have left is cleaned up behind it."""
    core, world = held()
    lost = core.lost
    lost._lose("its node was deleted")
    assert not core.held
    assert run(core._acquire_by(None, True))
    assert core.held
    assert core.lost is not lost
    assert len(world.spawned) == 1


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


@pytest.mark.parametrize("error", [KeyError, LockLostError])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_error_in_the_body_goes_before_the_loss_of_the_lock(
    prefix: str, error: type[Exception]
) -> None:
    async def scenario() -> None:
        part, reentrant = (
            a_lock(prefix, "SequentialLock", "/a"),
            a_lock(prefix, "ReentrantLock", "/b"),
        )
        for lock, held in ((a_lock(prefix, "MultiLock", part), part), (reentrant, reentrant.lock)):
            with pytest.raises(error):  # noqa: PT012 - how the body ends is what this is about
                async with entered(lock):
                    held.lost._lose("stolen")
                    if error is KeyError:
                        raise error

    asyncio.run(scenario())


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


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_multi_lock_says_what_it_holds_and_is_entered_only_with_it(prefix: str) -> None:
    async def scenario() -> None:
        both = a_lock(prefix, "MultiLock", a_lock(prefix, "SequentialLock", "/a"))
        assert await done(both.acquire(0))
        assert both.lease_remaining() == Runtime.lease_deadline
        await done(both.release())
        assert both.lease_remaining() == 0.0
        getattr(both, "_algorithm", both)._take = refuse
        with pytest.raises(LockTakenError):
            async with entered(both):
                pytest.fail("the body runs")

    asyncio.run(scenario())


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
