"""docs/how-fast.md: its pictures and its table, from the figures that the benchmarks have kept.

The plot shows the table in benchmarks/README.md, the other pictures show benchmarks/where.json;
`python3 -m benchmarks --write` and `python3 -m benchmarks.where --write` measure both anew.
`python3 -m tests.support.pages` writes the page and its pictures.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby
from math import log10
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.__main__ import COMMAND, PEERS
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
    text = pages.parts(COMMAND)[1]
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


def kept() -> dict[str, Any]:
    """What benchmarks/where.py has seen."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


Modules = tuple[str, ...]


def flame(name: str) -> str:
    """A bar for each module, as wide as its time; below it stand those that it calls."""
    seen = kept()[name]
    counts, own = Counter[Modules](), Counter[Modules]()
    entries: defaultdict[Modules, dict[str, None]] = defaultdict(dict)  # what is called from above
    for stack, count in seen["stacks"].items():
        modules: Modules = ()
        counts[modules] += count
        for module, frames in groupby(filter(None, stack.split(";")), _module):
            modules = (*modules, module)
            counts[modules] += count
            entries[modules][next(frames).partition(":")[2]] = None
        own[modules] += count
    each, all_of_it = seen["cpu"] / seen["samples"], counts[()]
    names = [f"{OPERATIONS[name]}: {seen['cpu']:.0f} µs of CPU time"]
    lines = list[str]()
    room = defaultdict[Modules, float](lambda: EDGE)  # where the next bar below one begins
    for modules, count in counts.items():
        width, x = count * FLAME / all_of_it, room[modules[:-1]]
        room[modules] = x
        if modules:
            room[modules[:-1]] += width
            names = [f"{modules[-1]}: {', '.join(entries[modules])}", modules[-1]]
        told = f"{names[-1]}: {count * each:.1f} µs, {own[modules] * each:.1f} of them itself"
        lines += _bar(round(x, 1), 16 + len(modules) * DEEP, round(width, 1), names, told)
    below = 16 + (1 + max(map(len, counts))) * DEEP
    lines += _legend({_kind(module) for modules in counts for module in modules}, below + 14)
    about = "; ".join(f"{layer} {value:.1f} µs" for layer, value in by_layer(name).items())
    title = f"Where the CPU time of {OPERATIONS[name]} goes"
    return drawing(title, about, (FLAME + 2 * EDGE, below + 44), lines)


def _kind(module: str) -> str:
    return KINDS.get(module.partition(".")[0].partition(":")[0], "lane")


def _module(frame: str) -> str:
    return frame if frame.startswith("kernel") else frame.partition(":")[0]


def _bar(x: float, y: int, width: float, names: list[str], told: str) -> Iterator[str]:
    yield f"<g><title>{as_xml(told)}</title>"
    yield box(x, y, width, DEEP - 2, _kind(told))
    room_for = int((width - 6) / PER_CHARACTER)
    short = names[-1].rpartition(".")[2].rpartition(":")[2]
    names = [short] if told.startswith("kernel") else [*names, short]
    if label := next((text for text in names if len(text) <= room_for), ""):
        yield words(round(x + 4, 1), y + 14, label, "start")
    yield "</g>"


def _legend(used: set[str], y: int) -> Iterator[str]:
    at = float(EDGE)
    for kind in [kind for kind in dict.fromkeys(KINDS.values()) if kind in used]:
        text = ", ".join(layer for layer, other in KINDS.items() if other == kind)
        text = text.replace("kernel", "a system call").replace(", errors", "")
        yield from (box(at, y, 14, 14, kind), words(at + 20, y + 11, text, "start"))
        at += 44 + len(text) * PER_CHARACTER


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


def parts() -> dict[str, str]:
    """The table, as a part of the page."""
    return {"layers": f"\n{table()}\n"}
