"""What happens in a lesson: events, frames in a few words, and the record that tells them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

from zkwire.errors import ProtocolError, error_for
from zkwire.jute.records import ConnectRequest, ConnectResponse, WatcherEvent
from zkwire.testing.proxy.frames import Frame
from zkwire.wire import ops
from zkwire.wire.model import EventType


class Named(Protocol):
    """A client of a stage."""

    name: str


# What happens on a stage, one event at a time, for whatever shows it or keeps it.

PROSE = frozenset({"say", "ask", "expect", "table", "code"})


class Event(NamedTuple):
    """One event, ``time`` seconds after the beginning.

    ``frame``: ``frame`` has passed between ``actor`` and ``server``.  ``cut``: their connection
    is lost.  ``end``: the client has seen the end of the connection.  ``server``: a change there.
    ``stop``, ``go``: the client's process or network stands still, and goes on.  ``held``,
    ``free``: a lock that a lesson follows is held by ``actor``, and no longer.
    ``note``: what a client does beside the wire, and whether that is well (``passed``).
    ``fold``: frames of these clients that are counted and not shown.  ``say``, ``ask``: words for
    the reader.  ``expect``: a condition that must hold, and whether it has (``passed``).
    ``table``: ``rows``.  ``code``: lines as they are.
    """

    time: float
    kind: str
    text: str
    actor: str = ""
    server: str = ""
    detail: str = ""
    frame: Frame | None = None
    passed: bool = True
    rows: Sequence[Sequence[object]] = ()


# --- words ----------------------------------------------------------------------------------------
# A frame in a few words: what it asks for or says, and the numbers that lessons are about.

_HEADER = 20  # of a reply: length, xid, zxid, error


def described(frame: Frame) -> tuple[str, str]:
    """What the frame says, and its numbers."""
    size = f"{len(frame.raw) - 4} B"
    if frame.kind == "connect":
        return _greeting(frame), size
    if frame.kind == "notification":
        event, _ = WatcherEvent.unpack(frame.raw[_HEADER:])
        kind = EventType(event.type).name.removeprefix("NODE_").lower()
        return f"watch event: {event.path} {kind}", f"xid {frame.xid}  {size}"
    if frame.direction == "c2s":
        return f"{frame.op} {frame.path or ''}".rstrip(), f"xid {frame.xid}  {size}"
    zxid = f"zxid {frame.zxid:#x}  {size}" if frame.zxid and frame.zxid > 0 else size
    return f"{frame.op}: {_answer(frame)}", zxid


def _greeting(frame: Frame) -> str:
    if frame.direction == "c2s":
        request, _ = ConnectRequest.unpack(frame.raw[4:])
        session = f"session {request.session_id:#x}" if request.session_id else "a new session"
        seen = f", seen zxid {request.last_zxid_seen:#x}" if request.last_zxid_seen else ""
        return f"ConnectRequest: {session}{seen}"
    answer, _ = ConnectResponse.unpack(frame.raw[4:])
    if not answer.session_id:
        return "ConnectResponse: session 0, timeout 0"
    return f"ConnectResponse: {answer.session_id:#x}, {answer.time_out} ms"


def error_name(code: int) -> str:
    """The name of a server's error."""
    return type(error_for(code, None, None)).__name__.removesuffix("Error")


def _answer(frame: Frame) -> str:
    if frame.error:
        return error_name(frame.error)
    op, record = ops.OPS.get(frame.opcode or 0), None
    with suppress(ProtocolError):
        record = op.decode_reply(frame.raw, _HEADER, len(frame.raw)) if op else None
    return _ANSWERS.get(frame.op, lambda _: "ok")(record)


def _names(record: Any) -> str:
    return f"{len(record[0])} name{'s' * (len(record[0]) != 1)}"


_ANSWERS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("create", "create2"), lambda record: str(record[0])),
    **dict.fromkeys(("get_children", "get_children2"), _names),
    **dict.fromkeys(("set_data", "exists"), lambda record: f"version {record.version}"),
    "get_data": lambda r: f"{r[0].decode('utf-8', 'replace')!r}, version {r[1].version}",
}


# --- record ---------------------------------------------------------------------------------------
# What happens in a lesson, kept and told, and the words for the reader.
#
# Everything is kept, so that a lesson takes its numbers from the run.  Where it happens is for the
# stage to decide: on a virtual clock, or on a server.


class Record:
    """Events, and expectations.  ``tell`` gets each event that is to be shown.

    ``failures``: the expectations that did not hold.
    """

    def __init__(self, tell: Callable[[Event], object]) -> None:
        self.failures: list[str] = []
        self.checks: int = 0
        self.events: list[Event] = []
        self.shown: list[Event] = []
        self._show = tell
        self._quiet = False

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        raise NotImplementedError

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in PROSE or event.kind == "fold" or not self._quiet:
            self.shown.append(event)
            self._show(event)

    # --- what has happened ------------------------------------------------------------------------

    def frames(self, client: Named, op: str, direction: str = "") -> list[Frame]:
        """The client's frames so far, of one operation or of all (""), ``c2s``, ``s2c`` or both.

        ``connect``, ``ping``, ``auth`` and ``notification`` are operations here.
        """
        mine = [e.frame for e in self.events if e.frame is not None and e.actor == client.name]
        mine = [frame for frame in mine if op in {"", frame.op}]
        return [frame for frame in mine if direction in {"", frame.direction}]

    def traffic(self, begin: float) -> list[Frame]:
        """All requests, replies and events of watches from that moment on."""
        kinds = {"request", "reply", "notification"}
        frames = [e.frame for e in self.events if e.frame is not None and e.time >= begin]
        return [frame for frame in frames if frame.kind in kinds]

    @contextmanager
    def quiet(self, what: str) -> Generator[None]:
        """A context whose frames are counted and not shown; ``what`` they are about."""
        begin, self._quiet = len(self.events), True
        try:
            yield
        finally:
            self._quiet = False
            frames = [e.frame for e in self.events[begin:] if e.kind == "frame" and e.frame]
            size = sum(len(frame.raw) for frame in frames)
            actors = dict.fromkeys(event.actor for event in self.events[begin:] if event.actor)
            text = f"{what}: {len(frames)} frames, {size:,} bytes"
            self._tell(Event(self.now, "fold", text, " ".join(actors)))

    # --- words ------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A paragraph for the reader."""
        self._tell(Event(self.now, "say", " ".join(text.split())))

    def ask(self, text: str) -> None:
        """A question, which the reader answers before the lesson goes on."""
        self._tell(Event(self.now, "ask", " ".join(text.split())))

    def code(self, text: str) -> None:
        """Lines that are shown as they are."""
        self._tell(Event(self.now, "code", text))

    def note(self, name: str, text: str, *, well: bool = True) -> None:
        """A row for what the client of this name does beside the wire."""
        self._tell(Event(self.now, "note", f"{name} {text}", name, passed=well))

    def table(self, *rows: Sequence[object]) -> None:
        """Rows of numbers from the run, the first of them with the names of the columns."""
        self._tell(Event(self.now, "table", "", rows=rows))

    def expect(self, condition: object, words: str) -> None:
        """The lesson fails unless the condition is true; ``words`` say what it is."""
        self.checks += 1
        passed = bool(condition)
        if not passed:
            self.failures.append(words)
        self._tell(Event(self.now, "expect", words, passed=passed))
