"""Figures as text: one table for each workload, one line for each candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.candidates import BY_TITLE
from benchmarks.rounds import Figures, ratio

# ruff: noqa: RUF001 - the sign for "times" is what a ratio is read as
HEADING = ("client", "ops/s", "CPU µs", "× floor", "× codec", "wall µs", "p50 µs", "p99 µs", "MiB")
FLOOR = "floor"
CODEC_FLOOR = "codec floor"


def floor_of(title: str, figures: Mapping[str, Figures]) -> Figures | None:
    """What a candidate is compared with: where asyncio has no floor, the other one."""
    own = BY_TITLE[title].floor if title in BY_TITLE else FLOOR
    return figures.get(own, figures.get(FLOOR))


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def proportion(each: Figures, floor: Figures | None) -> str:
    """A ratio as text; empty if there is nothing to compare with."""
    value = ratio(each, floor)
    return "" if value is None else f"{value:,.2f}"


def row(title: str, each: Figures, figures: Mapping[str, Figures]) -> tuple[str, ...]:
    """A line of the table, or the reason why there is none."""
    if each.error:
        return title, each.error
    with_loop = title in BY_TITLE and BY_TITLE[title].floor != FLOOR
    codec = "" if with_loop else proportion(each, figures.get(CODEC_FLOOR))
    return (
        title,
        number(each.per_second),
        number(each.cpu),
        proportion(each, floor_of(title, figures)),
        codec,
        number(each.wall),
        number(each.p50),
        number(each.p99),
        f"{each.rss / 2**20:.0f}",
        each.note,
    )


def table(name: str, figures: Mapping[str, Figures]) -> str:
    """One workload."""
    rows: list[Sequence[str]] = [(*HEADING, "")]
    rows += [row(title, each, figures) for title, each in figures.items()]
    full = [each for each in rows if len(each) > 2]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    rounds = max((len(each.cpu_rounds) for each in figures.values()), default=0)
    lines = [f"\n{name} ({rounds} round{'s' * (rounds != 1)})"]
    for title, *cells in rows:
        if len(cells) > 1:
            *figures_, note = cells
            texts = [f"{c:>{w}}" for c, w in zip(figures_, widths[1:-1], strict=True)] + [note]
        else:
            texts = cells
        lines.append(f"  {title:<16}{'  '.join(texts)}".rstrip())
    return "\n".join(lines)
