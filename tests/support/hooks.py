"""Options of a client that are for tests alone, and that no signature shows.

``_resolver`` looks up names, ``_now`` is the clock, ``_seed`` makes what is random repeatable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.lock_helpers import PATIENCE
from zkwire import Client

T = TypeVar("T")


def hooked(kind: Callable[..., T]) -> Callable[..., T]:
    """The same class, which a type checker lets have these options."""
    return kind


class Clock:
    """One that a test can put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead

    def jump(self, client: Client, seconds: float) -> None:
        """Returns when the client's thread has seen it, unless that is busy with something else."""
        self.ahead += seconds
        for _ in range(2):  # the first one may come right before the deadlines are looked at
            seen = threading.Event()
            client._driver.call_soon(seen.set)
            assert seen.wait(PATIENCE)
