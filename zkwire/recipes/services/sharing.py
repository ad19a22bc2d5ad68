"""How shares are given to the member's own program: one at a time, each confirmed by the next.

Invariants, beside those of :mod:`zkwire.recipes.services.partitioner`:

* ``_given`` is what the program may be working on: given to it, and not confirmed to be over.
* Background steps alone change it; :mod:`zkwire.recipes.services.share_reader` says what the
  reader does.
"""

from __future__ import annotations

from zkwire.recipes.services.share import AsyncShare
from zkwire.recipes.services.share_reader import ShareReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Sessions
    from zkwire.recipes.services.share_reader import Asked
    from zkwire.recipes.services.tenure import Tenure


class Sharing(ShareReader):
    """The session's side of the shares; see the module's docstring."""

    def __init__(
        self,
        sessions: Sessions,
        path: str,
        on_problem: OnProblem | None = None,
    ) -> None:
        super().__init__(sessions, path, on_problem)
        self._given: dict[str, Tenure] = {}
        self._news = False  # there is something that the reader's share does not say
        self._state = "allocating"

    def _confirm(self) -> None:
        """Take what the reader has confirmed to be over from what is given."""
        if self._leaving:
            self._next = None
            self._given.clear()
        asked = self._current
        if asked is not None:
            for item in self._given.keys() - asked.keep:
                del self._given[item]

    @property
    def _current(self) -> Asked | None:
        """What the reader asks for, unless it has been answered."""
        asked, next_one = self._asked, self._next  # in this order: a reader that takes one
        if asked is None or next_one is not None or asked.share is not self._share:
            return None
        return asked

    def _hand_out(self, wanted: dict[str, Tenure]) -> None:
        """Make a share of what is held, if the reader waits for one, and note what has changed."""
        owned = {item: tenure for item, tenure in wanted.items() if tenure.held}
        kept = {item: tenure for item, tenure in owned.items() if self._given.get(item) is tenure}
        gains = {item: tenure for item, tenure in owned.items() if item not in self._given}
        if not all(tenure.settled for tenure in wanted.values()):
            gains = {}  # a moment later there are more of them
        now = {**kept, **gains}
        asked, share = self._current, self._share
        differs = share is None or now != share._tenures
        if asked is not None and (now or self._given) and (asked.changed or differs):
            self._given.update(gains)
            self._next, gains = AsyncShare(self, now), {}
        latest = share if self._next is None else self._next
        self._news = bool(gains) or any(item not in (latest or ()) for item in self._given)
        releasing = any(owned.get(item) is not tenure for item, tenure in self._given.items())
        complete = "acquired" if len(owned) == len(wanted) else "allocating"
        self._state = "releasing" if releasing else complete

    def _session_ended(self) -> None:
        self._next, self._news, self._state = None, False, "allocating"
        self._serving = False
        if self._leaving and not self._closed:
            self._end()
