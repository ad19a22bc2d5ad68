"""Brings the counters of the new tree past the numbers in the names that it has.

See :mod:`zkwire.operations.sequence`.  A name that ends in ten digits may have them from elsewhere
(a time in seconds).  Where the source tells its counter, only a lower number can have come from it.
"""

from __future__ import annotations

from zkwire.cli.transfer.node import below
from zkwire.cli.transfer.window import Window, result
from zkwire.errors import ServerError
from zkwire.operations.sequence import behind, highest_number, next_number, used_up
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire import Stat
    from zkwire.cli.transfer.node import Node
    from zkwire.cli.transfer.place import Place

MOST_NUMBERS = 1_000_000
"""Numbers that one run uses up; seen on one server: 8,000 to 24,000 in a second."""


class Numbers:
    """The numbers that the names of one tree have; ``left_behind``: paths, and what is wrong."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._counters: dict[str, int] = {}  # of the source
        self._highest: dict[str, tuple[int, int]] = {}  # of all names, and below that counter
        self._left = MOST_NUMBERS
        self.left_behind: dict[str, str] = {}

    def add(self, node: Node) -> None:
        """Take notice of a node of the source; parents come first."""
        if node.sequence is not None:
            self._counters[node.path] = node.sequence
        number = highest_number([node.path])
        if number < 0:
            return
        above = parent(node.path)
        highest, own = self._highest.get(above, (-1, -1))
        if number < self._counters.get(above, number + 1):
            own = max(own, number)
        self._highest[above] = (max(highest, number), own)

    def bring_forward(self) -> None:
        """Use up the numbers that are missing, as long as there are not too many."""
        client, root = self._place.client, self._place.path
        window = Window(client, lambda operations, path: [operations.exists(below(root, path))])
        for path, (stat,) in window.each(self._highest):
            if isinstance(stat, ServerError):
                raise stat
            if stat is not None:  # else it was deleted meanwhile
                self._bring(path, stat)

    def _bring(self, path: str, stat: Stat) -> None:
        full, number = below(self._place.path, path), next_number(stat.cversion, stat.num_children)
        highest, own = self._highest[path]
        if highest + 1 - number > self._left:
            highest = own
        missing = highest + 1 - number
        if missing <= 0:
            return
        words = behind(full, number, highest)
        if missing > self._left:
            self.left_behind[full] = f"{words}; one run uses up {MOST_NUMBERS} numbers at most"
            return
        self._left -= missing
        try:
            while missing > 0:
                missing -= self._use_up(full, missing)
        except ServerError as error:
            self.left_behind[full] = f"{words}; {error}"

    def _use_up(self, path: str, count: int) -> int:
        """Use up ``count`` numbers, or as many as go into one request; returns how many."""
        pairs = used_up(path, count)
        result(self._place.client, lambda operations: operations.multi(pairs))
        return len(pairs) // 2
