"""zkwire beside other clients: ``python3 -m benchmarks [WORK...] [--rounds N] [--write]``.

Each side is a process of its own (see `benchmarks.sides`), on one real ZooKeeper.  In each round
all do the same work in turn, in an order that is reversed every other time.  A figure is the median
over the rounds, a ratio the median of those within each round.  ``--write`` writes the table of
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from statistics import median, quantiles
from typing import NamedTuple

from benchmarks.compare import COUNT, COUNTS, Worker, count_of
from benchmarks.pages import number, preface, table, write
from benchmarks.servers import real_server, version_of
from benchmarks.sides import OFFERS_NOT, SIDES

# ruff: noqa: RUF001 - the sign for "times" is what a ratio is read as
COMMAND = "benchmarks --write"
WORKS = {
    "get": "get, one at a time",
    "create": "create, one at a time, and delete in flight",
    "window 10": "get, 10 in flight",
    "window 1000": "get, 1,000 in flight",
    "create_1000": "create and delete, 1,000 in flight",
    "threads 8": "get, 8 threads or tasks",
    "free_lock": "free lock, acquire and release",
    "event": "watch set, node changed, event waited for",
    "counter": "counter, add",
    "queue": "queue, put and get",
}
PEERS = {"floor": "× floor", "asyncio": "× asyncio", "kazoo": "× kazoo"}


class Bound(NamedTuple):
    """At most so much; times another's figure in the same round, if one is named."""

    most: float
    versus: str = ""
    what: str = "CPU µs"

    def __str__(self) -> str:
        what = self.what.removesuffix(" µs")
        return f"{what} ≤ {self.most:.2g} {f'× {self.versus}' if self.versus else 'µs'}"

    def verdict(self, found: Sequence[float]) -> str:
        """Yes or no, the median, and between what the middle half of the rounds lies."""
        value = median(found)
        text = f"{'yes' if value <= self.most else '**no**'}: {number(value)}"
        if len(found) < 3:
            return text
        low, _, high = quantiles(found, n=4, method="inclusive")
        return f"{text} ({number(low)} to {number(high)})"


TARGETS = {
    "get": [Bound(1.6, "floor")],
    "create": [Bound(1.4, "floor")],
    "window 10": [Bound(2.0, "floor")],
    "window 1000": [Bound(1.5, "floor")],
    "create_1000": [Bound(1.5, "floor")],
    "threads 8": [Bound(60), Bound(1 / 4, "kazoo")],
    "free_lock": [Bound(3.6, "floor"), Bound(1.3, "floor", "wall µs")],
    "counter": [Bound(1 / 3, "kazoo", "wall µs")],
    "queue": [Bound(1 / 3, "kazoo", "wall µs")],
}

Round = dict[str, dict[str, float]]
"""What each side has needed, by what it is."""


def measure(workers: Mapping[str, Worker], work: str, rounds: int, least: int) -> list[Round]:
    """Each side in turn, round by round."""
    kind = work.partition(" ")[0]
    count = count_of(work, COUNTS.get(kind, COUNT) * least // COUNT)
    names = [name for name in workers if kind not in OFFERS_NOT.get(name, ())]
    found: list[Round] = []
    for turn in range(rounds + 1):
        order = names[:: -1 if turn % 2 else 1]
        seen = {name: workers[name].do(work, count) for name in order}
        if turn:  # the first is for warmth
            found.append(seen)
    return found


def ratios(rounds: Sequence[Round], other: str, what: str = "CPU µs") -> list[float]:
    """How many times the other's figure zkwire's is, in each round; empty without the other."""
    return [each["zkwire"][what] / each[other][what] for each in rounds if other in each]


def row(work: str, rounds: Sequence[Round]) -> list[str]:
    """A line of the table."""
    bounds = TARGETS.get(work, [])
    found = [
        ratios(rounds, bound.versus, bound.what)
        if bound.versus
        else [each["zkwire"][bound.what] for each in rounds]
        for bound in bounds
    ]
    whats = ("CPU µs", "wall µs", "voluntary switches")
    return [
        WORKS[work],
        *(number(median(each["zkwire"][what] for each in rounds)) for what in whats),
        *(number(median(seen)) if (seen := ratios(rounds, peer)) else "" for peer in PEERS),
        "; ".join(map(str, bounds)),
        "; ".join(b.verdict(seen) for b, seen in zip(bounds, found, strict=True) if seen),
    ]


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks", description=__doc__)
    parser.add_argument("works", metavar="WORK", nargs="*", help=f"of {', '.join(WORKS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_intermixed_args()
    works = asked.works or list(WORKS)
    if unknown := set(works) - set(WORKS):
        parser.error(f"no such work: {', '.join(unknown)}")
    if asked.write and works != list(WORKS):
        parser.error("--write needs all works")
    rounds, least = (3, COUNT // 10) if asked.quick else (asked.rounds, COUNT)
    names = [name for name in SIDES if name != "kazoo" or find_spec("kazoo")]
    lines: list[list[str]] = []
    with real_server() as address, ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in names:
            words = ["-m", "benchmarks.sides", name, f"{address[0]}:{address[1]}"]
            workers[name] = Worker(words)
            stack.callback(workers[name].close)
        for work in works:
            lines.append(row(work, measure(workers, work, rounds, least)))
            print(" | ".join(lines[-1]), flush=True)
        about = preface(version_of(address), f"{rounds} rounds.")
    heads = ["zkwire", "CPU µs", "wall µs", "switches", *PEERS.values(), "target", "reached"]
    if asked.write:
        write(COMMAND, f"{about}\n\n{table(heads, lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
