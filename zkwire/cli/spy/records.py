"""One record for each message: the one thing that is filtered, written, kept in a file and drawn.

A record is a JSON object: ``v`` 1; ``n``, its number in the run; ``t``, seconds since the start;
``conn``, the number of the connection; ``session``; ``dir``, ``c2s`` or ``s2c``; ``xid``; ``op``;
``path``; what else belongs to the operation; ``bytes``, the size with the length in front.  Replies
add ``zxid``, ``err``, ``error``, ``re`` (the ``n`` of the request) and ``rtt_ms``; a reply's
``path`` is that of its request, and ``created`` the path in the reply.  What a fault has kept from
its receiver is ``lost``.  A ``gap`` has as ``bytes`` how many are missing in a capture, with those
that are left of the messages around them.  Without ``dir``, ``op`` is ``open``, ``close`` or
``fault``.

Invariant: what must not be shown is not in a record, so no form of one can show it.
"""

from __future__ import annotations

from zkwire.cli.output import hex_id
from zkwire.cli.spy.details import details, rows_of
from zkwire.cli.spy.meaning import error_name
from zkwire.cli.spy.message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.cli.spy.details import Privacy
    from zkwire.cli.spy.tap import Event
    from zkwire.testing.proxy.frames import Frame

    Record = dict[str, Any]

VERSION = 1
KINDS = {"connect": "connect", "notification": "event"}


class Recorder:
    """Makes records of events; ``start`` is the time that is zero, ``rows``: with byte tables."""

    def __init__(self, start: float, privacy: Privacy, *, rows: bool = False) -> None:
        self._start = start
        self._privacy = privacy
        self._rows = rows
        self._sessions: dict[int, str] = {}

    def record(self, event: Event) -> Record:
        """The record of one event."""
        record = {
            "v": VERSION,
            "n": event.number,
            "t": round(event.time - self._start, 6),
            "conn": event.connection,
        }
        if event.frame is not None:
            record = self._message(record, event.frame)
            return record | {"lost": True} if event.detail == "lost" else record
        if event.what == "gap":
            side, missing = event.detail.split()
            gap = {"dir": side, "op": "gap", "bytes": int(missing)}
            return self._with_session(record) | gap
        if event.what == "fault":
            return self._with_session(record) | {"op": "fault", "fault": event.detail}
        name = "peer" if event.what == "open" else "by"
        record = self._with_session(record) | {"op": event.what, name: event.detail}
        if event.what == "close":
            self._sessions.pop(event.connection, None)
        return record

    def _with_session(self, record: Record) -> Record:
        session = self._sessions.get(record["conn"])
        return record if session is None else record | {"session": session}

    def _message(self, record: Record, frame: Frame) -> Record:
        if frame.kind in ("command", "raw"):
            record |= {"dir": frame.direction, "op": frame.op if frame.kind == "raw" else "command"}
            if frame.kind == "command":
                record["word"] = frame.op
            return record | {"bytes": len(frame.raw)}
        kind = KINDS.get(frame.kind, "request" if frame.direction == "c2s" else "reply")
        message = Message(frame.raw, frame.direction, kind, frame.opcode)
        values = message.values()
        if kind == "connect" and values.get("session_id"):
            self._sessions[frame.connection] = hex_id(int(values["session_id"] or 0))
        record = self._with_session(record) | {"dir": frame.direction}
        if "xid" in values:
            record["xid"] = values["xid"]
        record["op"] = message.op
        record |= details(message, self._privacy)
        record["bytes"] = len(frame.raw)
        if frame.request is not None:
            _answers(record, frame, frame.request)
        if "err" in values and kind == "reply":
            code = int(values["err"] or 0)
            record |= {"err": code} | ({"error": error_name(code)} if code else {})
        if message.problem is not None:
            record["problem"] = f"{message.problem} (offset {message.problem.at})"
        if self._rows:
            record["rows"] = rows_of(message, self._privacy)
        return record


def _answers(record: Record, frame: Frame, request: Frame) -> None:
    """What a reply has of its request."""
    if request.path is not None:
        record["path"] = request.path
    record["re"] = request.number
    record["rtt_ms"] = round((frame.time - request.time) * 1000, 3)
