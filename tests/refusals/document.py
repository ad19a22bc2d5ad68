"""docs/refusals.md: the tables between its markers, one for each recipe; the rest is by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.connection_loss.document import sections, table
from zkwire.errors import SERVER_ERRORS
from zkwire.testing.kit import IGNORED, RAISED, REPEATED, Refused

PATH = Path(__file__).resolve().parents[2] / "docs" / "refusals.md"
MARKER = "refusals"
COLUMNS = (RAISED, REPEATED, IGNORED)
QUIET = (REPEATED, IGNORED)
UNKNOWN = "an unknown code"
_ROW = re.compile(r"^\| (?P<request>`.*?`) \| (?P<cells>.*) \|$")

Rows = dict[str, dict[str, set[str]]]
"""By request, for each outcome the names of the codes."""


def recipe_of(title: str) -> str:
    """The recipe that a life is of."""
    return re.split(r"[,:]", title)[0]


def code_name(code: int) -> str:
    kind = SERVER_ERRORS.get(code)
    return UNKNOWN if kind is None else kind.__name__.removesuffix("Error")


def add(rows: Rows, found: Iterable[Refused]) -> None:
    """Note what was seen."""
    for refused in found:
        cells = rows.setdefault(f"`{refused.request}`", {})
        cells.setdefault(refused.outcome, set()).add(code_name(refused.code))


def told(rows: Rows) -> Rows:
    """What the page tells of them.

    Whether a call waits at a refusal is a matter of time: where one may raise it, the page does not
    say that it is tried again without; and it says "goes on" only where nothing else was seen.
    """
    page: Rows = {}
    for request, cells in rows.items():
        loud = set[str]().union(*(codes for o, codes in cells.items() if o not in QUIET))
        again = cells.get(REPEATED, set()) - loud
        quiet = {REPEATED: again, IGNORED: cells.get(IGNORED, set()) - loud - again}
        page[request] = {
            outcome: left for outcome, codes in cells.items() if (left := quiet.get(outcome, codes))
        }
    return page


def untold(page: Rows, seen: Rows) -> list[str]:
    """What callers were told and the page does not say."""
    return [
        f"{request}: {outcome}: {', '.join(sorted(missing))}"
        for request, cells in seen.items()
        for outcome, codes in cells.items()
        if outcome not in QUIET
        and (missing := codes - page.get(request, {}).get(outcome, set[str]()))
    ]


def written(by_recipe: Mapping[str, Rows]) -> str:
    """The tables in Markdown."""
    tables: list[str] = []
    for recipe, rows in by_recipe.items():
        others = sorted({outcome for cells in rows.values() for outcome in cells} - {*COLUMNS})
        columns = [*COLUMNS, *others]
        lines = [
            [request, *(", ".join(sorted(cells.get(c, ()))) for c in columns)]
            for request, cells in sorted(rows.items())
        ]
        tables.append(f"### {recipe}\n\n{table(['request', *columns], lines)}")
    return "\n\n".join(tables)


def read(text: str) -> dict[str, Rows]:
    """The tables of the page."""
    found: dict[str, Rows] = {}
    for part in sections(text)[MARKER].split("### ")[1:]:
        title, *lines = part.strip().splitlines()
        columns = lines[1].strip("| ").split(" | ")[1:]
        rows = found.setdefault(title, {})
        for match in filter(None, map(_ROW.match, lines)):
            cells = [cell.strip() for cell in match["cells"].split(" | ")]
            named = zip(columns, cells, strict=True)
            rows[match["request"]] = {c: {*cell.split(", ")} for c, cell in named if cell}
    return found
