"""Diagrams that are no run: the states of a client, the layers of the package, and a plot.

What they show is read from the tables and the imports; where it stands is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log

from tests.unit.test_layers import LAYERS, PACKAGE, Package, arrows_of, layer
from zkwire.cli.picture import STYLE, as_xml
from zkwire.session.states import TRANSITIONS
from zkwire.wire.model import State


def drawing(title: str, about: str, size: tuple[int, int], lines: Iterable[str]) -> str:
    width, height = size
    inside = "\n".join(lines)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-labelledby="t d">
<title id="t">{as_xml(title)}</title>
<desc id="d">{as_xml(about)}</desc>
<style>
{STYLE}</style>
<rect class="back" width="{width}" height="{height}"/>
{inside}
</svg>
"""


def words(x: float, y: float, text: str, anchor: str = "middle", kind: str = "ink") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{as_xml(text)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {place} rx="4"/>'


# --- the states of a client -----------------------------------------------------------------------

PLACES = {
    State.NOT_STARTED: (20, 105, "head"),
    State.CONNECTING: (230, 105, "head"),
    State.HANDSHAKE: (500, 105, "head"),
    State.CONNECTED: (740, 65, "alive"),
    State.CONNECTED_READ_ONLY: (740, 145, "alive"),
    State.DISCONNECTED: (230, 235, "doubt"),
    State.CLOSED: (230, 330, "over"),
    State.EXPIRED: (565, 330, "over"),
    State.AUTH_FAILED: (740, 330, "over"),
}
ALL, CONNECTION = "all that are not final", "with a connection"
# For each arrow its path, the shape of its tip, and where its word stands.
ROUTES = {
    ("NOT_STARTED", "start", "CONNECTING"): ("M170 120H222", "r230 120", (196, 114, "middle")),
    ("CONNECTING", "dialled", "HANDSHAKE"): ("M380 120H492", "r500 120", (430, 114, "middle")),
    ("CONNECTING", "lost", "DISCONNECTED"): ("M340 135V227", "d340 235", (346, 190, "start")),
    ("DISCONNECTED", "start", "CONNECTING"): ("M270 235V143", "u270 135", (264, 190, "end")),
    ("HANDSHAKE", "usable", "CONNECTED"): ("M650 112L690 80H732", "r740 80", (668, 84, "end")),
    ("HANDSHAKE", "usable read-only", "CONNECTED_READ_ONLY"):
        ("M650 128L690 160H732", "r740 160", (686, 178, "end")),
    (CONNECTION, "lost", "DISCONNECTED"): ("M520 200V250H388", "l380 250", (450, 244, "middle")),
    (CONNECTION, "expire", "EXPIRED"): ("M640 200V322", "d640 330", (646, 246, "start")),
    (CONNECTION, "reject", "AUTH_FAILED"): ("M815 200V322", "d815 330", (821, 246, "start")),
    (ALL, "close", "CLOSED"): ("M305 285V322", "d305 330", (311, 313, "start")),
}  # fmt: skip
_TIPS = {"r": "l-9 -4v8z", "l": "l9 -4v8z", "d": "l-4 -9h8z", "u": "l-4 9h8z"}


def arrows() -> set[tuple[str, str, str]]:
    """The table of transitions, with one arrow for those that all states of a frame have."""
    lasting = {state for state, table in TRANSITIONS.items() if table}
    connected = {State.HANDSHAKE, State.CONNECTED, State.CONNECTED_READ_ONLY}
    sources: dict[tuple[str, State], set[State]] = {}
    for state, table in TRANSITIONS.items():
        for word, target in table.items():
            sources.setdefault((word, target), set()).add(state)
    found = set[tuple[str, str, str]]()
    for (word, target), having in sources.items():
        framed = lasting if having == lasting else connected if connected <= having else set()
        names = {state.name for state in having - framed}
        if framed:
            names.add(ALL if framed == lasting else CONNECTION)
        found |= {(name, word, target.name) for name in names}
    return found


def states() -> str:
    """The states; KeyError for a transition that has no place yet."""
    lines = [box(10, 20, 910, 265, "lane"), words(20, 38, ALL, "start", "dim")]
    lines += [box(480, 45, 420, 155, "lane"), words(490, 62, CONNECTION, "start", "dim")]
    for arrow in sorted(arrows()):
        path, tip, (x, y, anchor) = ROUTES[arrow]
        lines.append(f'<path class="line" d="{path}"/>')
        lines.append(f'<path class="tip" d="M{tip[1:]}{_TIPS[tip[0]]}"/>')
        lines.append(words(x, y, arrow[1], anchor))
    for state in TRANSITIONS:
        x, y, kind = PLACES[state]
        lines += [box(x, y, 150, 30, kind), words(x + 75, y + 19, state.name)]
    about = "; ".join(f"{a} - {word} - {b}" for a, word, b in sorted(arrows()))
    return drawing("The states of a client", about, (930, 375), lines)


# --- the layers of the package --------------------------------------------------------------------

CELL, SIDE, HEAD = 38, 110, 100


def layers() -> str:
    """For each layer which layers it imports."""
    pairs = {
        (layer(module), layer(other))
        for module, others in arrows_of(Package(PACKAGE)).items()
        for other in others
        if layer(other) != layer(module)
    }
    used = [name for name in LAYERS if any(there == name for _, there in pairs)]
    lines = [words(SIDE - 8, HEAD - 10, "modules of", "end", "dim")]
    for column, name in enumerate(used):
        x = SIDE + column * CELL + CELL / 2
        turn = f'transform="translate({x + 4:g} {HEAD - 8}) rotate(-90)"'
        lines.append(f'<text class="ink" {turn}>{name}</text>')
    for row, name in enumerate(LAYERS):
        y = HEAD + row * CELL
        lines.append(words(SIDE - 8, y + 23, name, "end"))
        for column, other in enumerate(used):
            x, imports = SIDE + column * CELL, (name, other) in pairs
            kind = "held" if imports else "blind" if name == other else "head"
            lines.append(box(x + 1, y + 1, CELL - 2, CELL - 2, kind))
            if imports:
                circle = f'cx="{x + CELL / 2:g}" cy="{y + CELL / 2:g}" r="4"'
                lines.append(f'<circle class="tip" {circle}/>')
    lines.append(words(SIDE, HEAD + len(LAYERS) * CELL + 20, "import", "start", "dim"))
    title = "The packages of zkwire, and which packages each imports"
    about = "; ".join(f"{a}: {', '.join(b for c, b in sorted(pairs) if c == a)}" for a in LAYERS)
    size = (SIDE + len(used) * CELL + 20, HEAD + len(LAYERS) * CELL + 36)
    return drawing(title, about, size, lines)


# --- a plot ---------------------------------------------------------------------------------------

WIDE, HIGH, EDGE = 420, 300, 60


def plot(numbers: list[int], lines: dict[str, list[int]]) -> str:
    """Lines over contenders, both axes logarithmic; each line is named at its end."""
    most = max(max(values) for values in lines.values())

    def x(number: int) -> float:
        return EDGE + log(number / numbers[0]) / log(numbers[-1] / numbers[0]) * WIDE

    def y(value: int) -> float:
        return 40 + HIGH - log(value) / log(most) * HIGH

    shown = [f'<path class="lane" d="M{EDGE} 40V{40 + HIGH}H{EDGE + WIDE}"/>']
    shown += [words(x(number), 58 + HIGH, str(number)) for number in numbers]
    shown.append(words(EDGE + WIDE / 2, 78 + HIGH, "contenders", kind="dim"))
    shown.append(words(EDGE, 24, "wake-ups", kind="dim"))
    for tick in [10**power for power in range(len(str(most)))]:
        shown.append(words(EDGE - 8, y(tick) + 4, str(tick), "end"))
        shown.append(f'<path class="lane" d="M{EDGE - 4} {y(tick):.1f}h4"/>')
    for (name, values), kind in zip(lines.items(), ("event", "back"), strict=True):
        points = [(x(n), y(value)) for n, value in zip(numbers, values, strict=True)]
        where = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        shown.append(f'<polyline class="{kind}-line" points="{where}"/>')
        for (a, b), value in zip(points, values, strict=True):
            shown.append(f'<circle class="{kind}-tip" cx="{a:.1f}" cy="{b:.1f}" r="3"/>')
            if value > 1:  # as the axis says
                shown.append(words(round(a, 1), round(b - 8, 1), str(value), "end"))
        a, b = points[-1]
        shown.append(words(round(a + 10, 1), round(b + 4, 1), name, "start"))
    about = "; ".join(f"{name}: {values}" for name, values in lines.items())
    return drawing(
        "Wake-ups until all have held", f"Contenders: {numbers}; {about}", (710, 400), shown
    )
