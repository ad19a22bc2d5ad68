"""What an operation costs, over some rounds, for the tables beside the main one."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple


class Cost(NamedTuple):
    """Microseconds for one operation; or how many times another one's."""

    wall: float
    cpu: float

    def __truediv__(self, other: Cost) -> Cost:
        return Cost(self.wall / other.wall, self.cpu / other.cpu)


def median(costs: Iterable[Cost]) -> Cost:
    """That of wall and of CPU time, each by itself; without a cost they are no numbers."""
    both = [*zip(*costs, strict=True)]
    return Cost(*map(statistics.median, both)) if both else Cost(math.nan, math.nan)


def arguments(about: str | None, jobs: Iterable[str]) -> argparse.ArgumentParser:
    """The options of a program that does these jobs in rounds."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=jobs)
    parser.add_argument("--update-readme", action="store_true")
    return parser
