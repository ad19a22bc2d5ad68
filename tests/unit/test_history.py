"""The checker of histories finds each thing that can be wrong; runs that are right pass it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.history import Record, check


def of(text: str) -> list[Record]:
    """A history of the lock "l": with a ";" between records: its time, who, what and a number."""
    found = []
    for line in filter(None, map(str.strip, text.split(";"))):
        at, who, what, *rest = line.split()
        number = int(rest[0]) if rest else 0
        role = rest[1] if len(rest) > 1 else ""
        key = "" if what == "calm" else "l"
        limit = float(number) if number and what in ("calm", "lock") else None
        fence = number if limit is None else 0
        found.append(Record(float(at), who, what, key, role, fence, limit))
    return found


def names(history: list[Record]) -> set[str]:
    return {text.partition(":")[0] for text in check(history)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ME", "1 a grant 5; 2 b grant 6"),
        ("ME", "1 a grant 5 read; 2 b grant 6 write"),
        ("ME", "0 - lock 2; 1 a grant 5; 2 b grant 6; 3 c grant 7"),
        ("FENCE", "1 a grant 5; 2 a release; 3 b grant 5"),
        ("FENCE", "1 a grant 5; 2 a release; 3 b grant 4"),
        ("FENCE", "1 a grant 5 write; 2 a release; 3 b grant 4 read"),
        ("FENCE", "0 - lock 2; 1 a grant 5; 2 b grant 3; 3 b release; 4 c grant 3"),
        ("LIVE", "1 a ask; 2 - calm 9; 3 b grant 4"),
        ("LIVE", "1 a ask; 2 - calm 3; 8 a grant 4"),
        ("ORPHAN", "1 - left"),
        ("FORMAT", "1 a dances"),
    ],
)
def test_what_is_wrong_is_found(name: str, text: str) -> None:
    assert names(of(text)) == {name}


def test_locks_are_looked_at_each_for_itself() -> None:
    assert check([Record(1.0, "a", "grant", "l", fence=5), Record(2, "b", "grant", "m")]) == []


def write(at: float, end: float, value: str, zxid: int, **more: object) -> Record:
    version = more.pop("version", zxid)
    return Record(at, "w", "write", "/n", end=end, value=value, zxid=zxid, version=version, **more)  # type: ignore[arg-type]


def read(at: float, end: float, value: str, zxid: int, who: str = "r", **more: object) -> Record:
    return Record(at, who, "read", "/n", end=end, value=value, zxid=zxid, version=zxid, **more)  # type: ignore[arg-type]


X, Y = write(1, 2, "x", 1), write(3, 4, "y", 2)
LOST = Record(3, "v", "write", "/n", end=4, value="z", ok=None)
REFUSED = Record(5, "v", "write", "/n", end=6, value="z", ok=False)


@pytest.mark.parametrize(
    "history",
    [
        [X, Y, read(5, 6, "y", 2)],
        [X, Y, read(5, 6, "x", 1)],  # of a server that is behind
        [X, Y, read(5, 6, "y", 2), read(7, 8, "x", 1, "s")],  # of another session
        [X, Y, read(5, 6, "y", 2, session="1"), read(7, 8, "x", 1, session="2")],
        [X, Y, read(3.5, 3.6, "y", 2)],  # before it was answered
        [X, LOST, read(5, 6, "z", 2)],
        [X, LOST, read(5, 6, "x", 1)],
        [X, LOST, write(5, 6, "y", 3)],
        [X, Y, read(5, 6, "", 0, "s")],
        [read(1, 2, "before", 7), read(3, 4, "before", 7)],
        [X, LOST, replace(LOST, value="q"), write(5, 6, "y", 4)],
        [X, LOST, read(5, 6, "z", 2), read(7, 8, "x", 1, "v")],  # it was never told of its own
    ],
)
def test_operations_that_may_be_pass(history: list[Record]) -> None:
    assert check(history) == []


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("WRITES", [X, write(3, 4, "y", 2, version=3)]),  # something is between that nobody wrote
        ("WRITES", [X, write(3, 4, "y", 2, version=1)]),  # one of them is lost
        ("READS", [X, Y, read(5, 6, "y", 1)]),
        ("READS", [X, Y, read(5, 6, "y", 7)]),
        ("READS", [X, Y, read(5, 6, "y", 2), read(7, 8, "x", 1)]),  # back in time
        ("READS", [X, Y, read(5, 6, "x", 1, "w")]),  # not its own write
        ("READS", [X, REFUSED, read(7, 8, "z", 2)]),
        ("FENCE", [write(1, 2, "x", 1, fence=9), write(3, 4, "y", 2, fence=8)]),
        ("FENCE", [write(1, 2, "x", 1, fence=9), Record(0, "v", "grant", "l", fence=9)]),
        ("READS", [X, read(3, 4, "of nobody", 9)]),
        ("READS", [X, Y, replace(read(5, 6, "x", 1), version=7)]),
        ("WRITES", [X, LOST, write(5, 6, "y", 3), write(7, 8, "q", 5)]),
    ],
)
def test_operations_that_cannot_be_are_found(name: str, history: list[Record]) -> None:
    assert name in names(history)
