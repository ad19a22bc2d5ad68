"""How shares are handed out to the member's own program: one at a time, each confirmed by the next.

Invariants, beside those of :mod:`zkwire.recipes.partitioner`:

* ``_given`` is what the program may be working on: handed out, and not confirmed to be over.
* Background steps alone change it.  A reader leaves what it confirms in ``_keep``, and waits.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import ClientClosedError
from zkwire.recipes.awaited import AwaitedService
from zkwire.recipes.service import SESSION_OVER, Condition
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from zkwire.recipes.service import Sessions
    from zkwire.recipes.share import ShareView
    from zkwire.recipes.tenure import Tenure


class Sharing(AwaitedService):
    """The reader's side of a partitioner; see the module's docstring."""

    def __init__(self, sessions: Sessions, path: str, kind: type[ShareView]) -> None:
        super().__init__(sessions)
        self._path, self._kind = path, kind
        self._given: dict[str, Tenure] = {}
        self._share: Any = None  # that the reader has
        self._next: Any = None  # the one behind it, until the reader takes it
        self._keep: frozenset[str] | None = None  # of its share; a reader waits for the next
        self._again = False  # it waits because it has seen its share changed
        self._news = False  # there is something that the reader's share does not say
        self._state = "allocating"
        self._serving = False  # in a session at this moment
        self._dirty = False
        self._todo = Condition(lambda: self._dirty)

    # --- the session's side -----------------------------------------------------------------------

    def _tell(self) -> None:
        self._dirty = True
        self._todo.notify()

    def _confirm(self) -> None:
        """Take what the reader has confirmed to be over from what is given."""
        if self._leaving:
            self._next = None
        keep = frozenset[str]() if self._leaving else self._keep
        if keep is not None and self._next is None:  # else that was given before it was asked for
            for item in self._given.keys() - keep:
                del self._given[item]

    def _hand_out(self, wanted: dict[str, Tenure]) -> None:
        """Make a share of what is held, if the reader waits for one, and note what has changed."""
        owned = {item: tenure for item, tenure in wanted.items() if tenure.held}
        kept = {item: tenure for item, tenure in owned.items() if self._given.get(item) is tenure}
        gains = {item: tenure for item, tenure in owned.items() if item not in self._given}
        if not all(tenure.settled for tenure in wanted.values()):
            gains = {}  # a moment later there are more of them
        now = {**kept, **gains}
        differs = self._again or self._share is None or now != self._share._tenures
        if self._keep is not None and self._next is None and now and differs:
            self._given.update(gains)
            self._next, gains = self._kind(self, now), {}
        latest = self._next or self._share or ()
        self._news = bool(gains) or any(item not in latest for item in self._given)
        releasing = any(owned.get(item) is not tenure for item, tenure in self._given.items())
        complete = "acquired" if len(owned) == len(wanted) else "allocating"
        self._state = "releasing" if releasing else complete

    def _session_ended(self) -> None:
        self._next, self._news, self._state = None, False, "allocating"
        self._serving = False
        if self._leaving and not self._closed:
            self._end()

    # --- the reader's side ------------------------------------------------------------------------

    async def next(self, timeout: float | None = None) -> Any:
        """The next share, never an empty one; None if ``timeout`` seconds pass without one.

        Asking for it confirms that work has stopped on every item that was in an earlier share and
        not in the last one, and on those that the last one has named as ``leaving``.  The lock of
        such an item is let go then, and not before.  The last share counts on, without them, when
        this returns None.

        A lost connection is no error.  Raises what ended the client, or the supervisor; ValueError
        if older members share out other items; NoAuthError and what else a server refuses a node
        with; ClientClosedError behind :meth:`close`; RuntimeError while another reader waits.
        """
        if self._keep is not None:
            raise RuntimeError("the shares go to one reader")
        share = self._share
        told: list[frozenset[str]] = [] if share is None else share._told
        keep = frozenset(share or ()).difference(*told[:1])
        self._again = bool(told)
        try:
            while True:
                self._keep = keep
                self._tell()
                if not await self._until(lambda: self._next is not None, timeout):
                    return None
                self._keep = None  # first: the next but one is not asked for
                taken, self._next = self._next, None
                if taken is not None:  # else its session has just ended
                    self._share = taken
                    return taken
        finally:
            self._keep = None

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        while not self._leaving:
            try:
                share = await self.next()
            except ClientClosedError:
                if self._leaving:
                    return
                raise
            yield share

    async def _until_changed(self, share: ShareView, timeout: float | None) -> bool:
        """Wait until the share has changed, at most so long; whether it has."""
        limit = check_timeout("timeout", timeout)
        condition = Condition(lambda: share._stale)
        self._waiting[condition] = None
        try:
            await self._sessions.holds(condition, limit)
            return share.changed
        finally:
            self._waiting.pop(condition, None)

    async def close(self, timeout: float | None = 10.0) -> None:
        """Let all items go and leave the group.  Idempotent.

        To be called when work on all items has stopped: it confirms that.  OperationTimeoutError if
        it takes longer than ``timeout`` seconds: it goes on in the background, and ends with the
        session at the latest.
        """
        self._leaving = True
        self._tell()
        if not self._serving:
            self._end()
        with suppress(*SESSION_OVER):
            await self._left(self._path, timeout)
