"""Watching forever, step by step, with answers that the test has written down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE
from tests.support.scripted import STAT, Answer
from tests.unit.test_recipe_steps import Runtime
from zkwire.blocking.sync import run
from zkwire.errors import (
    ClientClosedError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionMovedError,
    ThrottledOpError,
)
from zkwire.jute.records import Stat
from zkwire.net.background import BackgroundTask
from zkwire.recipes._service import Condition, Service
from zkwire.recipes.watching import AsyncDataWatch, NodeWatcher
from zkwire.wire.model import State


def changed(stat: Stat, **fields: int) -> Stat:
    """The same stat but for these fields."""
    return Stat(**{name: getattr(stat, name) for name in Stat.__fields__} | fields)


AFTER = (b"after", changed(STAT, mzxid=9, version=3))
GONE = NoNodeError("")


class Turn:
    """Lets the others go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class World(Runtime):
    """A session of which only the answers exist, in their order; ``asked`` is what it was asked.

    As the ``Sessions`` and the runtime in one: a caller that waits lets the service go on.
    """

    awaits = forked = False

    def __init__(self, *replies: object) -> None:
        super().__init__()
        self.replies = list(replies)
        self.called: list[Callable[[], object]] = []
        self.warned: list[str] = []
        self.pauses: list[float] = []
        self.fired = self.dismissed = 0
        self._work: Any = None
        self.dispatch, self.warn = self.called.append, self.warned.append

    async def pause(self, seconds: float, hurry: Condition) -> None:
        self.pauses.append(seconds)
        await self.wait_for(hurry)

    def serve(self, service: Service) -> None:
        runtime: Any = self
        self._work = service._run(runtime)
        self.turn()

    def dismiss(self, _: Service) -> None:
        self.dismissed += 1

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

    async def event(self, *_: object) -> Any:
        while not self.fired:
            await Turn()
        self.fired -= 1

    def _answer(self, name: str, *_: Any) -> Answer:
        self.asked.append(name)
        answer = self.replies.pop(0)
        if isinstance(answer, RuntimeError):
            raise answer  # as where a request is refused at once
        return Answer(answer)


def states(world: World, count: int, kind: type[NodeWatcher] = AsyncDataWatch) -> list[Any]:
    """So many calls of ``next``; before each but the first, the watch fires once for each."""
    follower = kind(world, "/a")
    found = []
    for _ in range(count):
        found.append(run(follower.next(0)))
        world.fired += 1
    return found


FIRST = (*AFTER, False)
AGAIN = [NotSentError, OutcomeUnknownError, ThrottledOpError, SessionMovedError]


@pytest.mark.parametrize(
    ("answers", "found", "asked"),
    [
        ([GONE, STAT, AFTER], [FIRST], "get_data exists get_data"),
        ([GONE, None, GONE, None, AFTER], [(None, None, False), None, (*AFTER, True)], None),
        *(([error(""), GONE, error(""), AFTER], [FIRST], None) for error in AGAIN),
        (
            [RuntimeError("add_watch"), NotSentError(""), None, AFTER],
            [FIRST],
            "get_data exists exists get_data",
        ),
    ],
)
def test_what_is_missing_lost_or_refused_for_a_moment_is_read_again(
    answers: list[object], found: list[Any], asked: str | None
) -> None:
    """A node that is created between two looks, one that is still missing, an answer that is lost;
    an add_watch without an answer is waited for."""
    world = World(*answers)
    assert states(world, len(found)) == found
    assert asked is None or world.asked == asked.split()


@pytest.mark.parametrize("state", [State.CONNECTED, State.CONNECTED_READ_ONLY])
@pytest.mark.parametrize("fields", [{"mzxid": 8}, {"ctime": 1}])
def test_a_lower_zxid_is_an_older_state_on_a_read_only_server_alone(
    state: State, fields: dict[str, int]
) -> None:
    """Elsewhere it says that the servers have lost their data, where zxids come again, too."""
    other = (b"other", changed(AFTER[1], **fields))
    world = World(AFTER, other)
    world.session = SimpleNamespace(state=state)
    older = state is State.CONNECTED_READ_ONLY and "mzxid" in fields
    assert states(world, 2) == [FIRST, None if older else (*other, True)]


@pytest.mark.parametrize("answers", [[KeyError("bug")], [RuntimeError("old"), RuntimeError("bug")]])
def test_an_error_of_the_unexpected_kind_is_raised_and_hangs_nothing(
    answers: list[Exception],
) -> None:
    world, told = World(*answers), list[object]()
    follower = AsyncDataWatch(world, "/a")
    for _ in range(2):
        with pytest.raises(type(answers[-1]), match="bug"):
            run(follower.next(0))
    assert world.dismissed == 1
    follower = AsyncDataWatch(world := World(KeyError("a bug")), "/a", print, told.append)
    assert world.warned == ["the watch_data of /a has ended: KeyError: 'a bug'"]
    (tell,) = world.called
    tell()
    assert told == [follower._problem]


def test_a_close_ends_callbacks_and_iterations_and_the_clients_end_does_not() -> None:
    world, called = World(AFTER), list[object]()
    follower = AsyncDataWatch(world, "/a", called.append)
    (call,) = world.called
    follower.close()
    call()
    assert called == []
    follower = AsyncDataWatch(World(), "/a")
    follower.close()
    with pytest.raises(StopAsyncIteration):
        run(follower.__aiter__().__anext__())

    async def ended(*_: object) -> bool:
        raise ClientClosedError("the client is closed")

    other: Any = World(AFTER)
    other.holds = ended
    with pytest.raises(ClientClosedError, match="the client"):
        run(AsyncDataWatch(other, "/a").__aiter__().__anext__())


# --- what a service waits with --------------------------------------------------------------------


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


DRIVER: Any = SimpleNamespace(call_soon=lambda _: None, when_ready=lambda *_: None)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    reported: list[BaseException] = []
    monkeypatch.setattr("zkwire.net.background.report", reported.append)
    return reported


def test_an_error_in_the_clean_up_of_a_cancelled_task_is_reported(
    reported: list[BaseException],
) -> None:
    async def service() -> None:
        try:
            await Turn()
        finally:
            raise KeyError

    task = BackgroundTask(service, DRIVER, set())
    task.step()
    task.cancel()
    assert [type(error) for error in reported] == [KeyError]


@pytest.mark.parametrize("ended", [False, True], ids=["being ended", "ended"])
def test_a_task_that_the_collector_ends_meanwhile_is_left_alone(
    reported: list[BaseException], ended: bool
) -> None:
    """It closes the coroutines of a client that nothing refers to, in whatever thread."""
    ending, end = threading.Event(), threading.Event()

    async def service() -> None:
        try:
            await Turn()
        finally:
            ending.set()
            end.wait(PATIENCE)

    running = set[BackgroundTask]()
    task = BackgroundTask(service, DRIVER, running)
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
