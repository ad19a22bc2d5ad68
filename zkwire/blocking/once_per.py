"""What one client of all does once in a while, for threads."""

from __future__ import annotations

from zkwire.blocking.faces import runtime_of
from zkwire.blocking.run import blocking
from zkwire.recipes.classic.once_per import PeriodicClaim
from zkwire.recipes.public import public
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Final

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL


@public
class OncePer(PathView):
    """Run something at most once per period, over all machines.

        hourly = OncePer(client, "/jobs/clean-up", timedelta(hours=1))
        if hourly.claim():
            clean_up()

    Each machine may ask as often as it likes.  The period is counted on the servers' clock, from
    one claim to the next, whatever becomes of the client that has claimed; ``give_back`` lets
    another one claim at once.  ``period`` is in seconds, or a timedelta; all should name the same.
    ``text`` stands in the node, behind the claim's id.

    Raises ValueError or TypeError for bad arguments.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        period: float | timedelta,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = PeriodicClaim(runtime_of(client), path, period, text, acl)

    claim: Final = blocking(PeriodicClaim.claim)
    give_back: Final = blocking(PeriodicClaim.give_back)
