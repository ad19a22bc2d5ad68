"""Barriers, for asyncio."""

from __future__ import annotations

from zkwire.aio.locks import runtime_of
from zkwire.recipes.classic.barrier import NodeBarrier
from zkwire.recipes.classic.double_barrier import Member
from zkwire.recipes.public import public

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from zkwire.aio.client import AsyncClient
    from zkwire.jute.records import ACL


@public
class AsyncBarrier(NodeBarrier):
    """A barrier that holds up all that come while it is closed; see :class:`zkwire.Barrier`."""

    def __init__(self, client: AsyncClient, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(runtime_of(client), path, acl)


@public
class AsyncDoubleBarrier(Member):
    """One member of a group that begins and ends together.

        async with AsyncDoubleBarrier(client, "/step-1", 16):
            await work()

    See :class:`zkwire.DoubleBarrier`.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        super().__init__(runtime_of(client), path, count, text, acl)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.leave()
        else:
            self._give_up()
