"""Chaos on a real ensemble of three: ``python3 -m tests.interop.chaos [--seconds N] [--seed N]``.

Contenders on every kind of lock, and on all other recipes, in several processes, with threads and
with asyncio, while everything happens to servers, links and clients that `chaos_faults` knows. What
the processes tell becomes a history, which `tests.support.history` checks, and `chaos_recipes` for
what is no lock; then each contender has to succeed once more in calm, everybody ends, and nothing
may be left. Exit code 1 if anything was wrong.

What counts as wrong follows from what was seen, never from how fast it went; what takes time has
limits that no working machine comes near.

The seed repeats the choice and order of the faults; what they hit is up to the machine.
"""

from __future__ import annotations

import argparse
import faulthandler
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.interop import chaos_faults, chaos_workers
from tests.interop.chaos_cluster import SERVE_SECONDS, WORKERS, Cluster
from tests.interop.chaos_recipes import Line
from tests.interop.chaos_ways import clock
from tests.support import history
from tests.support.history import Record
from tests.support.installed_servers import InstalledBackend, find_installed

CALM_SECONDS = 300.0
LONGEST_PEACE = 0.5
GRACE_SECONDS = 1800.0
"""What starting, healing, checking and ending may take on top of the faults."""


@dataclass
class Report:
    """What happened in a run, its figures as lines, and what was wrong."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    grants: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        wrong = [f"WRONG: {each}" for each in self.found[:30]]
        return "\n".join([*self.lines, *wrong, f"{len(self.found)} violations"])


def _listed(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def endless(cluster: Cluster, faults: Iterable[str]) -> Iterator[str]:
    """Every kind, in any order, then again; so that none is left out for long."""
    deck = list(faults)
    while True:
        cluster.rng.shuffle(deck)
        yield from deck


def trouble(cluster: Cluster, report: Report, seconds: float, *, show: bool) -> None:
    """One fault after the other, and a quick one while servers come back from theirs.

    For as long as asked, and then each kind that had no turn yet, however slow the machine is.
    """

    def suffer(fault: str, mark: str) -> None:
        began = time.monotonic()
        came = chaos_faults.ALL[fault](cluster) is not False
        (report.faults if came else report.idle)[fault] += 1
        if show:
            took = time.monotonic() - began
            print(f"{took:6.2f} s {mark} {fault}{'' if came else ': -'}", flush=True)

    quick = endless(cluster, (*chaos_faults.ON_LINKS, *chaos_faults.ON_CLIENTS))
    cluster.meanwhile = lambda: suffer(next(quick), "+")
    until = time.monotonic() + seconds
    for fault in endless(cluster, chaos_faults.ALL):
        if time.monotonic() > until:
            had = report.faults.keys() | report.idle.keys()
            if had == chaos_faults.ALL.keys():
                break
            if fault in had:
                continue
        suffer(fault, " ")
        cluster.heal()
        time.sleep(cluster.rng.uniform(0, LONGEST_PEACE))
    cluster.meanwhile = list


def run_chaos(
    backend: InstalledBackend,
    seconds: float,
    seed: int,
    *,
    workers: int = WORKERS,
    show: bool = False,
) -> Report:
    """A whole run; raises only if the cluster itself could not be kept up.

    What was told is kept if something is wrong.
    """
    report = Report(seed)
    began = time.monotonic()
    with Cluster(backend, seed, workers) as cluster:
        cluster.wait_all_acquire(CALM_SECONDS)  # all processes run, before anything happens
        trouble(cluster, report, seconds, show=show)
        cluster.heal()
        cluster.whole()
        calm = clock()
        took = cluster.wait_all_acquire(CALM_SECONDS)
        cluster.finish()
        left = cluster.nodes_left()
        report.lines.append(
            f"seed {seed}: {report.faults.total()} faults of {len(report.faults)} kinds in "
            f"{time.monotonic() - began:.0f} s; in calm everybody acquired "
            f"within {took:.2f} s"
        )
        report.found += cluster.found
        records = _check(cluster, report, calm, left)
        if report.found:
            cluster.keep(records)
            report.lines.append(f"told in {cluster.directory}")
    return report


def _check(cluster: Cluster, report: Report, calm: float, left: list[str]) -> list[Record]:
    told = cluster.told()
    records = chaos_workers.history(told, cluster.deaths)
    records.append(Record(calm, "", "calm", limit=CALM_SECONDS))
    end = max(record.at for record in records)
    records += [Record(end, "", "left", note=path) for path in left]
    report.found += history.check(records)
    report.grants = chaos_workers.grants(told)
    report.lines += [
        f"faults: {_listed(report.faults)}",
        f"faults that came to nothing: {_listed(report.idle)}",
        f"{len(records)} records checked",
        *_figures(report, [line for each in told for line in each]),
    ]
    return records


def _figures(report: Report, lines: list[Line]) -> Iterator[str]:
    """Of what the processes have told."""
    kinds = Counter[str]()
    for who, number in report.grants.items():
        kinds[who.rpartition("-")[2]] += number
    yield f"{kinds.total()} acquisitions: {_listed(kinds)}"
    outcome = {True: "accepted", False: "refused", None: "outcome unknown"}
    writes = Counter(outcome[line["ok"]] for line in lines if line["what"] == "write")
    yield f"fenced writes: {_listed(writes)}"


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of trouble")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--quiet", action="store_true", help="show no single faults")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    # Asked to end, this does as after Ctrl-C, also in the background: it ends what it has started.
    for order in (signal.SIGINT, signal.SIGTERM):
        signal.signal(order, signal.default_int_handler)
    # Whatever hangs ends here, and everything that was started with it.
    limit = arguments.seconds + GRACE_SECONDS + SERVE_SECONDS
    faulthandler.dump_traceback_later(limit, exit=True)
    show, seed = not arguments.quiet, arguments.seed
    report = run_chaos(find_installed(), arguments.seconds, seed, show=show)
    print(report)
    return 1 if report.found else 0


if __name__ == "__main__":
    sys.exit(main())
