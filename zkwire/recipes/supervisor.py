"""Sessions one after another, and what shall be true in each of them; leadership in each.

It decides when a session is begun, what runs in it, and what must have ended before the next.  It
must not know how a client is made or what a thread is: that is a subclass's matter.  To services
it is what a driver is for one session (:class:`zkwire.recipes.runtime.Runtime`).

Invariants:

* There is one session at a time.  The client of the one before is closed before the next is made,
  so what was made with it (a lock, a watch, a term of leadership) can never go on: each call to it
  raises.
* A service runs in the newest session, and its run in the one before has ended by then.
* No code of a user's runs under the mutex, and :meth:`SessionLoop.dismiss`, which a finalizer may
  call, does without it.
* A later session begins with a ``sync``: what is read in it is never older than what was read in
  the one before.
* After clients that are never connected there are pauses, which double; after a session that has
  ended at once there is a short pause; after a session that has lasted there is none.

**Leadership**: in each session a candidacy, in each term a call of the user's function.  A term is
a fair lock.  What it promises, its ``fence`` and its ``lost`` are the lock's; this adds only that a
candidate comes back: after a term, a lost lock, and a session that has ended.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from functools import partial

from zkwire import errors
from zkwire.operations.nodes import drafts
from zkwire.recipes import _service
from zkwire.recipes._recipe import HasPath, SupervisedRuntime
from zkwire.recipes.runtime import SESSION_OVER
from zkwire.session.waitable import Either, Waitable, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from types import TracebackType
    from typing import Any

    from zkwire.recipes._service import OnProblem, Service
    from zkwire.recipes.sequential import AsyncSequentialLock, Names


LASTED = 0.1  # seconds: a session that was connected that long is followed by no pause


def is_over(client: Any) -> bool:
    """Whether the client's session is, or is to be."""
    driver = client._driver
    return driver.closing is not None or bool(driver.session.ended)


class SessionLoop:
    """The sessions of one supervisor: when each begins and ends, and what callers ask of them.

    What it needs of threads, of an event loop, or of a simulation is a subclass's.
    """

    forked: bool = False  # this is the copy in a forked child

    if TYPE_CHECKING:
        mutex: AbstractContextManager[object]
        make_client: Callable[[], Any]
        """A client that nothing has used."""

        async def close_client(self, client: Any) -> None:
            """Close it.  Idempotent."""

        async def until_idle(self, client: Any) -> None:
            """Wait until nothing runs in the session of a client that has been closed."""

        async def lead(self, function: Callable[[Any], Any], lock: AsyncSequentialLock) -> None:
            """Call a user's function with the lock, which is held, and wait for its end."""

        def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
            """Run ``work()`` in a thread or a task of its own."""

        async def within(self, waitable: Waitable, timeout: float | None) -> bool:
            """Wait until it is ready, at most ``timeout`` seconds; whether it is."""
            ...

        def dispatch(self, function: Callable[[], object]) -> None:
            """Call a user's function, in order, where a user's code may run."""

    def __init__(self) -> None:
        self._newest: Any = self.make_client()  # so that bad options are refused here
        # How many sessions there have been, and the client of the last while it lasts.  One
        # attribute, so that a reader without the mutex never gets the one without the other.
        self._present: tuple[int, Any] = (0, None)
        self._begun = self._supervised = False
        self._refusal = ""
        self._services: dict[Service, None] = {}
        self._waiting: dict[_service.Condition, None] = {}  # for a session
        self._recipe_runtime: SupervisedRuntime = SupervisedRuntime(self, self.mutex)
        self._error: BaseException | None = None
        self._origin: TracebackType | None = None  # of the error
        self._closed = False
        self._stopped = _service.Condition(lambda: self._closed)

    @property
    def latest_driver(self) -> Any:
        """The driver of the newest session, be it over or not."""
        return self._newest._driver

    # --- for services, see recipes.runtime.Runtime -----------------------------------------------

    @property
    def awaits(self) -> bool:
        """Whether what a user's function returns is awaited."""
        return bool(self.latest_driver.awaits)

    def check_callback(self, function: Any) -> None:
        """TypeError for a user's function that cannot be called here."""
        self.latest_driver.check_callback(function)

    def serve(self, service: Service) -> None:
        """Run the service in this session and in each later one, until :meth:`dismiss`."""
        self.begin()
        with self.mutex:
            self._services[service] = None
            client = self._present[1]
            if client is not None:
                with suppress(*SESSION_OVER):  # the next session serves it
                    self._serve_in(client, service)

    def _serve_in(self, client: Any, service: Service) -> None:
        client._driver.serve(service)
        if service not in self._services:  # it has been dismissed meanwhile, without the mutex
            client._driver.dismiss(service)

    def dismiss(self, service: Service) -> None:
        """Stop the service soon, in the middle of a wait.  Idempotent."""
        self._services.pop(service, None)
        client = self._present[1]
        if client is not None:
            client._driver.dismiss(service)

    def check(self) -> None:
        """Raise where the supervisor cannot be used: in a forked child, in another loop."""
        if self.forked:
            raise errors.ForkedError(
                "this supervisor belongs to the parent process; make one in this process"
            )

    def check_open(self) -> None:
        """Raise what has ended the supervisor."""
        self.raise_error()
        if self._closed:
            raise errors.ClientClosedError("this supervisor has been closed")

    # --- the sessions -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to connect unless that has been done; raises what has ended the supervisor."""
        self.check()
        self.check_open()
        with self.mutex:
            if not self._begun:
                self.start(self._supervise, "sessions")
                self._begun = True

    async def _supervise(self) -> None:
        with self.mutex:
            if self._supervised:
                return  # an interrupt of the first begin() has made a second one of it
            self._supervised = True
        pause = 0.0
        try:
            while True:
                lasted = await self._run(self._newest)
                # The pauses begin anew: a session may be killed again and again.
                if lasted is not None:
                    pause = 0.0 if lasted else _service.FIRST_PAUSE
                if self._closed:
                    return
                self._newest = self.make_client()  # before the pause, for calls of recipes
                self._notify_waiting()
                await self.within(self._stopped, pause * self.latest_driver.jitter())
                pause = min(max(_service.FIRST_PAUSE, 2 * pause), _service.LONGEST_PAUSE)
        except Exception as error:  # a certificate that is gone, say
            self._end(error)
        finally:
            self._end(None)  # whatever has ended it, a cancellation from outside, too

    async def _run(self, client: Any) -> bool | None:
        """One session, to its end; whether it has lasted, None if it was never connected."""
        driver, began, lasted = client._driver, None, None
        try:
            if not self._closed:
                await driver.connected(None)
                if self._present[0] > 0:
                    await self._catch_up(driver)
                    driver.check_open()
                began = driver.now()
                self._enter(client)
                await driver.holds(self._stopped, None)
        except (errors.AuthFailedError, OSError, RuntimeError) as error:
            # The latter two: no descriptors or threads are left at this moment.
            self._refusal = f": {error}"
            driver.warn(f"{driver.name}: {error}; a supervisor keeps trying")
        except SESSION_OVER:
            pass
        finally:
            if began is not None:
                lasted = driver.now() - began >= LASTED
            await self._leave(client)
        return lasted

    async def _catch_up(self, driver: Any) -> None:
        """See to it that the server knows at least what the last session's server knew.

        A refusal is logged and tried again, as those of services are.
        """
        trouble = _service.Problem(None, self.dispatch)
        while True:
            try:
                await driver.retry(None, driver.operations.sync, "/")
                return
            except errors.BUSY:
                pass  # a server that takes its time to refuse is asked again at once
            except errors.NotReadOnlyError:
                return  # a read-only server is behind, and says so
            except errors.ServerError as refusal:
                what = f"{driver.name}: a new session waits, and tries again"
                pause = trouble.stands(what, refusal, driver.warn)
                await driver.holds(self._stopped, pause * driver.jitter())
                if self._closed:
                    return

    def _enter(self, client: Any) -> None:
        with self.mutex:
            self._present = (self._present[0] + 1, client)
            for service in list(self._services):
                self._serve_in(client, service)
        self._notify_waiting()

    def _notify_waiting(self) -> None:
        for condition in list(self._waiting):
            condition.notify()

    async def _leave(self, client: Any) -> None:
        with self.mutex:
            self._present = (self._present[0], None)
        try:
            await self.close_client(client)
        finally:
            for service in list(client._driver.services):
                client._driver.dismiss(service)
        await self.until_idle(client)

    def _end(self, error: BaseException | None) -> None:
        """Make no other session; the first ``error`` is what each wait raises from now on."""
        if error is not None and self._error is None:
            self._error, self._origin = error, error.__traceback__
        self._closed = True
        self._stopped.notify()

    async def stop(self, error: BaseException | None = None) -> None:
        """End the session and make no other.  Idempotent."""
        self._end(error)
        await self.close_client(self._newest)

    def raise_error(self) -> None:
        """Raise the error that a function, or the making of a client, has ended with."""
        if self._error is not None:
            raise self._error.with_traceback(self._origin)  # which each raise would make longer

    @property
    def _sessions(self) -> SessionLoop:
        return self  # in the place of the supervisor

    async def newest(self) -> Any:
        """The driver of the newest session, which may have to be connected first.

        Its next request comes after a ``sync``, so that no answer is older than those in the
        session before.
        """
        self.begin()
        if is_over(self._newest):
            with _service.Condition(lambda: not is_over(self._newest), self._waiting) as replaced:
                await self.holds(replaced, None)
        client = self._newest
        if client is not self._present[1] and self._present[0] > 0:
            client._driver.operations.sync("/")
        return client._driver

    def after_fork(self) -> None:
        """In a forked child: there are no threads, and the loop is the parent's."""
        self.forked = True

    @property
    def operations(self) -> Any:
        """The operations of a client of its, for rehearsals."""
        return self.latest_driver.operations

    async def holds(self, condition: _service.Condition, timeout: float | None) -> bool:
        """Wait until ``condition`` holds; raises what has ended the supervisor."""
        self.check()
        await self.within(Either(condition, self._stopped), timeout)
        if not condition.ready:
            self.check_open()
        return condition.ready

    async def _newer(self, number: int, timeout: float | None) -> tuple[int, Any]:
        """A later session than that one, and its client, which is None when the time runs out."""
        self.begin()
        found: tuple[int, Any] = (number, None)

        def is_newer() -> bool:
            nonlocal found
            present = self._present
            if present[1] is not None and present[0] > number:
                found = present
            return found[1] is not None

        with _service.Condition(is_newer, self._waiting) as newer:
            await self.holds(newer, timeout)
            return found

    async def later(self, number: int) -> tuple[int, Any] | None:
        """The number and the client of a session after that one, of several the last.

        None at the end of the supervisor; raises what has ended it.
        """
        with suppress(errors.ClientClosedError):
            return await self._newer(number, None)
        self.check()
        self.raise_error()
        return None

    async def client(self, timeout: float | None = None) -> Any:
        """The client of the present session, for requests now; wait up to ``timeout`` s for one.

        Ask again for later requests: once a client's session is over, each call to it raises
        SessionExpiredError.  UnreachableError when the time runs out; raises what has ended the
        supervisor.
        """
        limit = check_timeout("timeout", timeout)
        _, client = await self._newer(0, limit)
        if client is None:
            raise errors.UnreachableError(
                f"there was no session within {limit:.3g} s{self._refusal}"
            )
        return client

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the supervisor ends, at most ``timeout`` seconds; whether it has.

        Raises the error of a function that has failed.
        """
        limit = check_timeout("timeout", timeout)
        self.check()
        with suppress(errors.ClientClosedError):  # there is nothing to wait for
            self.begin()
        over = await self.within(self._stopped, limit)
        self.raise_error()
        return over

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``work()`` beside the sessions; an error of it ends the supervisor."""
        self.begin()
        self.start(partial(self._reported, work, name), name)

    async def _reported(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        try:
            await work()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            driver = self.latest_driver
            if error is not self._error:  # else another function has ended it, and this one with it
                driver.log_failure(f"{driver.name}: {name} has ended the supervisor", error)
            await self.stop(error)
        finally:
            self._end(None)  # whatever has ended it, a cancellation from outside, too


_NETWORK = (errors.ConnectionLossError, errors.LockLostError, errors.OperationTimeoutError)
LONGEST_NAME = 80  # of a contender's node
SESSION_END = (*SESSION_OVER, *_NETWORK)
"""What the end of a session makes of the requests and locks of a caller."""


def parts(error: BaseException) -> Iterator[BaseException]:
    """The error, or those of a group of tasks."""
    group: Any = error
    if isinstance(error, BaseExceptionGroup):
        for part in group.exceptions:
            yield from parts(part)
    else:
        yield error


def is_only(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether the error is of these kinds, of a group of tasks each one."""
    return all(isinstance(part, kinds) for part in parts(error))


class Turn:
    """What a loop over the sessions does with one of them, from its ``with`` to the end of that.

    ``again``: it has ended with the loss of a lock although its session lives: that session has
    another turn.
    """

    def __init__(self, client: Any) -> None:
        self.again: bool = False
        self._client = client
        self._session_id: int = client.session_id

    async def is_ended_by(self, error: BaseException | None) -> bool:
        """Whether the error says no more than that the session is over, or a lock of it is lost.

        A lost connection does not tell by itself: that waits for the next one.
        """
        if error is None or not is_only(error, SESSION_END):
            return False
        if not is_only(error, SESSION_OVER):
            with suppress(*SESSION_OVER):
                await self._client._driver.connected(None)
        over = is_over(self._client)
        lost = [getattr(part, "session_id", 0) for part in parts(error)]
        self.again = not over and set(lost) == {self._session_id}
        return over or self.again


class Leadership(HasPath, _service.HasProblem):
    """A candidacy forever, as :meth:`Supervisor.lead` returns it: its ``path``, its ``problem``.

    It ends with its supervisor.
    """

    _called = "candidacy"

    def __init__(
        self,
        sessions: SessionLoop,
        function: Callable[[Any], Any],
        path: str,
        text: str,
        names: Names,
        on_problem: OnProblem | None,
    ) -> None:
        _service.check_function("on_problem", on_problem)
        self._path = path
        self._sessions = sessions
        self._function = function
        self._text = text
        self._names: Names = names
        self._trouble = _service.Problem(on_problem, sessions.dispatch)
        self._make_lock(sessions.latest_driver)  # checks the arguments
        longest = f"{path}/{'x' * LONGEST_NAME}"
        drafts(sessions.operations).create(longest, text.encode())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    @property
    def problem(self) -> Exception | None:
        return self._trouble.error

    async def run(self) -> None:
        """Run for leader forever; errors of the function that are not the network's are raised."""
        number = 0
        while (later := await self._sessions.later(number)) is not None:
            number, client = later
            lock = self._make_lock(client._driver)
            self._trouble.afresh()
            while not is_over(client):
                await self._run_once(client, lock)

    def _make_lock(self, driver: Any) -> AsyncSequentialLock:
        from zkwire.recipes.sequential import AsyncSequentialLock

        return AsyncSequentialLock(driver, self._path, self._text, names=self._names)

    async def _run_once(self, client: Any, lock: AsyncSequentialLock) -> None:
        """One candidacy, with the term that it comes to, or a pause after a refusal."""
        driver, failure = client._driver, None
        try:
            async with lock:
                self._trouble.is_over()
                try:
                    await self._sessions.lead(self._function, lock)
                except Exception as error:
                    failure = error
                    raise
        except Exception as error:
            ended = failure or error
            if is_only(ended, SESSION_END if is_over(client) else _NETWORK):
                return
            if not isinstance(ended, errors.ServerError) or ended is failure:
                raise ended from None
            what = f"the {self._called} at {self._path} is refused, and tried again"
            pause = self._trouble.stands(what, ended, driver.warn)
            with suppress(*SESSION_OVER):
                await driver.holds(self._sessions._stopped, pause * driver.jitter())


class SupervisorView:
    """What the supervisor for threads and the one for asyncio have in common."""

    _algorithm: Any  # a SessionLoop
    _client_kind: type
    _client_call: str

    if not TYPE_CHECKING:  # else any name would be an attribute

        def __getattr__(self, name: str) -> object:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(self._client_kind, name):
                message += f": a client has it, {self._client_call}.{name}"
            raise AttributeError(message, name=name, obj=self)

    @staticmethod
    def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
        if "resume" in options:
            raise TypeError("a supervisor makes sessions of its own: it cannot resume another's")
        return dict(options)

    def lead(
        self,
        path: str,
        function: Callable[[Any], Any],
        text: str = "",
        *,
        names: Names = "zkwire",
        on_problem: OnProblem | None = None,
    ) -> Leadership:
        """Run for leader at ``path``, now and in each later session, until the supervisor ends.

            supervisor.lead("/election", work)  # yours to write: work(lock)

        In each term ``function(lock)`` is called, in a thread of its own, with the fair lock that
        it leads by (a :class:`SequentialLock`): ``lock.fence`` is the term's token, higher than
        those of all terms before; ``lock.lost`` tells when the term is over, and ``lock.check()``
        raises then.  A thread cannot be stopped: the function has to look at one of them.  Under
        asyncio it is a coroutine function, and is cancelled.

        When the function returns, the term ends, and the supervisor runs for leader again.  The
        same happens when the function raises an error because of the network (ConnectionLossError,
        OperationTimeoutError, LockLostError, the end of its session).  Any other error of the
        function ends the supervisor: it is logged at once with its traceback, and ``wait`` and the
        end of the ``with`` raise it.  ``text`` is for other candidates to read (:class:`Election`).
        With ``names="kazoo"``, this and kazoo's Election exclude each other at one path; without it
        they do not.

        A candidacy that the server refuses is logged and tried again; ``problem`` of the
        :class:`Leadership` that this returns, and ``on_problem``: see docs/supervisor.md#refusals.

        Raises ValueError or TypeError for bad arguments, at once.
        """
        if not callable(function):
            raise TypeError(f"the function must be callable: {function!r}")
        self._algorithm.check_callback(function)
        self._algorithm.check_callback(on_problem)
        leadership = Leadership(self._algorithm, function, path, text, names, on_problem)
        self._algorithm.run(leadership.run, f"lead-{path}")
        return leadership
