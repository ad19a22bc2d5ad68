"""What recipes have in common: the class, the ``with``, one call at a time, the loss of a hold.

* :class:`Recipe` is the base of everything that is made with a client.  With a supervisor in the
  client's place it outlives sessions.  Each call, from its first request to its last, uses the
  session that is there when it begins.  If that session ends, the call ends as its documentation
  says, and is never continued in the next session, where its questions would have other answers.
  What a session's end takes away (a lock, a claim, a place in a queue) is lost with it; the object
  can be used again in the next session.
* :class:`Enterable` is what is entered and left by an ``async with``, or by a ``with`` in a thread.
  An interrupt or a cancellation can come right after it was entered, and while it is left.  In
  either case it is abandoned: what it holds is given up in the background, where nothing may await.
* :class:`Lost` is how a holder learns that it holds no longer: without its asking, and for good.

It decides which session a call has, and reads from the class which calls there are: each public
coroutine, and both ends of a ``with``.  It must not know any recipe.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache, partial, wraps
from types import FunctionType

from zkwire.errors import LockLostError
from zkwire.session.liveness import LAPSED
from zkwire.session.waitable import Bound, Waitable, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from typing import Any, Self, TypeVar

    from zkwire.recipes.runtime import Runtime
    from zkwire.session.waitable import Waker

    T = TypeVar("T")

    Class = TypeVar("Class", bound=type)


class LockInUseError(RuntimeError):
    """This lock object cannot be acquired now: it is held, or another caller is using it.

    Another thread or task, or this one, holds the lock or is acquiring or releasing it; only a
    ReentrantLock is re-entrant.  Nothing was done, and what the object holds stays as it is.  Make
    a lock object for each thread or task.
    """


TRIES = 8


def shield_from_interrupts(step: Callable[[], object]) -> None:
    """Call ``step`` until it returns; then raise what has interrupted it, if anything has.

    It must be possible to repeat the step.  If something interrupts it each time (a full stack),
    that is raised, and the step is not done.
    """
    interrupt: BaseException | None = None
    for _ in range(TRIES):
        try:
            step()
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


async def exclusive_call(taker: Any, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of ``attempt()``, unless ``taker`` refuses it; ``taker`` is busy meanwhile.

    ``taker`` has a ``_runtime``.  Its ``_refuse_two``, called under the mutex, raises if another
    attempt is being made.  Its ``_set_inactive`` is called after an attempt without success, and
    leaves to the client what that could not clean up.
    """
    mine, won = False, None
    try:
        with taker._runtime.mutex:
            taker._refuse_two()
            taker._busy = mine = True
        won = await attempt()
        return won
    finally:
        if mine:
            taker._waiting = None  # else a lock of one task would keep that task alive
            taker._busy = False  # interrupt-safe: last, a lock may be held
            if not won:
                taker._set_inactive()


class Enterable:
    """What a ``with`` enters and leaves; subclasses say what each step is."""

    if TYPE_CHECKING:

        @property
        def _owned(self) -> bool:
            """Whether an earlier ``with``, which is to go on, has entered it."""
            ...

        def _release_in_background(self) -> None:
            """Give up what it holds, if anything, without waiting: where nothing may await.

            If an interrupt ends this, call it again: it then does the rest.
            """

    async def _enter_body(self) -> Any:
        """Enter it; returns what the ``with`` is to give."""
        raise NotImplementedError

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        """Leave it, after a body that has ended with an exception of this kind."""
        raise NotImplementedError

    def _abandon(self) -> None:
        """Leave it where nothing may await.  Idempotent."""
        self._release_in_background()

    async def __aenter__(self) -> Any:
        entered = self._owned
        try:
            return await self._enter_body()
        except LockInUseError:
            raise
        except BaseException:
            if not entered:
                self._abandon()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._leave_body(kind)
        except BaseException:
            self._abandon()
            raise


def public(kind: Class, shown: str = "") -> Class:
    """A decorator: the class has its public methods itself, also those that it inherits.

    ``shown`` is what messages call it, where that is not its name.
    """
    for name in [name for name in dir(kind) if not name.startswith("_")]:
        method = next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
        if type(method) is FunctionType:
            setattr(kind, name, renamed(method, f"{shown or kind.__qualname__}.{name}"))
    return kind


def renamed(method: FunctionType, name: str) -> FunctionType:
    """The same code under another name."""
    copy = FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__,
        method.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__, copy.__doc__ = method.__kwdefaults__, method.__doc__
    copy.__module__, copy.__qualname__ = method.__module__, name
    copy.__annotations__ = method.__annotations__
    copy.__dict__.update(method.__dict__)
    return copy


class SupervisedRuntime:
    """The runtime of a supervisor's recipes: for each call, the runtime of one session.

    ``sequence`` has the driver of the ``newest`` session, and the ``latest_driver``, over or not.
    """

    def __init__(self, sequence: Any, mutex: Any) -> None:
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
        return self._driver().unfinished

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
            try:
                self._session.reset(token)
            except ValueError:  # a coroutine that is thrown away elsewhere
                pass


class Recipe(Bound):
    """What is made with a client; made with a supervisor, it is of a subclass of its own."""

    _outlives_sessions = False  # as a service does, which has a supervisor's runtime itself

    def __init_subclass__(cls) -> None:
        """Have a public class name itself in Python's messages."""
        super().__init_subclass__()
        if cls.__name__.startswith("Async") or cls.__module__.startswith("zkwire.blocking."):
            public(cls)

    if not TYPE_CHECKING:  # or the arguments would have no types

        def __new__(cls, client: Any = None, *_: Any, **__: Any) -> Self:
            runtime = getattr(client, "_recipe_runtime", None) or getattr(client, "_runtime", None)
            supervised = isinstance(runtime, SupervisedRuntime) and not cls._outlives_sessions
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
        leave = _in_one_session(kind._leave_body, lambda entered: entered._entered_in)
        members |= {"_enter_body": _in_one_session(_remembering(kind)), "_leave_body": leave}
    return type(kind.__name__, (kind,), members | {"__doc__": kind.__doc__})


def _in_one_session(
    method: Callable[..., Awaitable[Any]], session: Callable[[Any], Any] = lambda _: None
) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._runtime.call(session(self), lambda: method(self, *args, **kwargs))

    return call


def _remembering(kind: type[Any]) -> Callable[..., Awaitable[Any]]:
    """What enters it, and remembers the session: it is left in the same one."""

    async def enter(self: Any, *args: Any) -> Any:
        value = await kind._enter_body(self, *args)
        self._entered_in = self._runtime._session.get()
        return value

    return enter


def check_kind(wanted: str, value: object, kind: type[T]) -> T:
    """``value`` itself if it is of this kind, else TypeError, which says what is ``wanted``."""
    if not isinstance(value, kind):
        raise TypeError(f"{wanted}, not {type(value).__name__}")
    return value


class HasPath(Recipe):
    """What stands on one path."""

    _path: str

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._path


class Lost(Waitable):
    """The loss of one acquisition: something to wait for, and to be called back by."""

    __slots__ = ("_over", "_reason", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._wakers = ()
        self._runtime = runtime
        self._over = False
        self._reason: str | None = None

    def __repr__(self) -> str:
        state = self.reason or ("released" if self.ready else "not lost")
        return f"<{type(self).__name__}: {state}>"

    @property
    def reason(self) -> str | None:
        """Why the lock was lost; None if it was not."""
        return self._reason

    @property
    def ready(self) -> bool:
        """Whether the lock has been lost or released: nothing more will happen."""
        return self._over

    def is_set(self) -> bool:
        """Whether the client has noticed that the lock is lost; ``lock.held`` is stricter."""
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lock is lost or released, at most ``timeout`` seconds; True if lost."""
        self._runtime.wait(self, check_timeout("timeout", timeout))
        return self.is_set()

    def __await__(self) -> Generator[Any, None, bool]:
        """Under asyncio: wait until the lock is lost or released; is it lost?"""
        yield from self._runtime.ready(self).__await__()
        return self.is_set()

    def add_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(self)`` once, in the client's callback thread, if the lock is lost."""
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {callback!r}")
        self._call_back(callback)

    def _call_back(self, callback: Callable[[Self], object]) -> Waker:
        """:meth:`add_callback`; returns what ``_drop_waker`` takes back."""
        waker = partial(self._call, callback)
        self._runtime.when_ready(self, waker)
        return waker

    def _call(self, callback: Callable[[Self], object]) -> None:
        if self.is_set():
            self._runtime.dispatch(lambda: callback(self))

    def _begin(self, what: str) -> None:
        """From now on tell of the loss; raises if the session is over, or may be, already.

        If the process stands still before this, it may read a reply that is older than the lease.
        """
        runtime = self._runtime
        try:
            runtime.hold(self)
            runtime.check_open()
            if self._reason is not None or runtime.now() >= runtime.lease_deadline:
                why = f"{what} was lost in the moment it was claimed ({self._reason or LAPSED})"
                raise LockLostError(why, session_id=runtime.session_id)
        except BaseException:
            runtime.unhold(self)
            raise

    # --- for the state machine, under the I/O layer's state lock ---

    def _lose(self, message: str) -> tuple[Waker, ...]:
        """The lock is lost; returns what to call.  The first reason counts."""
        if not self._over:
            self._reason, self._over = message, True
        return self._take_wakers()

    def _let_go(self) -> tuple[Waker, ...]:
        """The lock is being released; it cannot be lost any more."""
        self._over = True
        return self._take_wakers() if self._wakers else ()
