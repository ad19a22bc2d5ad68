"""What watches cost at least: the bytes of their events, received by a bare socket."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.firing import Targets
from benchmarks.jobs import Job, Outcome
from benchmarks.measure import timed
from benchmarks.wire import Address, Bare, watching


def specials(address: Address) -> dict[str, Callable[[Job], Outcome]]:
    return {
        "watches": lambda job: fired(address, job),
        "callbacks": lambda job: fired(address, job),
    }


def fired(address: Address, job: Job) -> Outcome:
    """Receive one event for each node that is deleted."""
    watcher = Bare(address)
    with Targets(address, job.count) as targets:
        watcher.do_all([watching(path) for path in targets.paths])
        expected = sum(32 + len(path) for path in targets.paths)

        def work() -> None:
            targets.delete_all()
            watcher.skip(expected)

        result = timed(job.count, work)
    watcher.close()
    return result
