"""Runs every workload with every candidate, short segments in turn, and takes medians.

All candidates see the same machine at nearly the same time, so that ratios hold where absolute
figures do not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.candidates import BY_TITLE, WARM_FACTOR, Workers
from benchmarks.jobs import Outcome
from benchmarks.processes import ProcessError
from benchmarks.workloads import Workload

FIRST_COUNT = 10
NOT_OFFERED = "not offered"


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    least_rounds: int
    """So many there are in any case: a median of one or two is none."""
    segment_seconds: float
    warm_seconds: float
    limit_seconds: float
    """After so long a workload has no more than those; it shows in the number of its rounds."""


@dataclass
class Figures:
    """Medians over the rounds, for one candidate in one workload; times in microseconds."""

    per_second: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0
    p50: float | None = None
    p99: float | None = None
    rss: int = 0
    note: str = ""
    error: str = ""
    cpu_rounds: list[float] = field(default_factory=list[float])
    """CPU time in each round; a ratio is taken within a round, see `ratio`."""
    wall_rounds: list[float] = field(default_factory=list[float])
    """The same of wall time."""
    added_rounds: list[float] = field(default_factory=list[float])
    """KiB of memory for each client, where that is what is measured."""


def ratios(some: Sequence[float], others: Sequence[float]) -> list[float]:
    """One in proportion to the other, for each round that has both."""
    return [one / other for one, other in zip(some, others, strict=False) if other > 0]


def ratio(each: Figures, floor: Figures | None) -> float | None:
    """CPU time in proportion: the median of the rounds' ratios; None if there is no floor."""
    found = ratios(each.cpu_rounds, floor.cpu_rounds) if floor is not None else []
    return median(found) if found else None


def measure(workload: Workload, workers: Workers, effort: Effort) -> dict[str, Figures]:
    """One workload with all candidates that offer it."""
    started = time.monotonic()
    counts: dict[str, int] = {}
    failed: dict[str, str] = {}
    for title in workers:
        count, error = find_count(workload, workers, title, effort)
        if error:
            failed[title] = error
        else:
            counts[title] = count
    outcomes: dict[str, list[Outcome]] = {title: [] for title in counts}
    for number in range(min(effort.rounds, workload.rounds or effort.rounds)):
        if number >= effort.least_rounds and time.monotonic() - started > effort.limit_seconds:
            break
        for title in turns(list(counts), number):
            if title not in failed:
                outcome = attempt(workload, workers, title, counts[title])
                outcomes[title].append(outcome)
                if outcome.error:
                    failed[title] = outcome.error
                else:
                    counts[title] = fitting(workload, outcome, effort)
    return {
        title: Figures(error=failed[title]) if title in failed else summary(outcomes[title])
        for title in workers
        if failed.get(title) != NOT_OFFERED
    }


def turns(titles: list[str], number: int) -> list[str]:
    """The order of a round: each is the first in its turn, and follows either neighbour."""
    turn = number % max(1, len(titles))
    order = titles[turn:] + titles[:turn]
    return order[::-1] if number % 2 else order


def fitting(workload: Workload, outcome: Outcome, effort: Effort) -> int:
    """The count that fills a segment, at the speed of this one."""
    if workload.exactly:
        return workload.exactly
    rate = outcome.ops / max(outcome.seconds, 1e-6)
    return min(workload.most, max(2, round(rate * effort.segment_seconds)))


def find_count(workload: Workload, workers: Workers, title: str, effort: Effort) -> tuple[int, str]:
    """Warm up; the count that fills a segment, or why there is none."""
    if workload.fresh:
        return workload.exactly, ""
    count = workload.exactly or min(FIRST_COUNT, workload.most)
    warm = effort.warm_seconds * (WARM_FACTOR if BY_TITLE[title].compiles else 1.0)
    started = time.monotonic()
    while True:
        outcome = attempt(workload, workers, title, count)
        if outcome.error or workload.exactly:
            return count, outcome.error
        wanted = fitting(workload, outcome, effort)
        if time.monotonic() - started >= warm:
            return wanted, ""
        count = min(4 * count, wanted)


def attempt(workload: Workload, workers: Workers, title: str, count: int) -> Outcome:
    """One segment; a failure is an outcome too."""
    try:
        if not workload.fresh:
            return workers.get(title).run(workload.job(count))
        with workers.fresh(title) as worker:
            return worker.run(workload.job(count))
    except ProcessError as error:
        print(f"# {title}: {error}", file=sys.stderr)
        return Outcome(error="the process has died")


def summary(outcomes: Sequence[Outcome]) -> Figures:
    """The medians."""
    p50 = [outcome.p50 for outcome in outcomes if outcome.p50 is not None]
    p99 = [outcome.p99 for outcome in outcomes if outcome.p99 is not None]
    walls = [outcome.seconds / outcome.ops * 1e6 for outcome in outcomes]
    wall = median(walls)
    cpu = [outcome.cpu_seconds / outcome.ops * 1e6 for outcome in outcomes]
    return Figures(
        per_second=1e6 / wall,
        cpu=median(cpu),
        wall=wall,
        p50=median(p50) if p50 else None,
        p99=median(p99) if p99 else None,
        rss=round(median(outcome.rss for outcome in outcomes)),
        note=outcomes[-1].note,
        cpu_rounds=cpu,
        wall_rounds=walls,
        added_rounds=[outcome.added for outcome in outcomes if outcome.added is not None],
    )
