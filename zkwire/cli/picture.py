"""A sequence of messages as a drawing: lanes, time downward, a row for each step.

It knows no records: the spy draws what it has recorded with it, lessons draw what they show.  The
same steps give the same bytes.  The drawing is one SVG without script, font or network, for light
and dark.  Invariants: the lane distance follows the longest label, so none overlaps another; a
label is in the segment next to the right end of its arrow; a band is long enough for its label,
bands of one lane stand side by side where both go on, and no words cross a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pkgutil import get_data
from typing import NamedTuple

from zkwire.cli.output import one_line

PER_CHARACTER = 6.75  # of the font at 11 pixels
ROW, TOP, LEFT, NEAR = 30, 64, 76, 56
BAND = 16  # how wide a band is
STYLE: str = (get_data("zkwire.cli", "picture.css") or b"").decode()
# The kinds of arrow: the class of the line, and of its tip.
ARROWS = {
    "request": ("line", "tip"),
    "reply": ("back-line", "back-tip"),
    "event": ("event-line", "event-tip"),
}


class Step(NamedTuple):
    """One row.

    ``kind``: request, reply or event, an arrow from lane ``source`` to lane ``target``; or open,
    close, fault, note, something that happens to lane ``source`` (None: to none); or gap, silence.
    ``bad``: the label tells of an error.  ``more`` is shown by a viewer that hovers over it.  An
    arrow that is ``lost`` ends on its way.  ``at``: seconds, for a drawing to scale.
    """

    time: str
    kind: str
    source: int | None
    target: int | None
    label: str
    bad: bool = False
    more: str = ""
    lost: bool = False
    at: float = 0.0


class Band(NamedTuple):
    """A bar on a lane, from the row of one step to that of another (None: to the end).

    ``kind``: alive, doubt or over, what is known of a session; blind, a client that hears nothing;
    held, a lock.  ``label`` stands in it, from the bottom to the top.
    """

    lane: int
    begin: int
    end: int | None
    kind: str
    label: str = ""


class Picture(NamedTuple):
    """A drawing; ``closed`` lanes have no line before their open and behind their close.

    ``scale``: pixels for a second between two steps, which are a row apart at least.  Only so many
    steps are ``shown``, where they are in the picture of all.
    """

    title: str
    description: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]
    closed: frozenset[int] = frozenset()
    bands: tuple[Band, ...] = ()
    scale: float = 0.0
    shown: int | None = None


class _Layout:
    """Where everything of a picture is."""

    def __init__(self, picture: Picture) -> None:
        self.columns = _columns(picture.bands)
        self.aside = [0.0] * len(picture.lanes)  # how far bands reach to the right of a lane
        for band, column in zip(picture.bands, self.columns, strict=True):
            self.aside[band.lane] = max(self.aside[band.lane], column * (BAND + 2) + BAND / 2)
        self.lanes = _places(picture, self.aside)
        self.rows = _rows(picture)
        notes = [self.end_of(step) for step in picture.steps]
        self.width = round(max([self.lanes[-1] + self.aside[-1] + 70.0, *notes]))
        self.shown = len(picture.steps) if picture.shown is None else picture.shown
        self.height = self.rows[self.shown]

    def beside(self, lane: int | None) -> float:
        """Where words about a lane begin."""
        return self.lanes[lane] + max(10.0, self.aside[lane] + 4) if lane is not None else LEFT + 10

    def span(self, band: Band) -> tuple[int, int]:
        """Where a band begins and ends."""
        over = band.end is not None and (band.end < self.shown or self.shown == len(self.rows) - 1)
        return self.rows[band.begin], self.rows[band.end or 0] if over else self.height - 10

    def end_of(self, step: Step) -> float:
        """Where the text beside a lane ends."""
        if step.target is not None or 0 < len(self.lanes) - 1 == step.source:
            return 0.0
        return self.beside(step.source) + len(step.label) * PER_CHARACTER + 30


def svg(picture: Picture) -> str:
    """The drawing, with a new line at its end."""
    layout = _Layout(picture)
    picture = picture._replace(steps=picture.steps[: layout.shown])
    width, height = layout.width, layout.height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{as_xml(picture.title)}</title>',
        f'<desc id="d">{as_xml(picture.description)}</desc>',
        f"<style>\n{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        *_lanes(picture, layout),
        *_bands(picture, layout),
    ]
    for row, step in enumerate(picture.steps):
        lines += _step(step, layout, layout.rows[row])
    return "\n".join([*lines, *_names(picture, layout), "</svg>", ""])


def _rows(picture: Picture) -> list[int]:
    """The height of each row's arrow, and of the end."""
    rows: list[int] = []
    steps = picture.steps
    for row in range(len(steps) + 1):
        y = TOP + 10.0 if not rows else rows[-1] + float(ROW)
        if picture.scale and 0 < row < len(steps):
            y = max(y, rows[-1] + (steps[row].at - steps[row - 1].at) * picture.scale)
        for band in picture.bands:
            if (len(steps) if band.end is None else band.end) == row and band.begin < row:
                y = max(y, rows[band.begin] + len(band.label) * PER_CHARACTER + 22)
        rows.append(round(y))
    return rows


def _columns(bands: tuple[Band, ...]) -> list[int]:
    """For each band how many bands stand between it and its lane."""
    columns: list[int] = []
    for band in bands:
        taken = {
            column
            for other, column in zip(bands, columns, strict=False)
            if other.lane == band.lane
            and (other.end is None or other.end > band.begin)
            and (band.end is None or band.end > other.begin)
        }
        columns.append(next(n for n in range(len(bands)) if n not in taken))
    return columns


def _places(picture: Picture, aside: list[float]) -> list[float]:
    """Where the lanes are."""
    longest, last = [1] * len(picture.lanes), len(picture.lanes) - 1
    for step in picture.steps:
        source = 0 if step.source is None else step.source
        if step.target is not None:
            right = max(source, step.target)
        elif last and source == last:
            right = last
        elif last and aside[source + 1]:  # the words would cross its bands
            right = source + 1
        else:
            continue
        longest[right] = max(longest[right], len(step.label) + 2)
    places: list[float] = []
    for lane, characters in enumerate(longest):
        before = places[-1] if places else float(LEFT - NEAR + 40)
        near = NEAR + (aside[lane - 1] if lane else 0)
        step_right = characters * PER_CHARACTER + near - 29.5 if lane and characters > 1 else near
        places.append(before + max(near, step_right))
    return places


def _lanes(picture: Picture, layout: _Layout) -> Iterator[str]:
    for lane, (name, x) in enumerate(zip(picture.lanes, layout.lanes, strict=True)):
        begin, end = TOP - 16, layout.height - 10
        for row, step in enumerate(picture.steps):
            if lane in picture.closed and step.source == lane:
                y = layout.rows[row]
                begin = y if step.kind == "open" else begin
                end = y if step.kind == "close" else end
        yield f'<path class="lane" d="M{x:.1f} {begin}V{end}"/>'
        half = max(len(name) * PER_CHARACTER / 2 + 8, 18)
        box = f'x="{x - half:.1f}" y="{TOP - 40}" width="{half * 2:.1f}" height="22" rx="3"'
        yield f'<rect class="head" {box}/>'
        yield _label(x, TOP - 25, name, "ink", "middle")


def _bands(picture: Picture, layout: _Layout) -> Iterator[str]:
    for band, column in zip(picture.bands, layout.columns, strict=True):
        if band.begin >= layout.shown:
            continue
        x = layout.lanes[band.lane] + column * (BAND + 2)
        begin, end = layout.span(band)
        box = f'x="{x - BAND / 2:.1f}" y="{begin}" width="{BAND}" height="{max(end - begin, 2)}"'
        yield f'<rect class="{band.kind}" {box} rx="2"/>'


def _names(picture: Picture, layout: _Layout) -> Iterator[str]:
    """The labels of bands, above what crosses them."""
    for band, column in zip(picture.bands, layout.columns, strict=True):
        begin, end = layout.span(band)
        if band.label and end - begin >= len(band.label) * PER_CHARACTER:
            x = layout.lanes[band.lane] + column * (BAND + 2)
            y, half = (begin + end) / 2, len(band.label) * PER_CHARACTER / 2 + 2
            box = f'x="{x - 6:.1f}" y="{y - half:.1f}" width="12" height="{half * 2:.1f}"'
            yield f'<rect class="{band.kind} ground" style="stroke:none" {box}/>'
            turn = f"translate({x + 4:.1f} {y:.1f}) rotate(-90)"
            where = f'transform="{turn}" text-anchor="middle"'
            yield f'<text class="ink" {where}>{as_xml(band.label)}</text>'


def _step(step: Step, layout: _Layout, y: int) -> Iterator[str]:
    yield "<g>" + (f"<title>{as_xml(step.more)}</title>" if step.more else "")
    if step.time:
        yield _label(10, y + 4, step.time, "dim")
    if step.source is not None and step.target is not None:
        yield from _arrow(step, layout, y)
    elif step.kind == "gap":
        if not step.time:
            yield f'<path class="lane" d="M26 {y}l6 -5l6 10l6 -10l6 5"/>'
        yield from _beside(layout.beside(0), y, step.label, "dim")
    else:
        yield from _happening(step, layout, y)
    yield "</g>"


def _arrow(step: Step, layout: _Layout, y: int) -> Iterator[str]:
    places = layout.lanes
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
    middle = (places[right - 1] + layout.aside[right - 1] + places[right]) / 2
    yield _label(middle, y - 6, step.label, "bad" if step.bad else "ink", "middle")


def _happening(step: Step, layout: _Layout, y: int) -> Iterator[str]:
    x = layout.lanes[step.source] if step.source is not None else float(LEFT)
    if step.kind in ("open", "note"):
        yield f'<circle class="tip" cx="{x:.1f}" cy="{y}" r="3"/>'
    else:
        yield f'<path class="cross" d="M{x - 5:.1f} {y - 5}l10 10m0 -10l-10 10"/>'
    kind = "dim" if step.kind == "open" else "ink" if step.kind == "note" else "bad"
    place = layout.beside(step.source)
    if 0 < len(layout.lanes) - 1 == step.source:  # to the left: nothing else is there
        place = x - 14 - len(step.label) * PER_CHARACTER
    yield from _beside(place, y, step.label, "bad" if step.bad else kind)


def _beside(x: float, y: int, text: str, kind: str) -> Iterator[str]:
    """Words on the height of a row, on a ground of their own: lanes go by below them."""
    width = len(text) * PER_CHARACTER + 4
    yield f'<rect class="back" x="{x:.1f}" y="{y - 9}" width="{width:.1f}" height="18"/>'
    yield _label(x + 2, y + 4, text, kind)


def _label(x: float, y: float, text: str, kind: str, anchor: str = "") -> str:
    where = f'x="{x:.1f}" y="{y:.0f}"' + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text class="{kind}" {where}>{as_xml(text)}</text>'


def as_xml(text: str) -> str:
    """As XML: a control character, which no XML may have, as its number in words."""
    return escape(one_line(text))
