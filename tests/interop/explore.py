"""Small worlds through and through, and many random ones: `python3 -m tests.interop.explore`.

    python3 -m tests.interop.explore      50,000 states of each small world, 50,000 histories: hours
    python3 -m tests.interop.explore --states 500 --histories 2000      about a minute
    python3 -m tests.interop.explore --worlds "sequential, trying, 2" --faults 1 --histories 0
                                       two contenders and one fault, to the very end
    python3 -m tests.interop.explore --replay "sequential, waiting, 2" --steps "run a; up a; cut a"

A world is a kind of lock, what its contenders do (wait, wait for a limited time, only try) and how
many they are.  First every schedule with every fault at every place is followed (two faults for two
contenders, one for three), until nothing is left or the limit is reached: of equal states only one
(`zkwire.testing.simulation.fingerprint`), of orders only those that make a difference
(`zkwire.testing.simulation.runs`).  Then come random histories with more contenders and up to
five faults, of all recipes and services.  Counted are the different states of the small worlds.

A failure prints the shortest steps that lead there, the history, and how to see it again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from tests.simulation.scenarios import RANDOM, SMALL
from zkwire.testing.simulation import FailedRunError, Figures, exhaust, explore, replay

BATCH = 500
MOST = 5
SERVERS = 3


class Done(NamedTuple):
    """What a worker has to say: the states that it has met, or how it failed."""

    name: str
    figures: Figures
    states: set[int]
    failure: str = ""


def through(name: str, states: int, seconds: float, most: int = 2) -> Done:
    """Follow every schedule of a small world, within limits."""
    world, seen = SMALL[name], set[int]()
    try:
        figures = exhaust(
            world.scenario, most=min(most, world.most), faults=world.faults, frames=False,
            seen=seen, states=states, seconds=seconds,
        )  # fmt: skip
    except FailedRunError as error:
        return Done(name, Figures(error.runs, 0), seen, told(name, 0, error))
    return Done(name, figures, seen)


def at_random(name: str, first: int, number: int) -> Done:
    """So many random histories of a kind of world."""
    world = RANDOM[name]
    try:
        figures = explore(
            world.scenario, range(first, first + number), most=MOST, faults=world.faults,
            servers=SERVERS,
        )  # fmt: skip
    except FailedRunError as error:
        return Done(name, Figures(error.runs, 0), set(), told(name, error.seed, error))
    return Done(name, figures, set())


def told(name: str, seed: int, error: FailedRunError) -> str:
    """The failure, and the command that shows it again."""
    steps = "; ".join(map(str, error.steps))
    again = f'python3 -m tests.interop.explore --replay "{name}" --seed {seed} --steps "{steps}"'
    return f"{name}: {error}\n\nsee it again with:\n{again}"


def show(name: str, steps: str, seed: int) -> list[str]:
    """The history of a run that has been found."""
    if name in SMALL:
        scenario, faults, _ = SMALL[name]
        return replay(scenario, steps, seed=seed, faults=faults, frames=False)
    scenario, faults, _ = RANDOM[name]
    return replay(scenario, steps, seed=seed, faults=faults, servers=SERVERS)


def shares(histories: int) -> Iterator[tuple[str, int, int]]:
    """Kind of world, first seed and number of each batch: every kind has its share."""
    each, rest = divmod(histories, len(RANDOM))
    for first in range(0, each + bool(rest), BATCH):
        for place, name in enumerate(RANDOM):
            number = min(BATCH, each + (place < rest) - first)
            if number > 0:
                yield name, first, number


def run(arguments: argparse.Namespace) -> int:
    """Do it all; the number of failures."""
    begun, states, histories, failures = time.monotonic(), set[int](), 0, 0
    jobs = []
    logging.disable()  # what services warn of is what is provoked here
    with ProcessPoolExecutor(arguments.jobs, initializer=logging.disable) as pool:
        limits = (arguments.states, arguments.seconds, arguments.faults)
        for name in SMALL:
            if arguments.worlds in name:
                jobs.append(pool.submit(through, name, *limits))
        for name, first, number in shares(arguments.histories):
            jobs.append(pool.submit(at_random, name, arguments.seed + first, number))
        for job in as_completed(jobs):
            done = job.result()
            states |= done.states
            histories += done.figures.runs if done.name in RANDOM else 0
            failures += bool(done.failure)
            seconds = time.monotonic() - begun
            print(f"{seconds:7.1f} s  {done.name}: {done.failure or done.figures}", flush=True)
            print(f"{'':11}{len(states)} states, {histories} histories", flush=True)
    print(f"{len(states)} distinct states, {histories} random histories, {failures} failures, "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    return failures


def main(given: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="tests.interop.explore", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--worlds", default="", help="small ones that have this in their names")
    parser.add_argument("--faults", type=int, default=2, help="in a small world, at most")
    parser.add_argument("--states", type=int, default=50_000, help="of each small world, at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each small world")
    parser.add_argument("--histories", type=int, default=50_000, help="random ones")
    parser.add_argument("--seed", type=int, default=0, help="the first one; of a replay, the one")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--replay", metavar="WORLD", help="show one run again")
    parser.add_argument("--steps", default="", help="of that run")
    arguments = parser.parse_args(given)
    if arguments.replay:
        print("\n".join(show(arguments.replay, arguments.steps, arguments.seed)))
        return 0
    return min(run(arguments), 1)


if __name__ == "__main__":
    sys.exit(main())
