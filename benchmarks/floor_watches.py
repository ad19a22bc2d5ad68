"""What watches cost at least: the bytes of their events, received by a bare socket."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.firing import targets
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
    with targets(address, job.count, job.width) as nodes:
        watcher.do_all([watching(path) for path in nodes.paths])
        expected = sum(32 + len(path) for path in nodes.paths)

        def work() -> None:
            nodes.delete_all()
            watcher.skip(expected)

        result = timed(job.count, work)
    watcher.close()
    return result
