"""A number that many clients change, for asyncio."""

from __future__ import annotations

from zkwire.aio.locks import runtime_of
from zkwire.recipes.classic.counter import SharedCounter
from zkwire.recipes.public import public

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from zkwire.aio.client import AsyncClient
    from zkwire.jute.records import ACL


@public
class AsyncCounter(SharedCounter):
    """A number that many clients change.

        number = await AsyncCounter(client, "/orders/count").add(1)

    See :class:`zkwire.Counter`.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        *,
        format: Literal["text", "int32", "int64"] = "text",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        super().__init__(runtime_of(client), path, format, acl)
