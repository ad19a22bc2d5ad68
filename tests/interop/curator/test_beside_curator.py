"""Curator and zkwire on the same nodes: counters, barriers, groups, each member as good as another.

`tests/interop/curator/process.py` says where Curator is looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.curator.process import Curator
from tests.interop.neighbours.sides import CuratorMember
from tests.support.lock_helpers import GRACE, PATIENCE, Running
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, Counter, DoubleBarrier, Group, NoNodeError

pytestmark = pytest.mark.apache

TIMES = 100
ADDED = 3  # at once by Curator; zkwire adds 1000 at once


# --- counters -------------------------------------------------------------------------------------

counters = pytest.mark.parametrize(
    ("recipe", "format", "least"),
    [("count", "int32", -(2**31)), ("long", "int64", -(2**63))],
    ids=["SharedCount", "DistributedAtomicLong"],
)


@counters
def test_both_read_what_the_other_has_written(
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


@counters
def test_both_in_one_race(
    curator: Curator,
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    format: Any,
    least: int,
) -> None:
    """Two of each kind, from no node on.

    Each ``add`` of zkwire counts, and each of Curator's that is told to have succeeded.
    """

    def ours(client: Client) -> None:
        counter = Counter(client, fresh_path, format=format)
        for _ in range(TIMES):
            counter.add(1000, PATIENCE)

    with Client(zookeeper.hosts) as second:
        adding = [Running(lambda c=client: ours(c)) for client in (observer, second)]  # type: ignore[misc]
        theirs = [Running(lambda: curator.call(recipe, fresh_path, TIMES, ADDED)) for _ in range(2)]
        for calls in adding:
            calls.result(4 * PATIENCE)
        failed = sum(int(calls.result(4 * PATIENCE).split()[1]) for calls in theirs)
    successes = 2 * TIMES - (failed if recipe == "long" else 0)  # SharedCount tries until it is set
    observer.sync(fresh_path)
    assert Counter(observer, fresh_path, format=format).get() == (
        2 * TIMES * 1000 + successes * ADDED
    )
    with capsys.disabled():
        print(f"\n{recipe}: {2 * TIMES} and {successes} changes, {failed} of Curator's failed")


# --- barriers -------------------------------------------------------------------------------------


def together(calls: list[Callable[[], bool]]) -> None:
    for called in [Running(call) for call in calls]:
        assert called.result(2 * PATIENCE)


@pytest.mark.parametrize("ours", [1, 2, 3])
def test_members_of_both_enter_and_leave_together(
    curator: Curator, observer: Client, fresh_path: str, ours: int
) -> None:
    """Four members, round by round."""
    members: list[Any] = [
        *(DoubleBarrier(observer, fresh_path, 4) for _ in range(ours)),
        *(CuratorMember(curator, fresh_path, 4, f"{fresh_path}/{n}") for n in range(4 - ours)),
    ]
    for _ in range(5):
        first = [Running(member.enter) for member in members[:-1]]
        poll("they wait", lambda: len(names(observer, fresh_path)) == 3 or None, PATIENCE)
        assert not any(entering.ended for entering in first)
        assert members[-1].enter()
        assert all(entering.result(2 * PATIENCE) for entering in first)
        together([member.leave for member in members])
        poll("nothing is left", lambda: not names(observer, fresh_path) or None, GRACE)


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
    together([ours.enter, other.enter])
    together([ours.leave, other.leave])


def names(client: Client, path: str) -> list[str]:
    try:
        return client.get_children(path)
    except NoNodeError:  # Curator makes a container
        return []


# --- groups ---------------------------------------------------------------------------------------


def test_members_of_both_see_each_other(
    curator: Curator, observer: Client, fresh_path: str
) -> None:
    def seen(expected: str) -> bool | None:
        return curator.call("group", "theirs", "members") == expected or None

    with Group(observer, fresh_path) as group:
        curator.call("group", "theirs", "join", fresh_path, "a")
        assert group.wait_for(1, PATIENCE)
        assert [(member.name, member.data) for member in group.members()] == [("theirs", b"a")]
        membership = group.join(b"b", "ours")
        poll("Curator sees it", lambda: seen("{ours=b, theirs=a}"), PATIENCE)
        membership.set_data(b"c")
        poll("Curator sees its data", lambda: seen("{ours=c, theirs=a}"), PATIENCE)
        curator.call("group", "theirs", "set", "d")
        after = {"theirs": b"d", "ours": b"c"}
        poll("its data is seen", lambda: shown(group) == after or None, PATIENCE)
        membership.close()
        poll("Curator sees its end", lambda: seen("{theirs=d}"), PATIENCE)
        curator.call("group", "theirs", "leave")
        poll("its end is seen", lambda: not shown(group) or None, PATIENCE)


def shown(group: Group) -> dict[str, bytes]:
    return {member.name: member.data for member in group.members(PATIENCE)}
