"""The clock of both drivers, and how often and how late they do things."""

from __future__ import annotations

import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds between two checks of the deadlines by a reader; the shortest deadline is a ping's.
DEADLINES_EVERY = 0.005

# Seconds before something is done that may soon be unnecessary: the watch of a lock's own node.
DEFER_SECONDS = 0.01
LONGEST_DEFER = 0.08  # where it has been unnecessary again and again

# Requests that have gathered before they are sent without waiting for more.
FLUSH_AT = 128

# Seconds on a clock that never goes back.  CLOCK_MONOTONIC stands still while the machine sleeps;
# the server's clock does not.
clock: Callable[[], float] = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
