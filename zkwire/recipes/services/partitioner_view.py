"""What a partitioner shows of itself: one text for threads and for asyncio."""

from __future__ import annotations

from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    State = Literal["allocating", "acquired", "releasing", "failed", "closed"]


class PartitionerView(PathView):
    """What a partitioner shows; nothing here waits, or asks a server."""

    @property
    def name(self) -> str | None:
        """The member's name; None if none was given and none has been made yet."""
        return self._algorithm._partition.name

    @property
    def state(self) -> State:
        """What it is doing.

        * ``"allocating"``: it waits for a session, or for items that are to be its own.
        * ``"acquired"``: it has all items that are to be its own.
        * ``"releasing"``: it waits until work is confirmed to have stopped on some that are not.
        * ``"failed"``: it has ended with an error, which each wait raises.
        * ``"closed"``: ``close`` was called.
        """
        algorithm = self._algorithm
        if algorithm._error is not None:
            return "failed"
        return "closed" if algorithm._leaving else algorithm._state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.state}>"
