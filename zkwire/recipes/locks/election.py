"""The election: a queue of candidates, of which the first leads.  Leadership is a fair lock."""

from __future__ import annotations

from zkwire.recipes.locks.contenders import contenders
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.recipes.locks.contenders import Contender
    from zkwire.recipes.runtime import Runtime


class ElectionView(PathView):
    """What an election shows."""

    def lead(self) -> Any:
        """A candidacy: a lock whose holder is the leader.  Enter it, or acquire it, to run."""
        raise NotImplementedError


class Candidates(ElectionView):
    """The queue of an election; ``make`` makes a candidacy."""

    def __init__(self, runtime: Runtime, make: Callable[[], Any]) -> None:
        self._runtime, self._new = runtime, make
        self._path: str = make().path  # which checks the arguments

    async def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot.

        It only reads, so after an error it can be repeated; a lost connection is no error here.
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return await contenders(self._runtime, self._path)

    async def leader(self) -> Contender | None:
        """The leader at this moment, as far as the server that was asked knows; None without one.

        Errors are those of :meth:`candidates`.
        """
        return next(iter(await self.candidates()), None)
