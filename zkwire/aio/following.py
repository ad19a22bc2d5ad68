"""A node's data, or its children, for ever, for asyncio."""

from __future__ import annotations

from zkwire.recipes.public import public
from zkwire.recipes.services.following import ChildrenFollower, DataFollower, Follower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class AsyncFollower(Follower):
    """What data and children have in common."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _call(self) -> None:
        """Call the callback, and await it if it is asynchronous; the next read follows its end."""
        if self._closed:
            return
        try:
            result = self._callback(self._next)
            if hasattr(result, "__await__"):
                await result
        finally:
            self._take()


@public
class AsyncDataWatch(AsyncFollower, DataFollower):
    """The data of a node for ever; see :meth:`zkwire.AsyncClient.watch_data`."""


@public
class AsyncChildrenWatch(AsyncFollower, ChildrenFollower):
    """The names of a node's children for ever; see :meth:`zkwire.AsyncClient.watch_children`."""
