"""Recipes of one session, with a supervisor in the place of the client.

A recipe that is given a supervisor outlives its sessions: each call has the session of the moment
at which it begins, from its first request to its last.  So a call that the end of its session hits
ends as its documentation says, and is never continued in the next session, where its questions
would have other answers.  What a session's end takes away (a lock, a claim, a place in a queue) is
lost with it; the object can be used again in the next session.

It decides which session a call has.  Which calls there are is read from the class: each public
coroutine, and both ends of a ``with``.  It must not know any recipe.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from functools import cache, wraps

from zkwire.recipes.public import public
from zkwire.session.waitable import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Protocol, Self

    class Sequence(Protocol):
        """The sessions of a supervisor, one after another."""

        async def newest(self) -> Any:
            """The driver of the newest session; raises what has ended the supervisor."""
            ...

        @property
        def latest_driver(self) -> Any:
            """The driver of the newest session, be it over or not."""
            ...


class SupervisedRuntime:
    """What a supervisor's recipes have for a runtime: that of one session for each call."""

    def __init__(self, sequence: Sequence, mutex: Any) -> None:
        self.mutex = mutex  # one for all sessions: a recipe's object outlives them
        self._sequence = sequence
        self._session: ContextVar[Any] = ContextVar("session", default=None)

    def _driver(self) -> Any:
        """The driver of the session that this call has; outside a call, the newest."""
        driver = self._session.get()
        return self._sequence.latest_driver if driver is None else driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver(), name)

    @property
    def _recipe_runtime(self) -> Self:
        return self

    @property
    def unfinished(self) -> bool:
        """Whether a clean-up is left to the client; see :class:`Runtime`."""
        unfinished: bool = self._driver().unfinished
        return unfinished

    @unfinished.setter
    def unfinished(self, value: bool) -> None:
        self._driver().unfinished = value

    async def call(self, session: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        """The result of ``work()``, all of it in one session; None: the newest."""
        if self._session.get() is not None:
            return await work()  # it is a part of another call
        token = self._session.set(session or await self._sequence.newest())
        try:
            return await work()
        finally:
            with suppress(ValueError):  # a coroutine that is thrown away elsewhere
                self._session.reset(token)


class Recipe(Bound):
    """What is made with a client; of a subclass of its own if that is a supervisor."""

    def __init_subclass__(cls) -> None:
        """Have a public class name itself in Python's messages."""
        super().__init_subclass__()
        if cls.__name__.startswith("Async") or cls.__module__.startswith("zkwire.blocking."):
            public(cls)

    if not TYPE_CHECKING:  # or the arguments would have no types

        def __new__(cls, client: Any = None, *_: Any, **__: Any) -> Self:
            runtime = getattr(client, "_recipe_runtime", None) or getattr(client, "_runtime", None)
            supervised = isinstance(runtime, SupervisedRuntime) and not getattr(
                cls, "_outlives_sessions", False
            )
            return object.__new__(_supervised(cls) if supervised else cls)


@cache
def _supervised(kind: type[Any]) -> type[Any]:
    """The same class, each of whose calls has one session."""
    import inspect  # not at the top: an import of zkwire is to be quick

    if "_entered_in" in vars(kind):
        return kind
    members: dict[str, Any] = {"_entered_in": None, "__module__": kind.__module__}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if inspect.iscoroutinefunction(member) and not name.startswith("_"):
            members[name] = _in_one_session(member)
    if hasattr(kind, "_enter_body"):
        members |= {"_enter_body": _entered(kind), "_leave_body": _left(kind)}
    return type(kind.__name__, (kind,), members | {"__doc__": kind.__doc__})


def _in_one_session(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._runtime.call(None, lambda: method(self, *args, **kwargs))

    return call


def _entered(kind: type[Any]) -> Callable[..., Awaitable[Any]]:
    async def enter(self: Any, *args: Any) -> Any:
        async def work() -> Any:
            value = await kind._enter_body(self, *args)
            self._entered_in = self._runtime._session.get()
            return value

        return await self._runtime.call(None, work)

    return enter


def _left(kind: type[Any]) -> Callable[..., Awaitable[Any]]:
    async def leave(self: Any, *args: Any) -> None:
        await self._runtime.call(self._entered_in, lambda: kind._leave_body(self, *args))

    return leave
