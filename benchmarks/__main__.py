"""The command: start the servers and the workers, measure, print; end everything in any case."""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import imports
from benchmarks.candidates import Workers
from benchmarks.plot import plot
from benchmarks.rounds import Effort, Figures, measure
from benchmarks.servers import real_server, replay_server, set_up
from benchmarks.tables import table
from benchmarks.workloads import LISTS, SIZES, Workload, all_workloads
from tests.server_control import NoBackendError

Results = dict[str, dict[str, Figures]]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks",
        description="Measure zkwire beside other clients; see benchmarks/README.md.",
    )
    parser.add_argument("--quick", action="store_true", help="a look, within a minute and a half")
    parser.add_argument("--rounds", type=int, help="segments of each candidate (7; quick: 3)")
    parser.add_argument("--only", metavar="PATTERN", default="", help="workloads: 'get*replay'")
    parser.add_argument("--clients", metavar="PATTERN", default="*", help="for example 'zkwire*'")
    parser.add_argument("--server", choices=["real", "replay", "both"], default="both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the CPU times there")
    return parser.parse_args(arguments)


def wanted(options: argparse.Namespace, name: str) -> bool:
    return fnmatch(name, f"*{options.only}*")


def chosen(options: argparse.Namespace) -> list[Workload]:
    return [
        workload
        for workload in all_workloads()
        if wanted(options, workload.name)
        and options.server in ("both", workload.server)
        and (workload.quick or not options.quick)
    ]


def effort(options: argparse.Namespace) -> Effort:
    if options.quick:
        return Effort(options.rounds or 3, 0.04, 0.03, 3.5)
    return Effort(options.rounds or 7, 0.1, 0.1, 12.0)


def run(options: argparse.Namespace, directory: Path) -> Iterator[tuple[str, dict[str, Figures]]]:
    """The figures of one workload after the other."""
    if wanted(options, imports.TITLE):
        yield imports.TITLE, imports.import_times(directory, options.quick)
    workloads = chosen(options)
    if not workloads:
        return
    with ExitStack() as stack:
        replay, language = stack.enter_context(replay_server(directory))
        print(f"\nreplay server: in {language}")
        try:
            real = stack.enter_context(real_server())
        except NoBackendError as error:
            print(f"missing: real server: {error}")
            real, workloads = replay, [each for each in workloads if each.server == "replay"]
        workers = stack.enter_context(Workers())
        workers.find(directory, (real, replay), options.clients)
        for title, reason in workers.missing.items():
            print(f"missing: {title}: {reason}")
        if real != replay:
            used = {workload.size for workload in workloads}
            set_up(real, [n for n in SIZES if n in used], [n for n in LISTS if n in used])
        workers.start()
        for workload in workloads:
            yield workload.name, measure(workload, workers, effort(options))


def write(results: Results, options: argparse.Namespace) -> None:
    """What was asked for besides the tables."""
    if options.json:
        figures = {
            name: {who: asdict(f) for who, f in row.items()} for name, row in results.items()
        }
        machine = {"python": platform.python_version(), "system": platform.platform()}
        options.json.write_text(json.dumps({"machine": machine, "workloads": figures}, indent=1))
    if options.svg:
        options.svg.write_text(plot(results))


def timed(work: Callable[[], None]) -> None:
    started = time.monotonic()
    work()
    print(f"\n{time.monotonic() - started:.0f} s")


def main() -> None:
    options = parse(sys.argv[1:])
    # Asked to end, this does as after Ctrl-C: it ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results: Results = {}

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="zkwire-bench-") as directory:
            for name, figures in run(options, Path(directory)):
                results[name] = figures
                print(table(name, figures), flush=True)

    try:
        timed(work)
    finally:
        write(results, options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
