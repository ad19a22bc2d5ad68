"""What a kept node shows of itself: one text for threads and for asyncio."""

from __future__ import annotations

from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.jute.records import Stat


class NodeView(PathView):
    """What a kept node shows; nothing here asks a server."""

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path.rpartition("/")[2]

    @property
    def present(self) -> bool:
        """Whether the node is there, as far as is known here.

        It stays True while the connection is lost, and until the client hears that the node was
        deleted or that the session has expired.
        """
        return self._algorithm._stat is not None

    @property
    def stat(self) -> Stat | None:
        """The stat of its own node, as last seen; None unless ``present``.

        ``czxid`` is another number, a higher one, each time the node is put back.
        """
        return self._algorithm._stat

    @property
    def conflict(self) -> Stat | None:
        """The stat of a foreign node that is in its place; None if there is none.

        It is never overwritten; its own node follows when it is gone.  ``ephemeral_owner`` says
        which session it belongs to: 0 if to none, so that it will not go by itself.
        """
        return self._algorithm._conflict

    def __repr__(self) -> str:
        state = " present" * self.present or " conflict" * (self.conflict is not None)
        return f"<{type(self).__name__} {self.path}{state}>"
