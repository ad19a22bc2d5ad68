"""Records as lines for people, in columns that keep their place.

    +0.0123 c1 → create2         x=2  /q/lock-  ephemeral sequential 12 B
    +0.0160 c1 ← create2         x=2  zx=0x2c  ok  /q/lock-0000000000  3.7 ms

No line is longer than the width: a path is cut in its middle, since its end says most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zkwire.cli.output import one_line
from zkwire.cli.picture import Picture, Step, svg
from zkwire.cli.spy.message import HIDDEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    Record = dict[str, Any]


WIDEST = 120
NARROW = 100  # below it, columns are narrower
_ASCII = str.maketrans("→←·…•✕", "><.~*x")
_SHORTEST_PATH = 12


def in_ascii(text: str) -> str:
    """The same, for a terminal that shows no other characters; columns keep their place."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def line(record: Record, width: int = WIDEST) -> str:
    """One line for one record."""
    columns = (16, 6) if width >= NARROW else (13, 5)
    time, op = f"+{record['t']:.4f}", record["op"]
    connection = f"c{record['conn']}" if record["conn"] else "-"
    head = f"{time:8} {connection:3}"
    if "dir" not in record:
        return cut(f"{head}{_mark(op)} {_happening(record)}", width)
    arrow = "→" if record["dir"] == "c2s" else "←"
    name = f"{op if len(op) <= columns[0] else op[: columns[0] - 1] + '…':{columns[0]}}"
    xid = f"x={record['xid']}" if "xid" in record else ""
    begin = f"{head}{arrow} {name} {xid:{columns[1]}} "
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
    behind = [part for part in _behind(record) if part]
    if "problem" in record:
        behind.append(f"! {record['problem']}")
    if "rtt_ms" in record:
        behind.append(f"{record['rtt_ms']:.1f} ms")
    if record.get("lost"):
        behind.append("lost")
    return before, path, behind


def table(record: Record, width: int = WIDEST) -> Iterator[str]:
    """The byte table of a record, a line for each field."""
    for at, data, name, value, note in record.get("rows", ()):
        shown = data if len(data) <= 34 else data[:33] + "…"
        what = f"{name} = {value}" + (f"  ({note})" if note else "")
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


def _mark(op: str) -> str:
    return "✕" if op in ("close", "fault") else "·"


def _happening(record: Record) -> str:
    """What has happened to a connection."""
    if record["op"] == "fault":
        return one_line(f"fault {record['fault']}")
    if record["op"] == "open":
        return one_line(f"open  {record['peer']}")
    return one_line(f"close by the {record['by']}")


def _behind(record: Record) -> Iterator[str]:
    if record["op"] == "connect":
        yield from _greeting(record)
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
    yield from _data(record.get("data") or {})
    yield f"{record['bytes']} bytes that are no frame" if record["op"] == "raw" else ""
    yield str(record.get("secret", ""))


def _data(data: dict[str, Any]) -> Iterator[str]:
    if "size" in data:
        yield f"{data['size']} B"
    shown = repr(data["text"]) if "text" in data else data.get("hex", "")
    yield shown + ("…" if data.get("cut") else "")


def _greeting(record: Record) -> Iterator[str]:
    if record["dir"] == "c2s":
        yield "resume" if record.get("resumes") else "new session"
    elif not record.get("granted"):
        yield "refused: expired, or a wrong password"
        return
    if record.get("session") and (record["dir"] == "s2c" or record.get("resumes")):
        yield f"session {record['session']}"
    if record.get("timeout_ms") is not None:
        yield f"timeout {record['timeout_ms']}"
    if record.get("secret", HIDDEN) != HIDDEN:
        yield f"password {record['secret']}"


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
        steps.append(_step(record, lanes, len(connections)))
    if left:
        steps.append(Step("", "gap", None, None, f"{left} more are left out"))
    names = (*(f"c{connection}" for connection in connections), "server")
    title = f"ZooKeeper on the wire: {sum('dir' in record for record in records)} messages"
    about = f"{len(records)} steps between {len(connections)} connections and a server."
    return svg(Picture(title, about, names, tuple(steps), frozenset(lanes.values())))


def _step(record: dict[str, Any], lanes: dict[int, int], server: int) -> Step:
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
