"""One item in one member's hands: from the wish for its lock until the lock is lost or released.

The lock is the fair lock, held in the background.  It makes two owners of one item impossible,
whatever the members believe about each other, and gives each tenure its fence.  A tenure belongs to
one session and is not begun anew: what follows it is another one, with a higher fence.
"""

from __future__ import annotations

from zkwire.errors import BUSY, LockLostError, NotReadOnlyError
from zkwire.recipes.locks.sequential import SequentialQueue
from zkwire.recipes.services.service import Service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from zkwire.jute.records import ACL
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.locks.sequential import Place
    from zkwire.recipes.services.problem import Problem
    from zkwire.recipes.services.service import Background


class ItemLock(SequentialQueue):
    """The lock of one item.  ``waits``: another member was seen to hold it."""

    waits: bool = False
    tell: Callable[[], object]

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: list[Place], deadline: float | None
    ) -> list[str]:
        if not self.waits:
            self.waits = True
            self.tell()
        return await super()._look_again(attempt, names, ahead, deadline)


class Tenure(Service):
    """See the module's docstring.  Dismissed, it lets the lock go; ``tell`` is told each change.

    ``wanted``: the item is still this member's by the present allotment.
    """

    _called = "lock of an item"

    def __init__(
        self,
        runtime: Background,
        path: str,
        text: str,
        acl: Sequence[ACL] | None,
        tell: Callable[[], object],
        trouble: Problem,
    ) -> None:
        sessions: Any = runtime  # the driver behind it is one
        super().__init__(sessions)
        self._path, self._trouble = path, trouble
        self.lock: ItemLock = ItemLock(sessions, path, text, acl)
        self.lock.tell = self._in_line
        self._tell = tell
        self.wanted: bool = True
        self.ended: bool = False
        self._begin()

    async def _serve(self, runtime: Background) -> None:
        self.lock.waits = False
        try:
            while not await self._acquire(runtime):
                pass
            self._in_line()
            await runtime.wait_for(self.lock.lost)
        except LockLostError:
            pass  # in the moment it was acquired
        finally:
            self.lock._release_later()

    def _in_line(self) -> None:
        self._is_right()
        self._tell()

    async def _acquire(self, runtime: Any) -> bool:
        try:
            return await self.lock.acquire()
        except NotReadOnlyError:
            await runtime.another_state()
        except BUSY:
            pass
        return False

    def _session_ended(self) -> None:
        self.ended = True

    def _changed(self) -> None:
        super()._changed()
        self._tell()

    @property
    def held(self) -> bool:
        """Whether the item is surely this member's at this moment; asks nothing."""
        return self.lock._holds

    @property
    def settled(self) -> bool:
        """Whether the lock is held, or is not for this member to have now.

        Another member has to let it go first, or the server refuses it.
        """
        return self.lock.waits or self.lock._owned or self._problem is not None
