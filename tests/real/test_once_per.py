"""What is due once per period: one claims of all, on the servers' clock, and nothing is left."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE, Stage
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import sweep
from zkwire import Client, NoChildrenForEphemeralsError, OncePer, OperationTimeoutError
from zkwire.testing.proxy import black_hole

HOUR = timedelta(hours=1)
WRONG: list[tuple[Any, type[Exception]]] = [
    (0, ValueError), (float("nan"), ValueError), (1e308, ValueError), (True, TypeError),
    ("1h", TypeError),
]  # fmt: skip


def test_it_is_given_back(observer: Client, fresh_path: str) -> None:
    one, other = (OncePer(observer, fresh_path, HOUR) for _ in range(2))
    with pytest.raises(RuntimeError, match="nothing was claimed"):
        one.give_back()
    assert one.claim()
    one.give_back()
    assert other.claim()
    other.give_back()
    assert one.claim()
    observer.set_data(fresh_path, b"by hand")
    one.give_back()  # another has it by now
    assert observer.get_data(fresh_path).data == b"by hand"
    assert not other.claim()
    observer.delete(fresh_path)
    assert other.claim()
    observer.delete(fresh_path)
    other.give_back()


def test_arguments(observer: Client, fresh_path: str) -> None:
    for wrong, error in WRONG:
        with pytest.raises(error, match="period must be"):
            OncePer(observer, fresh_path, wrong)
    observer.create(fresh_path, b"claimed", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        OncePer(observer, fresh_path, HOUR).claim()


@pytest.mark.parametrize("op", ["get_data", "create", "set_data"])
def test_a_call_that_is_late_leaves_nothing(stage: Stage, fresh_path: str, op: str) -> None:
    def free() -> bool | None:
        stat = stage.observer.exists(fresh_path)
        return stat is None or stat.data_length == 0 or None

    job = OncePer(stage.client(), fresh_path, HOUR)
    if op == "set_data":
        assert job.claim()
    stage.proxy.on(op, action=black_hole)
    with pytest.raises(OperationTimeoutError) as caught:
        job.give_back(0.2) if op == "set_data" else job.claim(0.2)
    assert not caught.value.maybe_applied or op == "set_data"
    stage.heal()
    stage.proxy.cut_all()
    poll("it is free", free, GRACE)
    assert job.claim()


def test_every_cut_at_every_request_of_a_claim(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    def life(stage: Stage, client: Client, path: str) -> None:
        job, short = OncePer(client, path, HOUR), OncePer(client, path, 0.001)
        other = OncePer(stage.observer, path, HOUR)
        assert job.claim(PATIENCE)
        assert not other.claim(PATIENCE)
        assert not job.claim(PATIENCE)
        time.sleep(0.002)  # a fast server has done all this within the millisecond of the claim
        assert short.claim(PATIENCE)
        job.give_back(PATIENCE)  # of what another has by now
        assert not other.claim(PATIENCE)
        short.give_back(PATIENCE)
        assert other.claim(PATIENCE)
        assert stage.observer.get_children(path) == []

    sweep(zookeeper, observer, fresh_path, life)
