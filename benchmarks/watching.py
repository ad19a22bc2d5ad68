"""Ten thousand watches that fire at once, waited for or called back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from benchmarks.firing import targets
from benchmarks.jobs import Job, Outcome
from benchmarks.measure import timed
from benchmarks.wire import Address

LIMIT_SECONDS = 60.0


class Countdown:
    """A callback that sets an event when it has been called often enough."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._done = threading.Event()

    def __call__(self, _: object) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    def wait(self) -> None:
        if not self._done.wait(LIMIT_SECONDS):
            raise TimeoutError(f"{self._left} events have not come")


def called_back(
    address: Address, job: Job, watch: Callable[[Sequence[str], Countdown], object]
) -> Outcome:
    """`watch` sets the same callback on every path."""
    countdown = Countdown(job.count)
    with targets(address, job.count, job.width) as nodes:
        watch(nodes.paths, countdown)

        def work() -> None:
            nodes.delete_all()
            countdown.wait()

        return timed(job.count, work)
