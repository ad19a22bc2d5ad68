"""docs/partitioner.md is true: its code runs, and does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, NoNodeError

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "partitioner.md").read_text()
WORK, LOOP = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ITEMS = {"news", "blogs", "shops"}


class EnoughError(Exception):
    """The example's endless loop has shown what it is for."""


def test_its_members_share_the_items(zookeeper: ZooKeeperServer, observer: Client) -> None:
    working: list[set[str]] = [set(), set()]

    def program(own: set[str], stopped: Callable[[], None]) -> None:
        def show(what: str, items: Iterable[str]) -> None:
            if what == "work on":
                own.update(items)
            else:
                own.difference_update(items)
                stopped()

        try:
            exec(WORK.replace("127.0.0.1:2181", zookeeper.hosts), {"print": show})
        except EnoughError:
            own.clear()

    def end() -> None:
        if ends:
            raise EnoughError

    ends: list[bool] = []
    one = Running(lambda: program(working[0], end))
    poll("the first has all", lambda: working[0] == ITEMS or None, PATIENCE)
    other = Running(lambda: program(working[1], end))
    poll(
        "both have some", lambda: (all(working) and set.union(*working) == ITEMS) or None, PATIENCE
    )
    assert not working[0] & working[1]
    ends.append(True)
    for item in ITEMS:
        for lock in observer.get_children(f"/crawl/items/{item}"):
            with suppress(NoNodeError):  # it may have ended meanwhile
                observer.delete(f"/crawl/items/{item}/{lock}")
    one.result()
    other.result()
    observer.delete_tree("/crawl")


def test_its_loop_works_until_the_share_changes(
    zookeeper: ZooKeeperServer, observer: Client
) -> None:
    worked: list[tuple[str, int]] = []

    def show(_: str, item: str, __: str, fence: int) -> None:
        worked.append((item, fence))
        if len(worked) == 6:
            raise EnoughError

    with suppress(EnoughError):
        exec(LOOP.replace("127.0.0.1:2181", zookeeper.hosts), {"print": show})
    assert worked[:3] == worked[3:]
    assert {item for item, _ in worked} == ITEMS
    observer.delete_tree("/crawl")
