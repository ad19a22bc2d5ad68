"""How a program asks for its shares: one at a time, each confirmed by the next.

It leaves what it confirms in ``_asked``, and waits; that counts until it takes the next share,
however long it waits and however often it asks.  What is in a share, and what happens to what is
confirmed, is :mod:`zkwire.recipes.services.sharing`'s matter.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.recipes.services.awaited import AwaitedService
from zkwire.recipes.services.service import SESSION_OVER, Condition, until_closed
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Sessions
    from zkwire.recipes.services.share import AsyncShare


class Asked:
    """A reader's wish for the share behind this one.

    ``keep`` is what the reader may go on working on meanwhile.  ``changed``: it has seen the share
    changed, and is to get another one in any case.
    """

    __slots__ = ("changed", "keep", "share")

    def __init__(self, share: AsyncShare | None) -> None:
        told = [] if share is None else share._told[:1]
        self.share: AsyncShare | None = share
        self.keep: frozenset[str] = frozenset(share or ()).difference(*told)
        self.changed: bool = bool(told)


class ShareReader(AwaitedService):
    """See the module's docstring; the session's side is a subclass's."""

    _called = "Partitioner"

    def __init__(self, sessions: Sessions, path: str, on_problem: OnProblem | None = None) -> None:
        super().__init__(sessions, on_problem)
        self._path = path
        self._share: Any = None  # that the reader has
        self._next: Any = None  # the one behind it, until the reader takes it
        self._asked: Asked | None = None
        self._reading = False
        self._serving = False  # in a session at this moment
        self._dirty = False
        self._todo = Condition(lambda: self._dirty)

    def _tell(self) -> None:
        self._dirty = True
        self._todo.notify()

    async def next(self, timeout: float | None = None) -> AsyncShare | None:
        """The next share; None if ``timeout`` seconds pass without one.

        It is an empty one only if work on everything has to stop that is not known to have stopped.

        Asking for it confirms that work has stopped on every item that was in an earlier share and
        not in the last one, and on those that the last one has named as ``leaving``.  The lock of
        such an item is released then, and not before.  The last share counts on, without them, when
        this returns None; with 0 the answer is there for a later call.

        A lost connection is no error.  Raises what ended the client, or the supervisor; ValueError
        if older members share out other items; NoAuthError and what else a server refuses a node
        with, unless there is a share to return: a later call may have one; ClientClosedError behind
        :meth:`close`; RuntimeError while another reader waits.
        """
        limit = check_timeout("timeout", timeout)
        if self._reading:
            raise RuntimeError("the shares go to one reader")
        self._check()
        self._reading = True
        try:
            while True:
                if self._next is None:
                    self._asked = Asked(self._share)
                    self._tell()
                if not await self._until(lambda: self._next is not None, limit):
                    return None
                taken = self._next
                if taken is not None:  # else its session has just ended
                    self._share = taken
                    self._next = None  # last: what was asked for is answered by now
                    return taken
        finally:
            self._reading = False

    def __aiter__(self) -> AsyncGenerator[AsyncShare, None]:
        return until_closed(self.next, lambda: self._leaving)

    async def _until_changed(self, share: AsyncShare, timeout: float | None) -> bool:
        """Wait until the share has changed, at most so long; whether it has."""
        with self._notified(lambda: share._stale) as stale:
            await self._sessions.holds(stale, check_timeout("timeout", timeout))
        return share.changed

    async def close(self, timeout: float | None = 10.0) -> None:
        """Let all items go and leave the group.  Idempotent.

        To be called when work on all items has stopped: it confirms that.  OperationTimeoutError if
        it takes longer than ``timeout`` seconds: it goes on in the background, and ends with the
        session at the latest.
        """
        limit = check_timeout("timeout", timeout)
        self._leave()
        with suppress(*SESSION_OVER):
            await self._left(self._path, limit)

    def _leave(self) -> None:
        self._leaving = True
        self._tell()
        self._retry()
        if not self._serving:
            self._end_well()
