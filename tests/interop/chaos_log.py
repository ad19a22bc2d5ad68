"""From what the processes of a chaos run have told to a history that `support.history` can check.

Decides what counts as a claim, always for the accused: see `tests.interop.chaos_workers`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.chaos_recipes import ITEMS
from tests.interop.chaos_workers import KEYS, KINDS, LEASES
from tests.support.history import Record

Line = dict[str, Any]


@dataclass
class Claim:
    """One lock, held by one contender."""

    who: str
    key: str
    role: str
    fence: int
    start: float
    end: float
    downgrade: bool


def read(path: Path) -> list[Line]:
    """The lines of a process, without one that it did not finish."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def claims_of(lines: Iterable[Line]) -> list[Claim]:
    """The claims of one process that somebody can be held to, in the order of its grants."""
    made: list[Claim] = []
    held: dict[tuple[str, str, str], Claim] = {}
    for line in lines:
        name = (line.get("who", ""), line.get("key", ""), line.get("role", ""))
        match line["what"]:
            case "grant":
                at = line["at"]
                held[name] = Claim(*name, line["fence"], at, at, line["downgrade"])
                made.append(held[name])
            case "look":
                held[name].end = line["at"]
            case "end":
                held.pop(name, None)
    writing = [claim for claim in made if claim.role == "write"]
    return [claim for claim in made if not claim.downgrade or _beside(claim, writing)]


def _beside(reader: Claim, writing: Iterable[Claim]) -> bool:
    """Whether its writer held still, as far as that can be told."""
    return any(w.who == reader.who and w.start <= reader.start <= w.end for w in writing)


def history(told: Sequence[Sequence[Line]], deaths: dict[str, float]) -> list[Record]:
    """Everything that the processes have told; ``deaths`` are those of processes, by name."""
    records = [Record(0.0, "", "lock", "sem", limit=LEASES)]
    for lines in told:
        for claim in claims_of(lines):
            what = claim.who, "grant", claim.key, claim.role, claim.fence
            records.append(Record(claim.start, *what))
            records.append(Record(claim.end, claim.who, "release", claim.key, claim.role))
        records += filter(None, map(_other, lines))
        records += _unheld(lines)
        records += _untold(lines)
    for name, at in deaths.items():
        records += [Record(at, f"{name}-{kind}", "die") for kind in (*KINDS, "part")]
    return records


def _other(line: Line) -> Record | None:
    """What goes into the history as it is."""
    what = line["what"]
    if what in ("ask", "give up"):
        return Record(line["at"], line["who"], what, line["key"], note=line.get("note", ""))
    if what in ("write", "read"):
        return Record(**line)
    return None


def _unheld(lines: Iterable[Line]) -> list[Record]:
    """Who has acquired, and lost it before the first look: no claim, but the wait is over."""
    records = []
    granted: set[tuple[str, str]] = set()
    for line in lines:
        name = (line.get("who", ""), line.get("key", ""))
        match line["what"]:
            case "ask":
                granted.discard(name)
            case "grant":
                granted.add(name)
            case "end" if name not in granted:
                records.append(Record(line["at"], name[0], "give up", name[1], note="lost at once"))
    return records


def _untold(lines: Iterable[Line]) -> list[Record]:
    """The writes whose end a killed process could not tell any more."""
    intents: dict[str, Line] = {}
    for line in lines:
        if line["what"] == "intent" and "of" not in line:
            intents[line["who"]] = line
        elif line["what"] == "write":
            intents.pop(line["who"], None)
    return [Record(**{**line, "what": "write"}, ok=None) for line in intents.values()]


def grants(told: Iterable[Iterable[Line]]) -> Counter[str]:
    """How often each contender has got its lock; a `MultiLock` counts once, an item not."""
    others = (KEYS["multi"][1], *ITEMS)
    return Counter(
        line["who"]
        for lines in told
        for line in lines
        if line["what"] == "grant" and line["key"] not in others and not line["downgrade"]
    )
