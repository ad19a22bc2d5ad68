"""Barriers on a server: nobody passes early, and nothing is left."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage, timed, watch_table_size
from tests.support.server_control import ZooKeeperServer
from tests.support.sweeping import sweep
from zkwire import Barrier, Client, ClientClosedError, DoubleBarrier
from zkwire.testing.proxy import cut_before

LIMIT = 0.3


def nothing_left(client: Client, path: str) -> None:
    soon("nothing is left", lambda: client.get_children(path) == [])


def test_a_wait_without_a_server(stage: Stage, fresh_path: str) -> None:
    barrier = Barrier(stage.client(), fresh_path)
    stage.proxy.refuse()
    stage.proxy.cut_all()
    passed, seconds = timed(lambda: barrier.wait(LIMIT))
    assert not passed
    assert LIMIT <= seconds < GRACE
    stage.proxy.refuse(False)
    stage.proxy.on("get_data", action=cut_before)
    assert barrier.wait(PATIENCE)


def test_arguments_and_misuse(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    counts: tuple[Any, ...] = (0, True, 1.5)
    for count in counts:
        with pytest.raises(ValueError, match="at least one member"):
            DoubleBarrier(observer, fresh_path, count)
    with pytest.raises(ValueError, match="the root"):
        Barrier(observer, "/")
    member = DoubleBarrier(observer, fresh_path, 1, "one")
    with pytest.raises(RuntimeError, match="not inside"):
        member.leave()
    assert member.enter()
    (name,) = [name for name in observer.get_children(fresh_path) if name != "ready"]
    assert observer.get_data(f"{fresh_path}/{name}").data == b"one"
    with pytest.raises(RuntimeError, match="inside already"), member:
        pass
    assert member.leave()
    with pytest.raises(ZeroDivisionError), member:
        print(1 / 0)
    nothing_left(observer, fresh_path)
    alone = DoubleBarrier(observer, fresh_path, 2)
    entering = Running(alone.enter)
    soon("it waits", lambda: observer.get_children(fresh_path))
    with pytest.raises(RuntimeError, match="another thread"):
        alone.enter()
    assert DoubleBarrier(observer, fresh_path, 2).enter()
    assert entering.result()
    with Client(zookeeper.hosts) as client:
        ended = DoubleBarrier(client, fresh_path, 1)
    with pytest.raises(ClientClosedError), ended:
        pass


def test_nodes_that_an_outsider_deletes(observer: Client, fresh_path: str) -> None:
    """A member stands anew as soon as it hears of anything; one that leaves has left."""
    observer.create(fresh_path)
    member, other = (DoubleBarrier(observer, fresh_path, 2) for _ in range(2))
    entering = Running(member.enter)
    soon("it waits", lambda: watch_table_size(observer))  # no longer looks
    (name,) = observer.get_children(fresh_path)
    observer.delete(f"{fresh_path}/{name}")
    observer.create(f"{fresh_path}/ready")
    soon("it is back", lambda: observer.get_children(fresh_path) == [name])
    assert other.enter()
    assert entering.result()
    observer.delete_tree(fresh_path)
    assert other.leave()
    assert member.leave()


def barrier(stage: Stage, client: Client, path: str) -> None:
    subject = Barrier(client, path)
    subject.close(PATIENCE)
    assert stage.observer.exists(path)
    assert not subject.wait(0)
    waiting = Running(subject.wait)
    stage.observer.delete(path)
    assert waiting.result()
    subject.close(PATIENCE)
    subject.open(PATIENCE)
    assert stage.observer.exists(path) is None


def double_barrier(stage: Stage, client: Client, path: str) -> None:
    """Once the other has begun the round, once this one; and so it is with the leaving."""
    subject, other = DoubleBarrier(client, path, 2), DoubleBarrier(stage.observer, path, 2)

    def inside() -> int:
        stat = stage.observer.exists(path)
        return 0 if stat is None else stat.num_children

    for first, second in ((subject, other), (other, subject)):
        begun = time.monotonic()
        entering = Running(lambda: first.enter(PATIENCE))  # noqa: B023
        soon("it waits", inside)
        assert second.enter(PATIENCE)
        assert entering.result()
        leaving = Running(lambda: first.leave(PATIENCE))  # noqa: B023
        assert second.leave(PATIENCE)
        assert leaving.result()
        assert time.monotonic() - begun < GRACE
        nothing_left(stage.observer, path)


@pytest.mark.parametrize("life", [barrier, double_barrier])
def test_every_cut_at_every_request(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str, life: Any
) -> None:
    sweep(zookeeper, observer, fresh_path, life)
