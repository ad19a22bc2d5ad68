"""A run's figures kept: as JSON to be read again, and as the table in benchmarks/README.md."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

from benchmarks.rounds import Figures, ratio
from benchmarks.tables import number
from benchmarks.targets import TARGETS, Target

# ruff: noqa: RUF001 - the sign for "times" is what a ratio is read as
README = Path(__file__).resolve().parent / "README.md"
BEGIN = "<!-- written by `python3 -m benchmarks --update-readme` -->\n"
END = "<!-- end of what is written -->\n"
OWN = ("CPU µs", "p50 µs", "p99 µs")
PEERS = {
    "floor": "× floor",
    "codec floor": "× codec floor",
    "asyncio floor": "× asyncio floor",
    "kazoo": "× kazoo",
    "C client": "× C",
    "Java client": "× Java",
    "Curator": "× Curator",
}


class IncompleteError(Exception):
    """The figures do not fill the table; the message says what is missing."""


class UnreadableError(Exception):
    """A file does not hold a run."""


@dataclass
class Run:
    """Figures by workload and client, and where they were taken."""

    workloads: dict[str, dict[str, Figures]] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Who was not measured, and why not."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            kept = json.loads(path.read_text())
            workloads = {
                name: {who: Figures(**each) for who, each in row.items()}
                for name, row in kept["workloads"].items()
            }
            return cls(workloads, kept["machine"], kept.get("missing", {}))
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableError(f"{path} is no --json of this program: {error!r}") from error


def this_machine() -> dict[str, str]:
    """What the figures depend on."""
    facts = {
        "Python": platform.python_version(),
        "system": f"{platform.system()} on {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
    for peer in ("kazoo", "aiozk"):
        try:
            facts[peer] = version(peer)
        except PackageNotFoundError:
            continue
    return facts


def update_readme(run: Run, readme: Path = README) -> None:
    """Put the table in the place of the one that is there."""
    write_between(BEGIN, END, table(run), readme)


def write_between(begin: str, end: str, text: str, readme: Path = README) -> None:
    """Put the text between these two lines of the page; IncompleteError if one is missing."""
    before, begins, rest = readme.read_text().partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise IncompleteError(f"{readme} has no place for the table: no line {begin!r} or {end!r}")
    readme.write_text(f"{before}{begin}\n{text}\n\n{end}{after}")


def table(run: Run) -> str:
    """Where it was measured, and all rows."""
    if lacking := lacks(run):
        raise IncompleteError("the table needs a whole run; not measured: " + "; ".join(lacking))
    return "\n".join([_preface(run), "", *rows(run)])


def lacks(run: Run) -> list[str]:
    """The bounds that there are no figures for."""
    return [
        f"{target.who}, {target.workload} ({bound})"
        for target in TARGETS
        for bound in target.bounds
        if not bound.found(run.workloads.get(target.workload, {}), target.who)
    ]


def rows(run: Run) -> list[str]:
    """The table's lines, for those targets that there are figures for."""
    heading = ["zkwire", *OWN, *PEERS.values(), "target", "reached"]
    lines = [heading, ["---", *["---:"] * (len(OWN) + len(PEERS)), "---", "---"]]
    for target in TARGETS:
        if target.who in (figures := run.workloads.get(target.workload, {})):
            lines.append(_row(target, figures))
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _row(target: Target, figures: Mapping[str, Figures]) -> list[str]:
    own = figures[target.who]
    name = f"{target.workload}, asyncio" if target.who != "zkwire" else target.workload
    if own.error:
        return [name, own.error, *[""] * (len(OWN) - 1 + len(PEERS) + 2)]
    found = [(bound, bound.found(figures, target.who)) for bound in target.bounds]
    return [
        name,
        *(number(each) for each in (own.cpu, own.p50, own.p99)),
        *(_times(own, figures.get(peer)) for peer in PEERS),
        "; ".join(str(bound) for bound, _ in found),
        "; ".join(bound.verdict(each) if each else "not measured" for bound, each in found),
    ]


def _times(own: Figures, other: Figures | None) -> str:
    value = ratio(own, None if other is None or other.error else other)
    return "" if value is None else f"{value:,.3g}"


def _preface(run: Run) -> str:
    needed = {target.workload for target in TARGETS}
    counts = [
        len(each.cpu_rounds)
        for name, row in run.workloads.items()
        if name in needed
        for who, each in row.items()
        if who.startswith("zkwire")
    ]
    facts = "; ".join(f"{key} {value}" for key, value in run.machine.items())
    gone = "; ".join(f"{who}: {why}" for who, why in run.missing.items())
    lines = [f"{facts}. {min(counts)} to {max(counts)} rounds."]
    if gone:
        lines.append(f"Not measured: {gone}.")
    return "\n".join(lines)
