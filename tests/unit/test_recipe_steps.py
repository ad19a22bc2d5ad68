"""Single steps of recipes, each with answers that the test has written down: what is hard to make
happen on a server at the right moment. No client, no time, no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from tests.support.scripted import STAT, Answer
from zkwire import AsyncClient, AsyncReentrantLock, Client
from zkwire.aio.driver import value_of_each_task
from zkwire.blocking.driver import _Owner, value_of_each_thread
from zkwire.blocking.locks import MultiLock, ReentrantLock, SequentialLock
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
from zkwire.recipes._node import Attempt, OwnNodeWatch
from zkwire.recipes._recipe import LockInUseError
from zkwire.recipes.locks import AsyncMultiLock
from zkwire.recipes.runtime import ensure_path, walk
from zkwire.recipes.semaphore import AsyncLease
from zkwire.recipes.sequential import AsyncSequentialLock, contenders
from zkwire.session.waitable import ClosedWatchError
from zkwire.wire.model import DataAndStat, Event

# ruff: noqa: PT012 - how a scope ends is what the tests of the clients are about

OWN = STAT.ephemeral_owner


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
    mutex = contextlib.nullcontext()

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

    @property
    def operations(self) -> Runtime:
        return self

    _recipe_runtime = _sessions = operations

    def __getattr__(self, name: str) -> Callable[..., Answer]:
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

    def wake(self) -> None: ...

    def jitter(self) -> float:
        return 1.0

    def check(self) -> None: ...
    def check_open(self) -> None: ...
    def caller(self) -> None: ...
    def hold(self, hold: object) -> None: ...
    def unhold(self, hold: object) -> None: ...
    def forget(self, watch: object) -> None: ...
    def when_ready(self, waitable: object, function: object) -> None: ...

    def defer(self, function: Callable[[], object]) -> None:
        self.late.append(function)

    def withdraw(self, reply: object) -> bool:
        return False

    def drop(self, seconds: float) -> bool:
        return False

    def _watch_own_node(self, node: str, fence: int, guard: object) -> Answer:
        return Answer(None)

    def local(self, make: Callable[[], object]) -> Callable[[], object]:
        in_a_task, in_a_thread = value_of_each_task(make), value_of_each_thread(make)

        def own() -> object:
            return in_a_task() if asyncio._get_running_loop() else in_a_thread()

        return own

    def when_caller_ends(self, lock: object) -> None: ...

    def now(self) -> float:
        return self.time

    def waiter(self) -> object:
        return None

    def interrupt(self, waiter: object, attempt: object) -> None:
        raise AssertionError("nothing is cancelled here")

    def unique(self) -> str:
        return "unique"

    def spawn(self, work: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
        self.spawned.append(work)

    async def connected(self, deadline: float | None) -> None: ...

    async def until(self, reply: Awaitable[Any], deadline: float | None) -> Any:
        return await reply

    async def event(self, watch: object, deadline: float | None) -> Event | None:
        return None


def sequential(**answers: list[object]) -> tuple[AsyncSequentialLock, Runtime]:
    world: Any = Runtime(**answers)
    return AsyncSequentialLock(world, "/lock"), world


def an_attempt(node: str | None = None) -> Attempt:
    attempt = Attempt(OWN, "unique")
    attempt.node = node
    return attempt


def client_of(world: Runtime, kind: type[Any] = Client) -> Any:
    client = object.__new__(kind)
    client._driver = world
    return client


# --- what all share -------------------------------------------------------------------------------


def test_a_recipe_that_suspends_under_the_blocking_client_is_refused() -> None:
    with pytest.raises(RuntimeError, match="suspended"):
        run(asyncio.sleep(0))


def test_contenders_that_a_lost_connection_hides_are_read_again() -> None:
    world: Any = Runtime(
        get_children=[["x-0000000004"]],
        get_data=[OutcomeUnknownError("lost"), DataAndStat(b"text", STAT)],
    )
    assert [seen.text for seen in run(contenders(world, "/lock"))] == ["text"]


def test_leases_that_somebody_has_deleted_are_looked_for_again() -> None:
    world: Any = Runtime(get_children=[NoNodeError("gone"), ["b"]])
    core = AsyncLease(world, "/s", 1, "")
    assert run(core._await_change(["a"], None)) == ["b"]


@pytest.mark.parametrize("there", [True, False])
def test_a_path_that_must_not_be_made_will_do_if_it_is_there(there: bool) -> None:
    world: Any = Runtime(create=[NoAuthError("no")], exists=[STAT if there else None])
    with contextlib.nullcontext() if there else pytest.raises(NoAuthError):
        run(ensure_path(world, "/a", (), None))


def test_a_path_whose_making_is_lost_is_made_again() -> None:
    world: Any = Runtime(create=[NotSentError("lost"), NodeExistsError("there")])
    run(ensure_path(world, "/a", (), None))
    assert world.asked == ["create", "create"]


def test_a_server_without_containers_is_asked_for_one_once() -> None:
    old = UnimplementedError("before 3.5.3")
    world: Any = Runtime(create=[old])
    run(ensure_path(world, "/a", (), None, containers=True))
    assert world.asked == ["create", "create"]
    world = Runtime(create=[old, old])
    with pytest.raises(UnimplementedError):
        run(ensure_path(world, "/a", (), None, containers=True))


def test_a_path_above_the_root_cannot_be_made() -> None:
    world: Any = Runtime(create=[NoNodeError("no chroot")])
    with pytest.raises(NoNodeError):
        run(ensure_path(world, "/", (), None))


async def _walked(world: Any) -> list[str]:
    return [node async for node in walk(world, "/", lambda: None)]


def test_a_walk_reads_again_what_a_lost_connection_hides() -> None:
    lost = OutcomeUnknownError("lost")
    # The readings of one level leave together, so the second of /a comes behind the first of /b.
    world = Runtime(get_children=[lost, ["a", "b"], lost, lost, [], NoNodeError("gone")])
    assert run(_walked(world)) == ["/", "/a"]


def test_each_step_of_a_walk_has_a_deadline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = Runtime(get_children=[["a"], NotSentError("lost"), []])
    until, deadlines = world.until, list[float | None]()

    async def noting(reply: Awaitable[Any], deadline: float | None) -> Any:
        deadlines.append(deadline)
        return await until(reply, deadline)

    async def walked() -> list[str]:
        return [node async for node in walk(world, "/", iter([1.0, 2.0, 3.0]).__next__)]

    monkeypatch.setattr(world, "until", noting)
    assert run(walked()) == ["/", "/a"]
    assert deadlines == [1.0, 2.0, 3.0]


def test_a_node_that_vanishes_before_its_turn_is_no_part_of_the_walk() -> None:
    world = Runtime(get_children=[["a", "b"], NoNodeError("gone"), []])
    assert run(_walked(world)) == ["/", "/b"]


# --- all locks ------------------------------------------------------------------------------------


def test_the_owner_of_locks_that_an_interrupt_has_kept_from_being_made_tells_nothing() -> None:
    _Owner.__new__(_Owner).__del__()


@pytest.mark.parametrize("twice", [True, False])
def test_hazard_B42_an_interrupt_is_raised_when_the_clean_up_is_done(twice: bool) -> None:
    core, world = sequential()
    assert run(core._acquire_by(None, True))
    errors: list[BaseException] = [KeyboardInterrupt()] * (1 + twice)

    def unhold(hold: object) -> None:
        if errors:
            raise errors.pop()

    world.unhold = unhold  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):  # it is raised all the same
        core._release_in_background()
    assert len(world.spawned) == 1
    assert not core._is_active


def test_a_lock_that_cannot_be_cleaned_up_now_is_cleaned_up_at_the_end() -> None:
    core, world = sequential(get_children=[NoAuthError("no")])

    def full(work: object) -> None:
        raise RecursionError

    world.spawn = full  # type: ignore[method-assign]
    with pytest.raises(RecursionError):
        run(core._acquire_by(None, True))
    assert world.active_locks == {core}
    del world.spawn
    core._resume_cleanup()
    assert world.spawned
    assert not world.active_locks


def test_a_clean_up_goes_on_over_lost_connections_until_the_session_is_over() -> None:
    core, world = sequential(delete=[NotSentError("lost"), SessionExpiredError("over")])
    assert run(core._acquire_by(None, True))
    core._release_in_background()
    run(world.spawned[0](world))
    assert world.asked[-2:] == ["delete", "delete"]


def test_a_withdrawal_after_the_end_of_the_session_is_done() -> None:
    core, world = sequential()
    assert run(core._acquire_by(None, True))

    def spawn(work: object) -> None:
        raise SessionExpiredError("over")

    world.spawn = spawn  # type: ignore[method-assign]
    core._release_in_background()
    assert not core.held


def test_a_release_after_the_lease_has_run_out_says_that_the_lock_was_lost() -> None:
    core, world = sequential()
    assert run(core._acquire_by(None, True))
    world.time = Runtime.lease_deadline
    with pytest.raises(LockLostError, match="for a session timeout"):
        run(core._release_by(None))
    assert len(world.spawned) == 1


def test_a_release_that_meets_the_end_of_the_session_says_that_the_lock_was_lost() -> None:
    core, _ = sequential(delete=[SessionExpiredError("over")])
    assert run(core._acquire_by(None, True))
    with pytest.raises(LockLostError, match="the session has expired"):
        run(core._release_by(None))
    assert not core._is_active


def test_a_release_that_finds_no_server_until_the_lease_ends_says_that_the_lock_was_lost() -> None:
    core, world = sequential()
    assert run(core._acquire_by(None, True))

    async def wait_in_vain(deadline: float | None) -> None:
        assert deadline == world.lease_deadline
        world.time = world.lease_deadline
        raise OperationTimeoutError("no server could be reached in time")

    world.usable = False
    world.connected = wait_in_vain  # type: ignore[method-assign]
    with pytest.raises(LockLostError, match="no answer has prolonged it for a session"):
        run(core._release_by(None))
    assert "delete" not in world.asked
    assert not core._is_active


def test_a_guard_that_comes_behind_the_end_of_the_session_harms_nobody() -> None:
    core, world = sequential()

    def refuse(node: str, fence: int, guard: object) -> Answer:
        raise SessionExpiredError("over")

    world._watch_own_node = refuse  # type: ignore[method-assign]
    assert run(core._acquire_by(None, True))
    (stand,) = world.late
    stand()
    assert core.held, "until the end of the session reaches it as a hold"


def test_a_lock_that_is_released_before_its_guard_stands_needs_none() -> None:
    core, world = sequential()
    stood: list[object] = []
    world._watch_own_node = lambda *guarded: stood.append(guarded)  # type: ignore[assignment,method-assign]
    world.forget = stood.append  # type: ignore[assignment,method-assign]
    assert run(core._acquire_by(None, True))
    run(core._release_by(None))
    (stand,) = world.late
    stand()
    assert stood == []


def test_a_guard_that_is_dismissed_while_it_is_asked_for_is_forgotten() -> None:
    """The request comes from the I/O thread, the release from any other."""
    core, world = sequential()
    forgotten: list[object] = []
    world.forget = forgotten.append  # type: ignore[assignment,method-assign]

    def release_meanwhile(node: str, fence: int, guard: OwnNodeWatch) -> Answer:
        run(core._release_by(None))
        assert guard.closed
        raise ClosedWatchError("the watch has been closed")

    world._watch_own_node = release_meanwhile  # type: ignore[method-assign,assignment]
    assert run(core._acquire_by(None, True))
    (stand,) = world.late
    stand()
    assert len(forgotten) == 1


def test_a_claim_shows_only_when_its_loss_would_be_noticed() -> None:
    """Another thread may release it at once."""
    core, world = sequential()
    seen: list[bool] = []
    world.hold = lambda hold: seen.append(core.held)  # type: ignore[method-assign]
    world.defer = lambda function: seen.append(core.held)  # type: ignore[method-assign]
    assert run(core._acquire_by(None, True))
    assert seen == [False, False]
    assert core.held


def test_a_release_that_has_begun_before_acquire_returns_is_left_alone() -> None:
    class Hasty(AsyncSequentialLock):
        async def _acquire(self, deadline: float | None, wait: bool) -> bool:
            won = await super()._acquire(deadline, wait)
            self._pending_cleanup = (
                self._granted
            )  # the first thing that a release does, in another thread
            return won

    world: Any = Runtime()
    core = Hasty(world, "/lock")
    assert run(core._acquire_by(None, True))
    assert not world.spawned
    assert core.held


def test_an_interrupt_right_behind_the_grant_leaves_nothing() -> None:
    class Interrupted(AsyncSequentialLock):
        def _grant(self, attempt: Attempt) -> None:
            super()._grant(attempt)
            raise KeyboardInterrupt

    world: Any = Runtime()
    core = Interrupted(world, "/lock")
    with pytest.raises(KeyboardInterrupt):
        run(core._acquire_by(None, True))
    assert not core.held
    assert len(world.spawned) == 1


def test_a_body_that_another_thread_overtakes_leaves_the_lock_to_it() -> None:
    core, world = sequential()

    def overtake() -> None:
        del world.check
        assert run(core._acquire(None, True))

    world.check = overtake  # type: ignore[method-assign]
    with pytest.raises(LockInUseError):
        run(core.__aenter__())
    assert core.held
    assert not world.spawned


def test_a_release_that_begins_as_acquire_is_interrupted_is_not_forgotten() -> None:
    class Interrupted(AsyncSequentialLock):
        def _grant(self, attempt: Attempt) -> None:
            raise KeyboardInterrupt

        def _clean_up_pending(self) -> None:
            super()._clean_up_pending()
            if world.spawned:
                self._pending_cleanup = an_attempt()  # by the release, in another thread

    world: Any = Runtime()
    core = Interrupted(world, "/lock")
    with pytest.raises(KeyboardInterrupt):
        run(core._acquire_by(None, True))
    assert world.active_locks == {core}


def test_a_lock_that_is_lost_as_it_is_granted_was_never_acquired() -> None:
    core, world = sequential()
    world.time = Runtime.lease_deadline
    with pytest.raises(LockLostError, match="in the moment"):
        run(core._acquire_by(None, True))
    assert len(world.spawned) == 1


def test_who_has_lost_a_lock_can_acquire_it_again_without_a_release() -> None:
    """What the lost attempt may have left is cleaned up behind it."""
    lock, world = sequential()
    assert run(lock._acquire_by(None, True))
    lost = lock.lost
    lost._lose("its node was deleted")
    assert not lock.held
    assert run(lock._acquire_by(None, True))
    assert lock.held
    assert lock.lost is not lost
    assert len(world.spawned) == 1


def test_a_loss_shows_what_has_become_of_it() -> None:
    core, _ = sequential()
    assert run(core._acquire_by(None, True))
    both: Any = AsyncMultiLock(core)._lost
    assert (repr(core.lost), repr(both)) == ("<Lost: not lost>", "<AnyLost: not lost>")
    both._parts = [core.lost]
    core.lost._lose("stolen")
    assert (repr(core.lost), repr(both)) == ("<Lost: stolen>", "<AnyLost: stolen>")
    released, _ = sequential()
    released.lost._let_go()
    both._parts = [released.lost]
    assert (repr(released.lost), repr(both)) == ("<Lost: released>", "<AnyLost: released>")


def refused(index: int, error: ServerError) -> MultiError:
    return MultiError([None] * index + [error], index)


def own() -> DataAndStat:
    return DataAndStat(an_attempt().id.encode(), STAT)


# --- the clients ----------------------------------------------------------------------------------


def test_the_locks_of_a_multi_lock_are_of_one_client() -> None:
    with pytest.raises(ValueError, match="one client"):
        AsyncMultiLock(sequential()[0], AsyncSequentialLock(cast("Any", Runtime()), "/other"))


@pytest.mark.parametrize("broken", [True, False])
def test_an_error_in_the_body_goes_before_the_loss_of_the_lock(broken: bool) -> None:
    client = client_of(Runtime())
    multi, reentrant = MultiLock(SequentialLock(client, "/a")), ReentrantLock(client, "/b")
    for lock, lost in ((multi, multi.locks[0].lost), (reentrant, reentrant.lock.lost)):
        with pytest.raises(KeyError if broken else LockLostError), lock:
            lost._lose("stolen")
            if broken:
                raise KeyError


@pytest.mark.parametrize("broken", [True, False])
def test_an_error_in_the_body_of_a_task_goes_before_the_loss(broken: bool) -> None:
    client = client_of(Runtime(), AsyncClient)

    async def scenario() -> None:
        multi = AsyncMultiLock(AsyncSequentialLock(client, "/a"))
        reentrant = AsyncReentrantLock(client, "/b")
        for lock, lost in ((multi, multi.locks[0].lost), (reentrant, reentrant.lock.lost)):
            with pytest.raises(KeyError if broken else LockLostError):
                async with lock:
                    lost._lose("stolen")
                    if broken:
                        raise KeyError

    asyncio.run(scenario())


def test_a_lock_taken_twice_says_that_and_why_it_is_lost() -> None:
    with pytest.raises(LockLostError), ReentrantLock(client_of(Runtime()), "/b") as lock:
        lock.check()
        lock.lock.lost._lose("stolen")
        with pytest.raises(LockLostError, match="/b is not held: stolen"):
            lock.check()
        with pytest.raises(LockLostError, match="stolen"), lock:
            pytest.fail("the body runs")
        assert lock._algorithm._owned, "it is still to be released"


def test_a_lock_that_a_task_has_taken_twice_says_so_too() -> None:
    async def scenario() -> None:
        lock = AsyncReentrantLock(client_of(Runtime(), AsyncClient), "/b")
        assert await lock.acquire()
        lock.check()
        lock.lost._lose("stolen")
        with pytest.raises(LockLostError, match="stolen"):
            await lock.__aenter__()
        assert lock._algorithm._owned, "it is still to be released"
        with pytest.raises(LockLostError):
            await lock.release()

    asyncio.run(scenario())


def test_a_place_in_the_queue_is_told_to_what_can_be_called() -> None:
    not_a_function: Any = 1
    with pytest.raises(TypeError, match="on_position must be callable, not 1"):
        SequentialLock(client_of(Runtime()), "/a").acquire(on_position=not_a_function)

    async def scenario() -> None:
        lock = AsyncSequentialLock(client_of(Runtime(), AsyncClient), "/a")
        with pytest.raises(TypeError, match="on_position must be callable, not 1"):
            await lock.acquire(on_position=not_a_function)

    asyncio.run(scenario())


def test_a_multi_lock_of_a_task_says_what_it_holds() -> None:
    world = Runtime()

    async def scenario() -> None:
        both = AsyncMultiLock(AsyncSequentialLock(client_of(world, AsyncClient), "/a"))
        assert await both.acquire(0)
        assert both.lease_remaining() == Runtime.lease_deadline
        await both.release()
        assert both.lease_remaining() == 0.0

    asyncio.run(scenario())


def test_a_multi_lock_of_a_task_that_is_not_granted_is_not_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = AsyncMultiLock(AsyncSequentialLock(client_of(Runtime(), AsyncClient), "/a"))

    async def refuse(timeout: float | None = None) -> bool:
        return False

    monkeypatch.setattr(both, "_take", refuse)

    async def scenario() -> None:
        with pytest.raises(LockTakenError):
            async with both:
                pass

    asyncio.run(scenario())


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


async def refuse(*_: object) -> bool:
    return False
