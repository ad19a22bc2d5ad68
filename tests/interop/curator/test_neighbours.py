"""Curator's recipes beside zkwire's and kazoo's do what the pages say, though sessions end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.interop.curator.process import Curator
from tests.interop.neighbours import table
from tests.interop.neighbours.again import assert_as_stored, rows_with
from tests.interop.neighbours.pairs import PAIRS, Pair
from tests.interop.neighbours.scenarios import CURATOR, SCENARIOS, Scene, outcome
from tests.interop.neighbours.sides import CuratorSide
from tests.support.server_control import ZooKeeperServer
from zkwire import Client

pytestmark = pytest.mark.apache


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.with_curator], ids=lambda pair: pair.title
)
def test_locks_on_one_path(
    kazoo: Any, curator: Curator, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
) -> None:
    assert_as_stored(zookeeper, fresh_path, pair)


@pytest.mark.parametrize(("page", "title"), rows_with(CURATOR))
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
