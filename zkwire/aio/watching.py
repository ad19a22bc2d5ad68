"""Watches for ever, as asyncio has them from a client or a supervisor."""

from __future__ import annotations

from zkwire.recipes._service import NodeWatches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.recipes._service import ChildrenCallback, DataCallback, OnProblem
    from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch


class AsyncNodeWatches(NodeWatches):
    """See :class:`zkwire.recipes._service.NodeWatches`."""

    def watch_data(
        self,
        path: str,
        callback: DataCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> AsyncDataWatch:
        from zkwire.recipes.watching import AsyncDataWatch

        client: Any = self
        return AsyncDataWatch(client, path, callback, on_problem, with_event)

    def watch_children(
        self,
        path: str,
        callback: ChildrenCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> AsyncChildrenWatch:
        from zkwire.recipes.watching import AsyncChildrenWatch

        client: Any = self
        return AsyncChildrenWatch(client, path, callback, on_problem, with_event)

    watch_data.__doc__ = NodeWatches.watch_data.__doc__
    watch_children.__doc__ = NodeWatches.watch_children.__doc__
