"""What shall be true for as long as its owner wants it: work that each session begins anew.

A client is one session.  A supervisor has one session after another, and runs each of its services
again in the next session.  A service knows neither: it is given a runtime for each session, in the
background, where no caller waits, and keeps in its object what outlives the session.

Invariants:

* A service runs in one session at a time.  What it does there has ended before the next begins.
* Its state changes in background steps only; callers read it, and wait for a :class:`Condition`.

What a refusal means is one rule for all services (ServerError: the server refuses what one of them
asks for, by an access list, a quota, a parent that has become ephemeral):

* It does not end the service.  It is logged as a WARNING, once for each kind of refusal; it is
  ``problem``, and ``on_problem`` is called with it, and with None when all is right again.
* It is tried again after pauses that double, from 0.1 s to 10 s, as long as the session lives, and
  at once in each new session.
* A call that waits for the service has it try again at once, and raises the refusal that comes
  while it waits, or that stands when its time is over.  A later call may succeed.
* If the data of one node among others are refused (of a group's member, of a cache's node), the
  node is left out, shown as ``problem`` and tried again in the same way.  No call raises this
  refusal, as the rest is right.
* Arguments that no server could make right (an access list that is none, data that this client
  cannot send) are the caller's ValueError or TypeError, at once; nothing is begun.

A service ends when it is closed, with its client or supervisor, and with an error that does not
come from a server but from the program: its own limit or function (``max_bytes`` and ``skip`` of a
cache), or other items than the oldest member's.  Such an error is logged, too, is the service's
``problem``, and is raised by each call.

A call that answers from memory does so only in its owner's process, and only until the service, its
client or its supervisor has ended.  In a forked child, and later, it raises an error instead.
"""

from __future__ import annotations

from functools import partial

from zkwire import errors
from zkwire.recipes._recipe import Enterable, Recipe
from zkwire.recipes.runtime import REPEATABLE, SESSION_OVER, Runtime
from zkwire.session.waitable import Awaited, Waitable, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from zkwire.operations import Operations, Reply
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.session.waitable import Waker, Watch
    from zkwire.wire.model import Event

    OnProblem = Callable[[Exception | None], object]

    T = TypeVar("T")


FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between a refusal and the next try: doubled each time, less up to a half of it."""


class Problem:
    """The refusal that stands: ``error``, None while all is right."""

    def __init__(self, on_problem: OnProblem | None, dispatch: Callable[..., object]) -> None:
        self.error: Exception | None = None
        self._pause = FIRST_PAUSE
        self._logged: set[tuple[object, ...]] = set()
        self._on_problem = on_problem
        self._dispatch = dispatch

    def stands(self, what: str, error: Exception, warn: Callable[[str], object]) -> float:
        """There is one; returns the seconds to wait before the next try, without jitter.

        ``what`` begins the line in the log.  An error of the same kind is logged once.
        """
        kind = type(error), getattr(error, "code", 0), getattr(error, "op", None)
        self.error = error.with_traceback(None)  # which would keep what was under way alive
        if kind not in self._logged:
            self._logged.add(kind)
            warn(f"{what}: {type(error).__name__}: {error}")
            self._tell()
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def is_over(self) -> None:
        """All is right."""
        if self.error is not None:
            self.error = None
            self._logged.clear()
            self._tell()
        self._pause = FIRST_PAUSE

    def afresh(self) -> None:
        """Begin with the shortest pause, as in a new session."""
        self._pause = FIRST_PAUSE

    def _tell(self) -> None:
        if self._on_problem is not None:
            self._dispatch(partial(self._on_problem, self.error))


def check_function(name: str, function: object) -> None:
    """TypeError unless it is None or can be called."""
    if function is not None and not callable(function):
        raise TypeError(f"{name} must be a function, not {function!r}")


def call_back(
    sessions: Runtime,
    function: Callable[..., Any],
    arguments: tuple[object, ...],
    then: Callable[[Any], object],
) -> object:
    """Call a user's function, and ``then`` at its end with what it has returned, None if it failed.

    Where it is awaited, its end is that of the coroutine, which this returns.
    """
    result: Any = None
    try:
        result = function(*arguments)
    finally:
        awaited = sessions.awaits and hasattr(result, "__await__")
        if not awaited:
            then(result)
    return _until_end(result, then) if awaited else result


async def _until_end(callback: Awaitable[Any], then: Callable[[Any], object]) -> None:
    result: Any = None
    try:
        result = await callback
    finally:
        then(result)


class HasProblem(Recipe):
    """Something that tries again by itself, in each session, what was refused."""

    _outlives_sessions = True

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        raise NotImplementedError


def sessions_of(client: AsyncClientLike) -> Runtime:
    """Where the services of a client run; TypeError if it is none, or not for asyncio."""
    sessions: Runtime | None = getattr(client, "_sessions", None)
    if sessions is None:
        wanted = "client must be an AsyncClient or an AsyncSupervisor"
        raise TypeError(f"{wanted}, not {type(client).__name__}")
    return sessions


class Condition(Waitable):
    """Ready while a function says so; what changes its answer calls :meth:`notify` after that.

    Any thread may do so and no lock is needed: a waker is added before the function is asked.
    In a ``with`` it is one of the ``others``, which are notified together.
    """

    __slots__ = ("_holds", "_others", "_waiting")

    def __init__(
        self, holds: Callable[[], bool], others: dict[Condition, None] | None = None
    ) -> None:
        super().__init__()
        self._waiting: dict[Waker, None] = {}
        self._holds = holds
        self._others: dict[Condition, None] = {} if others is None else others

    def __enter__(self) -> Self:
        self._others[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        self._others.pop(self, None)

    @property
    def ready(self) -> bool:
        """Whether it holds."""
        return self._holds()

    def _add_waker(self, waker: Waker) -> None:
        self._waiting[waker] = None
        self.notify()

    def _drop_waker(self, waker: Waker) -> None:
        self._waiting.pop(waker, None)

    def notify(self) -> None:
        """Wake what waits for it if it holds.  What interrupts this may call it again."""
        for waker in list(self._waiting):
            if not self._holds():
                return
            waker()  # interrupt-safe: before it is forgotten, so perhaps twice
            self._waiting.pop(waker, None)


class Background(Runtime):
    """The runtime, as a coroutine in the background has it: every wait lets other steps run.

    A wait raises what ended the session.  Deadlines are not kept: a reply ends with its connection.
    """

    def __init__(self, runtime: Runtime, operations: Operations) -> None:
        self._runtime = runtime
        self.operations: Operations = operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def connected(self, deadline: float | None) -> None:
        """Wait for a usable connection."""
        change: Waitable = self.session.change
        await self.wait_for(change)
        self._runtime.check_open()

    async def until(self, reply: Reply[T], deadline: float | None) -> T:
        """The reply's result."""
        return await reply

    async def event(self, watch: Watch, deadline: float | None) -> Event:
        """The watch's next event."""
        while (event := watch.take()) is None:
            await Awaited(watch)
        return event

    async def wait_for(self, *conditions: Waitable) -> None:
        """Wait until one of them is ready; raises what ended the session if that comes first."""
        while not any(condition.ready for condition in conditions):
            await self._runtime.any_of(*conditions)


class Service(HasProblem, Enterable):
    """Something that shall be true for as long as its owner wants it.

    Subclasses say what a session has to do in :meth:`_serve`, and what a program calls them.
    """

    _called: str  # in messages
    _path: str
    _origin: TracebackType | None = None  # of the error
    _tell: Callable[[], object] | None = None  # the owner of this one, of each change
    _started = False
    _again_at: float | None = None  # when what is left out is to be tried again

    def __init__(self, sessions: Runtime, on_problem: OnProblem | None = None) -> None:
        check_function("on_problem", on_problem)
        sessions.check_callback(on_problem)
        self._sessions = sessions
        self._closed = False
        self._error: Exception | None = None
        self._on_problem = on_problem
        self._trouble = Problem(on_problem, sessions.dispatch)
        self._left_out = Problem(self._part_problem, sessions.dispatch)
        # Numbers of tries: the last that was asked for, the last begun, the last refused.
        self._asked_try, self._begun_try, self._refused_try = 0, 0, -1
        self._hurry = Condition(lambda: self._asked_try > self._begun_try)
        self._waiting: dict[Condition, None] = {}  # those that each change notifies

    @property
    def _owned(self) -> bool:
        return True  # from its first moment on

    if TYPE_CHECKING:

        async def __aenter__(self) -> Self: ...

    async def _enter_body(self) -> Self:
        return self

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        self._abandon()

    def _abandon(self) -> None:
        self._end_well()

    # --- the session's side -----------------------------------------------------------------------

    async def _serve(self, runtime: Any) -> None:
        """One session's work, with a :class:`Background`.  Its end is the end of the service.

        It is called again in the same session: after a lost connection, for which the next request
        waits, and after a refusal.
        """
        raise NotImplementedError

    def _session_ended(self, runtime: Background) -> None:
        """What the session has made true is true no longer."""

    def _changed(self) -> None:
        """Wake the callers for which something has changed."""
        for condition in list(self._waiting):
            condition.notify()
        if self._tell is not None:
            self._tell()

    def _is_right(self) -> None:
        """What the service is for is true, as far as the server has told."""
        self._trouble.is_over()
        self._left_out.is_over()

    def _is_right_but(self, refusal: errors.ServerError | None, runtime: Background) -> None:
        """The same but for a node, if one is refused: it is left out, to be tried again later."""
        if refusal is None:
            self._again_at = None
            self._is_right()
            return
        self._trouble.is_over()
        if self._again_at is None:
            what = f"a node of {self._what} is left out, and tried again"
            pause = self._left_out.stands(what, refusal, runtime.warn)
            self._again_at = runtime.now() + pause * runtime.jitter()

    async def _idle(self, runtime: Background, *conditions: Waitable) -> bool:
        """Wait until one of them is ready, or until what is left out is tried again: then True."""
        again_at = self._again_at
        if again_at is None:
            await runtime.any_of(*conditions)
            return False
        await runtime.pause(max(0.0, again_at - runtime.now()), *conditions, self._hurry)
        if not self._hurry.ready and runtime.now() < again_at:
            return False
        self._begun_try, self._again_at = self._asked_try, None
        return True

    async def _run(self, runtime: Background) -> None:
        self._trouble.afresh()
        self._left_out.afresh()
        try:
            while True:
                self._begun_try = self._asked_try
                try:
                    await self._serve(runtime)
                    break
                except REPEATABLE:
                    pass  # a server that takes its time to refuse is asked again at once
                except errors.NotReadOnlyError:
                    await runtime.another_state()
                except errors.ServerError as refusal:
                    pause = self._refused(runtime, refusal)
                    await runtime.pause(pause * runtime.jitter(), self._hurry)
            self._sessions.dismiss(self)
        except SESSION_OVER:
            pass
        except Exception as error:  # an unnoticed error would leave callers waiting forever
            self._error, self._origin = error, error.__traceback__
            self._trouble.stands(f"{self._what} has ended", error, runtime.warn)
            self._sessions.dismiss(self)
        finally:
            self._session_ended(runtime)
            self._changed()

    def _refused(self, runtime: Background, refusal: errors.ServerError) -> float:
        what = f"{self._what} is refused, and tried again"
        pause = self._trouble.stands(what, refusal, runtime.warn)
        self._refused_try = self._begun_try
        self._changed()
        return pause

    # --- the owner's side -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Have it run unless it has begun already; raises what has ended it.

        It does not run if this is interrupted, as the caller may have nothing to close then.
        """
        self._check()
        if self._started:
            return
        try:
            self._sessions.serve(self)
        except BaseException:
            self._sessions.dismiss(self)
            raise
        self._started = True  # last: it may be refused here and now alone

    @property
    def _what(self) -> str:
        return f"the {self._called} of {self._path}"

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None

    @property
    def _problem(self) -> Exception | None:
        """What keeps it from being right."""
        return self._trouble.error

    @property
    def problem(self) -> Exception | None:
        return self._problem or self._left_out.error

    def _part_problem(self, problem: Exception | None) -> object:
        """The ``on_problem`` of what this one has made; called where a user's code may run."""
        told = problem or self.problem
        return None if self._on_problem is None else self._on_problem(told)

    def _retry(self) -> None:
        """Try again now what was refused."""
        self._asked_try += 1
        self._hurry.notify()

    @property
    def _is_refused(self) -> bool:
        """Whether the last try that was asked for is refused."""
        return self._trouble.error is not None and self._refused_try >= self._asked_try

    def _check(self) -> None:
        """Raise what has ended the service, or why it cannot be used here."""
        self._sessions.check()
        self._check_ended()

    def _check_ended(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(self._origin)  # which each raise would make longer
        if self._closed:
            raise errors.ClientClosedError(f"{self._what} has been closed")

    async def _until(self, holds: Callable[[], bool], timeout: float | None) -> bool:
        """Whether it holds within the time; raises what has ended the service, and a refusal."""
        limit = check_timeout("timeout", timeout)
        self._check()
        in_time, refusal = await self._outcome(holds, limit)
        self._check()
        if not (in_time or refusal):
            refusal = self._problem
        if refusal is not None and not holds():
            raise refusal.with_traceback(None)
        return in_time

    async def _outcome(
        self, holds: Callable[[], bool], limit: float | None
    ) -> tuple[bool, Exception | None]:
        """Wait until it holds, or the service is over or refused anew.

        Whether one of these has come in time, and the refusal if there was one.
        """
        refusal: Exception | None = None

        def ends() -> bool:
            nonlocal refusal
            if self._is_refused:
                refusal = self._problem
            return self._over or holds() or refusal is not None

        self._retry()
        with Condition(ends, self._waiting) as condition:
            in_time = await self._sessions.holds(condition, limit)
        return in_time, refusal

    def _end(self) -> None:
        self._closed = True
        self._sessions.dismiss(self)
        self._changed()

    def _end_well(self) -> None:
        """It is wanted no longer, and so is what it is refused."""
        self._is_right()
        self._end()


async def until_closed(
    next_one: Callable[[], Awaitable[Any]],
    closed: Callable[[], bool],
    end: Callable[[], object] = lambda: None,
) -> AsyncGenerator[Any, None]:
    """What ``next_one`` returns, again and again, until it is ``closed``; calls ``end`` then."""
    try:
        while not closed():
            yield await next_one()
    except errors.ClientClosedError:
        if not closed():
            raise
    finally:
        end()


class ObservableService(Service):
    """Its background steps call :meth:`_changed` after each change of what callers wait for."""

    _leaving = False  # it ends by itself, after what it has to do for that
    _ephemeral = True  # nothing of it outlives its session

    def _leave(self) -> None:
        """Begin to close, in the background: where nothing may await.  Idempotent."""
        raise NotImplementedError

    async def close(self, timeout: float | None = 10.0) -> None:
        """End it, within ``timeout`` seconds; raises the error that has kept it from that."""
        limit = check_timeout("timeout", timeout)
        self._leave()
        try:
            if self._over:
                return
            in_time, refusal = await self._outcome(lambda: False, limit)
            kept_by = self._error or (None if self._over else refusal or self._problem)
            if kept_by is not None:
                raise kept_by
            if not in_time:
                message = "it did not end in time, and goes on to do so in the background"
                raise errors.OperationTimeoutError(
                    message, op="close", path=self._path, maybe_applied=True
                )
        except SESSION_OVER:
            if not self._ephemeral:
                raise

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        try:
            await self.close()
        except errors.OperationTimeoutError:
            if kind is None:
                raise

    def _abandon(self) -> None:
        self._leave()
