"""Records as a picture, and as a page: the picture, and the bytes of each message below it."""

from __future__ import annotations

from zkwire.cli.spy.filters import failed
from zkwire.cli.spy.picture import FONT, Picture, Step, as_xml, svg
from zkwire.cli.spy.text import cut, facts, line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]

LONGEST = 96
GAP = 1.0  # seconds without a message that are drawn
PAGE = f"""
body{{margin:1.5em;background:#fff;color:#111;font:13px/1.4 {FONT}}}
.picture{{overflow-x:auto}}
summary{{cursor:pointer;white-space:pre;overflow-x:auto}}
table{{border-collapse:collapse;margin:.4em 0 1em 2em}}
th,td{{text-align:left;padding:.1em .8em;border-bottom:1px solid #ddd;vertical-align:top}}
td{{overflow-wrap:anywhere}}th,td:first-child,td:nth-child(3){{white-space:nowrap}}
td:first-child{{text-align:right}}
@media (prefers-color-scheme:dark){{
body{{background:#14171c;color:#eceff4}}th,td{{border-color:#39414d}}}}
"""
HEAD = "<tr><th>offset</th><th>hex</th><th>field</th><th>value</th><th>meaning</th></tr>"


def as_svg(records: list[Record], left: int = 0) -> str:
    """A drawing; it says that ``left`` more are left out."""
    return svg(picture_of(records, left))


def as_html(records: list[Record], left: int = 0) -> str:
    """A page with the drawing and, for each message that has one, its byte table."""
    title = _title(records)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width"/>',
        f"<title>{as_xml(title)}</title><style>{PAGE}</style></head><body>",
        f"<h1>{as_xml(title)}</h1>",
        f'<div class="picture">{as_svg(records, left)}</div>',
        "<h2>The bytes</h2>",
    ]
    for record in records:
        summary = f"<summary>{as_xml(line(record))}</summary>"
        if "rows" in record:
            parts.append(
                f"<details>{summary}<table>{HEAD}{table_rows(record['rows'])}</table></details>"
            )
    return "\n".join([*parts, "</body></html>", ""])


def picture_of(records: list[Record], left: int = 0) -> Picture:
    """The lanes are the connections, and the server at the right."""
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
    description = f"{len(records)} steps between {len(connections)} connections and a server."
    closed = frozenset(lanes.values())
    return Picture(_title(records), description, names, tuple(steps), closed)


def _title(records: list[Record]) -> str:
    messages = sum("dir" in record for record in records)
    return f"ZooKeeper on the wire: {messages} messages"


def _step(record: Record, lanes: dict[int, int], server: int) -> Step:
    time, lane, op = f"+{record['t']:.4f}", lanes.get(record["conn"]), record["op"]
    if op == "fault":
        return Step(time, op, lane, None, cut(f"fault {record['fault']}", LONGEST), bad=True)
    if op == "open":
        return Step(time, op, lane, None, "connects")
    if op == "close":
        return Step(time, op, lane, None, cut(f"closed by the {record['by']}", LONGEST), bad=True)
    before, path, behind = facts(record)
    whole = "  ".join([op, *before, *([path] if path else []), *behind])
    more = whole if len(whole) > LONGEST else ""
    lost = "lost" in record
    rest = (cut(whole, LONGEST), failed(record) or lost, more, lost)
    if record["dir"] == "c2s":
        return Step(time, "request", lane, server, *rest)
    return Step(time, "event" if op == "watch" else "reply", server, lane, *rest)


def table_rows(rows: list[list[Any]]) -> str:
    """A byte table's rows as HTML."""
    return "".join(
        f"<tr><td>{at}</td><td>{_spaced(digits)}</td><td>{as_xml(name)}</td>"
        f"<td>{as_xml(value)}</td><td>{as_xml(meaning)}</td></tr>"
        for at, digits, name, value, meaning in rows
    )


def _spaced(digits: str) -> str:
    """Hexadecimal digits in groups of four bytes."""
    return as_xml(" ".join(digits[at : at + 8] for at in range(0, len(digits), 8)))
