"""What one member has to work on, and how it learns that this has changed.

A share never changes: what changes is whether it still counts.  What is to be given up is fixed at
the moment when the member is told of it, so that what the member confirms is what it was told.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkwire.errors import LockLostError
from zkwire.recipes.view import Itself
from zkwire.session.waitable import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from zkwire.recipes.services.tenure import Tenure


class ShareView(Bound, Mapping[str, int]):
    """What a share shows.  Nothing here waits, or asks a server."""

    _algorithm: Any = Itself()

    def __getitem__(self, item: str) -> int:
        fence: int = self._algorithm._fences[item]
        return fence

    def __iter__(self) -> Iterator[str]:
        return iter(self._algorithm._fences)

    def __len__(self) -> int:
        return len(self._algorithm._fences)

    def __repr__(self) -> str:
        changed = " changed" * bool(self._algorithm._told)
        return f"<{type(self).__name__} {', '.join(self)}{changed}>"

    @property
    def changed(self) -> bool:
        """Whether there is another share to ask for.  Once True it stays True.

        Items are to be given up (``leaving``), or more are there.
        """
        return self._algorithm._has_changed()

    @property
    def leaving(self) -> frozenset[str]:
        """The items that are to be given up, or are lost: work on them has to stop.

        None before the share has ``changed``; from then on always the same.  The next ``next``
        confirms that the work has stopped, and only then another member gets the items.
        """
        return self._algorithm._told[0] if self.changed else frozenset()

    @property
    def lost(self) -> frozenset[str]:
        """The items that are another member's now, or may be: the session or the lock is gone.

        It is exact at this moment, even if no other thread of this process has run since.
        """
        tenures: dict[str, Tenure] = self._algorithm._tenures
        return frozenset(item for item, tenure in tenures.items() if not tenure.held)

    def check(self, item: str) -> None:
        """Raise LockLostError unless the item is surely this member's; KeyError if it never was."""
        tenure = self._algorithm._tenures[item]
        if not tenure.held:
            why = f"{item!r} is no longer this member's"
            raise LockLostError(why, session_id=tenure.lock._runtime.session_id)


class AsyncShare(ShareView):
    """The items of one member, each with its fence, as an :class:`AsyncPartitioner` has them."""

    def __init__(self, partitioning: Any, tenures: dict[str, Tenure]) -> None:
        self._partitioning = partitioning
        self._tenures = tenures
        self._fences = {item: tenure.lock.fence for item, tenure in sorted(tenures.items())}
        self._told: list[frozenset[str]] = []  # the first one counts

    def _has_changed(self) -> bool:
        if not self._told and self._stale:
            self._told.append(
                frozenset(i for i, tenure in self._tenures.items() if not self._keeps(tenure))
            )
        return bool(self._told)

    @property
    def _stale(self) -> bool:
        partitioning = self._partitioning
        return (
            partitioning._share is not self
            or partitioning._next not in (None, self)
            or partitioning._news
            or not all(map(self._keeps, self._tenures.values()))
        )

    def _keeps(self, tenure: Tenure) -> bool:
        return tenure.wanted and tenure.held and not self._partitioning._leaving

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the share has ``changed``, at most ``timeout`` seconds; whether it has.

        It has, too, when the session or the client is over: then all items are lost.
        """
        return await self._partitioning._until_changed(self, timeout)
