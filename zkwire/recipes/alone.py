"""One call at a time: an object that makes an attempt refuses another thread's, or task's.

That it is free is seen and changed under the mutex, or else two threads could both find it free.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Protocol, TypeVar

    from zkwire.recipes.runtime import Runtime

    T = TypeVar("T")

    class Sole(Protocol):
        """What makes an attempt."""

        _busy: bool

        @property
        def _runtime(self) -> Runtime: ...

        def _refuse_two(self) -> None:
            """Raise if an attempt is being made; called under the mutex."""
            ...


async def alone(sole: Sole, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of ``attempt()``, unless ``sole`` refuses it; it is busy as long as that lasts."""
    mine = False
    try:
        with sole._runtime.mutex:
            sole._refuse_two()
            sole._busy = mine = True
        return await attempt()
    finally:
        if mine:
            sole._busy = False  # interrupt-safe: last, a lock may be held
