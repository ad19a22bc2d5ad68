"""Chaos on a real ensemble of three: ``python3 -m tests.chaos [--seconds N] [--seed N]``.

Contenders on every kind of lock, in several processes, blocking and with asyncio, while everything
happens to servers, links and clients that `tests.chaos_faults` knows. What the processes tell
becomes a history, and `tests.history` checks that; then each contender has to get its lock once
more in calm, everybody ends, and nothing may be left. Exit code 1 if anything was wrong.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from tests import chaos_faults, chaos_log, history
from tests.chaos_faults import Fault
from tests.chaos_stage import SERVE_SECONDS, Stage
from tests.chaos_ways import clock
from tests.chaos_workers import KINDS
from tests.history import Record
from tests.installed_servers import InstalledBackend, find_installed

CALM_SECONDS = 60.0
LONGEST_PEACE = 0.5
GRACE_SECONDS = 300.0
"""What starting, healing, checking and ending may take on top of the faults."""


@dataclass
class Report:
    """The figures of a run, and what was wrong."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    grants: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    seconds: float = 0.0
    longest_gap: float = 0.0
    latest: float = 0.0
    calm: float = 0.0
    records: int = 0

    def __str__(self) -> str:
        kinds = {kind: sum(n for who, n in self.grants.items() if who.endswith(f"-{kind}"))
                 for kind in KINDS}  # fmt: skip
        lines = [
            f"seed {self.seed}: {self.grants.total()} acquisitions across {self.faults.total()} "
            f"faults of {len(self.faults)} kinds in {self.seconds:.0f} s",
            f"acquisitions: {_listed(kinds)}",
            f"faults: {_listed(self.faults)}",
            f"acquires that ended otherwise: {_listed(self.failures)}",
            f"fenced writes: {_listed(self.writes)}",
            f"longest time without any grant {self.longest_gap:.2f} s, acquire(timeout) late by "
            f"{self.latest:.2f} s at most (pauses of processes included)",
            f"in calm everybody acquired within {self.calm:.2f} s; {self.records} records checked",
            *(f"WRONG: {each}" for each in self.found[:30]),
            f"{len(self.found)} violations",
        ]
        return "\n".join(lines)


def _listed(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def endless(stage: Stage, faults: Sequence[Fault], only: Sequence[str]) -> Iterator[Fault]:
    """Every kind, in any order, then again; so that none is left out for long."""
    deck = [fault for fault in faults if not only or fault.__name__ in only]
    while deck:
        stage.rng.shuffle(deck)
        yield from deck


def trouble(
    stage: Stage, report: Report, seconds: float, only: Sequence[str], *, show: bool
) -> None:
    """One fault after the other, and a quick one while servers come back from theirs."""

    def suffer(fault: Fault, mark: str) -> None:
        began = time.monotonic()
        fault(stage)
        report.faults[fault.__name__] += 1
        if show:
            print(f"{time.monotonic() - began:6.2f} s {mark} {fault.__name__}", flush=True)

    quick = endless(stage, (*chaos_faults.ON_LINKS, *chaos_faults.ON_CLIENTS), only)

    def meanwhile() -> None:
        for fault in islice(quick, 1):
            suffer(fault, "+")

    stage.meanwhile = meanwhile
    until = time.monotonic() + seconds
    for fault in endless(stage, chaos_faults.ALL, only):
        if time.monotonic() > until:
            break
        suffer(fault, " ")
        stage.heal()
        time.sleep(stage.rng.uniform(0, LONGEST_PEACE))
    stage.meanwhile = list


def run_chaos(
    backend: InstalledBackend,
    seconds: float,
    seed: int,
    only: Sequence[str] = (),
    *,
    show: bool = False,
) -> Report:
    """A whole run; raises only if the stage itself could not be kept up."""
    report = Report(seed)
    began = time.monotonic()
    with Stage(backend, seed) as stage:
        stage.wait_all_acquire(CALM_SECONDS)  # all processes run, before anything happens
        trouble(stage, report, seconds, only, show=show)
        stage.heal()
        stage.whole()
        calm = clock()
        report.calm = stage.wait_all_acquire(CALM_SECONDS)
        stage.finish()
        left = stage.nodes_left()
        report.seconds = time.monotonic() - began
        report.found += stage.found
        _check(stage, report, calm, left)
    return report


def _check(stage: Stage, report: Report, calm: float, left: list[str]) -> None:
    told = stage.told()
    records = chaos_log.history(told, stage.takings, stage.deaths)
    records.append(Record(calm, "", "calm", limit=CALM_SECONDS))
    end = max(record.at for record in records)
    records += [Record(end, "", "left", note=path) for path in left]
    report.records = len(records)
    report.found += history.check(records)
    report.grants = chaos_log.grants(told)
    lines = [line for each in told for line in each]
    given_up = [line for line in lines if line["what"] == "give up"]
    report.failures = Counter(line["note"] for line in given_up)
    report.latest = max((line["late"] for line in given_up), default=0.0)
    outcome = {True: "accepted", False: "refused", None: "outcome unknown"}
    report.writes = Counter(outcome[line["ok"]] for line in lines if line["what"] == "write")
    moments = sorted(line["at"] for line in lines if line["what"] == "grant")
    gaps = (later - earlier for earlier, later in pairwise(moments))
    report.longest_gap = max(gaps, default=0.0)


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of trouble")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--quiet", action="store_true", help="show no single faults")
    names = sorted(fault.__name__ for fault in chaos_faults.ALL)
    parser.add_argument("--only", action="append", choices=names, help="this kind; may be repeated")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    # Asked to end, this does as after Ctrl-C, also in the background: it ends what it has started.
    for order in (signal.SIGINT, signal.SIGTERM):
        signal.signal(order, signal.default_int_handler)
    # Whatever hangs ends here, and everything that was started with it.
    limit = arguments.seconds + GRACE_SECONDS + SERVE_SECONDS
    faulthandler.dump_traceback_later(limit, exit=True)
    report = run_chaos(
        find_installed(),
        arguments.seconds,
        arguments.seed,
        arguments.only or (),
        show=not arguments.quiet,
    )
    print(report)
    return 1 if report.found else 0


if __name__ == "__main__":
    sys.exit(main())
