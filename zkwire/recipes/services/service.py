"""What shall be true for as long as its owner wants it: work that each session begins anew.

A client is one session.  A supervisor is one after another, and runs each of its services again in
the next.  A service knows neither: it is given a runtime for each session, in the background, where
no caller waits, and keeps in its object what outlives the session.

Invariants:

* A service runs in one session at a time.  What it does there has ended before the next begins.
* Its state changes in background steps only; callers read it, and wait for a :class:`Condition`.
* An error that no later session would mend ends the service.  Each wait raises it.
"""

from __future__ import annotations

from zkwire.errors import AuthFailedError, ClientClosedError, SessionExpiredError
from zkwire.session.bound import Bound
from zkwire.session.waitable import Awaited, Waitable, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from types import TracebackType
    from typing import Any, Protocol, TypeVar

    from zkwire.operations import Operations, Reply
    from zkwire.recipes.runtime import Runtime
    from zkwire.session.waitable import Waker
    from zkwire.session.watch import Watch
    from zkwire.wire.model import Event

    T = TypeVar("T")

    class Sessions(Protocol):
        """One session, or with a supervisor one after another."""

        def check(self) -> None:
            """Raise if nothing can be asked here: in a forked child, in another event loop."""
            ...

        def serve(self, service: Service) -> None:
            """Run the service in this session, or in each, until :meth:`dismiss`.

            Raises what ended the client, or the supervisor, if nothing will be run any more.
            """
            ...

        def dismiss(self, service: Service) -> None:
            """Stop the service soon, in the middle of a wait.  Idempotent."""
            ...

        async def holds(self, condition: Condition, timeout: float | None) -> bool:
            """Wait until ``condition`` holds, at most ``timeout`` seconds; whether it does.

            Raises what ended the client, or the supervisor, if that comes first.
            """
            ...

        def dispatch(self, function: Callable[[], object]) -> None:
            """Call a user's function, in order, where a user's code may run."""
            ...


SESSION_OVER = (SessionExpiredError, ClientClosedError, AuthFailedError)
"""What says that a session is over, and nothing about the next one."""


class Condition(Waitable):
    """Ready while a function says so; what changes its answer calls :meth:`notify` behind that.

    Any thread may do so and no lock is needed: a waker is added before the function is asked.
    """

    __slots__ = ("_holds", "_waiting")

    def __init__(self, holds: Callable[[], bool]) -> None:
        super().__init__()
        self._waiting: dict[Waker, None] = {}
        self._holds = holds

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


class Background:
    """The runtime, as a coroutine in the background has it: every wait lets other steps run.

    A wait raises what ended the session.  Deadlines are not kept: a reply ends with its connection.
    """

    def __init__(self, runtime: Runtime, operations: Operations) -> None:
        self._runtime = runtime
        self.operations: Operations = operations
        self.background: Operations = operations

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

    async def event(self, watch: Watch, deadline: float | None) -> Event | None:
        """The watch's next event."""
        while (event := watch.take()) is None:
            await Awaited(watch)
        return event

    async def wait_for(self, *conditions: Waitable) -> None:
        """Wait until one of them is ready; raises what ended the session if that comes first."""
        while not any(condition.ready for condition in conditions):
            await self._runtime.any_of(*conditions)


class Service(Bound):
    """Something that shall be true; see the module's docstring.

    Subclasses say what a session has to do in :meth:`_serve`, and what a program calls them.
    """

    _called: str  # in messages
    _path: str
    _origin: TracebackType | None = None  # of the error

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._closed = False
        self._error: Exception | None = None

    async def _serve(self, runtime: Any) -> None:
        """One session's work, with a :class:`Background`.  Its end is the end of the service."""
        raise NotImplementedError

    def _session_ended(self) -> None:
        """What the session has made true is true no longer."""

    def _changed(self) -> None:
        """Wake the callers for which something has changed."""

    async def _run(self, runtime: Background) -> None:
        try:
            await self._serve(runtime)
            self._sessions.dismiss(self)
        except SESSION_OVER:
            pass
        except Exception as error:  # one that went unnoticed would leave callers waiting for ever
            self._error, self._origin = error, error.__traceback__
            self._sessions.dismiss(self)
        finally:
            self._session_ended()
            self._changed()

    def _begin(self) -> None:
        """Have it run; not if this is interrupted, as the caller may have nothing to close then."""
        try:
            self._sessions.serve(self)
        except BaseException:
            self._sessions.dismiss(self)
            raise

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None

    def _check(self) -> None:
        """Raise what has ended the service, or why it cannot be used here."""
        self._sessions.check()
        if self._error is not None:
            raise self._error.with_traceback(self._origin)  # which each raise would make longer
        if self._closed:
            raise ClientClosedError(f"the {self._called} of {self._path} has been closed")

    async def _wait(self, condition: Condition, timeout: float | None) -> bool:
        """Whether ``condition`` holds within the time; raises what has ended the service."""
        limit = check_timeout("timeout", timeout)
        self._check()
        held = await self._sessions.holds(condition, limit)
        self._check()
        return held

    def _end(self) -> None:
        self._closed = True
        self._sessions.dismiss(self)
        self._changed()


async def until_closed(
    next_one: Callable[[], Awaitable[Any]],
    closed: Callable[[], bool],
    end: Callable[[], object] = lambda: None,
) -> AsyncGenerator[Any, None]:
    """What ``next_one`` returns, again and again, until it is ``closed``; calls ``end`` behind."""
    try:
        while not closed():
            yield await next_one()
    except ClientClosedError:
        if not closed():
            raise
    finally:
        end()
