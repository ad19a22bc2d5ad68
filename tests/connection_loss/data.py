"""The document's tables as data: docs/connection-loss.json, one row for each call and each point.

Made of the tables alone, so the two cannot say different things. The fields are listed in the
document, under "As data"; a field that changes its meaning, or goes, raises `VERSION`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tests.connection_loss import document, members, points
from tests.connection_loss.document import slug
from tests.connection_loss.every import HEADS, IN_ONE_TABLE, OPERATIONS

PATH = document.PATH.with_name("connection-loss.json")
VERSION = 1

FIELDS = {
    "point": ("point of failure", "asked of", "moment", "while the connection was lost"),
    "server": ("on the server", "on the ensemble"),
    "client": ("the caller gets", "a call gets", "events after it"),
    "sent_after": ("what the lock does by itself", "what it does by itself"),
    "advice": ("what is safe to do next", "what is safe next", "what to do"),
    "end": ("then",),
}
FIELD = {head: field for field, heads in FIELDS.items() for head in heads}
WITHOUT_HEADING = {"members": "reconfig", "sessions": "session"}

FAILURES = {
    "not-sent": "there was no connection: nothing was sent",
    "request-lost": "sent, and the server has not received it",
    "reply-lost": "the server has done it, and the reply was lost",
    "overtaken": "lost, and another client changes something before this one is back",
    "connection-lost": "the connection broke at another moment",
    "session-expired": "the session expired",
    "server-behind": "the next server is behind",
    "refused": "the server has refused it",
    "none": "no failure",
}
SIGNS = (
    ("refused", r"received and refused"),
    ("server-behind", r"\bbehind\b|caught up"),
    ("session-expired", r"expired|ended the session|network is back"),
    ("overtaken", r"another client comes in between|meanwhile|by an outsider"),
    ("reply-lost", r"reply (is )?lost"),
    ("request-lost", r"sent, not received"),
    ("not-sent", r"never sent|no connection"),
    ("connection-lost", r"lost|broken|silent|without a server|within the session timeout"),
)
"""The words of a point by which its failure is known; the first that fits holds."""

Row: TypeAlias = dict[str, Any]


def written(made: Mapping[str, str]) -> str:
    """The file, for these tables."""
    rows = [row for part in HEADS for row in rows_of(part, made[part])]
    twice = [name for name, count in Counter(row["id"] for row in rows).items() if count > 1]
    if twice:
        raise ValueError(f"two rows of the document have one name: {', '.join(twice)}")
    head = {"schema": "zkwire connection loss", "version": VERSION, "failures": FAILURES}
    opening = json.dumps(head, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    return f'{opening},\n "rows": [\n{lines}\n ]\n}}\n'


def rows_of(part: str, section: str) -> Iterator[Row]:
    """The rows of one part of the document, each line once for every title above it."""
    if part in IN_ONE_TABLE:
        named = WITHOUT_HEADING.get(part)
        titled = [(named or cells(line)[0], line) for line in document.lines(section)]
    else:
        titled = [
            (title, line)
            for title, lines in document.by_title(section).items()
            for line in lines
            if "not tried" not in line
        ]
    for title, line in titled:
        yield row_of(part, title, dict(zip(HEADS[part], cells(line), strict=True)))


def cells(line: str) -> Sequence[str]:
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


def row_of(part: str, title: str, columns: Mapping[str, str]) -> Row:
    """One row: the columns by their fields, and what its words say."""
    found = {FIELD[head]: text for head, text in columns.items() if head in FIELD}
    call, _, options = title.replace("`", "").partition(", ")
    errors = re.findall(r"`(\w+Error)`", found["client"])
    hit = re.match(r"`?(\w+)`? (?:sent|applied)", found["point"])
    operation = next((op for op in OPERATIONS if op.title == title), None)
    return {
        "id": document.row_name(part, title, found["point"]),
        "part": part,
        "call": call,
        "options": options,
        "failure": failure(part, found["point"]),
        "point": found["point"],
        "request": operation.wire if part == "operations" and operation else hit and hit[1],
        "server": found.get("server"),
        "client": found["client"],
        "errors": errors,
        "maybe_applied": "`maybe_applied`" in found["client"] if errors else None,
        "sent_after": sent(found["sent_after"]) if "sent_after" in found else None,
        "advice": advice(found["advice"], title) if "advice" in found else None,
        "end": found.get("end"),
        "more": {
            head: text
            for head, text in columns.items()
            if head not in FIELD and slug(text) != slug(title)
        },
    }


def failure(part: str, point: str) -> str:
    """Which of `FAILURES` it is."""
    for name, sign in SIGNS:
        if re.search(sign, point):
            return name
    return "connection-lost" if part == "watches" else "none"


def sent(text: str) -> list[str]:
    return [] if text == "nothing" else text.replace("`", "").split(", ")


def advice(text: str, title: str) -> str:
    """The advice, with the sentence that stands above the table instead of *recover*."""
    if text == members.RECOVER:
        title, text = "reconfig, with a version", points.RECOVER
    again = next((op.again for op in OPERATIONS if op.title == title), "")
    return re.sub(rf"\b{points.RECOVER}$", again, text.replace(", and recover", "; then recover"))
