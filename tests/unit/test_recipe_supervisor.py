"""How sessions follow one another, step by step: a backend with a clock of its own, no network."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import nullcontext
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

import pytest

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
from zkwire.recipes.supervisor import SessionLoop, SupervisorView, Turn
from zkwire.session.waitable import Waitable

FOR_EVER = 1e9
DOUBLED = [FIRST_PAUSE * 2**n for n in range(7)] + [LONGEST_PAUSE] * 4


class Until:
    """Awaited, it says until when a task waits to be woken."""

    def __init__(self, latest: float | None) -> None:
        self.latest = latest
        self.woken = False

    def wake(self) -> None:
        self.woken = True

    def __await__(self) -> Generator[Until, None, None]:
        yield self


class Session:
    """A client and its driver in one: how it ends is known beforehand.

    ``end`` comes ``seconds`` after it was connected, or in place of that if those are None.
    """

    name = "client"
    session_id = 7

    def __init__(self, backend: Backend, seconds: float | None, end: ZooKeeperError) -> None:
        self.backend, self.seconds, self.end = backend, seconds, end
        self._driver = self.operations = self
        self.services: dict[Service, None] = {}
        self.made_at = backend.time
        self.over = self.closed = self.begun = False
        self.refused: list[ZooKeeperError] = []  # answers to syncs
        self.syncs = 0
        self.warn = backend.warnings.append
        self.log_failure = lambda *failure: backend.failures.append(failure)

    def check_open(self) -> None:
        if self.over:
            raise self.end
        if self.closed:
            raise ClientClosedError("closed")

    async def connected(self, _: object) -> None:
        self.check_open()
        if not self.begun:
            self.begun, self.made_at = True, self.backend.time
        if self.seconds is None:
            self.over = True
            raise self.end

    def sync(self, _: str) -> None:
        self.syncs += 1

    async def until(self, *_: object) -> None:
        if self.refused:
            error = self.refused.pop(0)
            self.over = error is self.end
            raise error

    def create(self, path: str, text: bytes) -> None:
        """A rehearsal."""

    async def holds(self, condition: Condition, limit: float | None) -> bool:
        left = self.made_at + cast(float, self.seconds) - self.backend.time
        if limit is not None and limit < left:
            return await self.backend.within(condition, limit)
        if not await self.backend.within(condition, left):
            self.over = True
            raise self.end
        return True

    def serve(self, service: Service) -> None:
        self.check_open()
        self.services[service] = None
        self.backend.log.append("serve")
        self.backend.served(service)

    def dismiss(self, service: Service) -> None:
        if service in self.services:
            del self.services[service]
            self.backend.log.append("dismiss")


class Backend:
    """Tasks by hand, and time that passes when all of them wait."""

    awaits = False

    def __init__(self, *ends: tuple[float | None, ZooKeeperError]) -> None:
        self.mutex = nullcontext()
        self.time = 0.0
        self.ends = iter([*ends, *[(FOR_EVER, SessionExpiredError("late"))] * 100])
        self.made: list[Session] = []
        self.tasks: list[tuple[Coroutine[Any, Any, None], Until | None]] = []
        self.log: list[str] = []
        self.warnings: list[str] = []
        self.failures: list[tuple[object, ...]] = []
        self.served: Callable[[Service], object] = lambda _: None
        self.acquired: Callable[[Session], object] = lambda _: None
        self.answers: dict[int, list[ZooKeeperError]] = {}  # to the syncs of the n-th session
        self.unmakable: Exception | None = None
        self.now, self.jitter = lambda: self.time, lambda: 1.0

    def check(self) -> None:
        """It is in no forked child."""

    def make_client(self) -> Session:
        if self.made and self.unmakable is not None:
            raise self.unmakable
        client = Session(self, *next(self.ends))
        client.refused = self.answers.get(len(self.made), client.refused)
        self.made.append(client)
        return client

    async def close_client(self, client: Session) -> None:
        client.closed = True

    async def until_idle(self, client: Session) -> None:
        assert client.closed
        assert not client.services
        self.log.append("idle")

    def make_lock(self, client: Session, path: str, text: str, names: str) -> Session:
        assert (path, text, names) == ("/e", "me", "zkwire")
        return client

    def check_function(self, function: object) -> None:
        if function is print:
            raise TypeError("not of this backend")

    async def under(self, lock: Session, function: Callable[[Any], Any]) -> None:
        self.acquired(lock)
        function(lock)

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.log.append(f"begin {name}")
        self.tasks.append((work(), None))

    async def within(self, waitable: Waitable, timeout: float | None) -> bool:
        latest = None if timeout is None else self.time + timeout
        while not waitable.ready and (latest is None or self.time < latest):
            until = Until(latest)
            wake = until.wake
            waitable._add_waker(wake)
            try:
                await until
            finally:
                waitable._drop_waker(wake)
        return waitable.ready

    def dispatch(self, function: Callable[[], object]) -> None:
        function()

    def turn(self) -> bool:
        """One step of each task that can go on; whether there was one."""
        stepped = False
        for place, (work, until) in enumerate(self.tasks):
            waits = until is not None and not until.woken
            if until is not None and waits and (until.latest or FOR_EVER) > self.time:
                continue
            stepped = True
            try:
                self.tasks[place] = work, work.send(None)
            except StopIteration:
                self.tasks[place] = work, Until(None)
        return stepped

    def pass_time(self, seconds: float) -> None:
        end = self.time + seconds
        while True:
            while self.turn():
                pass
            due = [u.latest for _, u in self.tasks if u is not None and u.latest is not None]
            due = [moment for moment in due if moment > self.time]
            if not due or min(due) > end:
                break
            self.time = min(due)
        self.time = end

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


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of what need not wait."""
    with pytest.raises(StopIteration) as stop:
        work.send(None)
    return stop.value.value


def expired(*seconds: float | None) -> Iterator[tuple[float | None, ZooKeeperError]]:
    return ((lasts, SessionExpiredError("expired")) for lasts in seconds)


def started(backend: Backend, seconds: float | None = None) -> SessionLoop:
    """A loop of sessions, after some time."""
    sequence = SessionLoop(cast(Any, backend))
    sequence.begin()
    if seconds is not None:
        backend.pass_time(seconds)
    return sequence


def test_a_refused_authentication_is_tried_again_with_a_warning() -> None:
    refused = AuthFailedError("wrong password")
    backend = Backend((None, refused), (None, refused))
    sequence = started(backend, 1)
    assert backend.warnings == ["client: wrong password; a supervisor keeps trying"] * 2
    assert run(sequence.client()) is backend.made[2]


@pytest.mark.parametrize(
    ("answers", "syncs"),
    [
        ([], 1),
        ([ConnectionLossError("lost")], 2),
        ([NotReadOnlyError()], 1),
        ([ThrottledOpError()], 2),
    ],
)
def test_a_later_session_begins_with_a_sync(answers: list[ZooKeeperError], syncs: int) -> None:
    backend = Backend(*expired(1.0))
    backend.answers[1] = answers
    backend.served = lambda _: backend.log.append(f"synced {backend.made[1].syncs}")
    sequence = started(backend, 0.5)
    assert backend.made[0].syncs == 0
    sequence._services[Service(cast(Any, sequence))] = None
    backend.pass_time(1)
    assert backend.log[-1] == f"synced {syncs}"


# --- services -------------------------------------------------------------------------------------


def test_a_service_joins_the_session_that_is_there_and_leaves_it() -> None:
    backend = Backend()
    sequence = started(backend)
    service = Service(cast(Any, sequence))
    sequence.dismiss(service)
    backend.pass_time(0)
    sequence.serve(service)
    assert list(backend.made[0].services) == [service]
    sequence.dismiss(service)
    assert not backend.made[0].services
    backend.served = sequence._services.pop  # dismissed while it is begun, by a finalizer, say
    sequence.serve(Service(cast(Any, sequence)))
    assert not backend.made[0].services
    backend.made[0].over = True  # which is known here only later
    sequence.serve(service)
    assert service in sequence._services


def test_a_second_begin_of_the_same_supervisor_ends_at_once() -> None:
    """An interrupt of the first may come behind the start of its thread."""
    backend = Backend(*expired(1.0))
    sequence = started(backend)
    sequence._begun = False
    sequence.begin()
    backend.pass_time(0.5)
    sequence.begin()
    assert backend.log == ["begin sessions"] * 2
    assert sequence._present == (1, backend.made[0])


def test_what_cannot_be_made_again_or_is_cancelled_ends_the_supervisor() -> None:
    backend = Backend(*expired(1.0))
    sequence = started(backend)
    backend.unmakable = ValueError("the certificate is gone")
    backend.pass_time(2)
    for ask in (sequence.wait, sequence.client):
        with pytest.raises(ValueError, match="certificate"):
            ask().send(None)
    backend = Backend()
    sequence = started(backend, 0)
    backend.tasks[0][0].close()
    assert sequence._closed


# --- to wait --------------------------------------------------------------------------------------


def test_no_session_in_time() -> None:
    backend = Backend(*expired(*[None] * 5))
    sequence = started(backend)
    found = backend.gather(lambda: sequence.client(0.25))
    backend.pass_time(0.3)
    assert found == ["there was no session within 0.25 s"]


def test_a_closed_supervisor() -> None:
    backend = Backend()
    sequence = started(backend, 0)
    assert not run(sequence.wait(0))
    run(sequence.stop())
    backend.pass_time(0)
    assert backend.made[0].closed
    assert run(sequence.wait())
    for refused in (sequence.client(), sequence.holds(Condition(lambda: False), None)):
        with pytest.raises(ClientClosedError):
            refused.send(None)
    with pytest.raises(ClientClosedError):
        sequence.serve(Service(cast(Any, sequence)))
    assert run(sequence.later(0)) is None


@pytest.mark.parametrize("steps", [0, 1])
def test_a_close_before_the_first_session(steps: int) -> None:
    backend = Backend(*expired(*[None] * 5))
    sequence = started(backend)
    seen = backend.gather(lambda: sequence.later(0))
    for _ in range(steps):
        backend.turn()
    run(sequence.stop())
    backend.pass_time(1)
    assert seen == [None]
    assert backend.made[0].closed


# --- leadership -----------------------------------------------------------------------------------


class Face(SupervisorView):
    """What users have, in this backend."""

    def __init__(self, backend: Backend, **options: object) -> None:
        self._checked(options)
        self._backend = backend
        self._algorithm = SessionLoop(cast(Any, backend))


class Broken(Exception):
    """An error of a user's function."""


def led(backend: Backend, function: Callable[[Session], object], seconds: float) -> SessionLoop:
    face = Face(backend)
    face.lead("/e", function, "me")
    backend.pass_time(seconds)
    return face._algorithm


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
    backend = Backend(*expired(1.0))
    terms, left = list[Session](), iter(steps)

    def function(lock: Session) -> None:
        terms.append(lock)
        step = next(left, Broken("the script is over"))
        if isinstance(step, SessionExpiredError):
            lock.over = True
        if step is not None:
            raise step

    sequence = led(backend, function, 3)
    assert [backend.made.index(client) for client in terms] == sessions
    last = steps[-1] if len(terms) == len(steps) else Broken
    with pytest.raises(last if isinstance(last, type) else type(last)) as caught:
        sequence.raise_error()
    assert backend.failures == [("client: lead-/e has ended the supervisor", caught.value)]
    assert all(client.closed for client in backend.made)


def test_a_refused_candidacy_is_logged_once_and_tried_again() -> None:
    backend, told, tries = Backend(*expired(60.0)), list[object](), list[tuple[int, float]]()
    terms: list[object] = []

    def acquired(session: Session) -> None:
        tries.append((backend.made.index(session), backend.time))
        if len(tries) < 15:
            raise NoAuthError("closed") if len(tries) != 14 else QuotaExceededError("full")

    def function(lock: Session) -> None:
        terms.append(lock)
        raise Broken

    backend.acquired = acquired
    leadership = Face(backend).lead("/e", function, "me", on_problem=told.append)
    backend.pass_time(0.05)
    assert isinstance(leadership.problem, NoAuthError)
    backend.pass_time(100)
    times = list(accumulate(DOUBLED, initial=0.0))
    assert [session for session, _ in tries] == [0] * 12 + [1] * 3
    assert [time for _, time in tries[:13]] == pytest.approx([*times, 60.0])
    assert [type(problem) for problem in told] == [NoAuthError, QuotaExceededError, type(None)]
    assert [line.partition(": ")[0] for line in backend.warnings] == [
        "the candidacy at /e is refused, and tried again"
    ] * 2
    assert len(terms) == 1
    assert leadership.problem is None


def test_bad_arguments_begin_nothing() -> None:
    with pytest.raises(TypeError, match="cannot resume"):
        Face(Backend(), resume=None)
    face = Face(backend := Backend())
    for function, said in ((1, "callable"), (print, "not of this backend")):
        with pytest.raises(TypeError, match=said):
            face.lead("/e", cast(Any, function), "me")
    with pytest.raises(AssertionError):  # of the lock that is made of the arguments
        face.lead("bad", len, "me")
    assert not backend.log


OWN = LockLostError("own", session_id=Session.session_id)


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
    client = Session(Backend(), 1.0, SessionExpiredError("expired"))
    client.over = over
    turn = Turn(client)
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
    assert type(recipe) is not Asking
    assert isinstance(recipe, Asking)
