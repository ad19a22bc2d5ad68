"""The command: start the servers and the workers, measure, print; end everything in any case."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import imports
from benchmarks.candidates import Workers
from benchmarks.figures import (
    IncompleteError,
    Run,
    UnreadableError,
    lacks,
    rows,
    this_machine,
    update_readme,
)
from benchmarks.options import chosen, parse, wanted
from benchmarks.plot import plot
from benchmarks.rounds import Effort, Figures, measure
from benchmarks.servers import real_server, replay_server, set_up, version_of
from benchmarks.tables import table
from benchmarks.workloads import LISTS, SIZES
from tests.support.server_control import NoBackendError


def effort(options: argparse.Namespace) -> Effort:
    if options.quick:
        return Effort(options.rounds or 5, 3, 0.04, 0.03, 3.5)
    return Effort(options.rounds or 15, 5, 0.06, 0.1, 13.0 if options.targets else 20.0)


def measured(
    options: argparse.Namespace, directory: Path, run: Run
) -> Iterator[tuple[str, dict[str, Figures]]]:
    """The figures of one workload after the other."""
    if wanted(options, imports.TITLE):
        yield imports.TITLE, imports.import_times(directory, options.quick)
    workloads = chosen(options)
    if not workloads:
        return
    with ExitStack() as stack:
        replay, language = stack.enter_context(replay_server(directory))
        run.machine["replay server"] = f"in {language}"
        try:
            real = stack.enter_context(real_server())
            run.machine["ZooKeeper"] = version_of(real)
        except NoBackendError as error:
            run.missing["real server"] = str(error)
            real, workloads = replay, [each for each in workloads if each.server == "replay"]
        workers = stack.enter_context(Workers(run.missing))
        workers.find(directory, (real, replay), options.clients)
        print("\n" + "\n".join(f"{what}: {how}" for what, how in run.machine.items()))
        for title, reason in run.missing.items():
            print(f"missing: {title}: {reason}")
        if real != replay:
            used = {workload.size for workload in workloads}
            set_up(real, [n for n in SIZES if n in used], [n for n in LISTS if n in used])
        workers.start()
        for workload in workloads:
            yield workload.name, measure(workload, workers, effort(options))


def measure_all(options: argparse.Namespace, run: Run) -> None:
    """Fill `run`, and print each table when it is there."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zkwire-bench-") as directory:
        for name, figures in measured(options, Path(directory), run):
            run.workloads[name] = figures
            print(table(name, figures), flush=True)
    print(f"\n{time.monotonic() - started:.0f} s")


def repeat(options: argparse.Namespace, run: Run) -> None:
    """The tables of an earlier run."""
    for name, figures in run.workloads.items():
        if fnmatch(name, f"*{options.only}*"):
            print(table(name, figures))


def keep(options: argparse.Namespace, run: Run) -> None:
    """What was asked for besides the tables."""
    if options.json:
        run.write(options.json)
    if options.svg:
        options.svg.write_text(plot(run.workloads))


def main() -> int:
    options = parse(sys.argv[1:])
    # Asked to end, this does as after Ctrl-C: it ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = Run.read(options.source) if options.source else Run(machine=this_machine())
    except UnreadableError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        if options.source:
            repeat(options, run)
        else:
            measure_all(options, run)
    finally:
        keep(options, run)
    if options.targets or not lacks(run):
        print("\n" + "\n".join(rows(run)))
    try:
        if options.update_readme:
            update_readme(run)
    except IncompleteError as error:
        print(f"README.md is left as it was: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
