"""The table of the servers' settings in docs/compatibility.md: compare it, or write it again.

python3 -m tests.interop.matrix.settings_table --write
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.interop import pages
from tests.interop.matrix.settings import CASES, COLUMNS, outcomes
from tests.interop.matrix.table import numbers

DATA = Path(__file__).with_name("settings.json")
DOCUMENT = pages.DOCUMENTS / "compatibility.md"
BEGIN, END = pages.marks("settings")
Found = dict[str, dict[str, str]]
"""By the title of the case and that of the column."""


def stored() -> dict[str, Found]:
    """The outcomes of the last run, by the release."""
    loaded: dict[str, Found] = json.loads(DATA.read_text())
    return loaded


def replaced(text: str, by_release: dict[str, Found]) -> str:
    """The document with the table; a cell in which releases differ names them."""
    rows = []
    for case in CASES:
        title = f"{case.title} (since {case.since})" if case.since else case.title
        rows.append([title, *(_cell(by_release, case.title, column) for column in COLUMNS)])
    return pages.with_parts(text, {"settings": pages.table(["settings", *COLUMNS], rows)})


def _cell(by_release: dict[str, Found], title: str, column: str) -> str:
    releases: dict[str, list[str]] = {}
    for release, found in by_release.items():
        if title in found:
            releases.setdefault(found[title][column], []).append(release)
    if len(releases) == 1:
        return next(iter(releases))
    return "; ".join(f"{', '.join(which)}: {cell}" for cell, which in releases.items())


def found(release: str) -> Found:
    """What comes of the cases whose settings this release knows."""
    known = [case for case in CASES if numbers(release) >= numbers(case.since or "0")]
    return {case.title: outcomes(case) for case in known}


if __name__ == "__main__":
    program = "tests.interop.matrix.settings_table"
    sys.exit(pages.on_each_release(program, found, DATA, DOCUMENT, replaced))
