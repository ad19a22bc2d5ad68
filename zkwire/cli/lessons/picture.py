"""A lesson as a picture: a row for each event, and a bar for what lasts.

Pings are folded into the silence between two rows.  The bars are outages, expired sessions,
processes that stand still, and locks.
"""

from __future__ import annotations

from collections.abc import Iterator

from zkwire.cli.lessons.events import (
    CUT,
    END,
    FOLD,
    FRAME,
    FREE,
    GO,
    HELD,
    NOTE,
    PROSE,
    SERVER,
    STOP,
    Event,
)  # fmt: skip
from zkwire.cli.picture import Band, Picture, Step

GAP = 1.0  # seconds in which nothing happens that are drawn
MOST = 300


def picture_of(
    title: str,
    about: str,
    events: list[Event],
    servers: int = 1,
    *,
    pings_of: str = "",
    scale: float = 0.0,
) -> Picture:
    """Events as a picture; of more than ``MOST`` rows it says how many are left out.

    Pings of the client ``pings_of`` have rows.  ``scale``: see Picture.
    """
    names = [f"S{n + 1}" for n in range(servers)] if servers > 1 else ["server"]
    seen = dict.fromkeys(name for event in events for name in event.actor.split())
    lanes = [*(name for name in seen if "/" not in name), *names]  # not those of a crowd
    bands = _Bands(lanes)
    steps: list[Step] = []
    for event, step in rows_of(events, lanes, pings_of, scaled=bool(scale)):
        if event is not None:
            bands.see(event, len(steps))
        steps += [step] if step is not None else []
    if len(steps) > MOST:
        left = len(steps) - MOST
        steps[MOST:] = [Step("", "gap", None, None, f"{left} more are left out")]
    shown = [band for band in bands.all() if band.begin < len(steps)]
    shown = [b._replace(end=None) if (b.end or 0) >= len(steps) else b for b in shown]
    about = f"{about}; {len(steps)} steps."
    return Picture(title, about, tuple(lanes), tuple(steps), bands=tuple(shown), scale=scale)


def rows_of(
    events: list[Event], lanes: list[str], pings_of: str = "", *, scaled: bool = False
) -> Iterator[tuple[Event | None, Step | None]]:
    """The events, each with its row if it has one, and rows for the time between them."""
    before, pings = 0.0, 0
    for event in events:
        frame = event.frame
        if frame is not None and frame.kind == "ping" and event.actor != pings_of:
            pings += frame.direction == "c2s"
            continue
        if event.kind in PROSE:
            continue
        between = [f"{event.time - before:.1f} s"] if event.time - before > GAP else []
        between += [f"{pings} ping{'s' * (pings > 1)}"] if pings else []
        if between and not scaled:
            yield None, Step("", "gap", None, None, ", ".join(between))
        before, pings = event.time, 0
        step = _row(event, lanes)
        yield event, step and step._replace(at=event.time)


def _row(event: Event, lanes: list[str]) -> Step | None:
    time, text, more = f"+{event.time:.3f}", event.text, event.detail
    if event.kind == FOLD:
        return Step(time, "gap", None, None, text)
    if event.kind == SERVER:
        return Step(time, "open", lanes.index(event.server), None, text, more=more)
    if event.actor not in lanes:
        return None
    client = lanes.index(event.actor)
    if event.kind in (STOP, GO, HELD, FREE, NOTE):
        return Step(time, "note", client, None, text, not event.passed, more)
    if event.kind in (CUT, END):
        return Step(time, "close", client, None, text, bad=True)
    if event.frame is None:
        return None
    frame, server = event.frame, lanes.index(event.server)
    if frame.direction == "c2s":
        return Step(time, "request", client, server, text, more=more)
    kind = "event" if frame.kind == "notification" else "reply"
    return Step(time, kind, server, client, text, bool(frame.error), more)


class _Bands:
    """The bands so far; the rows of steps count from 0."""

    def __init__(self, lanes: list[str]) -> None:
        self._lanes = lanes
        self._open: dict[tuple[str, str], Band] = {}
        self._done: list[Band] = []

    def see(self, event: Event, row: int) -> None:
        """An event that is drawn in this row, or behind the one before."""
        if event.kind == FOLD:  # frames of these clients have passed: they had a connection
            for name in event.actor.split():
                self._end("blind", name, row)
            return
        name, frame = event.actor, event.frame
        if name not in self._lanes or event.server not in {"", *self._lanes}:
            return
        if event.kind in (CUT, END):
            self._begin("blind", name, row, "no connection")
        elif event.kind == FRAME and frame is not None and frame.kind == "connect":
            if frame.direction == "s2c" and "session 0" not in event.text:
                self._end("blind", name, row)
                self._end("over", name, row)
        elif event.kind == SERVER and "expires" in event.text:
            self._begin("over", name, row, "expired")
        elif event.kind == STOP:
            self._begin("doubt", name, row, " ".join(event.text.split()[2:]))
        elif event.kind == HELD:
            self._begin("held", name, row, event.detail)
        elif event.kind in (GO, FREE):
            self._end("doubt" if event.kind == GO else "held", name, row)

    def all(self) -> list[Band]:
        """All bands, those that have not ended to the end of the picture."""
        bands = [*self._done, *self._open.values()]
        return sorted(bands, key=lambda band: (band.begin, band.lane, band.kind))

    def _begin(self, kind: str, name: str, row: int, label: str) -> None:
        self._open.setdefault((kind, name), Band(self._lanes.index(name), row, None, kind, label))

    def _end(self, kind: str, name: str, row: int) -> None:
        band = self._open.pop((kind, name), None)
        if band is not None and row > band.begin:
            self._done.append(band._replace(end=row))
