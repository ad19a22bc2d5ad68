"""The command's options, and which workloads they choose."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import imports, targets
from benchmarks.candidates import CANDIDATES
from benchmarks.workloads import Workload, all_workloads


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; exits with 2 if they choose nothing."""
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks",
        description="Measure zkwire beside other clients; see benchmarks/README.md.",
    )
    parser.add_argument("--quick", action="store_true", help="a look, within two minutes")
    parser.add_argument("--rounds", type=int, help="segments of each candidate (15; quick: 5)")
    parser.add_argument("--only", metavar="PATTERN", default="", help="workloads: 'get*replay'")
    parser.add_argument("--targets", action="store_true", help="only workloads that have a target")
    parser.add_argument("--clients", metavar="PATTERN", default="*", help="for example 'zkwire*'")
    parser.add_argument("--server", choices=["real", "replay", "both"], default="both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the CPU times there")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="measure nothing, take the figures of an earlier --json",
    )
    parser.add_argument(
        "--update-readme",
        action="store_true",
        help="write the table of targets into benchmarks/README.md",
    )
    options = parser.parse_args(arguments)
    if options.source is None:
        if complaint := _complaint(options):
            parser.error(complaint)
    elif not options.source.is_file():
        parser.error(f"--from: there is no file {options.source}")
    return options


def _complaint(options: argparse.Namespace) -> str:
    """Why these options cannot be meant; empty if they can."""
    names = {workload.name for workload in chosen(options)}
    if wanted(options, imports.TITLE):
        names.add(imports.TITLE)
    if not names:
        return f"no workload fits --only {options.only!r} and the other options"
    titles = [candidate.title for candidate in CANDIDATES]
    if not any(fnmatch(title, options.clients) for title in titles):
        return f"no client fits --clients {options.clients!r}; there are: {', '.join(titles)}"
    if options.update_readme and (absent := targets.WORKLOADS - names):
        return "--update-readme needs all workloads that have a target, not measured would be: " + (
            "; ".join(sorted(absent))
        )
    return ""


def wanted(options: argparse.Namespace, name: str) -> bool:
    """Whether a workload of this name is to be measured."""
    fits = fnmatch(name, f"*{options.only}*")
    return fits and (name in targets.WORKLOADS or not options.targets)


def chosen(options: argparse.Namespace) -> list[Workload]:
    """The workloads with a client that are to be measured."""
    return [
        workload
        for workload in all_workloads()
        if wanted(options, workload.name)
        and options.server in ("both", workload.server)
        and (workload.quick or not options.quick)
    ]
