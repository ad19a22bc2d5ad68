"""A client seen from outside, request by request: for metrics, spans and log lines.

An observer is a user's object.  It is told when a request is submitted, in the thread or task of
the caller, so that what belongs to the caller (the current span) is at hand; and again when the
request has ended.  A client without an observer pays nothing for this: an observed client has a
class of requests of its own.

Invariant: no code of a user's runs under the state lock.  The end of a request is noted where it
happens and told later: by the thread that waits for it, else where callbacks are called.
"""

from __future__ import annotations

from functools import cache, partial

from zkwire.errors import OperationTimeoutError, ZooKeeperError
from zkwire.jute.record import Record
from zkwire.net.listeners import log_failure
from zkwire.recipes.runtime import Runtime
from zkwire.session.request import STILL_THERE, Request
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.session.session import Session
    from zkwire.session.waitable import Waker
    from zkwire.wire.model import Event, State


class RequestEnd(Record):
    """How a request has ended, for an :class:`Observer`.

    ``op`` and ``path`` are those of the request.  ``error`` is None if the server has carried it
    out.  ``seconds`` have passed since it was submitted.  ``server`` is the (host, port) that it
    was sent to, None if it was not sent.
    """

    op: str
    path: str | None
    error: Exception | None
    seconds: float
    server: tuple[str, int] | None

    @property
    def outcome(self) -> str:
        """``"ok"``, or the name of the error's class, such as ``"OutcomeUnknownError"``."""
        return "ok" if self.error is None else type(self.error).__name__

    @property
    def maybe_applied(self) -> bool:
        """Whether the server may have carried it out although it ended with an error."""
        return isinstance(self.error, ZooKeeperError) and self.error.maybe_applied


class Observer:
    """What a client tells of itself: a base class whose methods do nothing.

    An instance is given to a client as ``observer=``.  Its methods must be quick, must not block
    and must not use the client.  What they raise is logged (ERROR, logger ``zkwire``) and changes
    nothing for the client.  They are called in different threads; under asyncio always by the
    event loop, except for operations that other threads call.

    An observer is told of all requests, also of those of locks and other recipes, except for what
    the session sends by itself (pings, authentication, watches that are set again): ``trace=``
    shows those.
    """

    def request_submitted(self, op: str, path: str | None) -> Any:
        """A request is about to be submitted, by the thread or task that runs this.

        What this returns is given to :meth:`request_ended`.
        """

    def request_ended(self, begun: Any, end: RequestEnd) -> None:
        """A request has ended; ``begun`` is what :meth:`request_submitted` has returned for it.

        Called once for each request, but perhaps not for a request that Ctrl-C interrupts.  Called
        in the thread that waits for the result (or is just submitting the request), before that
        thread has the result; if no thread waits, and under asyncio, where callbacks are called.
        If the caller reaches a time limit, the request has ended with OperationTimeoutError,
        whatever comes later, or with NotSentError if it was withdrawn.
        """

    def state_changed(self, state: State, session_id: int, server: tuple[str, int] | None) -> None:
        """The session is in another state, with this (host, port) if one was chosen.

        Called in the callback thread, or by the event loop, in the order of the states.
        """

    def watch_fired(self, event: Event) -> None:
        """A watch has got an event; a watch of a recipe's, too.  Called as :meth:`state_changed`.

        If several watches get one event, this is called for each of them.
        """


_METHODS = ("request_submitted", "request_ended", "state_changed", "watch_fired")


def check_observer(observer: object) -> None:
    """Raise TypeError if it lacks a method, or has one that would have to be awaited."""
    from inspect import iscoroutinefunction

    for name in _METHODS:
        method = getattr(observer, name, None)
        if not callable(method):
            raise TypeError(f"observer must be an Observer: {observer!r} has no {name}()")
        if iscoroutinefunction(method):
            raise TypeError(f"observer.{name} is async: it is not awaited")


class Observation:
    """Tells one observer of one client, from before it is used."""

    __slots__ = ("_driver", "_observer", "now", "session")

    def __init__(self, observer: Observer, client: Any) -> None:
        check_observer(observer)
        self._observer = observer
        self._driver: Any = (driver := client._driver)
        self.session: Session = driver.session
        self.now: Callable[[], float] = driver.now
        self.session.observers.add(self)
        self.session._watches.observer = self._see_event
        driver.exchange = partial(Runtime.exchange, driver)  # each request passes ``_submit``
        pipelines = [driver.pipeline] if hasattr(driver, "pipeline") else []
        for each in (client, driver.operations, driver.background, *pipelines):
            each._kind = observed(each._kind)
            each._submit = partial(self._submit, each._submit)

    def _submit(self, submit: Callable[[Any], Any], request: Any) -> Any:
        request.watched_by(self, self.call("request_submitted", request.op.name, request.path))
        try:
            return submit(request)
        except Exception as error:
            request.tell(error)
            raise
        finally:
            request.caller_leaves()

    def ended(self, request: Any) -> None:
        """A request has ended that nothing waits for; by the session, so only note it down."""
        tell = partial(request.tell, None)
        here = self._driver.awaits  # the event loop calls what the session has to call
        self.session.callbacks.append(tell if here else partial(self._driver.dispatch, tell))

    def see(self, state: State) -> list[Waker]:
        """The session is in ``state`` now."""
        session = self.session
        return [self._later("state_changed", state, session.session_id, session.server)]

    def _see_event(self, event: Event) -> Waker:
        return self._later("watch_fired", event)

    def _later(self, method: str, *arguments: Any) -> Waker:
        return partial(self._driver.dispatch, partial(self.call, method, *arguments))

    def call(self, method: str, *arguments: Any) -> Any:
        """Tell the observer something; what it returns, None if that fails."""
        try:
            return getattr(self._observer, method)(*arguments)
        except Exception as error:
            log_failure(f"the observer's {method} has failed", error)


_outcome: Any = Request.__dict__["outcome"]


class Observed(Request):
    """A request whose end is told to an observer; a base of the class that :func:`observed` makes.

    ``_waiting``: its caller is there, for the time of the submission or of a wait.
    """

    def watched_by(self, observation: Observation, begun: Any) -> None:
        """It is about to be submitted; ``begun`` is what the observer has returned for that."""
        self._observation = observation
        self._waiting = True
        self._since = observation.now()
        self._begun = [begun]  # taken out by what tells the end

    def _end(self, outcome: Any) -> None:
        """The request ends: a store that may be one of the session, under its lock."""
        if outcome is not None:
            self._note_end()
        _outcome.__set__(self, outcome)
        # A caller looks at the outcome when it stops waiting, so one of the two tells.
        if outcome is not None and not self._waiting:
            self._observation.ended(self)

    def _note_end(self) -> None:
        observation = self._observation
        self._ended_at = observation.now()
        self._server = observation.session.server if self.xid else None

    if not TYPE_CHECKING:
        outcome = property(_outcome.__get__, _end)

    def tell(self, error: Exception | None) -> None:
        """Tell the end, unless that is done; ``error``: what its caller gets before that."""
        try:
            begun = self._begun.pop()
        except IndexError:
            return
        if self.outcome is not None:
            multi = self.op is ops.MULTI or self.op is STILL_THERE
            error = _error_of(self) if multi else self.error()
        else:
            self._note_end()
        seconds = self._ended_at - self._since
        end = RequestEnd(self.op.name, self.path, error, seconds, self._server)
        self._observation.call("request_ended", begun, end)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, in a thread: see the replies of the blocking client."""
        reply: Any = super()
        self._waiting = True
        try:
            return reply.result(timeout)
        finally:
            self.caller_leaves()

    def caller_leaves(self) -> None:
        """The caller waits no longer."""
        self._waiting = False
        if self.outcome is not None:
            self.tell(None)

    def given_up(self, error: OperationTimeoutError) -> None:
        """Its caller has reached a time limit."""
        self.tell(error)


@cache
def observed(kind: Any) -> Any:
    """The class of requests ``kind``, whose ends are told to an observer."""
    return type(kind.__name__, (Observed, kind), {})


def _error_of(request: Any) -> Exception | None:
    """The request's error.  For a multi only the result says which operation was refused."""
    try:
        request.value()
    except ZooKeeperError as error:
        return error.with_traceback(None)
    return None
