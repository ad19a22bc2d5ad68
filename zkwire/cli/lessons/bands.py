"""What lasts in a lesson, as bands of its picture: outages, expired sessions, locks.

It reads the lesson's events, as the rows are drawn from them.
"""

from __future__ import annotations

from zkwire.cli.lessons.event import CUT, END, FOLD, FRAME, FREE, GO, HELD, SERVER, STOP, Event
from zkwire.cli.spy.picture import Band

BLIND, OVER, STILL, LOCK = "blind", "over", "still", "lock"


class Bands:
    """The bands so far; ``rows`` of steps count from 0."""

    def __init__(self, lanes: list[str]) -> None:
        self._lanes = lanes
        self._open: dict[tuple[str, str], Band] = {}
        self._done: list[Band] = []

    def see(self, event: Event, row: int) -> None:
        """An event that is drawn in this row, or behind the one before."""
        if event.kind == FOLD:  # frames of these clients have passed: they had a connection
            for name in event.actor.split():
                self._end(BLIND, name, row)
            return
        name, lanes = event.actor, self._lanes
        if name not in lanes or event.server not in {"", *lanes}:
            return
        if event.kind in (CUT, END):
            self._begin(BLIND, name, row, "blind", "no connection")
        elif event.kind == FRAME and event.frame is not None and event.frame.kind == "connect":
            if event.frame.direction == "s2c" and "session 0" not in event.text:
                self._end(BLIND, name, row)
                self._end(OVER, name, row)
        elif event.kind == SERVER and "expires" in event.text:
            self._begin(OVER, name, row, "over", "expired")
        elif event.kind == STOP:
            self._begin(STILL, name, row, "doubt", " ".join(event.text.split()[2:]))
        elif event.kind == GO:
            self._end(STILL, name, row)
        elif event.kind == HELD:
            self._begin(LOCK, name, row, "held", event.detail)
        elif event.kind == FREE:
            self._end(LOCK, name, row)

    def all(self) -> tuple[Band, ...]:
        """All bands, those that have not ended to the end of the picture."""
        bands = [*self._done, *self._open.values()]
        return tuple(sorted(bands, key=lambda band: (band.begin, band.lane, band.kind)))

    def _begin(self, what: str, name: str, row: int, kind: str, label: str) -> None:
        self._open.setdefault((what, name), Band(self._lanes.index(name), row, None, kind, label))

    def _end(self, what: str, name: str, row: int) -> None:
        band = self._open.pop((what, name), None)
        if band is not None and row > band.begin:
            self._done.append(band._replace(end=row))
