"""A mirror of a node, its children or its tree, for asyncio."""

from __future__ import annotations

from zkwire.aio.watching import sessions_of
from zkwire.recipes.public import public
from zkwire.recipes.services.cache import TreeCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from zkwire.aio.watching import AsyncNodeWatches
    from zkwire.recipes.services.cache_event import CacheEvent


@public
class AsyncCache(TreeCache):
    """A mirror of a node, its children or its whole tree.

        async with AsyncCache(client, "/services") as services:
            async for event in services.events():
                print(event.kind, event.path, event.data)

    See :class:`zkwire.Cache`.
    """

    def __init__(
        self,
        client: AsyncNodeWatches,
        path: str,
        *,
        depth: int | None = None,
        skip: Callable[[str], object] | None = None,
        max_bytes: int | None = None,
        decode: Callable[[bytes], Any] | None = None,
        on_event: Callable[[CacheEvent], object] | None = None,
    ) -> None:
        super().__init__(
            sessions_of(client),
            path,
            depth=depth,
            skip=skip,
            max_bytes=max_bytes,
            decode=decode,
            on_event=on_event,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
