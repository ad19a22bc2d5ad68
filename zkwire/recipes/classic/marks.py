"""The marks of a queue, in a folder of their own: deleted some milliseconds after the last call.

The folder goes with its last mark.  No change begins with what the one before has left, so a mark
that an outsider has deleted, or written into, is made anew or taken as it is.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import NodeExistsError, NoNodeError, ZooKeeperError
from zkwire.recipes.classic.mark import Mark, Marks
from zkwire.recipes.runtime import persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import Runtime


class PassingMarks(Marks):
    """See the module's docstring.  ``kept``, which is above the folder, stays."""

    def __init__(
        self, runtime: Runtime, folder: str, kept: str, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(runtime, folder, acl)
        self._kept = kept

    async def execute(
        self, mark: Mark, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        while True:
            try:
                return await super().execute(mark, operations, deadline)
            except NoNodeError:
                look = self._runtime.operations.exists
                stat = await persist(self._runtime, deadline, look, mark.node or "")
                mark.version = -1 if stat is None else stat.version
                await self.make(mark, deadline)

    async def make(self, mark: Mark, deadline: float | None) -> None:
        """Create the mark if it is not there: then what it does first is as sure as the rest."""
        create, node = self._runtime.operations.create, mark.node or ""
        try:
            while mark.version < 0:
                mark.entered = mark.in_doubt = True
                try:
                    await persist(
                        self._runtime, deadline, create, node, acl=self._acl, ephemeral=True
                    )
                except NodeExistsError:
                    pass  # made by a try whose reply was lost
                except NoNodeError:
                    await self._provide(self._path, deadline)
                    continue
                mark.version, mark.in_doubt = 0, False
        except ZooKeeperError as error:
            error.maybe_applied = False  # but for the mark itself
            raise

    def give_back(self, mark: Mark) -> None:
        super().give_back(mark)
        with suppress(ZooKeeperError):  # the session is over, and its marks with it
            self._runtime.check_open()
            self._runtime.defer(self._tidy)

    def _tidy(self) -> None:
        while (mark := self._take()) is not None:
            self.drop(mark)
