"""A node's data, or its children, for ever, for threads."""

from __future__ import annotations

from zkwire.blocking.run import blocking, iterate
from zkwire.recipes.public import public
from zkwire.recipes.services.following import ChildrenFollower, DataFollower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, Self

    from zkwire.recipes.services.following import Follower
    from zkwire.recipes.services.seen import SeenChildren, SeenData
    from zkwire.recipes.services.service import Sessions


def check_callback(callback: Any) -> None:
    """TypeError for a function that would have to be awaited: threads do not do that."""
    from inspect import iscoroutinefunction  # not at the top: an import of zkwire is to be quick

    if callable(callback) and any(map(iscoroutinefunction, (callback, type(callback).__call__))):
        raise TypeError(f"{callback!r} is async: a thread calls it, and nothing awaits it")


class FollowerFace:
    """What data and children have in common."""

    _algorithm: Follower

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        except BaseException:  # an interrupt
            self.close()
            raise

    def close(self) -> None:
        self._algorithm.close()

    close.__doc__ = DataFollower.close.__doc__


@public
class DataWatch(FollowerFace):
    """The data of a node for ever; see :meth:`zkwire.Client.watch_data`."""

    def __init__(
        self,
        sessions: Sessions,
        path: str,
        callback: Callable[[SeenData], object] | None = None,
    ) -> None:
        check_callback(callback)
        self._algorithm = DataFollower(sessions, path, callback)

    next: Final = blocking(DataFollower.next)

    def __iter__(self) -> Iterator[SeenData]:
        return iterate(self._algorithm.__aiter__())


@public
class ChildrenWatch(FollowerFace):
    """The names of a node's children for ever; see :meth:`zkwire.Client.watch_children`."""

    def __init__(
        self,
        sessions: Sessions,
        path: str,
        callback: Callable[[SeenChildren], object] | None = None,
    ) -> None:
        check_callback(callback)
        self._algorithm = ChildrenFollower(sessions, path, callback)

    next: Final = blocking(ChildrenFollower.next)

    def __iter__(self) -> Iterator[SeenChildren]:
        return iterate(self._algorithm.__aiter__())
