"""What the contests and the scenarios have shown, as data, and the documents' tables of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypedDict

from tests.interop.neighbours.arbiter import Judgement
from tests.interop.neighbours.pairs import PAIRS
from tests.interop.neighbours.scenarios import EITHER, SCENARIOS

DATA = Path(__file__).with_name("outcomes.json")
DOCUMENTS = Path(__file__).resolve().parents[3] / "docs"
LOCKS_HEAD = (
    "| lock | on one path | may share it | grants | wrong ones |\n| --- | --- | --- | --- | --- |\n"
)


class Outcomes(TypedDict):
    """What a run has shown."""

    locks: dict[str, dict[str, int]]
    """By the title of the pair: its grants, and how many of them were wrong."""
    recipes: dict[str, dict[str, dict[str, str]]]
    """By the page, the title of the scenario and the library."""


def stored() -> Outcomes:
    """The outcomes of the last run."""
    loaded: Outcomes = json.loads(DATA.read_text())
    return loaded


def counts(seen: Judgement) -> dict[str, int]:
    return {"grants": sum(seen.grants.values()), "wrong": len(seen.wrong)}


def written(outcomes: Outcomes) -> str:
    """The data as text."""
    return json.dumps(outcomes, indent=1, ensure_ascii=False) + "\n"


def of_locks(outcomes: Outcomes) -> str:
    """A line for each pair."""
    lines = [LOCKS_HEAD]
    for pair in PAIRS:
        grants, wrong = outcomes["locks"][pair.title].values()
        verdict = "**never**" if wrong else "yes"
        lines.append(f"| {pair.lock} | {pair.title} | {verdict} | {grants:,} | {wrong:,} |\n")
    return "".join(lines)


def of_recipes(outcomes: Outcomes, page: str) -> str:
    """A line for each scenario of a page."""
    rows = outcomes["recipes"][page]
    libraries = [name for name in EITHER if any(name in found for found in rows.values())]
    lines = [
        f"| on one path | {' | '.join(libraries)} |\n",
        "| --- " * (len(libraries) + 1) + "|\n",
    ]
    for title in SCENARIOS[page]:
        cells = [rows[title].get(name, "none") for name in libraries]
        lines.append(f"| {title} | {' | '.join(cells)} |\n")
    return "".join(lines)


def pages(outcomes: Outcomes) -> dict[Path, str]:
    """Each document with its tables, as it is to be."""
    made = {}
    for page in SCENARIOS:
        path = DOCUMENTS / f"{page}.md"
        text = replaced(path.read_text(), "neighbours", of_recipes(outcomes, page))
        if page == "locks":
            text = replaced(text, "contests", of_locks(outcomes))
        made[path] = text
    return made


def replaced(text: str, name: str, table: str) -> str:
    """The text with this table; ValueError unless it has one place for it."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    new, count = re.subn(pattern, lambda _: begin + table + end, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{count} places for the table of {name}")
    return new
