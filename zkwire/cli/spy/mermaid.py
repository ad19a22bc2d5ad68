"""Records as a sequence diagram of Mermaid, which GitHub and GitLab draw."""

from __future__ import annotations

from zkwire.cli.spy.text import cut, facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Record = dict[str, Any]

LONGEST = 100
_ENTITIES = str.maketrans(
    {";": "#59;", "#": "#35;", "<": "#lt;", ">": "#gt;", "%": "#37;", "`": "#96;"}
)


def diagram(records: list[Record], left: int = 0) -> Iterator[str]:
    """The lines of the diagram; ``left`` more are left out."""
    yield "sequenceDiagram"
    for connection in sorted({record["conn"] for record in records if record["conn"]}):
        yield f"    participant c{connection}"
    yield "    participant server"
    for record in records:
        yield "    " + _step(record)
    if left:
        yield f"    Note over server: {left} more are left out"


def _step(record: Record) -> str:
    client = f"c{record['conn']}"
    if record["op"] == "fault":
        over = f"{client},server" if record["conn"] else "server"
        return f"Note over {over}: fault {_escape(record['fault'])}"
    if record["op"] == "open":
        return f"Note over {client}: connects"
    if record["op"] == "close":
        return f"Note over {client},server: closed by the {_escape(record['by'])}"
    before, path, behind = facts(record)
    text = _escape(
        cut("  ".join([record["op"], *before, *([path] if path else []), *behind]), LONGEST)
    )
    if record["dir"] == "c2s":
        return f"{client}{'-x' if 'lost' in record else '->>'}server: {text}"
    arrow = "--x" if "lost" in record else "-)" if record["op"] == "watch" else "-->>"
    return f"server{arrow}{client}: {text}"


def _escape(text: str) -> str:
    return text.replace("\n", " ").translate(_ENTITIES)
