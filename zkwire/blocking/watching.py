"""Watches for ever, as threads have them from a client or a supervisor."""

from __future__ import annotations

from zkwire.recipes._service import NodeWatches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.blocking.services import ChildrenWatch, DataWatch
    from zkwire.recipes._service import OnProblem, SeenChildren, SeenData


class ThreadNodeWatches(NodeWatches):
    """See :class:`zkwire.recipes._service.NodeWatches`."""

    def watch_data(
        self,
        path: str,
        callback: Callable[[SeenData], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> DataWatch:
        from zkwire.blocking.services import DataWatch

        client: Any = self
        return DataWatch(client, path, callback, on_problem)

    def watch_children(
        self,
        path: str,
        callback: Callable[[SeenChildren], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> ChildrenWatch:
        from zkwire.blocking.services import ChildrenWatch

        client: Any = self
        return ChildrenWatch(client, path, callback, on_problem)

    watch_data.__doc__ = NodeWatches.watch_data.__doc__
    watch_children.__doc__ = NodeWatches.watch_children.__doc__
