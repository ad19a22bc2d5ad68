"""From what the processes of a chaos run have told to a history that `support.history` can check.

Decides what counts as a claim, always for the accused: see `tests.interop.chaos_workers`. What was
done to a holder behind its back (its node deleted, its session ended from outside) ends its claim
at that moment; no client can know of it before it is told.  It must know within two session
timeouts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.interop.chaos_workers import KEYS, KINDS, LEASES, SESSION_TIMEOUT
from tests.support.history import Record

VOID = "void"
"""The lock of which any number may hold what they cannot be held to."""

Line = dict[str, Any]


@dataclass
class Claim:
    """One lock, held by one contender."""

    who: str
    key: str
    role: str
    fence: int
    session: int
    start: float
    end: float
    downgrade: bool
    disowned: bool = False
    void: bool = False
    """Taken away before its first look: its holder could not know, and nothing is known of when."""


@dataclass
class Disowned:
    """What was taken from its holder at this moment: by its fence, or with its whole session.

    ``answered`` is when the server had said so; without that nobody knows whether it happened.
    """

    at: float
    fence: int = 0
    session: int = 0
    answered: float | None = None

    @property
    def known_at(self) -> float:
        """From then on its holder must have been told, or its lease has ended."""
        return (self.at if self.answered is None else self.answered) + 2 * SESSION_TIMEOUT


def read(path: Path) -> list[Line]:
    """The lines of a process, without one that it did not finish."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def claims_of(lines: Iterable[Line]) -> list[Claim]:
    """The claims of one process, in the order of its grants."""
    made: list[Claim] = []
    held: dict[tuple[str, str, str], Claim] = {}
    for line in lines:
        name = (line.get("who", ""), line.get("key", ""), line.get("role", ""))
        match line["what"]:
            case "grant":
                at, fence, session = line["at"], line["fence"], line["session"]
                held[name] = Claim(*name, fence, session, at, at, line["downgrade"])
                made.append(held[name])
            case "look":
                held[name].end = line["at"]
            case "end":
                held.pop(name, None)
    return made


def disown(claims: Iterable[Claim], takings: Iterable[Disowned]) -> None:
    """End the claims that somebody has taken away, but for those that go on for too long."""
    for claim, taking in _taken(claims, takings):
        if claim.end > taking.known_at:
            continue
        if taking.at < claim.start:
            claim.void = True
        else:
            claim.end, claim.disowned = taking.at, True


def untold(told: Iterable[Iterable[Line]], takings: Sequence[Disowned]) -> list[str]:
    """Claims that go on although their holders must have been told that nothing is left of them."""
    return [
        f"STATE: {claim.key}: {claim.who} claims {claim.end - taking.at:.1f} s after its "
        f"{'node was deleted' if taking.fence else 'session was ended'}"
        for lines in told
        for claim, taking in _taken(claims_of(lines), takings)
        if taking.answered is not None and claim.end > taking.known_at
    ]


def _taken(
    claims: Iterable[Claim], takings: Iterable[Disowned]
) -> Iterator[tuple[Claim, Disowned]]:
    by_number: dict[int, list[Disowned]] = {}
    for taking in takings:
        by_number.setdefault(taking.fence or taking.session, []).append(taking)
    for claim in claims:
        for taking in (*by_number.get(claim.fence, ()), *by_number.get(claim.session, ())):
            if taking.at < claim.end:
                yield claim, taking


def history(
    told: Sequence[Sequence[Line]], takings: Sequence[Disowned], deaths: dict[str, float]
) -> list[Record]:
    """Everything that the processes have told; ``deaths`` are those of processes, by name."""
    records = [Record(0.0, "", "lock", "sem", limit=LEASES)]
    records.append(Record(0.0, "", "lock", VOID, limit=10**9))
    for claim in counted(told, takings):
        records += _records_of(claim)
    for lines in told:
        records += filter(None, map(_other, lines))
        records += _unheld(lines)
        records += _untold(lines)
    for name, at in deaths.items():
        records += [Record(at, f"{name}-{kind}", "die") for kind in KINDS]
    return records


def counted(told: Iterable[Sequence[Line]], takings: Sequence[Disowned]) -> list[Claim]:
    """All claims that somebody can be held to, with the ends that others have given them."""
    found: list[Claim] = []
    for lines in told:
        claims = claims_of(lines)
        disown(claims, takings)
        writing = [claim for claim in claims if claim.role == "write"]
        found += [c for c in claims if not c.downgrade or _beside(c, writing)]
    return found


def overlap(claims: Iterable[Claim]) -> float:
    """For how many seconds, of all locks together, more held than may."""
    by_key: dict[str, list[tuple[float, bool, int, Claim]]] = {}
    for number, claim in enumerate(claims):
        if claim.start < claim.end and not claim.void:
            moments = by_key.setdefault(claim.key, [])
            moments += [(claim.start, True, number, claim), (claim.end, False, number, claim)]
    total = 0.0
    for key, moments in by_key.items():
        moments.sort(key=lambda moment: moment[:3])  # who ends comes before who begins
        most = LEASES if key == "sem" else 1
        holding: dict[int, Claim] = {}
        for (at, begins, number, claim), (until, *_) in pairwise(moments):
            if begins:
                holding[number] = claim
            else:
                holding.pop(number, None)
            many = len({c.who for c in holding.values()}) > most
            if many and any(c.role != "read" for c in holding.values()):
                total += until - at
    return total


def _beside(reader: Claim, writing: Iterable[Claim]) -> bool:
    """Whether its writer held still, as far as that can be told."""
    return any(w.who == reader.who and w.start <= reader.start <= w.end for w in writing)


def _records_of(claim: Claim) -> list[Record]:
    if claim.void:  # its wait is over, and its writes have a grant, where it is in nobody's way
        return [
            Record(claim.start, claim.who, "grant", VOID, claim.role, claim.fence),
            Record(claim.start, *_give_up(claim.who, claim.key), note="taken before it was known"),
        ]
    what = "disown" if claim.disowned else "release"
    return [
        Record(claim.start, claim.who, "grant", claim.key, claim.role, claim.fence),
        Record(claim.end, claim.who, what, claim.key, claim.role),
    ]


def _other(line: Line) -> Record | None:
    """What goes into the history as it is."""
    what = line["what"]
    if what == "ask":
        return Record(line["at"], line["who"], "ask", line["key"])
    if what == "give up":
        return Record(line["at"], line["who"], "give up", line["key"], note=line["note"])
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
                records.append(Record(line["at"], *_give_up(*name), note="lost at once"))
    return records


def _untold(lines: Iterable[Line]) -> list[Record]:
    """The writes whose end a killed process could not tell any more."""
    intents: dict[str, Line] = {}
    for line in lines:
        if line["what"] == "intent":
            intents[line["who"]] = line
        elif line["what"] == "write":
            intents.pop(line["who"], None)
    return [Record(**{**line, "what": "write"}, ok=None) for line in intents.values()]


def _give_up(who: str, key: str) -> tuple[str, str, str]:
    return who, "give up", key


def grants(told: Iterable[Iterable[Line]]) -> Counter[str]:
    """How often each contender has got its lock; a `MultiLock` counts once."""
    second = KEYS["multi"][1]
    return Counter(
        line["who"]
        for lines in told
        for line in lines
        if line["what"] == "grant" and line["key"] != second and not line["downgrade"]
    )
