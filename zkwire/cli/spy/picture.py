"""A sequence of messages as a drawing: lanes, time downward, a row for each step.

It knows no records: the spy draws what it has recorded with it, lessons draw what they show.  The
same steps give the same bytes.  The drawing is one SVG without script, font or network, for light
and dark.  Invariants: the lane distance follows the longest label, so none overlaps another; a
label is in the segment next to the right end of its arrow.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from zkwire.cli.output import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PER_CHARACTER = 6.75  # of the font at 11 pixels
ROW, TOP, LEFT, NEAR = 30, 64, 76, 56
FONT = 'ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace'
STYLE = f"""
svg{{font:11px {FONT}}}text{{white-space:pre}}
.back{{fill:#fff}}.ink{{fill:#111}}.dim{{fill:#595959}}.bad{{fill:#b00020}}
.lane{{stroke:#8a8a8a;fill:none}}.head{{fill:#eef2f7;stroke:#8a8a8a}}
.line{{stroke:#1a4f8b;fill:none}}.tip{{fill:#1a4f8b}}
.back-line{{stroke:#1b6b3a;fill:none;stroke-dasharray:5 3}}.back-tip{{fill:#1b6b3a}}
.event-line{{stroke:#8a5a00;fill:none}}.event-tip{{fill:#fff;stroke:#8a5a00}}
.cross{{stroke:#b00020;stroke-width:2;fill:none}}
@media (prefers-color-scheme:dark){{
.back{{fill:#14171c}}.ink{{fill:#eceff4}}.dim{{fill:#a3abb8}}.bad{{fill:#ff8a80}}
.lane{{stroke:#6b7280}}.head{{fill:#232a34;stroke:#6b7280}}
.line{{stroke:#8ab8f5}}.tip{{fill:#8ab8f5}}
.back-line{{stroke:#7fd3a0}}.back-tip{{fill:#7fd3a0}}
.event-line{{stroke:#f0c060}}.event-tip{{fill:#14171c;stroke:#f0c060}}
.cross{{stroke:#ff8a80}}}}
"""
# The kinds of arrow: the class of the line, and of its tip.
ARROWS = {
    "request": ("line", "tip"),
    "reply": ("back-line", "back-tip"),
    "event": ("event-line", "event-tip"),
}


class Step(NamedTuple):
    """One row.

    ``kind``: request, reply or event, an arrow from lane ``source`` to lane ``target``; or open,
    close, fault, something that happens to lane ``source`` (None: to none); or gap, silence.
    ``bad``: the label tells of an error.  ``more`` is shown by a viewer that hovers over it.  An
    arrow that is ``lost`` ends on its way.
    """

    time: str
    kind: str
    source: int | None
    target: int | None
    label: str
    bad: bool = False
    more: str = ""
    lost: bool = False


class Picture(NamedTuple):
    """A drawing; ``closed`` lanes have no line before their open and behind their close."""

    title: str
    description: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]
    closed: frozenset[int] = frozenset()


def svg(picture: Picture) -> str:
    """The drawing, with a new line at its end."""
    places = _places(picture)
    notes = [_end_of(step, places) for step in picture.steps]
    width = round(max([places[-1] + 70.0, *notes]))
    height = _row(len(picture.steps))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{as_xml(picture.title)}</title>',
        f'<desc id="d">{as_xml(picture.description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        *_lanes(picture, places, height),
    ]
    for row, step in enumerate(picture.steps):
        lines += _step(step, places, _row(row))
    return "\n".join([*lines, "</svg>", ""])


def _row(row: int) -> int:
    """The height of a row's arrow."""
    return TOP + 10 + ROW * row


def _places(picture: Picture) -> list[float]:
    """Where the lanes are."""
    longest = [1] * len(picture.lanes)
    for step in picture.steps:
        if step.source is not None and step.target is not None:
            right = max(step.source, step.target)
            longest[right] = max(longest[right], len(step.label))
    places: list[float] = []
    for lane, characters in enumerate(longest):
        last = places[-1] if places else float(LEFT - NEAR + 40)
        step_right = max(NEAR, characters * PER_CHARACTER + 40) if lane and characters > 1 else NEAR
        places.append(last + step_right)
    return places


def _end_of(step: Step, places: list[float]) -> float:
    """Where the text beside a lane ends."""
    if step.kind not in ("open", "close", "fault"):
        return 0.0
    place = places[step.source] if step.source is not None else float(LEFT)
    return place + len(step.label) * PER_CHARACTER + 30


def _lanes(picture: Picture, places: list[float], height: int) -> Iterator[str]:
    for lane, (name, x) in enumerate(zip(picture.lanes, places, strict=True)):
        begin, end = TOP - 16, height - 10
        for row, step in enumerate(picture.steps):
            if lane in picture.closed and step.source == lane:
                y = _row(row)
                begin = y if step.kind == "open" else begin
                end = y if step.kind == "close" else end
        yield f'<path class="lane" d="M{x:.1f} {begin}V{end}"/>'
        half = max(len(name) * PER_CHARACTER / 2 + 8, 18)
        box = f'x="{x - half:.1f}" y="{TOP - 40}" width="{half * 2:.1f}" height="22" rx="3"'
        yield f'<rect class="head" {box}/>'
        yield _label(x, TOP - 25, name, "ink", "middle")


def _step(step: Step, places: list[float], y: int) -> Iterator[str]:
    yield "<g>" + (f"<title>{as_xml(step.more)}</title>" if step.more else "")
    if step.time:
        yield _label(10, y + 4, step.time, "dim")
    if step.source is not None and step.target is not None:
        yield from _arrow(step, places, y)
    elif step.kind == "gap":
        x = float(LEFT)
        yield f'<path class="lane" d="M{x:.1f} {y}l6 -5l6 10l6 -10l6 5"/>'
        yield _label(x + 32, y + 4, step.label, "dim")
    else:
        yield from _happening(step, places, y)
    yield "</g>"


def _arrow(step: Step, places: list[float], y: int) -> Iterator[str]:
    source, target = places[step.source or 0], places[step.target or 0]
    line, tip = ARROWS[step.kind]
    sign = 1 if target > source else -1
    if step.lost:
        target -= sign * 32
    yield f'<path class="{line}" d="M{source:.1f} {y}H{target - sign * 9:.1f}"/>'
    if step.lost:
        tip, shape = "cross", f"M{target - 5:.1f} {y - 5}l10 10m0 -10l-10 10"
    elif step.kind == "event":
        shape = f"M{target:.1f} {y}l{-sign * 6} -5l{-sign * 6} 5l{sign * 6} 5z"
    else:
        shape = f"M{target:.1f} {y}l{-sign * 9} -4v8z"
    yield f'<path class="{tip}" d="{shape}"/>'
    right = max(step.source or 0, step.target or 0)
    middle = (places[right - 1] + places[right]) / 2
    yield _label(middle, y - 6, step.label, "bad" if step.bad else "ink", "middle")


def _happening(step: Step, places: list[float], y: int) -> Iterator[str]:
    x = places[step.source] if step.source is not None else float(LEFT)
    if step.kind != "open":
        yield f'<path class="cross" d="M{x - 5:.1f} {y - 5}l10 10m0 -10l-10 10"/>'
    else:
        yield f'<circle class="tip" cx="{x:.1f}" cy="{y}" r="3"/>'
    half = len(step.label) * PER_CHARACTER + 4
    yield f'<rect class="back" x="{x + 10:.1f}" y="{y - 9}" width="{half:.1f}" height="18"/>'
    yield _label(x + 12, y + 4, step.label, "dim" if step.kind == "open" else "bad")


def _label(x: float, y: float, text: str, kind: str, anchor: str = "") -> str:
    where = f'x="{x:.1f}" y="{y:.0f}"' + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text class="{kind}" {where}>{as_xml(text)}</text>'


def as_xml(text: str) -> str:
    """As XML: a control character, which no XML may have, as its number in words."""
    return escape(one_line(text))
