"""Nodes that are kept, and groups, for asyncio."""

from __future__ import annotations

from zkwire.aio.watching import sessions_of
from zkwire.errors import OperationTimeoutError
from zkwire.recipes.public import public
from zkwire.recipes.services.group import MemberGroup
from zkwire.recipes.services.node_owner import NodeOwner, NodeView
from zkwire.recipes.services.standing_node import keeper
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from zkwire.aio.watching import AsyncNodeWatches
    from zkwire.jute.records import ACL
    from zkwire.recipes.services.persistent_node import NodeKeeper


class AsyncClosing:
    """What is closed at the end of an ``async with``."""

    async def close(self, timeout: float | None = 10.0) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except OperationTimeoutError:
            if kind is None:
                raise


@public
class AsyncPersistentNode(NodeView, AsyncClosing):
    """A node that is there for as long as this object wants it.

    Like :class:`zkwire.PersistentNode`; ``async with`` closes it.
    """

    _algorithm: NodeKeeper

    def __init__(
        self,
        client: AsyncNodeWatches,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = True,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = keeper(ephemeral)(sessions_of(client), path, data, acl)

    async def wait_present(self, timeout: float | None = None) -> bool:
        return await self._algorithm.wait_present(timeout)

    async def set_data(self, data: bytes, timeout: float | None = None) -> None:
        await self._algorithm.set_data(data, timeout)

    async def close(self, timeout: float | None = 10.0) -> None:
        await self._algorithm.close(timeout)

    wait_present.__doc__ = NodeOwner.wait_present.__doc__
    set_data.__doc__ = NodeOwner.set_data.__doc__
    close.__doc__ = NodeOwner.close.__doc__


@public
class AsyncGroup(PathView, MemberGroup, AsyncClosing):
    """The members of a group, each with its data: to join them, and to know them.

    Like :class:`zkwire.Group`; ``async with`` closes it.
    """

    def __init__(
        self, client: AsyncNodeWatches, path: str, *, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(sessions_of(client), path, acl)

    async def join(
        self, data: bytes = b"", name: str | None = None, timeout: float | None = None
    ) -> AsyncPersistentNode:
        membership = AsyncPersistentNode.__new__(AsyncPersistentNode)
        membership._algorithm = await super().join(data, name, timeout)
        return membership

    join.__doc__ = MemberGroup.join.__doc__
