"""A lesson on a terminal: a line for each event in fixed columns, and words between them.

The columns are the time, a lane for each client and server, what happens, and its numbers.  Colour
says nothing that the signs do not say.  Pings are folded.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

from zkwire.cli.context import Context
from zkwire.cli.lessons.events import PROSE, Event, error_name
from zkwire.cli.lessons.lesson import Lesson
from zkwire.cli.output import Output, hex_id, printable
from zkwire.cli.picture import Band, Picture, Step
from zkwire.testing.proxy.frames import Frame

NARROWEST, WIDEST = 72, 100
LANE, TIME = 7, 9  # columns
# What each sign is where the encoding has it, and elsewhere.
_SIGNS = {
    "rule": "─-", "lane": "│|", "line": "─-", "from": "├+", "to": "▶>", "into": "◀<", "out": "┤+",
    "event": "◇o", "cut": "\N{BOX DRAWINGS LIGHT DIAGONAL CROSS}X", "end": "┴=", "server": "■#",
    "stop": "▼v", "go": "▲^", "held": "●@", "free": "○o", "note": "◆*",
    "dot": "·.", "yes": "✓+", "no": "✗!", "more": "…~", "bar": "█#",
}  # fmt: skip
_PLAIN = str.maketrans("…•", "~*")  # in byte tables
_PAUSE = {"frame": 0.15, "cut": 0.5, "end": 0.3, "say": 2.0, "ask": 2.0}  # seconds, for a reader


class Terminal:
    """Shows events.

    ``step``: a reader presses Enter after words.  ``pauses``: there is time to read.  ``tables``:
    the bytes of each frame are below it, and pings are not folded.
    """

    def __init__(
        self,
        output: Output,
        name: str,
        lesson: Lesson,
        *,
        step: bool = False,
        pauses: bool = False,
        tables: bool = False,
    ) -> None:
        self._output = output
        self._lesson = lesson
        self._step = step
        self._pauses = pauses
        self._tables = tables
        columns = shutil.get_terminal_size((80, 24)).columns
        self._width = min(max(columns - 1, NARROWEST), WIDEST)
        self._servers = [f"S{n + 1}" for n in range(lesson.servers)]
        if lesson.servers == 1:
            self._servers = ["server"]
        self._clients: list[str] = []
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._unicode = encoding.lower().replace("-", "") == "utf8"
        self._prose = True  # the last thing shown was words
        self._folded = False  # a line for what is not shown, right behind words
        self._pings: dict[str, int] = {}
        self._line("")
        self._line(f" lesson {name} {self._sign('dot')} {lesson.title}", "bold")
        self._line(self._sign("rule") * self._width)
        self._words(f"Cast: {lesson.cast}.")

    def finish(self, failures: list[str]) -> None:
        """The sentences at the end, and what was not as expected."""
        self._fold()
        self._words(f"Remember: {self._lesson.remember}", "bold")
        self._words(f"In your code: {self._lesson.in_code}")
        for failure in failures:
            self._words(f"{self._sign('no')}  not as expected: {failure}", "red")

    def show(self, event: Event) -> None:
        """Show an event."""
        if event.frame is not None and event.frame.kind == "ping" and not self._tables:
            self._pings[event.actor] = self._pings.get(event.actor, 0) + (
                event.frame.direction == "c2s"
            )
            return
        self._fold()
        if event.kind in PROSE:
            self._speak(event)
        else:
            self._row(event)
            if self._tables and event.frame is not None:
                self._explain(event.frame)
        if self._pauses:
            self._output.flush()
            time.sleep(_PAUSE.get(event.kind, 0.1))

    # ----------------------------------------------------------------------------------------------

    def _fold(self) -> None:
        pings, self._pings = self._pings, {}
        for name, count in pings.items():
            if count:
                said = "a ping" if count == 1 else f"{count} pings"
                self._aside(f"{said} of {name} and the answers")

    def _aside(self, text: str) -> None:
        """A line for what is counted and not shown."""
        if self._prose and not self._folded:
            self._output.line("")
        self._folded = True
        dots = f"{self._sign('dot') * 3:>{TIME - 1}} "
        self._line(dots + _clipped(text, self._width - TIME, self._sign("more")), "dim")

    def _speak(self, event: Event) -> None:
        if event.kind == "ask":
            self._words(f"?  {event.text}", "bold")
            self._wait()
        elif event.kind == "table":
            self._table(event.rows)
        elif event.kind == "expect":
            sign, colour = ("yes", "green") if event.passed else ("no", "red")
            self._words(f"{self._sign(sign)}  {event.text}", colour, gap=False)
        else:
            self._words(event.text)
            self._wait()

    def _table(self, rows: Sequence[Sequence[object]]) -> None:
        """Columns, with a bar for the number in the last one."""
        cells = [[f"{c:,}" if isinstance(c, int) else str(c) for c in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        most = max([row[-1] for row in rows if isinstance(row[-1], int)], default=1)
        room = self._width - sum(widths) - 3 * len(widths)
        self._output.line("")
        self._folded = False
        for row, cell in zip(rows, cells, strict=True):
            line = "   ".join(f"{text:>{width}}" for text, width in zip(cell, widths, strict=True))
            size = row[-1] * room // most if isinstance(row[-1], int) else 0
            self._line(f"   {line} {self._sign('bar') * size}".rstrip())
        self._prose = True

    def _wait(self) -> None:
        if self._step and sys.stdin is not None:
            self._output.note("   [Enter]")
            self._output.flush()
            sys.stdin.readline()

    def _words(self, text: str, colour: str = "", *, gap: bool = True) -> None:
        if gap or not self._prose or self._folded:
            self._output.line("")
        self._folded = False
        indent = "      " if text[1:3] == "  " else "   "
        for line in textwrap.wrap(
            text, self._width, initial_indent="   ", subsequent_indent=indent
        ):
            self._line(line, colour)
        self._prose = True

    def _heading(self) -> None:
        """Behind words, the names of the lanes."""
        if self._prose:
            if not self._folded:
                self._output.line("")
            self._folded = False
            names = "".join(f"{lane:<{LANE}}" for lane in self._lanes)
            self._line(f"{'seconds':>{TIME - 1}}  {names}".rstrip(), "dim")
            self._prose = False

    def _row(self, event: Event) -> None:
        for name in event.actor.split():
            if name not in self._clients and "/" not in name:  # of a crowd
                self._clients.append(name)
                self._prose = True  # the lanes have changed
        if event.kind == "fold":
            self._aside(event.text)
            return
        self._heading()
        at = f"{event.time:>+{TIME - 1}.3f}  "
        lanes = self._drawn(event)
        room = self._width - len(at) - len(lanes) - 1
        text, detail = printable(event.text), event.detail
        if len(text) + len(detail) >= room:
            detail = detail.rpartition("  ")[2]
        text = _clipped(text, room - len(detail) - bool(detail), self._sign("more"))
        line = f"{at}{lanes} {text}{detail:>{room - len(text)}}".rstrip()
        colour = {"cut": "red", "end": "red"}.get(event.kind, "")
        if event.frame is not None and event.frame.kind == "notification":
            colour = "yellow"
        self._line(line, colour)

    def _explain(self, frame: Frame) -> None:
        from zkwire.cli.spy.records import byte_table, table

        for line in table({"rows": byte_table(frame)}, self._width):
            self._line(line, "dim")

    def _drawn(self, event: Event) -> str:
        """The lanes of a row: a line from lane to lane, or a sign on one."""
        sign = self._sign
        row = list("".join(f"{sign('lane'):<{LANE}}" for _ in self._lanes)[: 1 - LANE])
        client = self._lane(event.actor) if event.actor in self._lanes else None
        server = self._lane(event.server) if event.server in self._lanes else None
        if event.frame is not None and client is not None and server is not None:
            for at in range(client + 1, server):
                row[at] = sign("line")
            if event.frame.direction == "c2s":
                row[client], row[server - 1] = sign("from"), sign("to")
            else:
                row[client + 1], row[server] = sign("into"), sign("out")
                if event.frame.kind == "notification":
                    row[client + 2] = sign("event")
        elif event.kind == "server" and server is not None:
            row[server] = sign("server")
        elif client is not None:
            row[client] = sign(event.kind)
        return "".join(row)

    @property
    def _lanes(self) -> list[str]:
        return [*self._clients, *self._servers]

    def _lane(self, name: str) -> int:
        return self._lanes.index(name) * LANE

    def _sign(self, name: str) -> str:
        return _SIGNS[name][0 if self._unicode else 1]

    def _line(self, text: str, colour: str = "") -> None:
        if not self._unicode:
            text = text.translate(_PLAIN).encode("ascii", "replace").decode()
        self._output.line(text, colour=colour)


def _clipped(text: str, room: int, more: str) -> str:
    """The text without its middle if it is longer: ids stand there, and numbers at the end."""
    if len(text) <= room:
        return text
    end = room // 3
    return text[: room - end - len(more)] + more + text[-end:]


def shown_by(context: Context, name: str, lesson: Lesson) -> Objects | Terminal:
    """What shows a lesson as it was asked for."""
    asked, out = context.options, context.output
    if out.json:
        return Objects(out, name, lesson, tables=asked.bytes)
    pauses = out.terminal and not (asked.fast or asked.step)
    return Terminal(out, name, lesson, step=asked.step, pauses=pauses, tables=asked.bytes)


# --- objects --------------------------------------------------------------------------------------
# A lesson as JSON: an object for its beginning, for each event, and for its end.
#
# An event has ``lesson``, ``t`` (seconds since the beginning) and ``event`` (the kinds of
# :mod:`zkwire.cli.lessons.events`), and what there is of ``client``, ``server``, ``text``,
# ``detail``, ``passed`` and ``rows``; a frame has ``dir``, ``op``, ``xid``, ``zxid``, ``error``,
# ``path``, ``bytes``, its size with the length in front, and, if that is wanted, ``rows``, its byte
# table, in which passwords are hidden.


class Objects:
    """Writes an object for each event."""

    def __init__(self, output: Output, name: str, lesson: Lesson, *, tables: bool) -> None:
        self._output = output
        self._tables = tables
        self._name = name
        output.record({"lesson": name, "title": lesson.title, "cast": lesson.cast})
        self._lesson = lesson

    def show(self, event: Event) -> None:
        """Write an event."""
        fields: dict[str, Any] = {"lesson": self._name, "t": round(event.time, 6)}
        fields["event"] = event.kind
        given = {"client": event.actor, "server": event.server, "text": event.text}
        fields |= {name: value for name, value in given.items() if value}
        if event.frame is not None:
            fields |= _frame_fields(event.frame)
            if self._tables:
                from zkwire.cli.spy.records import byte_table

                fields["rows"] = byte_table(event.frame)
        elif event.detail:
            fields["detail"] = event.detail
        if event.kind == "expect":
            fields["passed"] = event.passed
        if event.kind == "table":
            fields["rows"] = event.rows
        self._output.record(fields)

    def finish(self, failures: list[str]) -> None:
        """Write the end."""
        remember = {"remember": self._lesson.remember, "in_code": self._lesson.in_code}
        self._output.record({"lesson": self._name, **remember, "failures": failures})


def _frame_fields(frame: Frame) -> dict[str, Any]:
    fields: dict[str, Any] = {"dir": frame.direction, "op": frame.op}
    if frame.xid is not None:
        fields["xid"] = frame.xid
    if frame.path is not None:
        fields["path"] = frame.path
    if frame.zxid is not None and frame.zxid > 0:
        fields["zxid"] = hex_id(frame.zxid)
    if frame.error:
        fields["error"] = error_name(frame.error)
    return fields | {"bytes": len(frame.raw)}


# --- picture --------------------------------------------------------------------------------------
# A lesson as a picture: a row for each event, and a bar for what lasts.
#
# Pings are folded into the silence between two rows.  The bars are outages, expired sessions,
# processes that stand still, and locks.

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
    if event.kind == "fold":
        return Step(time, "gap", None, None, text)
    if event.kind == "server":
        return Step(time, "open", lanes.index(event.server), None, text, more=more)
    if event.actor not in lanes:
        return None
    client = lanes.index(event.actor)
    if event.kind in ("stop", "go", "held", "free", "note"):
        return Step(time, "note", client, None, text, not event.passed, more)
    if event.kind in ("cut", "end"):
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
        if event.kind == "fold":  # frames of these clients have passed: they had a connection
            for name in event.actor.split():
                self._end("blind", name, row)
            return
        name, frame = event.actor, event.frame
        if name not in self._lanes or event.server not in {"", *self._lanes}:
            return
        if event.kind in ("cut", "end"):
            self._begin("blind", name, row, "no connection")
        elif event.kind == "frame" and frame is not None and frame.kind == "connect":
            if frame.direction == "s2c" and "session 0" not in event.text:
                self._end("blind", name, row)
                self._end("over", name, row)
        elif event.kind == "server" and "expires" in event.text:
            self._begin("over", name, row, "expired")
        elif event.kind == "stop":
            self._begin("doubt", name, row, " ".join(event.text.split()[2:]))
        elif event.kind == "held":
            self._begin("held", name, row, event.detail)
        elif event.kind in ("go", "free"):
            self._end("doubt" if event.kind == "go" else "held", name, row)

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
