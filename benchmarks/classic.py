"""Counters, queues and watched nodes of zkwire, kazoo and Curator, and bare sockets, on one server.

    python3 -m benchmarks.classic [--rounds N] [--only add] [--update-readme]

Each round does each job once for each side, on a node of its own; what is printed are the medians.
Curator's side is a program in Java, `native/Recipes.java`, which is warmed up before.  The bare
socket sends as many requests behind one another as the job needs at the least: with one for an
item, no client can be faster than that by the clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from benchmarks.classic_sides import Curator, Floor, Kazoo, Zkwire
from benchmarks.costs import Cost, arguments, median
from benchmarks.figures import this_machine, write_between
from benchmarks.programs import MissingError
from benchmarks.servers import real_server, version_of

BEGIN = "<!-- written by `python3 -m benchmarks.classic --update-readme` -->\n"
END = "<!-- end of the counters and queues -->\n"

JOBS: dict[str, Callable[[Any], Cost]] = {
    "add": lambda side: side.add(),
    "add, 8 threads": lambda side: side.add_by_threads(),
    "add, 8 writers": lambda side: side.add_contended(8),
    "add, 50 writers": lambda side: side.add_contended(50),
    "put": lambda side: side.put(),
    "put, 8 threads": lambda side: side.put_by_threads(),
    "put_many": lambda side: side.put_many(),
    "get": lambda side: side.get(),
    "take": lambda side: side.take(),
    "watch_data": lambda side: side.watch_data(),
}
SIDES: dict[str, type[Any]] = {
    "floor": Floor, "zkwire": Zkwire, "kazoo": Kazoo, "Curator": Curator,
}  # fmt: skip
Found = dict[tuple[str, str], list[Cost]]


def measure(rounds: int, jobs: list[str], missing: dict[str, str]) -> tuple[str, Found]:
    """The server's version, and what each job has cost each side, round by round."""
    found: Found = {}
    with real_server() as address, ExitStack() as stack:
        sides: dict[str, Any] = {}
        for name, kind in SIDES.items():
            try:
                sides[name] = kind(f"{address[0]}:{address[1]}")
            except MissingError as error:
                missing[name] = str(error)
            else:
                stack.callback(sides[name].close)
        for number in range(rounds):
            # In turns: what the first has left to the server is a burden on the second.
            order = list(sides.items())[:: -1 if number % 2 else 1]
            for job, (name, side) in itertools.product(jobs, order):
                found.setdefault((job, name), []).append(JOBS[job](side))
        return version_of(address), found


def table(rounds: int, jobs: list[str]) -> str:
    """Microseconds, and how many times as much the others need."""
    missing: dict[str, str] = {}
    version, found = measure(rounds, jobs, missing)
    machine = "; ".join(f"{what} {value}" for what, value in this_machine().items())
    sides = [side for side in SIDES if side not in missing]
    heads = [f"{side}: wall | CPU" for side in sides]
    heads += [f"{side} / zkwire: wall | CPU" for side in sides if side not in ("floor", "zkwire")]
    lines = [f"{machine}; ZooKeeper {version}."]
    lines += [f"Not measured: {side}: {reason}." for side, reason in missing.items()]
    lines += [
        f"Medians of {rounds} rounds, microseconds for one operation; ratios within each round.",
        "",
        f"| job | {' | '.join(heads)} | kazoo / floor: wall |",
        "| --- |" + " ---: |" * (2 * len(heads) + 1),
    ]
    return "\n".join(lines + [_row(job, found, sides) for job in jobs])


def _row(job: str, found: Found, sides: list[str]) -> str:
    cells = [f"{each:,.0f}" for side in sides for each in median(found[job, side])]
    for side in sides:
        if side not in ("floor", "zkwire"):
            times = _times_as_much(found[job, side], found[job, "zkwire"])
            cells += [f"{each:.1f}" for each in times]
    cells.append(f"{_times_as_much(found[job, 'kazoo'], found[job, 'floor']).wall:.1f}")
    return f"| {' | '.join([job, *cells])} |"


def _times_as_much(costs: list[Cost], others: list[Cost]) -> Cost:
    """The median of the rounds' ratios: both had the same machine."""
    return median(cost / other for cost, other in zip(costs, others, strict=True))


def main() -> None:
    """See the module's docstring."""
    asked = arguments(__doc__, JOBS).parse_args()
    text = table(asked.rounds, asked.only or list(JOBS))
    print(text)
    if asked.update_readme:
        write_between(BEGIN, END, text)


if __name__ == "__main__":
    main()
