"""Curator's recipes beside zkwire's and kazoo's on the same nodes do what the pages say.

`process.py` says where Curator is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.interop.curator.process import Curator, find_curator, running
from tests.interop.neighbours import table
from tests.interop.neighbours.pairs import PAIRS, Pair
from tests.interop.neighbours.scenarios import CURATOR, SCENARIOS, Scene, outcome, rows_with
from tests.interop.neighbours.sides import CuratorMember, CuratorSide
from tests.interop.other_clients.clients import NoClientError
from tests.support.lock_helpers import GRACE, PATIENCE, Running
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, Counter, DoubleBarrier, NoNodeError

pytestmark = pytest.mark.apache


@pytest.fixture(scope="module")
def curator(zookeeper: ZooKeeperServer) -> Iterator[Curator]:
    """One process with Curator for all of these tests."""
    try:
        find_curator("BesideCurator")
    except NoClientError as error:
        unavailable(str(error))
    with running(zookeeper.hosts) as started:
        yield started


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.with_curator], ids=lambda pair: pair.title
)
def test_locks_on_one_path(
    kazoo: Any, curator: Curator, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
) -> None:
    table.assert_as_stored(zookeeper, fresh_path, pair)


@pytest.mark.parametrize(("page", "title"), rows_with(CURATOR))
def test_recipes_on_one_path_though_sessions_end(
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


# --- what the scenarios leave out -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "format", "least"),
    [("count", "int32", -(2**31)), ("long", "int64", -(2**63))],
    ids=["SharedCount", "DistributedAtomicLong"],
)
def test_counters_of_both_read_what_the_other_has_written(
    curator: Curator, observer: Client, fresh_path: str, recipe: str, format: Any, least: int
) -> None:
    counter = Counter(observer, fresh_path, format=format)
    for number in (1, least, -1, -least - 1):
        counter.set(number)
        assert curator.call(recipe, fresh_path, 0, 0) == f"{number} 0"
    assert curator.call(recipe, fresh_path, 1, -7) == f"{-least - 8} 0"
    assert counter.get() == -least - 8
    with pytest.raises(OverflowError):
        counter.add(8)
    assert curator.call(recipe, f"{fresh_path}-new", 2, 5) == "10 0"
    assert Counter(observer, f"{fresh_path}-new", format=format).add(-11) == -1
    assert curator.call(recipe, f"{fresh_path}-new", 0, 0) == "-1 0"


def test_members_that_time_out(curator: Curator, observer: Client, fresh_path: str) -> None:
    """Curator's keeps its node until it leaves, and counts as one that is there; ours has none."""
    ours, other = (DoubleBarrier(observer, fresh_path, 2) for _ in range(2))
    theirs = CuratorMember(curator, fresh_path, 2, f"{fresh_path}/one")
    assert not theirs.enter(50)
    assert len(names(observer, fresh_path)) == 1
    assert theirs.leave()
    assert not ours.enter(0.05)
    poll("nothing is left", lambda: not names(observer, fresh_path) or None, GRACE)
    entering = Running(theirs.enter)
    poll("it waits", lambda: names(observer, fresh_path) or None, GRACE)
    assert ours.enter()
    assert entering.result()
    assert not ours.leave(0.05)  # its node is gone, so Curator's member waits for none
    assert theirs.leave()
    together(ours.enter, other.enter)
    together(ours.leave, other.leave)


def together(*calls: Any) -> None:
    for called in [Running(call) for call in calls]:
        assert called.result(2 * PATIENCE)


def names(client: Client, path: str) -> list[str]:
    try:
        return client.get_children(path)
    except NoNodeError:  # Curator makes a container
        return []
