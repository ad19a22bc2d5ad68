"""What the contests and the scenarios have shown, as data, and the documents' tables of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from tests.interop import pages as documents
from tests.interop.neighbours.arbiter import Judgement
from tests.interop.neighbours.pairs import GRANTS, PAIRS, Pair, contend
from tests.interop.neighbours.scenarios import EITHER, SCENARIOS
from tests.support.server_control import ZooKeeperServer

DATA = Path(__file__).with_name("outcomes.json")


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


def assert_as_stored(server: ZooKeeperServer, path: str, pair: Pair) -> None:
    """A short part of a run, made again: each grant is judged by the nodes at that moment."""
    seen = contend(server, path, pair, GRANTS)
    assert bool(seen.wrong) == bool(stored()["locks"][pair.title]["wrong"]), seen


def of_locks(outcomes: Outcomes) -> str:
    """A line for each pair."""
    rows = []
    for pair in PAIRS:
        grants, wrong = outcomes["locks"][pair.title].values()
        verdict = "**never**" if wrong else "yes"
        rows.append([pair.lock, pair.title, verdict, f"{grants:,}", f"{wrong:,}"])
    return documents.table(["lock", "on one path", "may share it", "grants", "wrong ones"], rows)


def of_recipes(outcomes: Outcomes, page: str) -> str:
    """A line for each scenario of a page."""
    found = outcomes["recipes"][page]
    libraries = [name for name in EITHER if any(name in row for row in found.values())]
    rows = [[t, *(found[t].get(name, "none") for name in libraries)] for t in SCENARIOS[page]]
    return documents.table(["on one path", *libraries], rows)


def pages(outcomes: Outcomes) -> dict[Path, str]:
    """Each document with its tables, as it is to be."""
    made = {}
    for page in SCENARIOS:
        path = documents.DOCUMENTS / f"{page}.md"
        parts = {"neighbours": of_recipes(outcomes, page)}
        if page == "locks":
            parts["contests"] = of_locks(outcomes)
        made[path] = documents.with_parts(path.read_text(), parts)
    return made
