"""The table of the servers' settings in docs/compatibility.md: compare it, or write it again.

    python3 -m tests.interop.matrix.settings_table --write

The releases are Debian's and those of `ZOOKEEPER_HOME`; what is stored of others stays.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.interop.matrix.settings import CASES, COLUMNS, Case, outcomes
from tests.support.installed_servers import every_release

DATA = Path(__file__).with_name("settings.json")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"
BEGIN, END = "<!-- begin: settings -->", "<!-- end: settings -->"
Found = dict[str, dict[str, str]]
"""By the title of the case and that of the column."""


def numbers(release: str) -> list[int]:
    """A release as something to compare."""
    return list(map(int, release.split(".")))


def run(release: str, cases: Iterable[Case]) -> Found:
    """What comes of those whose settings this release has."""
    os.environ["ZKWIRE_TEST_RELEASE"] = release
    known = [case for case in cases if numbers(release) >= numbers(case.since or "0")]
    return {case.title: outcomes(case) for case in known}


def stored() -> dict[str, Found]:
    """The outcomes of the last run, by the release."""
    loaded: dict[str, Found] = json.loads(DATA.read_text()) if DATA.exists() else {}
    return loaded


def rendered(by_release: dict[str, Found]) -> str:
    """The table; a cell in which releases differ names them."""
    lines = ["| " + " | ".join(["settings", *COLUMNS]) + " |"]
    lines.append("| --- " * (len(COLUMNS) + 1) + "|")
    for case in CASES:
        cells = [_cell(by_release, case.title, column) for column in COLUMNS]
        title = f"{case.title} (since {case.since})" if case.since else case.title
        lines.append("| " + " | ".join([title, *cells]) + " |")
    return "\n".join(lines)


def _cell(by_release: dict[str, Found], title: str, column: str) -> str:
    releases: dict[str, list[str]] = {}
    for release, found in by_release.items():
        if title not in found:
            continue
        releases.setdefault(found[title][column], []).append(release)
    if len(releases) == 1:
        return next(iter(releases))
    return "; ".join(f"{', '.join(which)}: {cell}" for cell, which in releases.items())


def replaced(text: str, by_release: dict[str, Found]) -> str:
    """The document with this table."""
    table = f"{BEGIN}\n{rendered(by_release)}\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: table, text, flags=re.DOTALL)


def main() -> int:
    """The exit status: 1 if the document or its data say something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.interop.matrix.settings_table")
    parser.add_argument("--write", action="store_true", help="put the table into the document")
    write = parser.parse_args().write
    found = stored()
    for release in every_release():
        found[release] = run(release, CASES)
        print(f"{release}: {len(found[release])} of {len(CASES)} cases", flush=True)
    found = dict(sorted(found.items()))
    data = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    old, new = DOCUMENT.read_text(), replaced(DOCUMENT.read_text(), found)
    if write:
        DOCUMENT.write_text(new)
        DATA.write_text(data)
    elif new != old or DATA.read_text() != data:
        print(f"{DOCUMENT.name} or {DATA.name} says something else; --write mends it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
