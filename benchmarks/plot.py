"""The CPU times as a picture: grouped horizontal bars on a logarithmic scale, in plain SVG.

Readable without colours (every bar has its name and figure) and on a dark page (it brings its own
background).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from math import ceil, floor, log10

from benchmarks.rounds import Figures

WIDTH, LEFT, RIGHT = 960, 150, 90
BAR, GAP, GROUP, TOP, BOTTOM = 14, 3, 34, 86, 40
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
COLOURS = {
    "floor": "#b8bec7",
    "codec floor": "#98a1ad",
    "asyncio floor": "#b8bec7",
    "zkwire": "#1f6feb",
    "zkwire asyncio": "#6aa5f8",
    "kazoo": "#d9822b",
    "aiozk": "#e8b06b",
    "C client": "#5b8c5a",
    "Java client": "#a05195",
}
OTHER = "#b8bec7"

Groups = dict[str, dict[str, float]]


def plot(results: Mapping[str, Mapping[str, Figures]]) -> str:
    """The whole picture; workloads without figures are left out."""
    groups = {
        name: {who: each.cpu for who, each in row.items() if not each.error and each.cpu > 0}
        for name, row in results.items()
    }
    groups = {name: row for name, row in groups.items() if row}
    height = TOP + BOTTOM + sum(GROUP + len(row) * (BAR + GAP) for row in groups.values())
    return "\n".join([_head(height), *_body(groups, height), "</svg>\n"])


def _head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" font-size="12" fill="#24292f">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    )


def _body(groups: Groups, height: int) -> Iterator[str]:
    values = [value for row in groups.values() for value in row.values()] or [1.0]
    low, high = floor(log10(min(values))), ceil(log10(max(values)) + 1e-9)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(value) - low) / (high - low)

    yield _text(20, 30, "CPU time of the client per operation", size=18, weight=600)
    yield _text(20, 50, "microseconds, logarithmic: shorter is better; medians of one run")
    for power in range(low, high + 1):
        at = x(10.0**power)
        yield f'<path d="M{at:.1f} {TOP - 12}V{height - BOTTOM}" stroke="#e3e6ea"/>'
        label = f"{10.0**power:,.{max(0, -power)}f}"
        yield _text(at, TOP - 18, label, anchor="middle", colour="#57606a")
        yield _text(at, height - 20, label, anchor="middle", colour="#57606a")
    y = TOP
    for name, row in groups.items():
        yield _text(20, y + 14, name, weight=600)
        y += 22
        for who, value in row.items():
            yield from _bar(who, value, y, x(value))
            y += BAR + GAP
        y += GROUP - 22


def _bar(who: str, value: float, y: float, end: float) -> Iterator[str]:
    length, colour = max(1.0, end - LEFT), COLOURS.get(who, OTHER)
    weight = 600 if who.startswith("zkwire") else 400
    yield f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
    yield _text(LEFT - 8, y + 11, who, anchor="end", weight=weight)
    figure = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    yield _text(LEFT + length + 6, y + 11, figure, weight=weight, colour="#57606a")


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: int = 400,
    colour: str = "#24292f",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
    )
