"""How sessions follow one another, step by step: a process of the simulation, and no fault but
those that a test makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from contextvars import copy_context
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.simulation_parts import Process
from zkwire.errors import (
    AuthFailedError,
    ClientClosedError,
    ConnectionLossError,
    LockLostError,
    NoAuthError,
    NotReadOnlyError,
    QuotaExceededError,
    SessionExpiredError,
    ThrottledOpError,
    UnreachableError,
    ZooKeeperError,
)
from zkwire.recipes._recipe import Recipe, SupervisedRuntime
from zkwire.recipes._service import FIRST_PAUSE, LONGEST_PAUSE, Condition, Service
from zkwire.recipes.supervisor import Leadership, SupervisorView, Turn
from zkwire.testing.simulation import InTurn, Simulation
from zkwire.testing.simulation.client import Client
from zkwire.testing.simulation.fault_choice import CLIENT_FAULTS

DOUBLED = [FIRST_PAUSE * 2**n for n in range(7)] + [LONGEST_PAUSE] * 4


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of what need not wait."""
    with pytest.raises(StopIteration) as stop:
        work.send(None)
    return stop.value.value


class Broken(Exception):
    """An error of a user's function."""


MADE = list[Any]()


@pytest.fixture(autouse=True)
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No task is left to the collector."""
    monkeypatch.setattr(Leadership, "_make_lock", lock_of)
    yield
    while MADE:
        process = MADE.pop()
        process.ended = True
        process.sim.drop_tasks(list(process.sim.tasks))


class Lock:
    """A lock that a candidate has at once, unless the test raises something."""

    def __init__(self, process: Supervised, client: Client) -> None:
        self.process, self.client = process, client

    async def __aenter__(self) -> None:
        self.process.acquired(self.client)

    async def __aexit__(self, *_: object) -> None: ...


def lock_of(leadership: Any, driver: Any) -> Lock:
    assert (leadership.path, leadership._text, leadership._names) == ("/e", "me", "zkwire")
    lock: Lock = driver.lock
    return lock


class Supervised(Process):
    """A supervisor, all steps of which are made in turn."""

    def __init__(self, prepare: Callable[[int, Any], object] = lambda number, driver: None) -> None:
        self.warnings: list[str] = []
        self.failures: list[tuple[object, ...]] = []
        self.prepare = prepare  # each driver, by its number
        self.acquired: Callable[[Client], object] = lambda client: None
        super().__init__(Simulation(), "p")
        self.schedule = InTurn()
        MADE.append(self)

    def make_client(self) -> Any:
        client: Any = super().make_client()
        client.session_id = 7
        client.world.warn = self.warnings.append
        client.world.log_failure = lambda *failure: self.failures.append(failure)
        client.world.jitter = lambda: 1.0
        client.world.check_callback = self.check_callback
        client.world.lock = Lock(self, client)
        self.prepare(len(self.clients), client.world)
        return client

    def check_callback(self, function: object) -> None:
        if function is print:
            raise TypeError("not of this backend")

    async def lead(self, function: Callable[[Any], Any], lock: Any) -> None:
        function(lock.client)

    def pass_time(self, seconds: float, expire: bool = False) -> None:
        """Make all steps until so much time has passed; then the session may expire."""
        end = self.sim.now + seconds
        self.sim.spawn(self.newest.sleep(seconds), self.newest)
        while self.sim.now < end or len(self.sim.steps()) > 1:
            step = self.schedule.next(self.sim)
            assert step is not None
            if step.kind == "time" and self.sim.now >= end:
                break
            self.sim.perform(step)
        if expire:
            CLIENT_FAULTS["expire"](self.sim, self.newest)
            self.pass_time(1.0)

    def gather(self, ask: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        """What a task gets or is raised, when it has got that."""
        found: list[Any] = []

        async def asking() -> None:
            try:
                found.append(await ask())
            except UnreachableError as error:
                found.append(str(error))

        self.begin(asking, "ask")
        return found


def started(process: Supervised, seconds: float = 0.5, expire: bool = False) -> Any:
    """The loop of the sessions, after some time."""
    process.sessions.begin()
    process.pass_time(seconds, expire)
    return process.sessions


def test_a_refused_authentication_is_tried_again_with_a_warning() -> None:
    async def refused(_: object) -> None:
        raise AuthFailedError("wrong password")

    def prepare(number: int, driver: Any) -> None:
        if number < 3:
            driver.connected = refused

    process = Supervised(prepare)
    found = process.gather(lambda: process.sessions.client(0.05))
    sequence = started(process, 1)
    assert found == ["there was no session within 0.05 s: wrong password"]
    assert process.warnings == ["zkwire: wrong password; a supervisor keeps trying"] * 2
    assert run(sequence.client()) is process.clients[2]


@pytest.mark.parametrize(
    ("answers", "syncs"),
    [
        ([], 1),
        ([ConnectionLossError("lost")], 2),
        ([NotReadOnlyError()], 1),
        ([ThrottledOpError()], 2),
        ([NoAuthError()] * 2, 3),
    ],
)
def test_a_later_session_begins_with_a_sync(answers: list[ZooKeeperError], syncs: int) -> None:
    synced, served = list[int](), list[int]()

    def prepare(number: int, driver: Any) -> None:
        async def until(*_: object) -> None:
            synced.append(number)
            if answers:
                raise answers.pop(0)

        driver.until = until
        driver.serve = lambda _: served.append(len(synced))

    process = Supervised(prepare)
    sequence = started(process)
    assert synced == []
    sequence._services[Service(sequence)] = None
    process.pass_time(0.5, expire=True)
    assert (synced, served) == ([2] * syncs, [syncs])


def test_a_call_meanwhile_is_made_in_the_next_session_and_none_follows_a_close() -> None:
    async def refused(*_: object) -> None:
        raise NoAuthError

    process = Supervised(lambda number, driver: setattr(driver, "until", refused))
    sequence = started(process)
    process.newest.session.closed()
    found = process.gather(sequence.newest)
    process.pass_time(0.5)
    assert found == [process.clients[1].world]
    process.begin(sequence.stop, "stop")
    process.pass_time(60)
    assert process.tasks[0].done
    assert len(process.clients) == 2


# --- services -------------------------------------------------------------------------------------


class Resident(Service):
    _called, _path = "resident", "/"

    async def _serve(self, runtime: Any) -> None:
        await runtime.wait_for(Condition(lambda: False))


def test_a_service_joins_the_session_that_is_there_and_leaves_it() -> None:
    process = Supervised()
    sequence = started(process)
    driver = process.newest.world
    service = Resident(sequence)
    sequence.dismiss(service)
    sequence.serve(service)
    assert list(driver.services) == [service]
    sequence.dismiss(service)
    assert not driver.services
    serve = driver.serve

    def dismissed(service: Service) -> None:  # while it is begun, by a finalizer, say
        serve(service)
        sequence._services.pop(service)

    driver.serve = dismissed  # type: ignore[method-assign]
    sequence.serve(Resident(sequence))
    assert not driver.services
    CLIENT_FAULTS["abandon"](process.sim, process.newest)  # which is known here only later
    sequence.serve(service)
    assert service in sequence._services


def test_a_second_begin_of_the_same_supervisor_ends_at_once() -> None:
    """An interrupt of the first may come behind the start of its thread."""
    process = Supervised()
    sequence = started(process)
    sequence._begun = False
    sequence.begin()
    process.pass_time(0.5)
    assert len(process.tasks) == 2
    assert process.tasks[1].done
    assert sequence._present == (1, process.clients[0])


def test_what_cannot_be_made_again_or_is_cancelled_ends_the_supervisor() -> None:
    def prepare(number: int, _: Any) -> None:
        if number > 1:
            raise ValueError("the certificate is gone")

    process = Supervised(prepare)
    sequence = started(process, expire=True)
    for ask in (sequence.wait, sequence.client):
        with pytest.raises(ValueError, match="certificate"):
            ask().send(None)
    process = Supervised()
    sequence = started(process)
    process.newest.session.closed()
    process.tasks[0].coroutine.close()
    assert sequence._closed


def test_a_closed_supervisor() -> None:
    process = Supervised()
    seen = process.gather(lambda: process.sessions.later(1))
    sequence = started(process)
    assert not run(sequence.wait(0))
    process.begin(sequence.stop, "stop")
    process.pass_time(1)
    assert seen == [None]
    assert process.newest.session.ended
    assert run(sequence.wait())
    for refused in (sequence.client(), sequence.holds(Condition(lambda: False), None)):
        with pytest.raises(ClientClosedError):
            refused.send(None)
    with pytest.raises(ClientClosedError):
        sequence.serve(Resident(sequence))
    assert run(sequence.later(0)) is None


# --- leadership -----------------------------------------------------------------------------------


class Face(SupervisorView):
    """What users have, in this backend."""

    def __init__(self, backend: Supervised, **options: object) -> None:
        self._checked(options)
        self._algorithm = backend.sessions


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("tasks", errors)


@pytest.mark.parametrize(
    ("steps", "sessions"),
    [
        ([None, None], [0, 0, 0]),
        ([ConnectionLossError("lost"), LockLostError("lost")], [0, 0, 0]),
        ([SessionExpiredError("expired")], [0, 1]),
        ([group(ConnectionLossError("a"), group(LockLostError("b")))], [0, 0]),
        ([group(ConnectionLossError("a"), Broken("mine"))], [0]),
        ([NoAuthError()], [0]),
        ([SystemExit(1)], [0]),
        ([ClientClosedError("another client of the user's")], [0]),
    ],
)
def test_terms_follow_one_another_until_an_error_that_is_not_the_networks(
    steps: list[Any], sessions: list[int]
) -> None:
    process = Supervised()
    terms, left = list[Client](), iter(steps)

    def function(lock: Client) -> None:
        terms.append(lock)
        step = next(left, Broken("the script is over"))
        if isinstance(step, SessionExpiredError):
            lock.session.closed()
        if step is not None:
            raise step

    Face(process).lead("/e", function, "me")
    process.pass_time(3)
    assert [process.clients.index(client) for client in terms] == sessions
    last = steps[-1] if len(terms) == len(steps) else Broken
    with pytest.raises(last if isinstance(last, type) else type(last)) as caught:
        process.sessions.raise_error()
    assert process.failures == [("zkwire: lead-/e has ended the supervisor", caught.value)]
    assert all(client.session.ended for client in process.clients)


def test_a_refused_candidacy_is_logged_once_and_tried_again() -> None:
    process, told, tries = Supervised(), list[object](), list[tuple[int, float]]()
    terms: list[object] = []

    def acquired(client: Client) -> None:
        tries.append((process.clients.index(client), process.sim.now))
        if len(tries) < 15:
            raise NoAuthError("closed") if len(tries) != 14 else QuotaExceededError("full")

    def function(lock: Client) -> None:
        terms.append(lock)
        raise Broken

    process.acquired = acquired
    leadership = Face(process).lead("/e", function, "me", on_problem=told.append)
    assert repr(leadership) == "<Leadership /e>"
    process.pass_time(0.05)
    assert isinstance(leadership.problem, NoAuthError)
    process.pass_time(60, expire=True)
    process.pass_time(1)
    assert [session for session, _ in tries] == [0] * 12 + [1] * 3
    times = [time - tries[0][1] for _, time in tries[:12]]
    assert times == pytest.approx(list(accumulate(DOUBLED, initial=0.0)))
    assert [type(problem) for problem in told] == [NoAuthError, QuotaExceededError, type(None)]
    assert [line.partition(": ")[0] for line in process.warnings] == [
        "the candidacy at /e is refused, and tried again"
    ] * 2
    assert len(terms) == 1
    assert leadership.problem is None


def test_bad_arguments_begin_nothing() -> None:
    with pytest.raises(TypeError, match="cannot resume"):
        Face(Supervised(), resume=None)
    face = Face(process := Supervised())
    for function, said in ((1, "callable"), (print, "not of this backend")):
        with pytest.raises(TypeError, match=said):
            face.lead("/e", cast(Any, function), "me")
    with pytest.raises(AssertionError):  # of the lock that is made of the arguments
        face.lead("bad", len, "me")
    assert not process.tasks


OWN = LockLostError("own", session_id=7)


@pytest.mark.parametrize(
    ("error", "over", "is_end"),
    [
        (None, True, False),
        (KeyboardInterrupt(), True, False),
        (SessionExpiredError("x"), True, True),
        (SessionExpiredError("another's"), False, False),
        (ConnectionLossError("x"), True, True),
        (ConnectionLossError("x"), False, False),
        (group(SessionExpiredError("x"), ConnectionLossError("y")), True, True),
        (group(SessionExpiredError("x"), Broken()), True, False),
        (OWN, True, True),
        (OWN, False, True),
        (group(OWN, OWN), False, True),
        (group(OWN, ConnectionLossError("x")), False, False),
        (LockLostError("another's", session_id=1), False, False),
        (LockLostError("never held"), False, False),
    ],
)
def test_what_ends_the_turn_of_a_session(
    error: BaseException | None, over: bool, is_end: bool
) -> None:
    process = Supervised()
    started(process)
    if over:
        process.newest.session.closed()
    turn = Turn(process.newest)
    assert run(turn.is_ended_by(error)) is is_end
    assert turn.again == (is_end and not over)


# --- which session a call of a recipe has: that of its beginning, to its end ----------------------


class Sessions:
    """A supervisor whose sessions follow one another when they are told to."""

    def __init__(self) -> None:
        self.latest_driver: Any = SimpleNamespace(name="first")
        self._recipe_runtime = SupervisedRuntime(self, nullcontext())

    async def newest(self) -> Any:
        return self.latest_driver


class Asking(Recipe):
    """A recipe of two requests, between which something happens."""

    def __init__(self, client: Any, between: Any) -> None:
        self._runtime, self._between = client._recipe_runtime, between

    async def ask(self) -> list[str]:
        return [self._runtime.name, await self._other()]

    async def _other(self) -> str:
        self._between()
        name: str = self._runtime.name
        return name


def test_a_call_has_one_session_and_the_next_call_the_newest() -> None:
    sessions = Sessions()

    def expire() -> None:
        sessions.latest_driver = SimpleNamespace(name="second")

    recipe = Asking(sessions, expire)
    assert run(recipe.ask()) == ["first", "first"]
    assert run(recipe.ask()) == ["second", "second"]
    assert type(recipe) is type(type(recipe)(sessions, expire)) is not Asking
    assert isinstance(recipe, Asking)
    runtime: Any = sessions._recipe_runtime
    runtime.unfinished = True
    assert runtime.unfinished is sessions.latest_driver.unfinished is True
    elsewhere = runtime.call(None, lambda: asyncio.sleep(0))
    copy_context().run(elsewhere.send, None)
    elsewhere.close()
