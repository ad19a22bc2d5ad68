"""kazoo's recipes beside zkwire's do what the pages say, each side losing a session meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.neighbours import table
from tests.neighbours.pairs import PAIRS, Pair, contend
from tests.neighbours.scenarios import KAZOO, SCENARIOS, Scene, outcome
from tests.neighbours.sides import kazoo_side
from tests.support.server_control import ZooKeeperServer
from zkwire import Client

pytestmark = pytest.mark.apache

GRANTS = 40  # of each library, if none is wrong


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if not pair.with_curator], ids=lambda pair: pair.title
)
def test_locks_on_one_path(
    kazoo: Any, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
) -> None:
    """Each grant is judged by the nodes that the server has at that moment."""
    seen = contend(zookeeper, fresh_path, pair, GRANTS)
    assert bool(seen.wrong) == bool(table.stored()["locks"][pair.title]["wrong"]), seen


@pytest.mark.parametrize(
    ("page", "title"),
    [
        (page, title)
        for page, rows in SCENARIOS.items()
        for title, (_, libraries) in rows.items()
        if KAZOO in libraries
    ],
)
def test_recipes_on_one_path(
    kazoo: Any,
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    page: str,
    title: str,
) -> None:
    scenario, _ = SCENARIOS[page][title]
    with kazoo_side(zookeeper.hosts) as theirs, ExitStack() as stack:
        seen = outcome(scenario, Scene(zookeeper.hosts, fresh_path, observer, stack), theirs)
    assert seen == table.stored()["recipes"][page][title][KAZOO]
