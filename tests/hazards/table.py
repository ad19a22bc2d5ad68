"""Which test provokes which hazard: reads ``rows.toml``, finds the tests, writes the document.

    python3 -m tests.hazards.table      # writes docs/hazards.md anew

A test belongs to a row by its name, ``test_hazard_<row>_...`` or ``test_known_<row>_...``, wherever
it stands, so there is no other list to keep up to date than the document.  Test files are
parsed, not imported: what is found does not depend on what is installed.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parent.parent
ROWS_FILE = Path(__file__).with_name("rows.toml")
DOCUMENT = TESTS.parent / "docs" / "hazards.md"

CHAPTERS = {
    "A": ("Client: connection, session, protocol", 57),
    "B": ("Fair lock: a queue of sequential nodes", 44),
    "C": ("Single-node locks", 10),
    "D": ("Read-write lock, semaphore, election", 13),
    "E": ("Processes, signals, the command line", 14),
    "F": ("Services in the background", 3),
}
NUMBERS = [f"{chapter}{n + 1}" for chapter, (_, size) in CHAPTERS.items() for n in range(size)]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NUMBERED = re.compile(r"test_(?:known|hazard)_((?:[A-Z]\d+_)+)")

INTRODUCTION = """\
# Hazards that other clients have met

This page lists {count} bugs and dangers of ZooKeeper clients and lock recipes, and the tests that
provoke each of them in zkwire. It is for developers that write or compare such a client, and for
users that have met such a bug elsewhere.

{contents}

The number of a row is part of the names of its tests; `pytest -k "_B5_"` runs those of row B5.
{numbered} rows of {count} have such a test; a row without one says why it cannot apply.

`python3 -m tests.hazards.table` writes this page from `rows.toml` and the tests; a test fails when
it is out of date.
"""


class Row(NamedTuple):
    """One hazard in one line, where it was seen, and what is known about it here."""

    summary: str
    seen: str
    reason: str = ""


def rows() -> dict[str, Row]:
    """All hazards, by number."""
    table = tomllib.loads(ROWS_FILE.read_text(encoding="utf-8"))
    return {number: Row(**fields) for number, fields in table.items()}


@cache
def test_names() -> frozenset[str]:
    """Every existing test, as ``file.py::function``, with the path below ``tests``."""
    return frozenset(
        f"{file.relative_to(TESTS).as_posix()}::{name}"
        for file in TESTS.rglob("test_*.py")
        for name in _functions(file)
    )


test_names.__test__ = False  # type: ignore[attr-defined]  # it is none itself


def _functions(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text(encoding="utf-8"), str(file)).body:
        if isinstance(node, FUNCTIONS) and node.name.startswith("test_"):
            yield node.name


def numbered() -> dict[str, list[str]]:
    """The tests that carry a number, by that number."""
    found: dict[str, list[str]] = {}
    for test in sorted(test_names()):
        match = NUMBERED.match(test.partition("::")[2])
        for number in match[1].split("_")[:-1] if match else ():
            found.setdefault(number, []).append(test)
    return found


def document() -> str:
    """The text of docs/hazards.md."""
    table, tests = rows(), numbered()
    counts = {
        "count": len(table),
        "numbered": len([number for number in table if number in tests]),
    }
    parts = [INTRODUCTION.format(contents=_contents(), **counts)]
    for chapter, (title, _) in CHAPTERS.items():
        parts.append(f"\n## {chapter}. {title}\n\n| # | what happened | seen in | here |\n")
        parts.append("| --- | --- | --- | --- |\n")
        parts += [
            f"| {number} | {row.summary} | {row.seen} | {_here(row, tests.get(number, []))} |\n"
            for number, row in table.items()
            if number.startswith(chapter)
        ]
    return "".join(parts)


def _contents() -> str:
    """A link to each chapter."""
    headings = [f"{chapter}. {title}" for chapter, (title, _) in CHAPTERS.items()]
    return " \N{MIDDLE DOT}\n".join(f"[{heading}](#{_anchor(heading)})" for heading in headings)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _here(row: Row, tests: list[str]) -> str:
    cells = [_short(test) for test in tests]
    if row.reason:
        cells.insert(0, row.reason)
    return "<br>".join(cells)


def _short(test: str) -> str:
    file, _, name = test.partition("::")
    return f"`{file.removesuffix('.py').rpartition('/')[2]}::{name}`"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    print(f"{DOCUMENT.relative_to(TESTS.parent)}: {len(rows())} rows")
