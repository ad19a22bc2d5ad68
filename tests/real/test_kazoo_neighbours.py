"""kazoo's recipes beside zkwire's do what the pages say, each side losing a session meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.interop.neighbours import table
from tests.interop.neighbours.again import assert_as_stored, rows_with
from tests.interop.neighbours.pairs import PAIRS, Pair
from tests.interop.neighbours.scenarios import KAZOO, SCENARIOS, Scene, outcome
from tests.interop.neighbours.sides import kazoo_side
from tests.support.server_control import ZooKeeperServer
from zkwire import Client

pytestmark = pytest.mark.apache


@pytest.mark.parametrize(
    "pair",
    [pair for pair in PAIRS if not (pair.with_curator or pair.with_kazoos_names)],
    ids=lambda pair: pair.title,
)
def test_locks_on_one_path(
    kazoo: Any, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
) -> None:
    assert_as_stored(zookeeper, fresh_path, pair)


@pytest.mark.parametrize(("page", "title"), rows_with(KAZOO))
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
