"""A lesson as a picture, and as a page with the picture, the words and the bytes of each frame.

The picture is drawn by :mod:`zkwire.cli.spy.picture`, a row for each event; pings are folded.
"""

from __future__ import annotations

import re

from zkwire.cli.lessons.bands import Bands
from zkwire.cli.lessons.event import (
    ASK,
    CUT,
    END,
    EXPECT,
    FOLD,
    FREE,
    GO,
    HELD,
    NOTE,
    PROSE,
    SAY,
    SERVER,
    STOP,
    TABLE,
    Event,
)  # fmt: skip
from zkwire.cli.spy.details import Privacy, rows_of
from zkwire.cli.spy.drawing import HEAD, PAGE, table_rows
from zkwire.cli.spy.message import Message
from zkwire.cli.spy.picture import Picture, Step, as_xml, svg
from zkwire.cli.spy.records import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from zkwire.cli.lessons.bug import Bug
    from zkwire.cli.lessons.lesson import Lesson
    from zkwire.testing.proxy.frames import Frame

GAP = 1.0  # seconds in which nothing happens that are drawn
MOST = 300
_LONG = re.compile(r"[^\s/]{25,}")  # the name of a node
_PRIVACY = Privacy("hex", 32)


def byte_table(frame: Frame) -> list[list[Any]]:
    """Offset, bytes, name, value and note of each field; passwords are hidden."""
    kind = KINDS.get(frame.kind, "request" if frame.direction == "c2s" else "reply")
    return rows_of(Message(frame.raw, frame.direction, kind, frame.opcode), _PRIVACY)


def as_svg(name: str, lesson: Lesson, events: list[Event]) -> str:
    """The picture; of more than ``MOST`` rows it says how many are left out."""
    return svg(_picture(name, lesson, events))


def as_frames(name: str, lesson: Lesson | Bug, events: list[Event]) -> Iterator[tuple[int, str]]:
    """How many events, and the picture of them, behind each event but a ping.

    What has happened so far is at its place in the picture of the whole.  Long names are shortened
    in their middle; the whole is shown by a viewer that hovers over it.
    """
    picture = _picture(name, lesson, events)
    picture = picture._replace(steps=tuple(map(_shortened, picture.steps)))
    lanes = list(picture.lanes)
    for number, event in enumerate(events, 1):
        if event.frame is None or event.frame.kind != "ping":
            rows = [_step(e, lanes) for e in _folded(events[:number])]
            shown = len(rows) - rows.count(None)
            yield number, svg(picture._replace(shown=min(shown, len(picture.steps))))


def _shortened(step: Step) -> Step:
    label = _LONG.sub(lambda found: f"{found[0][:8]}…{found[0][-14:]}", step.label)
    return step if label == step.label else step._replace(label=label, more=step.label)


def _picture(name: str, lesson: Lesson | Bug, events: list[Event]) -> Picture:
    title = f"zkwire lesson {name}: {lesson.title}"
    return picture_of(title, lesson.cast, events, lesson.servers)


def picture_of(
    title: str,
    about: str,
    events: list[Event],
    servers: int = 1,
    *,
    pings_of: str = "",
    scale: float = 0.0,
) -> Picture:
    """Events as a picture; pings of the client ``pings_of`` have rows; ``scale``: see Picture."""
    names = [f"S{n + 1}" for n in range(servers)] if servers > 1 else ["server"]
    seen = dict.fromkeys(name for event in events for name in event.actor.split())
    lanes = [*(name for name in seen if "/" not in name), *names]  # not those of a crowd
    bands = Bands(lanes)
    steps: list[Step] = []
    for event in _folded(events, pings_of, scaled=bool(scale)):
        step = _step(event, lanes)
        if isinstance(event, Event):
            bands.see(event, len(steps))
        steps += [step] if step is not None else []
    if len(steps) > MOST:
        left = len(steps) - MOST
        steps[MOST:] = [Step("", "gap", None, None, f"{left} more are left out")]
    shown = tuple(band for band in bands.all() if band.begin < len(steps))
    shown = tuple(b._replace(end=None) if (b.end or 0) >= len(steps) else b for b in shown)
    about = f"{about}; {len(steps)} steps."
    return Picture(title, about, tuple(lanes), tuple(steps), bands=shown, scale=scale)


def _folded(
    events: list[Event], pings_of: str = "", *, scaled: bool = False
) -> Iterator[Event | Step]:
    """The events, with a row for the pings and the time between those that have one."""
    before, pings = 0.0, 0
    for event in events:
        ping = event.frame is not None and event.frame.kind == "ping"
        if ping and event.actor != pings_of:
            assert event.frame is not None
            pings += event.frame.direction == "c2s"
            continue
        if event.kind in PROSE:
            continue
        if not scaled:
            between = [f"{event.time - before:.1f} s"] if event.time - before > GAP else []
            between += [f"{pings} ping{'s' * (pings > 1)}"] if pings else []
            if between:
                yield Step("", "gap", None, None, ", ".join(between))
        before, pings = event.time, 0
        yield event


def _step(event: Event | Step, lanes: list[str]) -> Step | None:
    if isinstance(event, Step):
        return event
    step = _row(event, lanes)
    return step._replace(at=event.time) if step is not None else None


def _row(event: Event, lanes: list[str]) -> Step | None:
    time = f"+{event.time:.3f}"
    if event.kind == FOLD:
        return Step(time, "gap", None, None, event.text)
    if event.kind == SERVER:
        return Step(time, "open", lanes.index(event.server), None, event.text, more=event.detail)
    if event.actor not in lanes:
        return None
    client = lanes.index(event.actor)
    if event.kind in (STOP, GO, HELD, FREE, NOTE):
        bad = not event.passed
        return Step(time, "note", client, None, event.text, bad, event.detail)
    if event.kind in (CUT, END):
        return Step(time, "close", client, None, event.text, bad=True)
    if event.frame is None:
        return None
    frame, server = event.frame, lanes.index(event.server)
    if frame.direction == "c2s":
        return Step(time, "request", client, server, event.text, more=event.detail)
    kind = "event" if frame.kind == "notification" else "reply"
    return Step(time, kind, server, client, event.text, bool(frame.error), event.detail)


def as_html(name: str, lesson: Lesson, events: list[Event]) -> str:
    """The page, without a script and without anything from elsewhere."""
    title = as_xml(f"zkwire lesson {name}: {lesson.title}")
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width"/>',
        f"<title>{title}</title><style>{PAGE}</style></head><body>",
        f"<h1>{title}</h1>",
        f'<div class="picture">{as_svg(name, lesson, events)}</div>',
        "<h2>Step by step</h2>",
        *filter(None, map(_part, events)),
        f"<p><strong>Remember: {as_xml(lesson.remember)}</strong></p>",
        f"<p>In your code: {as_xml(lesson.in_code)}</p>",
    ]
    return "\n".join([*parts, "</body></html>", ""])


def _part(event: Event) -> str:
    text = as_xml(event.text)
    if event.kind == ASK:
        return f"<p><strong>? {text}</strong></p>"
    if event.kind in (SAY, EXPECT):
        sign = "" if event.kind == SAY else "✓ " if event.passed else "✗ "
        return f"<p>{sign}{text}</p>"
    if event.kind == TABLE:
        rows = ("".join(f"<td>{as_xml(str(cell))}</td>" for cell in row) for row in event.rows)
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    if event.frame is None:
        return f"<p>+{event.time:.3f} {text}</p>"
    if event.frame.kind == "ping":
        return ""
    arrow = "→" if event.frame.direction == "c2s" else "←"
    summary = f"+{event.time:.3f} {as_xml(event.actor)} {arrow} {text}  {as_xml(event.detail)}"
    table = f"<table>{HEAD}{table_rows(byte_table(event.frame))}</table>"
    return f"<details><summary>{summary}</summary>{table}</details>"
