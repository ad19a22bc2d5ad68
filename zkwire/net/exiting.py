"""The normal end of the interpreter: what is being cleaned up then gets a moment to be done.

The threads that do it are daemons and would end in the middle of it.  This decides only how long
all of them get together; what is to be cleaned up is for each to know.  Asyncio clients are not
concerned: their loops do not run any more.

Invariant: nothing is kept alive by being remembered here.
"""

from __future__ import annotations

import atexit
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Unfinished(Protocol):
        """Something that may have to be cleaned up."""

        def wind_up(self, seconds: float) -> None: ...


SECONDS = 1.0  # for all together

# Not a WeakSet: `list` copies a set in one step, while daemon threads still add to it.
_unfinished: set[weakref.ref[Unfinished]] = set()


def remember(unfinished: Unfinished) -> None:
    """Have ``unfinished.wind_up`` called when the interpreter ends."""
    _unfinished.add(weakref.ref(unfinished, _unfinished.discard))


@atexit.register
def _wind_up() -> None:
    latest = time.monotonic() + SECONDS
    for unfinished in [found for each in list(_unfinished) if (found := each()) is not None]:
        unfinished.wind_up(max(0.0, latest - time.monotonic()))
