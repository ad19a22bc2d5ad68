"""docs/how-fast.md: its pictures and its table, from the figures that the benchmarks have kept.

The plot shows the table in benchmarks/README.md, the other pictures show benchmarks/where.json;
`python3 -m benchmarks --write` and `python3 -m benchmarks.where --write` measure both anew.
`python3 -m tests.support.speed_pictures` writes the table of the page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from math import log10
from pathlib import Path
from typing import Any

from benchmarks.__main__ import COMMAND, PEERS
from benchmarks.pages import parts
from benchmarks.where import KEPT
from tests.support.diagrams import box, drawing, words
from tests.unit.test_layers import LAYERS
from zkwire.cli.picture import PER_CHARACTER, as_xml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-fast.md"
OPERATIONS = {"get": "a get", "lock": "a lock, taken and given back", "event": "an event"}

# --- the plot -------------------------------------------------------------------------------------

SIGNS = {
    "zkwire": ("z", "held", "zkwire for threads"),
    "asyncio": ("a", "alive", "zkwire for asyncio"),
    "floor": ("s", "head", "a bare socket"),
    "kazoo": ("k", "doubt", "kazoo"),
}
LEFT, WIDE, ROW, TOP = 310, 450, 38, 60
ROUND = 8


def rows() -> dict[str, dict[str, float]]:
    """For each workload of the table the CPU time of each client, zkwire's being one."""
    text = parts(COMMAND)[1]
    lines = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in lines[0]]
    found: dict[str, dict[str, float]] = {}
    for line in lines[2:]:
        cells = dict(zip(head, map(str.strip, line), strict=False))
        others = {
            peer: 1 / float(cells[column].replace(",", ""))
            for peer, column in PEERS.items()
            if cells.get(column)
        }
        found[cells["zkwire"]] = {"zkwire": 1.0, **others}
    return found


def speed_plot() -> str:
    """A line for each workload, with a sign for each client."""
    shown = rows()
    values = [value for row in shown.values() for value in row.values()]
    low, high = log10(min(values)) - 0.1, log10(max(values)) + 0.1
    bottom = TOP + len(shown) * ROW

    def x(value: float) -> float:
        return round(LEFT + (log10(value) - low) / (high - low) * WIDE, 1)

    lines = [words(LEFT, 22, "CPU time of the client, times zkwire's", "start", "dim")]
    for tick in (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if low < log10(tick) < high:
            lines.append(f'<path class="lane" d="M{x(tick)} {TOP - 10}V{bottom}"/>')
            lines.append(words(x(tick), TOP - 16, f"{tick:g}"))
    for number, (name, row) in enumerate(shown.items()):
        y = TOP + number * ROW + ROW // 2
        lines.append(words(LEFT - 14, y + 4, name, "end"))
        lines += _signs({who: x(value) for who, value in row.items()}, y)
    at = 20.0
    for sign, kind, name in SIGNS.values():
        if any(name in (SIGNS[who][2] for who in row) for row in shown.values()):
            lines += _sign(at, bottom + 24, sign, kind)
            lines.append(words(at + 14, bottom + 28, name, "start"))
            at += 40 + len(name) * PER_CHARACTER
    about = "; ".join(
        f"{name}: " + ", ".join(f"{SIGNS[who][2]} {value:.2g}" for who, value in row.items())
        for name, row in shown.items()
    )
    title = "What other clients need, in proportion to zkwire"
    return drawing(title, about, (LEFT + WIDE + 30, bottom + 46), lines)


def _signs(places: dict[str, float], y: int) -> Iterator[str]:
    """zkwire's on the line; those that would cover another above or below."""
    taken: list[tuple[float, int]] = []
    for who in sorted(places, key=lambda who: (who != "zkwire", places[who])):
        at = places[who]
        near = {level for other, level in taken if abs(at - other) < 2 * ROUND}
        level = next(each for each in (0, -1, 1, -2, 2, -3) if each not in near)
        taken.append((at, level))
        yield from _sign(at, y + level * (2 * ROUND - 2), *SIGNS[who][:2])


def _sign(x: float, y: float, sign: str, kind: str) -> Iterator[str]:
    yield f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{ROUND}"/>'
    yield words(x, y + 4, sign)


# --- where the microseconds go --------------------------------------------------------------------

FLAME, DEEP, EDGE = 760, 22, 20
KINDS = {
    "recipes": "doubt",
    **dict.fromkeys(("operations", "wire", "jute", "errors"), "alive"),
    "blocking": "held",
    "session": "head",
    "net": "blind",
    "kernel": "over",
}
PROGRAM = "the program itself"


class Part:
    """A module, as it is called from the one below which it stands."""

    def __init__(self, name: str) -> None:
        self.name, self.own = name, 0  # samples in the module itself
        self.entries, self.functions = Counter[str](), Counter[str]()  # called from below; all
        self.parts: dict[str, Part] = {}

    @property
    def all(self) -> int:
        return self.own + sum(part.all for part in self.parts.values())

    @property
    def depth(self) -> int:
        return 1 + max((part.depth for part in self.parts.values()), default=0)

    @property
    def layers(self) -> set[str]:
        below = [part.layers for part in self.parts.values()]
        return {_layer(self)}.union(*below)


def kept() -> dict[str, Any]:
    """What benchmarks/where.py has seen."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


def tree(name: str, seen: dict[str, Any]) -> Part:
    """The stacks; functions of one module that call each other are one part."""
    root = Part(f"{OPERATIONS[name]}: {seen['cpu']:.0f} µs of CPU time")
    for stack, count in seen["stacks"].items():
        part = root
        for frame in filter(None, stack.split(";")):
            module, _, function = frame.partition(":")
            module = frame if module == "kernel" else module
            if part.name != module:
                part = part.parts.setdefault(module, Part(module))
                part.entries[function] += count
            part.functions[function] += count
        part.own += count
    return root


def flame(name: str) -> str:
    """A bar for each module, as wide as its time; below it stand those that it calls."""
    seen = kept()[name]
    root = tree(name, seen)
    each = seen["cpu"] / seen["samples"]
    lines = list(_bars(root, EDGE, 16, FLAME / root.all, each))
    height = 16 + root.depth * DEEP
    used, at = {KINDS.get(layer) for layer in root.layers}, float(EDGE)
    for kind in [each for each in dict.fromkeys(KINDS.values()) if each in used]:
        text = ", ".join(layer for layer, other in KINDS.items() if other == kind)
        text = text.replace("kernel", "a system call").replace(", errors", "")
        lines += [box(at, height + 14, 14, 14, kind), words(at + 20, height + 25, text, "start")]
        at += 44 + len(text) * PER_CHARACTER
    about = "; ".join(f"{layer} {value:.1f} µs" for layer, value in by_layer(name).items())
    title = f"Where the CPU time of {OPERATIONS[name]} goes"
    return drawing(title, about, (FLAME + 2 * EDGE, height + 44), lines)


def _layer(part: Part) -> str:
    return part.name.partition(".")[0].partition(":")[0]


def _bars(part: Part, x: float, y: int, scale: float, each: float) -> Iterator[str]:
    width = round(part.all * scale, 1)
    kind = KINDS.get(layer := _layer(part), "lane")
    told = f"{part.name}: {part.all * each:.1f} µs, {part.own * each:.1f} of them itself"
    if part.functions and layer != "kernel":
        told += f" ({', '.join(name for name, _ in part.functions.most_common(6))})"
    yield f"<g><title>{as_xml(told)}</title>"
    yield box(round(x, 1), y, width, DEEP - 2, kind)
    room_for = int((width - 6) / PER_CHARACTER)
    short = part.name.rpartition(".")[2].rpartition(":")[2]
    whole = ": ".join(filter(None, [part.name, ", ".join(part.entries)]))
    full = short if layer == "kernel" else whole
    if label := next((text for text in (full, part.name, short) if len(text) <= room_for), ""):
        yield words(round(x + 4, 1), y + 14, label, "start")
    yield "</g>"
    for below in part.parts.values():
        yield from _bars(below, x, y + DEEP, scale, each)
        x += below.all * scale


# --- the table of the page ------------------------------------------------------------------------


def by_layer(name: str) -> dict[str, float]:
    """Microseconds in the code of each layer itself, and in each kind of system call."""
    seen = kept()[name]
    found: Counter[str] = Counter()
    for stack, count in seen["stacks"].items():
        module, _, function = stack.rpartition(";")[2].partition(":")
        layer = f"system call: {function}" if module == "kernel" else module.partition(".")[0]
        found[layer or PROGRAM] += count
    order = [*LAYERS, PROGRAM, *sorted(layer for layer in found if layer.startswith("system"))]
    each = seen["cpu"] / seen["samples"]
    return {layer: found[layer] * each for layer in order if found[layer]}


_PART = re.compile(r"(?<=<!-- begin: layers -->\n).*?(?=<!-- end: layers -->)", re.DOTALL)


def table() -> str:
    """A line for each layer, and all together."""
    layers = {name: by_layer(name) for name in OPERATIONS}
    names = list(dict.fromkeys(layer for found in layers.values() for layer in found))
    names.sort(key=lambda layer: [*LAYERS, PROGRAM].index(layer) if layer in LAYERS else 99)
    lines = ["| microseconds | " + " | ".join(OPERATIONS.values()) + " |"]
    lines.append("| --- |" + " ---: |" * len(OPERATIONS))
    for layer in names:
        times = [layers[name].get(layer) for name in OPERATIONS]
        cells = ["" if time is None else f"{time:.1f}" for time in times]
        lines.append(f"| {f'`{layer}`' if layer in LAYERS else layer} | {' | '.join(cells)} |")
    seen = kept()
    sums = {"cpu": "**CPU time of the client**", "system": "of it in the kernel"}
    for what, text in (sums | {"wall": "**by the clock**"}).items():
        cells = [f"{seen[name][what]:.1f}" for name in OPERATIONS]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    machine = "; ".join(f"{what} {value}" for what, value in seen["machine"].items())
    samples = ", ".join(f"{seen[name]['samples']:,}" for name in OPERATIONS)
    return "\n".join([*lines, "", f"{machine}. Seen {samples} times.", ""])


def written() -> str:
    """The page with its table made now."""
    return _PART.sub(lambda _: f"\n{table()}\n", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(written())
