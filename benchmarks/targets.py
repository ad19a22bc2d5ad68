"""What zkwire means to cost: the targets, and whether the figures of a run reach them.

Only this table knows the targets; benchmarks/figures.py writes them down beside the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

from benchmarks import imports
from benchmarks.rounds import Figures, ratios

# ruff: noqa: RUF001 - the sign for "times" is what a ratio is read as
What = Literal["CPU", "wall", "memory"]
UNITS: dict[What, str] = {"CPU": "µs", "wall": "µs", "memory": "KiB"}


def rounds_of(each: Figures, what: What) -> list[float]:
    """The figure of each round."""
    return {"CPU": each.cpu_rounds, "wall": each.wall_rounds, "memory": each.added_rounds}[what]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """At most so much: of the unit, or times another's figure in the same round."""

    most: float
    versus: str = ""
    """Whose figure; empty if the bound is absolute."""
    above: str = ""
    """Whose figure is taken off before, in the same round."""
    what: What = "CPU"

    def __str__(self) -> str:
        what = f"{self.what} above {self.above}" if self.above else self.what
        if not self.versus:
            return f"{what} ≤ {self.most:,g} {UNITS[self.what]}"
        if self._share:
            return f"{what} ≤ 1/{1 / self.most:g} of {self.versus}"
        return f"{what} ≤ {self.most:g} × {self.versus}"

    @property
    def _share(self) -> bool:
        """Whether it reads best as a share of the other's."""
        return bool(self.versus) and self.most < 0.34

    def found(self, figures: Mapping[str, Figures], who: str) -> list[float]:
        """What is bounded, in each round; none if somebody is not there."""
        there = [each for each in (who, self.versus, self.above) if each]
        if any(each not in figures or figures[each].error for each in there):
            return []
        own = rounds_of(figures[who], self.what)
        if self.above:
            base = rounds_of(figures[self.above], self.what)
            return [one - other for one, other in zip(own, base, strict=False)]
        return ratios(own, rounds_of(figures[self.versus], self.what)) if self.versus else own

    def verdict(self, found: list[float]) -> str:
        """Yes or no, the median, and between what the middle half of the rounds lies."""
        value = median(found)
        text = f"{'yes' if value <= self.most else '**no**'}: {self._shown(value)}"
        if len(found) < 3:
            return text
        low, _, high = quantiles(found, n=4, method="inclusive")
        return f"{text} ({self._shown(low)} to {self._shown(high)})"

    def _shown(self, value: float) -> str:
        # What misses by a hair must not look as if it did not.
        digits = 3 if f"{value:.3g}" != f"{self.most:.3g}" else 5
        if self._share and 0 < value < 1:
            return f"1/{1 / value:.{digits}g}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


@dataclass(frozen=True)
class Target:
    """A row: a workload, by its name, and the bounds on one of zkwire's clients."""

    workload: str
    bounds: tuple[Bound, ...]
    who: str = "zkwire"


def to_floor(most: float) -> tuple[Bound, ...]:
    return (Bound(most=most, versus="floor"),)


def replayed(verb: str) -> Target:
    bounds = Bound(most=6), Bound(most=1 / 20, versus="kazoo")
    return Target(f"{verb}, 1,000 in flight, replay server", bounds)


def to_asyncio(way: str, most: float) -> Target:
    bound = Bound(most=most, versus="asyncio floor")
    return Target(f"get, {way}, real server", (bound,), "zkwire asyncio")


VERBS = ("get", "create", "delete")
TARGETS = (
    Target("get, one at a time, real server", to_floor(1.6)),
    Target("create, one at a time, real server", to_floor(1.4)),
    Target("delete, one at a time, real server", to_floor(1.4)),
    *(Target(f"{verb}, 1,000 in flight, real server", to_floor(1.5)) for verb in VERBS),
    *(replayed(verb) for verb in VERBS),
    Target("get, 10 in flight, real server", to_floor(2.0)),
    Target("children, 1,000 names, real server", (Bound(most=150),)),
    Target(
        "get, 8 threads or tasks, real server",
        (Bound(most=40), Bound(most=1 / 4, versus="kazoo"), Bound(most=1.5, versus="leader floor")),
    ),
    Target("get, 4 other threads call, real server", (Bound(most=1 / 2, versus="kazoo"),)),
    to_asyncio("one at a time", 1.0),
    to_asyncio("1,000 in flight", 0.6),
    Target(
        "free lock, acquire and release, real server",
        (
            *to_floor(3.2),
            Bound(most=1.35, versus="floor", what="wall"),
            Bound(most=1 / 5, versus="kazoo", what="wall"),
        ),
    ),
    Target(
        "lock, hand-off from release to running, real server",
        (
            Bound(most=1.75, versus="floor", what="wall"),
            Bound(most=1.1, versus="listing floor", what="wall"),
        ),
    ),
    Target(
        "lock that two contend for, per acquisition, real server",
        (
            Bound(most=0.35, versus="kazoo", what="wall"),
            Bound(most=1 / 5, versus="kazoo"),
        ),
    ),
    Target(
        "free lock, 4 other threads call, real server",
        (Bound(most=1 / 2, versus="kazoo", what="wall"),),
    ),
    Target(
        "lock, hand-off, 4 other threads call, real server",
        (Bound(most=1 / 2, versus="kazoo", what="wall"),),
    ),
    Target("10,000 watches fired, waited for, real server", (Bound(most=10),)),
    Target("10,000 watches fired, to callbacks, real server", (Bound(most=15),)),
    Target("10,000 watches fired one by one, waited for, real server", (Bound(most=10),)),
    Target("10,000 watches fired one by one, to callbacks, real server", (Bound(most=10),)),
    Target("decode a Stat", (Bound(most=0.75, versus="kazoo"),)),
    Target("decode a GetData reply", (Bound(most=0.75, versus="kazoo"),)),
    Target(imports.TITLE, (Bound(most=15_000, above="socket"),)),
    Target("100 clients in one process, real server", (Bound(most=64, what="memory"),)),
)
WORKLOADS = frozenset(target.workload for target in TARGETS)
