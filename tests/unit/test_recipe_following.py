"""Watching forever, step by step, with answers that the test has written down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE
from tests.support.scripted import STAT, Answer
from zkwire.blocking.sync import run
from zkwire.errors import (
    ClientClosedError,
    NoAuthError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
    ZooKeeperError,
)
from zkwire.jute.records import Stat
from zkwire.net.background import BackgroundTask
from zkwire.recipes._service import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Background,
    Condition,
    NodeWatches,
    Service,
)
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch, NodeWatcher
from zkwire.session.waitable import Waitable
from zkwire.testing.simulation import InTurn, Simulation


def changed(stat: Stat, **fields: int) -> Stat:
    """The same stat but for these fields."""
    return Stat(**{name: getattr(stat, name) for name in Stat.__fields__} | fields)


OLD, NEW = changed(STAT, mzxid=5, version=1), changed(STAT, mzxid=6, version=2)
AFTER = (b"after", changed(STAT, mzxid=9, version=3))


class Turn:
    """Lets the others go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class World:
    """A session of which only the answers exist; ``asked`` is what it was asked for.

    As the ``Sessions`` and the runtime in one: a caller that waits lets the service go on.
    """

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.called: list[Callable[[], object]] = []
        self.warned: list[str] = []
        self.pauses: list[float] = []
        self.fired = 0
        self.dismissed = 0
        self._work: Any = None
        self._service: Any = None

    forked = False

    @property
    def operations(self) -> Any:
        return self

    def check(self) -> None:
        pass

    check_open = check

    def warn(self, message: str) -> None:
        self.warned.append(message)

    def jitter(self) -> float:
        return 1.0

    async def pause(self, seconds: float, hurry: Condition) -> None:
        self.pauses.append(seconds)
        await self.wait_for(hurry)

    def serve(self, service: Service) -> None:
        runtime: Any = self
        self._service, self._work = service, service._run(runtime)
        self.turn()

    def another_session(self) -> None:
        """The session has expired; another one follows."""
        with pytest.raises(StopIteration):
            self._work.throw(SessionExpiredError("expired"))
        self.serve(self._service)

    def dismiss(self, _: Service) -> None:
        self.dismissed += 1

    @property
    def _sessions(self) -> World:
        return self

    awaits = False

    def check_callback(self, function: object) -> None:
        pass

    def dispatch(self, function: Callable[[], object]) -> None:
        self.called.append(function)

    async def holds(self, condition: Condition, _: float | None) -> bool:
        self.turn()
        return condition.ready

    def turn(self) -> None:
        try:
            self._work.send(None)
        except StopIteration:
            self._work = iter(())  # ended
            self.turn = lambda: None  # type: ignore[method-assign]

    async def wait_for(self, condition: Condition) -> None:
        while not condition.ready:
            await Turn()

    async def event(self, *_: object) -> None:
        while not self.fired:
            await Turn()
        self.fired -= 1

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        def ask(*_: object, **__: object) -> Answer:
            self.asked.append(name)
            answer = self.answers.pop(0)
            if isinstance(answer, RuntimeError):
                raise answer  # as where a request is refused at once
            return Answer(answer)

        return ask


def states(world: World, count: int, kind: type[NodeWatcher] = AsyncDataWatch) -> list[Any]:
    """So many calls of ``next``; before each but the first, the watch fires once for each."""
    follower = kind(world, "/a")
    found = []
    for _ in range(count):
        found.append(run(follower.next(0)))
        world.fired += 1
    return found


def test_a_node_that_is_created_between_two_looks_is_read() -> None:
    world = World(NoNodeError(""), STAT, AFTER)
    assert states(world, 1) == [(*AFTER, False)]
    assert world.asked == ["get_data", "exists", "get_data"]


def test_what_is_still_missing_is_no_new_state() -> None:
    world = World(NoNodeError(""), None, NoNodeError(""), None, AFTER)
    assert states(world, 3) == [(None, None, False), None, (*AFTER, True)]


@pytest.mark.parametrize(
    ("stat", "skipped"),
    [
        (NEW, False),
        (changed(NEW, version=3), True),
        (changed(NEW, czxid=6), True),
        (changed(NEW, czxid=6, version=0), True),
    ],
    ids=["the next version", "a later one", "another node", "another node's first"],
)
def test_only_the_next_version_of_the_same_node_proves_that_none_is_skipped(
    stat: Any, skipped: bool
) -> None:
    assert states(World((b"", OLD), (b"", stat)), 2)[1].skipped is skipped


@pytest.mark.parametrize("stat", [NEW, OLD, changed(OLD, czxid=1, version=9)])
def test_the_same_state_and_an_older_one_are_not_delivered(stat: Any) -> None:
    found = states(World((b"new", NEW), (b"other", stat), AFTER), 3)
    assert [one and one.data for one in found] == [b"new", None, b"after"]


def test_children_are_sorted_and_have_counts_of_their_own() -> None:
    first, second = changed(STAT, pzxid=5, cversion=1), changed(STAT, pzxid=6, cversion=2)
    world = World((["b", "a"], first), (["c"], second))
    found = states(world, 2, AsyncChildrenWatch)
    assert found == [(["a", "b"], first, False), (["c"], second, False)]


@pytest.mark.parametrize(
    "error", [NotSentError, OutcomeUnknownError, ThrottledOpError, SessionMovedError]
)
def test_what_was_lost_or_refused_for_a_moment_is_read_again(error: type[ZooKeeperError]) -> None:
    assert states(World(error(""), NoNodeError(""), error(""), AFTER), 1) == [(*AFTER, False)]


def test_an_add_watch_without_an_answer_is_waited_for() -> None:
    world = World(RuntimeError("add_watch"), NotSentError(""), None, AFTER)
    assert states(world, 1) == [(*AFTER, False)]
    assert world.asked == ["get_data", "exists", "exists", "get_data"]


def test_what_may_not_be_used_at_all_is_raised() -> None:
    world = World(RuntimeError("add_watch"), RuntimeError("gevent"))
    with pytest.raises(RuntimeError, match="gevent"):
        states(world, 1)
    assert world.dismissed == 1


def test_the_next_session_goes_on_from_the_last_state() -> None:
    world = World((b"new", NEW), (b"old", OLD), AFTER)
    follower = AsyncDataWatch(world, "/a")
    assert run(follower.next(0)) == (b"new", NEW, False)
    world.another_session()
    assert run(follower.next(0)) is None
    world.fired += 1
    assert run(follower.next(0)) == (*AFTER, False)


def test_an_error_of_the_unexpected_kind_is_raised_and_hangs_nothing() -> None:
    world = World(KeyError("a bug"))
    follower = AsyncDataWatch(world, "/a")
    for _ in range(2):
        with pytest.raises(KeyError):
            run(follower.next(0))


def test_an_error_that_ends_a_watch_with_a_callback_is_logged() -> None:
    world, told = World(KeyError("a bug")), list[object]()
    follower = AsyncDataWatch(world, "/a", print, told.append)
    assert world.warned == ["the watch_data of /a has ended: KeyError: 'a bug'"]
    (tell,) = world.called
    tell()
    assert told == [follower._problem]


def test_a_refused_read_is_repeated_after_pauses_that_double() -> None:
    refusals = [NoAuthError("closed") for _ in range(10)]
    world, told = World(*refusals, AFTER), list[object]()
    follower = AsyncDataWatch(world, "/a", lambda _: None, told.append)
    for _ in refusals[1:]:
        follower._asked_try += 1
        world.turn()
    assert world.pauses[:8] == pytest.approx(
        [FIRST_PAUSE * 2**n for n in range(7)] + [LONGEST_PAUSE]
    )
    assert follower._problem is refusals[-1]
    follower._asked_try += 1
    world.turn()
    assert follower._problem is None
    assert len(world.warned) == 1
    assert world.warned[0].startswith("the watch_data of /a is refused, and tried again: NoAuth")
    for call in world.called[:2]:
        call()
    assert told == [refusals[0], None]


def test_a_refused_start_can_be_made_good() -> None:
    class Refusing(World):
        ready = False

        def serve(self, service: Service) -> None:
            if not self.ready:
                raise RuntimeError("no running event loop")
            super().serve(service)

    world = Refusing(AFTER)
    follower = AsyncDataWatch(world, "/a")
    with pytest.raises(RuntimeError, match="loop"):
        run(follower.next(0))
    world.ready = True
    assert run(follower.next(0)) == (*AFTER, False)


def test_a_callback_is_not_called_behind_a_close() -> None:
    world, called = World(AFTER), list[object]()
    follower = AsyncDataWatch(world, "/a", called.append)
    (call,) = world.called
    follower.close()
    call()
    assert called == []


def test_an_iteration_that_is_closed_before_it_begins_is_empty() -> None:
    follower = AsyncDataWatch(World(), "/a")
    follower.close()
    with pytest.raises(StopAsyncIteration):
        run(follower.__aiter__().__anext__())


def test_the_end_of_the_client_is_no_end_of_an_iteration() -> None:
    class Ended(World):
        async def holds(self, condition: Condition, _: float | None) -> bool:
            raise ClientClosedError("the client is closed")

    follower = AsyncDataWatch(Ended(AFTER), "/a")
    with pytest.raises(ClientClosedError, match="the client"):
        run(follower.__aiter__().__anext__())


def test_what_subclasses_say() -> None:
    nothing: Any = None
    unnamed, service = NodeWatcher(World(), "/a"), Service(World())
    missing: list[Callable[[], object]] = [
        lambda: run(unnamed._read(nothing, nothing)),
        lambda: run(service._serve(None)),
        lambda: NodeWatches().watch_data("/a"),
        lambda: NodeWatches().watch_children("/a"),
    ]
    for call in missing:
        with pytest.raises(NotImplementedError):
            call()
    service._session_ended()
    service._changed()


# --- what a service waits with --------------------------------------------------------------------


class Flag(Condition):
    """A condition that is set by hand."""

    def __init__(self) -> None:
        self.holds = False
        super().__init__(lambda: self.holds)

    def set(self) -> None:
        self.holds = True
        self.notify()


def test_a_background_runtime_waits_for_replies_and_conditions() -> None:
    async def any_of(*conditions: Waitable) -> None:
        for condition in conditions:
            assert isinstance(condition, Flag)
            condition.set()

    class Known:
        unique = "from the client"

    Known.any_of = staticmethod(any_of)  # type: ignore[attr-defined]
    known: Any = Known()
    answer: Any = Answer(3)
    runtime = Background(known, known)
    assert run(runtime.until(answer, None)) == 3
    assert runtime.unique == "from the client"
    run(runtime.wait_for(Flag()))


def test_a_waker_that_is_interrupted_is_called_the_next_time_and_then_no_more() -> None:
    condition, called = Condition(lambda: True), list[int]()

    def waker() -> None:
        called.append(len(called))
        if len(called) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        condition._add_waker(waker)
    condition.notify()
    condition.notify()
    assert called == [0, 1]


def test_many_waits_leave_no_waker() -> None:
    """A service that waits for one thing or another, of which only one comes, again and again."""

    class Waiting(Service):
        asked, event, rounds = Flag(), Flag(), 0

        async def _serve(self, runtime: Background) -> None:
            while self.rounds < 100:
                await runtime.wait_for(self.asked, self.event)
                self.asked.holds = False
                self.rounds += 1

    async def ask() -> None:
        while service.rounds < 100:
            service.asked.set()
            await client.turn()

    simulation = Simulation(faults=())
    client = simulation.client("a")
    service = Waiting(client.world)
    client.world.serve(service)
    client.spawn(ask())
    assert simulation.run(InTurn())
    assert not service.asked._waiting
    assert not service.event._waiting
    assert not client.session.observers._observers


def test_an_error_in_the_clean_up_of_a_cancelled_task_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr("zkwire.net.background.report", reported.append)

    async def service() -> None:
        try:
            await Turn()
        finally:
            raise KeyError

    task = BackgroundTask(service, lambda _: None, lambda *_: None, set())
    task.step()
    task.cancel()
    assert [type(error) for error in reported] == [KeyError]


@pytest.mark.parametrize("ended", [False, True], ids=["being ended", "ended"])
def test_a_task_that_the_collector_ends_meanwhile_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """It closes the coroutines of a client that nothing refers to, in whatever thread."""
    reported: list[BaseException] = []
    monkeypatch.setattr("zkwire.net.background.report", reported.append)
    ending, end = threading.Event(), threading.Event()

    async def service() -> None:
        try:
            await Turn()
        finally:
            ending.set()
            end.wait(PATIENCE)

    running = set[BackgroundTask]()
    task = BackgroundTask(service, lambda _: None, lambda *_: None, running)
    task.step()
    coroutine: Any = task._coroutine
    collector = threading.Thread(target=coroutine.close)
    collector.start()
    assert ending.wait(PATIENCE)
    if ended:
        end.set()
        collector.join()
    else:
        running.add(task)
        task.cancel()
        running.add(task)
    task.next_step(1)
    assert not running
    assert reported == []
    end.set()
    collector.join()
