"""Watches for ever, as asyncio has them from a client or a supervisor."""

from __future__ import annotations

from zkwire.recipes.services.seen import NodeWatches
from zkwire.recipes.view import check_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.aio.following import AsyncChildrenWatch, AsyncDataWatch
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.seen import SeenChildren, SeenData
    from zkwire.recipes.services.service import Sessions


class AsyncNodeWatches(NodeWatches):
    """See :class:`zkwire.recipes.services.seen.NodeWatches`."""

    def watch_data(
        self,
        path: str,
        callback: Callable[[SeenData], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> AsyncDataWatch:
        from zkwire.aio.following import AsyncDataWatch

        return AsyncDataWatch(self._sessions, path, callback, on_problem)

    def watch_children(
        self,
        path: str,
        callback: Callable[[SeenChildren], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> AsyncChildrenWatch:
        from zkwire.aio.following import AsyncChildrenWatch

        return AsyncChildrenWatch(self._sessions, path, callback, on_problem)

    watch_data.__doc__ = NodeWatches.watch_data.__doc__
    watch_children.__doc__ = NodeWatches.watch_children.__doc__


def sessions_of(client: AsyncNodeWatches) -> Sessions:
    """Where the services of a client or a supervisor run; TypeError if it is neither."""
    return check_kind(
        "client must be an AsyncClient or an AsyncSupervisor", client, AsyncNodeWatches
    )._sessions
