"""What one client of all does once in a while, for asyncio."""

from __future__ import annotations

from zkwire.aio.locks import runtime_of
from zkwire.recipes.classic.once_per import PeriodicClaim
from zkwire.recipes.public import public

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from zkwire.aio.client import AsyncClient
    from zkwire.jute.records import ACL


@public
class AsyncOncePer(PeriodicClaim):
    """Run something at most once per period, over all machines.

        if await AsyncOncePer(client, "/jobs/clean-up", 3600).claim():
            await clean_up()

    See :class:`zkwire.OncePer`.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        period: float | timedelta,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        super().__init__(runtime_of(client), path, period, text, acl)
