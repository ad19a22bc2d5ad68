"""What a lock shows of itself: one text for threads and for asyncio.  Nothing here asks a server.

``_algorithm`` is the algorithm: under asyncio the object itself, for threads what the object runs.
"""

from __future__ import annotations

from zkwire.errors import LockLostError
from zkwire.recipes.supervised import Recipe
from zkwire.session.waitable import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from zkwire.recipes.lost import Loss, Lost

    T = TypeVar("T")


def check_kind(wanted: str, value: object, kind: type[T]) -> T:
    """``value`` itself if it is of this kind, else TypeError, which says what is ``wanted``."""
    if not isinstance(value, kind):
        raise TypeError(f"{wanted}, not {type(value).__name__}")
    return value


class Itself:
    """An attribute that is the object itself until another value is stored: no reference cycle."""

    def __get__(self, instance: object, owner: object = None) -> object:
        return instance


class PathView(Recipe):
    """What stands on one path."""

    _algorithm: Any = Itself()

    @property
    def path(self) -> str:
        """The path of the node that it is, or that its contenders stand below."""
        return self._algorithm._path


class ServiceView(Bound):
    """What every service shows of itself."""

    _outlives_sessions = True  # by itself: it is begun again in each

    _algorithm: Any = Itself()

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        problem: Exception | None = self._algorithm._shown_problem
        return problem


class View(Recipe):
    """What every lock shows."""

    _algorithm: Any = Itself()

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment, as far as is known here; asks no server.

        A MultiLock is held while all of its locks are, a ReentrantLock while the thread or task
        that asks holds it.

        False as soon as the lease has ended, even if no other thread of this process has run since
        (a machine that slept, a process that was stopped).  A lost connection alone changes
        nothing: the lock is held until the lease ends, and longer if a server answers before.

        If an outsider deletes the node, it is True until the client hears of that: until the event
        arrives, or, within some milliseconds of the acquisition and before the node is watched, the
        answer to the request that watches it.  ``release`` asks the server; :meth:`check` does not.
        See also :mod:`zkwire.session.liveness`.
        """
        return self._algorithm._holds

    @property
    def lost(self) -> Loss:
        """The loss of the last acquisition (before the first: of that), to wait or be called for.

        The next acquisition has another one: ask again when it is acquired.  A MultiLock is lost as
        soon as one of its locks is; a ReentrantLock shows the loss of the thread or task that asks.

        A deleted node is told when ``held`` knows of it; one that only ``release`` finds is its
        LockLostError alone.  A loss may come although the session lives on, when no answer has come
        for a session timeout: those to pings wait behind a reply that takes that long to arrive.
        """
        return self._algorithm._lost

    def lease_remaining(self) -> float:
        """Seconds until the lease ends if no server answers any more; 0.0 if the lock is not held.

        Of a MultiLock those of the lock that has the least.
        """
        return self._algorithm._lease_left()

    def check(self) -> None:
        """Raise LockLostError unless the lock is ``held``; asks no server.

        Of a node that an outsider has just deleted it knows what ``held`` knows.
        """
        lock = self._algorithm
        if not lock._holds:
            lock._runtime.check()
            held_once = lock._lost.is_set() or lock._owned
            raise LockLostError(
                f"{lock._called} is not held: {lock._lost.reason or 'not acquired, or no longer'}",
                session_id=lock._runtime.session_id if held_once else 0,
            )


class LockView(PathView, View):
    """What a lock on one path shows."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{' held' if self.held else ''}>"

    if TYPE_CHECKING:

        @property
        def lost(self) -> Lost: ...

    @property
    def fence(self) -> int:
        """The fencing token of the last acquisition: higher than those of all before it.

        It is the czxid of the lock's node: on another ensemble, to which the tree was moved, it
        begins low again.  RuntimeError if the lock was never acquired.
        """
        if self._algorithm._fence is None:
            raise RuntimeError("this lock object has never held the lock")
        return self._algorithm._fence
