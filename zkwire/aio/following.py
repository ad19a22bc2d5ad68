"""A node's data, or its children, for ever, for asyncio."""

from __future__ import annotations

from zkwire.recipes.following import ChildrenFollower, DataFollower, Follower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class AsyncFollower(Follower):
    """A follower to be closed at the end of an ``async with``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncDataWatch(AsyncFollower, DataFollower):
    """The data of a node for ever; see :meth:`zkwire.AsyncClient.watch_data`."""


class AsyncChildrenWatch(AsyncFollower, ChildrenFollower):
    """The names of a node's children for ever; see :meth:`zkwire.AsyncClient.watch_children`."""
