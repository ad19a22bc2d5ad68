"""Which test provokes which hazard: finds the tests, and writes them into the document.

    python3 -m tests.hazards.table      # brings the last column of docs/hazards.md up to date

A test belongs to a row by its name, ``test_hazard_<row>_...`` or ``test_known_<row>_...``, wherever
it stands, so there is no other list to keep up to date than the document; its other columns are
written by hand.  Test files are parsed, not imported: what is found does not depend on what is
installed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
DOCUMENT = TESTS.parent / "docs" / "hazards.md"

CHAPTERS = {"A": 57, "B": 44, "C": 10, "D": 13, "E": 14, "F": 3}
"""How many rows each has."""
NUMBERS = [f"{chapter}{n + 1}" for chapter, size in CHAPTERS.items() for n in range(size)]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NUMBERED = re.compile(r"test_(?:known|hazard)_((?:[A-Z]\d+_)+)")
ROW = re.compile(r"^(\| ([A-Z]\d+) \|.*\|.*\|) (.*) \|$", re.MULTILINE)


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


def rows() -> list[str]:
    """The numbers of the document's rows, in order."""
    return [match[2] for match in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))]


def document() -> str:
    """The text of docs/hazards.md, up to date."""
    tests = numbered()

    def row(match: re.Match[str]) -> str:
        said = [part for part in match[3].split("<br>") if not part.startswith("`")]  # by hand
        return f"{match[1]} {'<br>'.join([*said, *map(_short, tests.get(match[2], []))])} |"

    return ROW.sub(row, DOCUMENT.read_text(encoding="utf-8"))


def _short(test: str) -> str:
    file, _, name = test.partition("::")
    return f"`{file.removesuffix('.py').rpartition('/')[2]}::{name}`"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    print(f"{DOCUMENT.relative_to(TESTS.parent)}: {len(rows())} rows")
