"""Curator's recipes beside zkwire's and kazoo's do what the pages say, though sessions end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.curator.process import Curator, NoCuratorError, find_curator, running
from tests.neighbours import table
from tests.neighbours.pairs import PAIRS, Pair, contend
from tests.neighbours.scenarios import CURATOR, SCENARIOS, Scene, outcome
from tests.neighbours.sides import CuratorSide
from tests.support.server_control import ZooKeeperServer
from zkwire import Client

pytestmark = pytest.mark.apache

GRANTS = 40  # of each library, if none is wrong


@pytest.fixture(scope="module")
def curator(zookeeper: ZooKeeperServer) -> Iterator[Curator]:
    try:
        find_curator()
    except NoCuratorError as error:
        unavailable(str(error))
    with running(zookeeper.hosts) as started:
        yield started


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.with_curator], ids=lambda pair: pair.title
)
def test_locks_on_one_path(
    kazoo: Any, curator: Curator, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
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
        if CURATOR in libraries
    ],
)
def test_recipes_on_one_path(
    curator: Curator,
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    page: str,
    title: str,
) -> None:
    scenario, _ = SCENARIOS[page][title]
    with ExitStack() as stack:
        scene = Scene(zookeeper.hosts, fresh_path, observer, stack)
        seen = outcome(scenario, scene, CuratorSide(curator))
    assert seen == table.stored()["recipes"][page][title][CURATOR]
