"""A lesson on a terminal: a line for each event in fixed columns, and words between them.

The columns are the time, a lane for each client and server, what happens, and its numbers.  Colour
says nothing that the signs do not say.  Pings are folded.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence

from zkwire.cli.context import Context
from zkwire.cli.lessons.lesson import TABLE, Lesson
from zkwire.cli.lessons.stage import PROSE, Event
from zkwire.cli.output import Output, only_ascii, printable
from zkwire.cli.picture import Band, Picture, Step
from zkwire.cli.spy.records import byte_table, cut_path, table

NARROWEST, WIDEST = 72, 100
LANE, TIME = 7, 9  # columns
# What each sign is where the encoding has it, what it is elsewhere, and what it says.
_SIGNS = {
    "rule": "─-", "lane": "│|", "line": "─-", "from": "├+", "to": "▶>", "into": "◀<", "out": "┤+",
    "event": "◇o a watch event, on the arrow of the message that brings it",
    "cut": "\N{BOX DRAWINGS LIGHT DIAGONAL CROSS}X the connection breaks",
    "end": "┴= the client sees the end of its connection",
    "server": "■# something changes in the server",
    "stop": "▼v a client stands still: its process, or its network",
    "go": "▲^ it goes on",
    "held": "●@ a lock is held from here on",
    "free": "○o it is held no longer",
    "note": "◆* what a client does beside the wire",
    "dot": "·. with three of them, what is counted and not shown",
    "yes": "✓+ as expected", "no": "✗! not as expected",
}  # fmt: skip
_NUMBERS = {
    "xid": "the number of a request on its connection; the reply repeats it",
    "zxid": "the number of the last change that the server has made",
    "45 B": "the bytes of a message, without the four in front that say how many they are",
}
_PLAIN = str.maketrans("…•", "~*")  # in byte tables
_PAUSE = {"frame": 0.15, "cut": 0.5, "end": 0.3, "say": 2.0, "ask": 2.0}  # seconds, for a reader
_PROMPT = "   [Enter: the answer   ?: the signs   q: leave] "


def names_of(servers: int) -> list[str]:
    """What so many servers are called."""
    return [f"S{n + 1}" for n in range(servers)] if servers > 1 else ["server"]


class LeftError(Exception):
    """The reader has left the lesson."""


def legend(*, ascii_only: bool) -> list[str]:
    """What the signs and the numbers of a lesson mean, a line for each."""
    at = int(ascii_only)
    arrows = [(("├──▶", "+-->")[at], "a request"), (("◀──┤", "<--+")[at], "a reply")]
    signs = [(sign[at], sign[3:]) for sign in _SIGNS.values() if sign[3:]]
    return [f"{sign:>6}  {says}" for sign, says in (*arrows, *signs, *_NUMBERS.items())]


def _ending(name: str, lesson: Lesson) -> Iterator[str]:
    """How to break the lesson, and what comes behind it."""
    for flag in lesson.flags:
        value = f" {'|'.join(flag.choices)}" if flag.choices else " ..." if flag.kind else ""
        yield f"Break it: zkwire lesson {name} {flag.name}{value}: {flag.does}"
    names = [*TABLE, "", "handshake"]
    following = names[names.index(name) + 1] if name in TABLE else "handshake"
    if following:
        yield f"Next: zkwire lesson {following}: {TABLE[following][1]}"
    else:
        yield "Next: zkwire demo: what the locks do when things go wrong"


class Terminal:
    """Shows events.

    ``waits``: at a question the reader presses Enter.  ``pauses``: there is time to read.
    ``tables``: the bytes of each frame are below it, and pings are not folded.
    """

    def __init__(
        self, output: Output, name: str, lesson: Lesson, *, waits: bool, pauses: bool, tables: bool
    ) -> None:
        self._output = output
        self._name, self._lesson = name, lesson
        self._waits, self._pauses, self._tables = waits, pauses, tables
        columns = shutil.get_terminal_size((80, 24)).columns
        self._width = min(max(columns - 1, NARROWEST), WIDEST)
        self._servers = names_of(lesson.servers)
        self._clients: list[str] = []
        self._ascii = only_ascii()
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
        self._output.line("")
        for words in _ending(self._name, self._lesson):
            self._words(words, gap=False)

    def show(self, event: Event) -> None:
        """Show an event; LeftError if the reader leaves."""
        frame = event.frame
        if frame is not None and frame.kind == "ping" and not self._tables:
            pings = self._pings.get(event.actor, 0)
            self._pings[event.actor] = pings + (frame.direction == "c2s")
            return
        self._fold()
        if event.kind in PROSE:
            self._speak(event)
        else:
            self._row(event)
            if frame is not None and (self._tables or event.actor == self._lesson.bytes_of):
                for line in table({"rows": byte_table(frame)}, self._width):
                    self._line(line, "dim")
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
        self._line(dots + cut_path(text, self._width - TIME), "dim")

    def _speak(self, event: Event) -> None:
        if event.kind == "ask":
            self._words(f"?  {event.text}", "bold")
            self._wait()
        elif event.kind == "table":
            self._table(event.rows)
        elif event.kind == "code":
            self._block(f"   {line}".rstrip() for line in event.text.splitlines())
        elif event.kind == "expect":
            sign, colour = ("yes", "green") if event.passed else ("no", "red")
            self._words(f"{self._sign(sign)}  {event.text}", colour, gap=False)
        else:
            self._words(event.text)

    def _table(self, rows: Sequence[Sequence[object]]) -> None:
        """Rows in columns."""
        cells = [[f"{c:,}" if isinstance(c, int) else str(c) for c in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "   ".join(["", *(f"{c:>{width}}" for c, width in zip(row, widths, strict=True))])
            for row in cells
        ]
        self._block(lines)

    def _block(self, lines: Iterable[str]) -> None:
        """Lines as they are."""
        self._output.line("")
        for line in lines:
            self._line(line)
        self._prose, self._folded = True, False

    def _wait(self) -> None:
        """At a question: go on when the reader does."""
        while self._waits:
            self._output.line("")
            self._output.flush()
            try:
                typed = input(_PROMPT).strip().lower()
            except EOFError:
                typed = "q"
            if typed == "q":
                raise LeftError
            if typed != "?":
                return
            self._block(legend(ascii_only=self._ascii))

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
        text = cut_path(text, room - len(detail) - bool(detail))
        line = f"{at}{lanes} {text}{detail:>{room - len(text)}}".rstrip()
        notified = event.frame is not None and event.frame.kind == "notification"
        self._line(line, "red" if event.kind in ("cut", "end") else "yellow" if notified else "")

    def _drawn(self, event: Event) -> str:
        """The lanes of a row: a line from lane to lane, or a sign on one."""
        sign, lanes, frame = self._sign, self._lanes, event.frame
        row = list("".join(f"{sign('lane'):<{LANE}}" for _ in lanes)[: 1 - LANE])
        client = lanes.index(event.actor) * LANE if event.actor in lanes else None
        server = lanes.index(event.server) * LANE if event.server in lanes else None
        if frame is not None and client is not None and server is not None:
            for at in range(client + 1, server):
                row[at] = sign("line")
            if frame.direction == "c2s":
                row[client], row[server - 1] = sign("from"), sign("to")
            else:
                row[client + 1], row[server] = sign("into"), sign("out")
                if frame.kind == "notification":
                    row[client + 2] = sign("event")
        elif event.kind == "server" and server is not None:
            row[server] = sign("server")
        elif client is not None:
            row[client] = sign(event.kind)
        return "".join(row)

    @property
    def _lanes(self) -> list[str]:
        return [*self._clients, *self._servers]

    def _sign(self, name: str) -> str:
        return _SIGNS[name][self._ascii]

    def _line(self, text: str, colour: str = "") -> None:
        if self._ascii:
            text = text.translate(_PLAIN).encode("ascii", "replace").decode()
        self._output.line(text, colour=colour)


def shown_by(context: Context, name: str, lesson: Lesson) -> Terminal:
    """What shows a lesson as it was asked for."""
    asked, out = context.options, context.output
    reader = out.terminal and not asked.fast
    waits = reader and not asked.play and sys.stdin is not None and sys.stdin.isatty()
    return Terminal(out, name, lesson, waits=waits, pauses=reader and not waits, tables=asked.bytes)


# --- picture --------------------------------------------------------------------------------------
# A lesson as a picture: a row for each event, and a bar for what lasts.
#
# Pings are folded into the silence between two rows.  The bars are outages, expired sessions,
# processes that stand still, and locks.

GAP = 1.0  # seconds in which nothing happens that are drawn
MOST = 300


def picture_of(
    title: str, about: str, events: list[Event], servers: int = 1, *, pings_of: str = "",
    scale: float = 0.0,
) -> Picture:  # fmt: skip
    """Events as a picture; of more than ``MOST`` rows it says how many are left out.

    Pings of the client ``pings_of`` have rows.  ``scale``: see Picture.
    """
    seen = dict.fromkeys(name for event in events for name in event.actor.split())
    # Names with a slash are those of a crowd.
    lanes = [*(name for name in seen if "/" not in name), *names_of(servers)]
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
    at, text, more = f"+{event.time:.3f}", event.text, event.detail
    if event.kind == "fold":
        return Step(at, "gap", None, None, text)
    if event.kind == "server":
        return Step(at, "open", lanes.index(event.server), None, text, more=more)
    if event.actor not in lanes:
        return None
    client = lanes.index(event.actor)
    if event.kind in ("stop", "go", "held", "free", "note"):
        return Step(at, "note", client, None, text, not event.passed, more)
    if event.kind in ("cut", "end"):
        return Step(at, "close", client, None, text, bad=True)
    if event.frame is None:
        return None
    frame, server = event.frame, lanes.index(event.server)
    if frame.direction == "c2s":
        return Step(at, "request", client, server, text, more=more)
    kind = "event" if frame.kind == "notification" else "reply"
    return Step(at, kind, server, client, text, bool(frame.error), more)


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
            if frame.direction == "s2c" and "refused" not in event.text:
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
