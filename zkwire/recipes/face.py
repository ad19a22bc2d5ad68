"""What a lock shows of itself, for threads and for asyncio alike."""

from __future__ import annotations

from zkwire.errors import LockLostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.lock import LockCore
    from zkwire.recipes.lost import Lost


class LockFace:
    """A lock's properties; none of them asks a server."""

    _core: LockCore

    def __init__(self, core: LockCore) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.path}{' held' if self.held else ''}>"

    @property
    def path(self) -> str:
        """The lock's path."""
        return self._core.path

    @property
    def held(self) -> bool:
        """Whether the lock is surely held at this moment; asks no server and is never stale.

        False as soon as the session *may* have expired, even if no other thread of this process
        has run since (a machine that slept, a process that was stopped).
        """
        return self._core.held

    def check(self) -> None:
        """Raise LockLostError unless the lock is surely held at this moment; asks no server."""
        if not self.held:
            raise LockLostError(f"{self.path} is not held: {self.lost.reason or 'no longer'}")

    @property
    def fence(self) -> int:
        """The fencing token of the last acquisition: higher than those of all before it.

        It is the czxid of the lock's node.  RuntimeError if the lock was never acquired.
        """
        return self._core.fence

    def lease_remaining(self) -> float:
        """Seconds for which the lock is surely held even if no server answers; 0.0 if not held."""
        return self._core.lease_remaining()

    @property
    def lost(self) -> Lost:
        """The loss of this acquisition (before it: of the next), to wait for or be called by."""
        return self._core.lost
