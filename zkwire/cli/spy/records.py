"""One record for each message: the one thing that is filtered, written, kept in a file and drawn.

A record is a JSON object: ``v`` 1; ``n``, its number in the run; ``t``, seconds since the start;
``conn``, the number of the connection; ``session``; ``dir``, ``c2s`` or ``s2c``; ``xid``; ``op``;
``path``; what else belongs to the operation; ``bytes``, the size with the length in front.  Replies
add ``zxid``, ``err``, ``error``, ``re`` (the ``n`` of the request) and ``rtt_ms``; a reply's
``path`` is that of its request, and ``created`` the path in the reply.  What a fault has kept from
its receiver is ``lost``.  Without ``dir``, ``op`` is ``open``, ``close`` or ``fault``.

Invariant: what must not be shown is not in a record, so no form of one can show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zkwire.cli.output import hex_id, one_line
from zkwire.cli.picture import Picture, Step, svg
from zkwire.cli.spy.message import HIDDEN, MULTIS, Message, Row, Value, error_name, note, shown
from zkwire.cli.spy.tap import Event
from zkwire.testing.proxy.frames import Frame
from zkwire.wire.ops import OPS

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
        name = {"open": "peer", "close": "by"}.get(event.what, event.what)
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
        message = message_of_frame(frame)
        kind, values = message.kind, message.values()
        if kind == "connect" and values.get("session_id"):
            self._sessions[frame.connection] = hex_id(int(values["session_id"] or 0))
        record = self._with_session(record) | {"dir": frame.direction}
        if "xid" in values:
            record["xid"] = values["xid"]
        record["op"] = message.op
        record |= details(message, self._privacy)
        record["bytes"] = len(frame.raw)
        if (request := frame.request) is not None:
            record |= {"path": request.path} if request.path is not None else {}
            record |= {"re": request.number, "rtt_ms": round((frame.time - request.time) * 1000, 3)}
        if "err" in values and kind == "reply":
            code = int(values["err"] or 0)
            record |= {"err": code} | ({"error": error_name(code)} if code else {})
        if message.problem is not None:
            record["problem"] = f"{message.problem} (offset {message.problem.at})"
        if self._rows:
            record["rows"] = rows_of(message, self._privacy)
        return record


def message_of_frame(frame: Frame) -> Message:
    """What the bytes of a frame say."""
    kind = KINDS.get(frame.kind, "request" if frame.direction == "c2s" else "reply")
    return Message(frame.raw, frame.direction, kind, frame.opcode)


def record_of(frame: Frame) -> Record:
    """The record of one frame, with the data of nodes."""
    event = Event(0, frame.time, frame.connection, "frame", "", frame)
    return Recorder(0.0, Privacy("text")).record(event)


def byte_table(frame: Frame) -> list[list[Any]]:
    """The byte table of one frame, with its secrets hidden."""
    return rows_of(message_of_frame(frame), Privacy("hex", 32))


# --- details --------------------------------------------------------------------------------------
# What a record has beside the header of its message: paths, flags, sizes, results, byte tables.
#
# Decides what of a node's data is shown and what is a secret: credentials, tokens, the passwords of
# sessions, the hashes of passwords in access lists.

MOST_ROWS = 200
LONGEST_HEX = 64  # bytes of one row
DATA = frozenset({"data", "body", "unknown"})
_COUNTED = ("children", "ephemerals", "acl", "client_info")
_WATCHES = ("data", "exist", "child", "persistent", "persistent_recursive")


class Privacy(NamedTuple):
    """How much is shown: ``data`` is none, size, text or hex, of at most ``most`` bytes."""

    data: str = "size"
    most: int = 64
    secrets: bool = False  # in tables of bytes, for documents of made-up sessions


def details(message: Message, privacy: Privacy) -> dict[str, Any]:
    """The fields of a record that depend on the operation, in a fixed order."""
    values, event = message.values(), message.kind == "event"
    says = {row.name: note(row, event=event) or shown(row) for row in message.rows}
    if message.kind == "connect":
        found = _greeting(message, values)
    elif event:
        kind = {"type": says["type"], "state": says["state"]} if "path" in values else {}
        found = kind | ({"path": values["path"]} if kind else {}) | _zxid(values)
    elif message.op in MULTIS:
        return _multi(message)
    else:
        found = _named(message, values, says)
        counts = [name for name in _COUNTED if f"count of {name}" in values]
        found |= {name: max(_number(values, f"count of {name}"), 0) for name in counts}
    for row in message.rows:
        if row.name in ("data", "body") and isinstance(row.value, bytes):
            found |= _data(row, privacy)
        elif row.word == "Secret":
            found["secret"] = HIDDEN
    return found


def _number(values: dict[str, Value], name: str) -> int:
    """A value that is a number; 0 if there is none."""
    return int(values.get(name) or 0)


def _zxid(values: dict[str, Value]) -> dict[str, Any]:
    number = _number(values, "zxid")
    return {"zxid": hex_id(number)} if number > 0 else {}


def rows_of(message: Message, privacy: Privacy) -> list[list[Any]]:
    """The byte table: offset, bytes, name, value and note of each field."""
    table: list[list[Any]] = []
    for found in message.rows[:MOST_ROWS]:
        row = found._replace(secret=found.secret and not privacy.secrets)
        what = note(row, event=message.kind == "event")
        table.append([row.at, _hex(message, row, privacy), row.name, shown(row), what])
    if len(message.rows) > MOST_ROWS:
        row, left = message.rows[MOST_ROWS], len(message.rows) - MOST_ROWS
        table.append([row.at, "…", "more", f"{left} fields", ""])
    return table


def _greeting(message: Message, values: dict[str, Value]) -> dict[str, Any]:
    found: dict[str, Any] = {"timeout_ms": values.get("time_out")}
    if message.direction == "c2s":
        found["last_zxid"] = hex_id(_number(values, "last_zxid_seen"))
        found["resumes"] = bool(values.get("session_id"))
    else:
        found["granted"] = bool(values.get("session_id"))
    return found | ({"read_only": True} if values.get("read_only") else {})


def _named(message: Message, values: dict[str, Value], says: dict[str, str]) -> dict[str, Any]:
    """The fields that operations share; ``says``: the values in words."""
    found: dict[str, Any] = {}
    request = message.kind == "request"
    path = values.get("path", values.get("prefix_path"))
    if path is not None and (request or message.op.startswith("create")):
        found["path" if request else "created"] = path
    if not request:
        found |= _zxid(values)
    if message.op == "unknown" and message.opcode is not None:
        found["opcode"] = message.opcode
    if not request:
        version = values.get("stat.version", values.get("version"))
        return found if version is None else found | {"version": version}
    if "flags" in values:
        found["flags"] = says["flags"].split() if values["flags"] else []
    found |= {name: values[name] for name in ("version", "ttl", "scheme") if name in values}
    found |= {"mode": says["mode"]} if "mode" in values else {}
    found |= {"watch": True} if values.get("watch") else {}
    if message.op in ("remove_watches", "check_watches") and "type" in values:
        found["type"] = says["type"]
    if "relative_zxid" in values:
        found["last_zxid"] = hex_id(_number(values, "relative_zxid"))
        found["watches"] = sum(_number(values, f"count of {kind}_watches") for kind in _WATCHES)
    return found


def _multi(message: Message) -> dict[str, Any]:
    parts: list[Any] = []
    reply = message.kind == "reply"
    for rows in message.parts():
        fields = {row.name.partition("].")[2]: row.value for row in rows}
        if fields.get("done"):
            continue
        op = OPS.get(_number(fields, "type"))
        name = op.name if op is not None else str(fields.get("type"))
        error = error_name(_number(fields, "err"))
        parts.append(error if reply else {"op": name, "path": fields.get("path")})
    return {**_zxid(message.values()), "results": parts} if reply else {"ops": parts}


def _data(row: Row, privacy: Privacy) -> dict[str, Any]:
    data = row.value
    if privacy.data == "none" or not isinstance(data, bytes):
        return {}
    found: dict[str, Any] = {"size": len(data)}
    piece = data[: privacy.most]
    if row.secret:
        found["text"] = HIDDEN
    elif privacy.data == "text":
        found["text"] = piece.decode("utf-8", "backslashreplace")
    elif privacy.data == "hex" or row.name == "body":
        found["hex"] = piece.hex()
    if len(piece) < len(data) and len(found) > 1:
        found["cut"] = True
    return {"data": found}


def _hex(message: Message, row: Row, privacy: Privacy) -> str:
    if row.secret:
        return HIDDEN
    data = bytes(message.rows.data[row.at : row.at + row.size])
    most = LONGEST_HEX
    if row.word == "Buffer" and row.name.rpartition(".")[2] == "data":
        most = privacy.most if privacy.data in ("text", "hex") else 0
    elif row.name in DATA:
        most = privacy.most
    return data[:most].hex() + ("…" if len(data) > most else "")


# --- text -----------------------------------------------------------------------------------------
# Records as lines for people, in columns that keep their place.
#
#     +0.0123 c1 → create2         x=2  /q/lock-  ephemeral sequential 12 B
#     +0.0160 c1 ← create2         x=2  zx=0x2c  ok  /q/lock-0000000000  3.7 ms
#
# No line is longer than the width: a path is cut in its middle, since its end says most.

WIDEST = 120
_ASCII = str.maketrans("→←·…•✕", "><.~*x")
_SHORTEST_PATH = 12


def in_ascii(text: str) -> str:
    """The same, for a terminal that shows no other characters; columns keep their place."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def line(record: Record, width: int = WIDEST) -> str:
    """One line for one record."""
    time, op = f"+{record['t']:.4f}", record["op"]
    connection = f"c{record['conn']}" if record["conn"] else "-"
    head = f"{time:8} {connection:3}"
    if "dir" not in record:
        mark = "✕" if op in ("close", "fault") else "·"
        return cut(f"{head}{mark} {_happening(record)}", width)
    arrow = "→" if record["dir"] == "c2s" else "←"
    name = f"{cut(op, 16):16}"
    xid = f"x={record['xid']}" if "xid" in record else ""
    begin = f"{head}{arrow} {name} {xid:6} "
    before, path, behind = facts(record)
    room = width - len(begin) - sum(len(part) + 2 for part in before + behind)
    parts = [*before, *([cut_path(path, max(room, _SHORTEST_PATH))] if path else []), *behind]
    return cut((begin + "  ".join(map(one_line, parts))).rstrip(), width)


def facts(record: Record) -> tuple[list[str], str, list[str]]:
    """What a message says, in short: before its path, the path, and behind it."""
    path = one_line(str(record.get("created", record.get("path")) or ""))
    reply = record["dir"] == "s2c"
    before = [f"zx={record['zxid']}"] if "zxid" in record and reply else []
    if "err" in record:
        before.append(record.get("error", "ok"))
    behind = [part for part in words_of(record) if part]
    if "problem" in record:
        behind.append(f"! {record['problem']}")
    if "rtt_ms" in record:
        behind.append(f"{record['rtt_ms']:.1f} ms")
    if record.get("lost"):
        behind.append("lost")
    return before, path, behind


def table(record: Record, width: int = WIDEST) -> Iterator[str]:
    """The byte table of a record, a line for each field."""
    for at, data, name, value, says in record.get("rows", ()):
        shown = data if len(data) <= 34 else data[:33] + "…"
        what = f"{name} = {value}" + (f"  ({says})" if says else "")
        yield cut(one_line(f"    {at:5}  {shown:34}  {what}"), width)


def cut(text: str, width: int) -> str:
    """``text``, its end cut off if it is too long."""
    return text if len(text) <= width else text[: width - 1] + "…"


def cut_path(path: str, width: int) -> str:
    """``path`` without its middle if it is too long."""
    if len(path) <= width:
        return path
    front = (width - 1) // 3
    return path[:front] + "…" + path[front + 1 - width :]


def _happening(record: Record) -> str:
    """What has happened to a connection."""
    if record["op"] == "fault":
        return one_line(f"fault {record['fault']}")
    if record["op"] == "open":
        return one_line(f"open  {record['peer']}")
    return one_line(f"close by the {record['by']}")


def words_of(record: Record) -> Iterator[str]:
    """What a message says beside its path, without its errors and times; "" for nothing."""
    if record["op"] == "connect":
        yield from _greeting_words(record)
        return
    yield f"type {record['type']}" if "type" in record and record["op"] != "watch" else ""
    yield record["type"] if "type" in record and record["op"] == "watch" else ""
    yield ", ".join(f"{part['op']} {part['path'] or ''}".strip() for part in record.get("ops", ()))
    yield ", ".join(record.get("results", ()))
    yield " ".join(record.get("flags", ()))
    for name in ("scheme", "mode", "opcode", "version", "ttl", "word"):
        if name in record and record[name] != -1:
            yield f"{'v' if name == 'version' else name}={record[name]}"
    yield "watch" if record.get("watch") else ""
    yield f"since {record['last_zxid']}" if "last_zxid" in record else ""
    for name in ("watches", "children", "ephemerals", "acl", "client_info"):
        if name in record and not (name == "acl" and record["dir"] == "c2s"):
            yield f"{record[name]} {name}"
    yield from _data_words(record.get("data") or {})
    yield f"{record['bytes']} bytes that are no frame" if record["op"] == "raw" else ""
    yield str(record.get("secret", ""))


def _data_words(data: dict[str, Any]) -> Iterator[str]:
    if "size" in data:
        yield f"{data['size']} B"
    shown = repr(data["text"]) if "text" in data else data.get("hex", "")
    yield shown + ("…" if data.get("cut") else "")


def _greeting_words(record: Record) -> Iterator[str]:
    if record["dir"] == "c2s":
        yield "resume" if record.get("resumes") else "new session"
    elif not record.get("granted"):
        yield "refused: expired, or a wrong password"
        return
    if record.get("session") and (record["dir"] == "s2c" or record.get("resumes")):
        yield f"session {record['session']}"
    if record.get("timeout_ms") is not None:
        yield f"timeout {record['timeout_ms']}"


def failed(record: Record) -> bool:
    """Whether the record tells of an error: a refusal, a session that is gone, bad bytes."""
    refused = record["op"] == "connect" and record.get("granted") is False
    return bool(record.get("err")) or refused or "problem" in record


def paths_of(record: Record) -> list[str]:
    """All paths of a record."""
    parts = record.get("ops") or ()
    found = [record.get("path"), record.get("created"), *(part.get("path") for part in parts)]
    return [path for path in found if path is not None]


# --- drawing --------------------------------------------------------------------------------------
# Records as a picture.

LONGEST = 96
GAP = 1.0  # seconds without a message that are drawn


def as_svg(records: list[dict[str, Any]], left: int = 0) -> str:
    """A drawing, whose lanes are the connections, and the server at the right.

    It says that ``left`` more records are left out.
    """
    connections = sorted({record["conn"] for record in records if record["conn"]})
    lanes = {connection: lane for lane, connection in enumerate(connections)}
    steps: list[Step] = []
    before = records[0]["t"] if records else 0.0
    for record in records:
        if record["t"] - before > GAP:
            steps.append(Step("", "gap", None, None, f"{record['t'] - before:.1f} s"))
        before = record["t"]
        steps.append(step_of(record, lanes, len(connections)))
    if left:
        steps.append(Step("", "gap", None, None, f"{left} more are left out"))
    names = (*(f"c{connection}" for connection in connections), "server")
    title = f"ZooKeeper on the wire: {sum('dir' in record for record in records)} messages"
    about = f"{len(records)} steps between {len(connections)} connections and a server."
    return svg(Picture(title, about, names, tuple(steps), frozenset(lanes.values())))


def step_of(record: dict[str, Any], lanes: dict[int, int], server: int) -> Step:
    """The row of a record."""
    time, lane, op = f"+{record['t']:.4f}", lanes.get(record["conn"]), record["op"]
    if op == "fault":
        return Step(time, op, lane, None, cut(f"fault {record['fault']}", LONGEST), bad=True)
    if op == "open":
        return Step(time, op, lane, None, "connects")
    if op == "close":
        return Step(time, op, lane, None, cut(f"closed by the {record['by']}", LONGEST), bad=True)
    before, path, behind = facts(record)
    whole = "  ".join([op, *before, *([path] if path else []), *behind])
    more, lost = whole if len(whole) > LONGEST else "", "lost" in record
    rest = (cut(whole, LONGEST), failed(record) or lost, more, lost)
    if record["dir"] == "c2s":
        return Step(time, "request", lane, server, *rest)
    return Step(time, "event" if op == "watch" else "reply", server, lane, *rest)
