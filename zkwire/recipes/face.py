"""What a lock shows of itself, for threads and for asyncio alike."""

from __future__ import annotations

from zkwire.errors import LockLostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from zkwire.recipes.lock import Lock
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.multi_lock import AnyLost

    T = TypeVar("T")


def check_kind(wanted: str, value: T, kind: type[T]) -> T:
    """``value`` itself if it is of this kind, else TypeError, which says what is ``wanted``."""
    if not isinstance(value, kind):
        raise TypeError(f"{wanted}, not {type(value).__name__}")
    return value


class Bodied:
    """What a ``with`` must know of a lock, and whoever works in its body."""

    @property
    def held(self) -> bool:
        """Whether it is held at this moment."""
        raise NotImplementedError

    @property
    def lost(self) -> Lost | AnyLost:
        """The loss of the last acquisition."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise LockLostError unless the lock is ``held``; asks no server.

        Of a node that an outsider has just deleted it knows what ``held`` knows.
        """
        if not self.held:
            self._check_place()
            raise LockLostError(f"{self._called} is not held: {self.lost.reason or 'no longer'}")

    def _check_place(self) -> None:
        """Raise if its client cannot be used here: in a forked child, in another event loop."""
        raise NotImplementedError

    def _give_up(self) -> None:
        """Release it without waiting for that."""
        raise NotImplementedError

    @property
    def _called(self) -> str:
        """What to call it in an error."""
        return "one of the locks"

    @property
    def _owned(self) -> bool:
        """Whether it was acquired and not released."""
        raise NotImplementedError


class LockFace(Bodied):
    """A lock's properties; none of them asks a server."""

    _core: Lock

    def __init__(self, core: Lock) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.path}{' held' if self.held else ''}>"

    @property
    def path(self) -> str:
        """The lock's path."""
        return self._core.path

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment, as far as is known here; asks no server.

        False as soon as the lease has ended, even if no other thread of this process has run since
        (a machine that slept, a process that was stopped).  If an outsider deletes the node, it is
        True until the client hears of that: until the event arrives, or, within some milliseconds
        of the acquisition and before the node is watched, the answer to the request that watches
        it.  ``release`` asks the server; :meth:`check` does not.  See also
        :mod:`zkwire.session.liveness`.
        """
        return self._core.held

    def _give_up(self) -> None:
        self._core.give_up()

    @property
    def _called(self) -> str:
        return self.path

    @property
    def _owned(self) -> bool:
        return self._core.owned

    def _check_place(self) -> None:
        self._core.world.check()

    @property
    def fence(self) -> int:
        """The fencing token of the last acquisition: higher than those of all before it.

        It is the czxid of the lock's node.  RuntimeError if the lock was never acquired.
        """
        return self._core.fence

    def lease_remaining(self) -> float:
        """Seconds until the lease ends if no server answers any more; 0.0 if not held."""
        return self._core.lease_remaining()

    @property
    def lost(self) -> Lost:
        """The loss of the last acquisition (before the first: of that), to wait or be called for.

        The next acquisition has another one: ask again when it is acquired.  A deleted node is
        told when ``held`` knows of it; one that only ``release`` finds is its LockLostError alone.
        It may come although the session lives on, when no answer has come for a session timeout:
        those to pings wait behind a reply that takes that long to arrive.
        """
        return self._core.lost
