"""What the generated classes for threads are made of.

Each holds the object that does the work, ``_algorithm``, and runs its coroutines in the caller's
thread.  How a ``with`` survives an interrupt is written here, once for all.
"""

from __future__ import annotations

from weakref import ref

from zkwire.blocking.run import complete
from zkwire.recipes._recipe import LockInUseError, check_kind
from zkwire.session.waitable import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol, Self, TypeVar

    T = TypeVar("T")

    class ClientLike(Protocol):
        """A Client or a Supervisor."""

        @property
        def _core(self) -> Any:
            """What the recipes ask of it."""
            ...


def core_of(client: ClientLike) -> Any:
    """What the recipes ask of a client; TypeError if it is none, or not for threads."""
    core = getattr(client, "_core", None)
    if core is None:
        wanted = "client must be a Client or a Supervisor"
        raise TypeError(f"{wanted}, not {type(client).__name__}")
    return core


def algorithms_of(values: tuple[Any, ...], taker: str, kind: type[Any]) -> list[Any]:
    """What runs each of the values; TypeError for one that is not of this kind."""
    wanted = f"a {taker} takes locks such as SequentialLock"
    return [check_kind(wanted, value, kind)._algorithm for value in values]


def wrapped(kind: type[T], algorithm: Any) -> Any:
    """The object for threads that runs this algorithm; None for None.

    It is the same one for as long as it is in use, so that users can compare it by ``is``.
    """
    if algorithm is None:
        return None
    known = getattr(algorithm, "_wrapper", None)
    wrapper: Any = known and known()
    if wrapper is None:
        wrapper = kind.__new__(kind)
        wrapper._algorithm = algorithm
        algorithm._wrapper = ref(wrapper)
    return wrapper


def each_wrapped(kind: type[T], algorithms: Iterator[Any]) -> Iterator[Any]:
    """The same for each of them, as they come."""
    for algorithm in algorithms:
        yield wrapped(kind, algorithm)


class With:
    """An object that a thread enters by a ``with``; see :mod:`zkwire.recipes._recipe`.

    The ``try`` stands here as well as there, since an interrupt can come right after the coroutine
    has ended.  Before the first instruction of ``__exit__``, as with any context manager, nothing
    can be done.
    """

    _algorithm: Any  # an Enterable

    def __enter__(self) -> Self:
        entered = self._algorithm._owned
        try:
            complete(self._algorithm._enter_body)
            return self
        except LockInUseError:
            raise
        except BaseException:
            if not entered:
                self._algorithm._abandon()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            complete(self._algorithm._leave_body, kind)
        except BaseException:
            self._algorithm._abandon()
            raise


class Entered(Bound):
    """The same for what a method of the object ``face`` has returned: for one ``with``."""

    __slots__ = ("_algorithm", "_face")
    __exit__ = With.__exit__

    def __init__(self, algorithm: Any, face: Any) -> None:
        self._algorithm = algorithm
        self._face = face

    def __enter__(self) -> Any:
        entered = self._algorithm._owned
        try:
            value = complete(self._algorithm._enter_body)
            return self._face if value is self._face._algorithm else value
        except LockInUseError:
            raise
        except BaseException:
            if not entered:
                self._algorithm._abandon()
            raise


class Sized:
    """What has a length that a server knows."""

    _algorithm: Any

    def __len__(self) -> int:
        """How many items there are, claimed ones included; asks a server, as ``size`` does."""
        size: int = complete(self._algorithm.size)
        return size

    def __bool__(self) -> bool:
        """True, as of any object: asks no server."""
        return True
