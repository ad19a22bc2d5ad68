"""Watches forever, as threads have them from a client or a supervisor."""

from __future__ import annotations

from zkwire.recipes._service import NodeWatches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.blocking.services import ChildrenWatch, DataWatch
    from zkwire.recipes._service import ChildrenCallback, DataCallback, OnProblem


class ThreadNodeWatches(NodeWatches):
    """See :class:`zkwire.recipes._service.NodeWatches`."""

    def watch_data(
        self,
        path: str,
        callback: DataCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> DataWatch:
        from zkwire.blocking.services import DataWatch

        client: Any = self
        return DataWatch(client, path, callback, on_problem, with_event)

    def watch_children(
        self,
        path: str,
        callback: ChildrenCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> ChildrenWatch:
        from zkwire.blocking.services import ChildrenWatch

        client: Any = self
        return ChildrenWatch(client, path, callback, on_problem, with_event)

    watch_data.__doc__ = NodeWatches.watch_data.__doc__
    watch_children.__doc__ = NodeWatches.watch_children.__doc__
