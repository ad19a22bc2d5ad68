"""What is entered and left by an ``async with``, or by a ``with`` in a thread.

An interrupt or a cancellation can come right after it was entered, and while it is left.  In either
case it is abandoned: what it holds is given up in the background, where nothing may await.
"""

from __future__ import annotations

from zkwire.recipes.attempt import LockInUseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Enterable:
    """See the module's docstring; subclasses say what each step is."""

    if TYPE_CHECKING:

        @property
        def _owned(self) -> bool:
            """Whether it has been entered: by an earlier ``with``, which is to go on."""
            ...

    async def _enter_body(self) -> Any:
        """Enter it; returns what the ``with`` is to give."""
        raise NotImplementedError

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        """Leave it, after a body that has ended with an exception of this kind."""
        raise NotImplementedError

    def _abandon(self) -> None:
        """Give up what it holds, without waiting.  Idempotent."""
        raise NotImplementedError

    async def __aenter__(self) -> Any:
        entered = self._owned
        try:
            return await self._enter_body()
        except LockInUseError:
            raise
        except BaseException:
            if not entered:
                self._abandon()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._leave_body(kind)
        except BaseException:
            self._abandon()
            raise
