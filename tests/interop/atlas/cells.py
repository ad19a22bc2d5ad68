"""What one trial has found, and what many of the same make of a cell of the table.

Decides the words that compare two runs: those of a kind and of what was said, without figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.interop.atlas.stage import Trial

TRUTH, LESS, NOTHING, WRONG, HUNG, LACKS = (
    "told the truth", "told less", "told nothing", "told wrong", "hung", "has none",
)  # fmt: skip
WORST = (WRONG, HUNG, NOTHING, LESS, TRUTH, LACKS)

OK, REFUSED, DOUBT, NOT_DONE, ENDED, OTHER, NO_ANSWER = (
    "ok", "refused", "doubt", "not done", "ended", "other", "no answer",
)  # fmt: skip
MEANINGS = (
    (ENDED, r"session_?expired|has been expired|session_?lost|invalidstate|is closing|closing"),
    (NOT_DONE, r"maybe_applied=False|could not connect|^NotSent$"),
    (
        REFUSED,
        r"node_?exists|bad_?version|no_?node|already exists|version conflict|does not exist"
        r"|RolledBack|RuntimeInconsistency|TransactionFailed|MultiError",
    ),
    (ENDED, r"ClientClosed|ConnectionClosedError|LockLost"),
    (DOUBT, r"connection_?loss|connection closed|OutcomeUnknown|Garbled|timed? ?out|maybe_applied"),
)
"""What a client's words mean, by its documentation; the first pattern that is found decides."""


class Seen(NamedTuple):
    """The result of one trial; `seconds` is how long it took to be told, or another duration."""

    kind: str
    words: str
    seconds: float | None = None


Try = Callable[["Trial"], Seen]


class Point(NamedTuple):
    """A row of a table: where it breaks, what is tried, and how often."""

    key: str
    title: str
    trial: Try
    times: int = 3
    alone: bool = False  # in a process of its own


class Situation(NamedTuple):
    """A table of the page, which says how its cells are judged."""

    number: int
    title: str
    points: Sequence[Point]


def meaning(words: str | None) -> str:
    """Of an answer's words, as above."""
    if words is None:
        return NO_ANSWER
    if words.startswith("ok"):
        return OK
    for found, pattern in MEANINGS:
        if re.search(pattern, words, re.IGNORECASE):
            return found
    return OTHER


def cell(seen: Sequence[Seen]) -> dict[str, Any]:
    """The cell of the table that these trials make."""
    counts = Counter((one.kind, one.words) for one in seen)
    seconds = [round(one.seconds, 3) for one in seen if one.seconds is not None]
    return {
        "kind": min((kind for kind, _ in counts), key=WORST.index),
        "said": [[kind, words, number] for (kind, words), number in sorted(counts.items())],
        "runs": len(seen),
        "seconds": [min(seconds), max(seconds)] if seconds else None,
    }


def told(found: dict[str, Any]) -> list[list[str]]:
    """The words of a cell, for the comparison of two runs."""
    return sorted([kind, words] for kind, words, _ in found["said"])
