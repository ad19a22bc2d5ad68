"""A node's states forever, as both clients show them: which come, and what each end leaves."""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.shell.test_client_threads import forks, in_child
from tests.support.following_helpers import assert_in_order, watches
from tests.support.lock_helpers import PATIENCE, Running, Stage, requests
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import Life, sweep
from zkwire import Client, ForkedError, NoNodeError, SeenData


def data_forever(stage: Stage, client: Client, path: str) -> None:
    """Every state of a node that comes, changes, goes and comes back."""
    seen: list[Any] = []
    with client.watch_data(path) as watch:
        for data in (None, b"0", b"1", None, b"2"):
            change(stage.observer, path, data)
            while not seen or seen[-1].data != data:
                seen.append(watch.next(PATIENCE))
    assert_in_order(seen)
    missing = [one.stat is None for one in seen]
    assert (True, True) not in itertools.pairwise(missing), "missing, and still missing"


def change(observer: Client, path: str, data: bytes | None) -> None:
    """Give the node these data; None: there is none."""
    if data is None:
        with suppress(NoNodeError):
            observer.delete(path)
    elif observer.exists(path) is None:
        observer.create(path, data)
    else:
        observer.set_data(path, data)


def children_forever(stage: Stage, client: Client, path: str) -> None:
    with client.watch_children(path) as watch:
        seen: list[Any] = [watch.next(PATIENCE)]
        for names in ([], ["a"], ["a", "b"]):
            stage.observer.ensure_path("/".join([path, *names[-1:]]))
            while seen[-1].children != names:
                seen.append(watch.next(PATIENCE))
        assert_in_order(seen)


@pytest.mark.parametrize("life", [data_forever, children_forever])
def test_every_cut_at_every_request_of_a_watch(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str, life: Life
) -> None:
    before = watches(zookeeper)
    sweep(zookeeper, observer, fresh_path, life)
    poll("no watch is left", lambda: watches(zookeeper) <= before or None, PATIENCE)


def test_what_is_refused_at_once_leaves_nothing(stage: Stage, fresh_path: str) -> None:
    client = stage.client()

    async def later(_: SeenData) -> None: ...

    class Later:
        async def __call__(self, _: SeenData) -> None: ...

    for wrong, path, error in (
        (later, fresh_path, TypeError),
        (partial(later), fresh_path, TypeError),
        (Later(), fresh_path, TypeError),
        ("later", fresh_path, TypeError),
        (None, fresh_path[1:], ValueError),
    ):
        with pytest.raises(error):
            client.watch_data(path, wrong)  # type: ignore[arg-type]
    watch = client.watch_data(fresh_path)
    for limit, error in ((-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="timeout"):
            watch.next(limit)  # type: ignore[arg-type]
    assert not client._driver.services
    assert not [frame for frame in requests(stage.proxy.frames()) if frame.path == fresh_path]


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_so_and_a_second_reader_refused(
    stage: Stage, fresh_path: str
) -> None:
    client = stage.client()
    watch, other = client.watch_data(fresh_path), client.watch_data(fresh_path)
    states = iter(watch)
    next(states)

    def refused() -> None:
        for one in (watch, other):
            with pytest.raises(ForkedError):
                one.next()
            one.close()

    in_child(refused)
    waiting = Running(lambda: next(states))
    while not watch._algorithm._wanted:
        pass
    with pytest.raises(RuntimeError, match="one reader"):
        next(iter(watch))
    stage.observer.create(fresh_path, b"0")
    assert waiting.result().data == b"0"
    watch.close()
