"""How threads use the algorithms of locks: what a table entry is, and ``with``.

A class for threads holds an algorithm, ``_algorithm``, and has a table of the coroutines that users
call: ``name: Final = blocking(Algorithm.name)``.  What a class can override is a method instead,
``@runs(Algorithm.name)``: to a type checker a variable has the type that it has in the base class.

An interrupt can come right behind an acquisition, and while the end of a ``with`` releases: so both
stand here in a ``try`` of their own.  Before the first instruction of ``__exit__``, as with any
context manager, nothing can be done.
"""

from __future__ import annotations

from zkwire.blocking.client import Client
from zkwire.blocking.run import blocking, complete
from zkwire.errors import LockLostError, OperationTimeoutError
from zkwire.recipes.attempt import LockInUseError
from zkwire.recipes.locks.acquirable import Acquirable
from zkwire.recipes.view import View, check_kind
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager
    from typing import Any, Concatenate, ParamSpec, Self, TypeVar

    from zkwire.recipes.runtime import Runtime

    P = ParamSpec("P")
    T = TypeVar("T")


def runtime_of(client: Client) -> Runtime:
    """What the recipes ask of the client; TypeError if it is none, or not for threads."""
    return check_kind("client must be a Client", client, Client)._driver


def runs(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[[Callable[..., object]], Callable[Concatenate[Any, P], T]]:
    """A decorator: what it decorates only gives ``blocking(method)`` its name."""
    return lambda _: blocking(method)


class LockFace(View):
    """Any lock, for threads."""

    _algorithm: Acquirable

    def __init__(self, lock: Acquirable) -> None:
        self._algorithm = lock

    @runs(Acquirable.acquire)
    def acquire(self) -> None: ...

    @runs(Acquirable.try_acquire)
    def try_acquire(self) -> None: ...

    @runs(Acquirable.release)
    def release(self) -> None: ...

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        return Within(self, check_timeout("timeout", timeout))

    within.__doc__ = Acquirable.within.__doc__

    def __enter__(self) -> Self:
        self._enter(None)
        return self

    def _enter(self, timeout: float | None) -> None:
        mine = not self._algorithm._owned
        try:
            if not complete(self._algorithm._take, timeout):
                raise self._algorithm._taken_error(timeout)
        except LockInUseError:
            raise
        except BaseException:
            if mine:
                self._algorithm._release_later()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            complete(self._algorithm.release)
        except (LockLostError, OperationTimeoutError):
            if kind is None:
                raise
        except BaseException:
            self._algorithm._release_later()
            raise


class Within:
    """A lock and a time limit, for one ``with``."""

    __slots__ = ("_lock", "_timeout")

    def __init__(self, lock: LockFace, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> Any:
        self._lock._enter(self._timeout)
        return self._lock

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)
