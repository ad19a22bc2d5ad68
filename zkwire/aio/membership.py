"""Nodes that are kept, and groups, for asyncio."""

from __future__ import annotations

from zkwire.aio.watching import sessions_of
from zkwire.errors import OperationTimeoutError
from zkwire.recipes.node_owner import NodeOwner
from zkwire.recipes.node_view import NodeView
from zkwire.recipes.standing_node import keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from zkwire.aio.watching import AsyncNodeWatches
    from zkwire.jute.records import ACL
    from zkwire.recipes.persistent_node import NodeKeeper


class AsyncPersistentNode(NodeView):
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except OperationTimeoutError:
            if kind is None:
                raise

    wait_present.__doc__ = NodeOwner.wait_present.__doc__
    set_data.__doc__ = NodeOwner.set_data.__doc__
    close.__doc__ = NodeOwner.close.__doc__
