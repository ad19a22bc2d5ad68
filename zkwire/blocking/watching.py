"""Watches for ever, as threads have them from a client or a supervisor."""

from __future__ import annotations

from zkwire.recipes.services.seen import NodeWatches
from zkwire.recipes.view import check_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.blocking.following import ChildrenWatch, DataWatch
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.seen import SeenChildren, SeenData
    from zkwire.recipes.services.service import Sessions


class ThreadNodeWatches(NodeWatches):
    """See :class:`zkwire.recipes.services.seen.NodeWatches`."""

    def watch_data(
        self,
        path: str,
        callback: Callable[[SeenData], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> DataWatch:
        from zkwire.blocking.following import DataWatch

        return DataWatch(self._sessions, path, callback, on_problem)

    def watch_children(
        self,
        path: str,
        callback: Callable[[SeenChildren], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> ChildrenWatch:
        from zkwire.blocking.following import ChildrenWatch

        return ChildrenWatch(self._sessions, path, callback, on_problem)

    watch_data.__doc__ = NodeWatches.watch_data.__doc__
    watch_children.__doc__ = NodeWatches.watch_children.__doc__


def sessions_of(client: ThreadNodeWatches) -> Sessions:
    """Where the services of a client or a supervisor run; TypeError if it is neither."""
    return check_kind(
        "client must be a Client or a Supervisor", client, ThreadNodeWatches
    )._sessions
