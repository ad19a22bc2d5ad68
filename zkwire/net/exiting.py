"""The normal end of the interpreter: what is being cleaned up then gets a moment to be done.

The threads that do it are daemons and would end in the middle of it.  This decides only how long
all of them get together; what is owed is for each to know.  An asyncio client is none of its
business: its loop does not run any more.

Invariant: nothing is kept alive by being remembered here.
"""

from __future__ import annotations

import atexit
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Owing(Protocol):
        """Something that may have to be cleaned up."""

        def wind_up(self, seconds: float) -> None: ...


SECONDS = 1.0  # for all together

_owing: weakref.WeakSet[Owing] = weakref.WeakSet()
_hooked = False


def remember(owing: Owing) -> None:
    """Have ``owing.wind_up`` called when the interpreter ends."""
    global _hooked
    _owing.add(owing)
    if not _hooked:
        atexit.register(_wind_up)
        _hooked = True


def _wind_up() -> None:
    latest = time.monotonic() + SECONDS
    for owing in list(_owing):
        owing.wind_up(max(0.0, latest - time.monotonic()))
