"""A server that is cut off from its leader, and what is true for the clients that it still serves.

It is the one partition in which a lease does not help, see `docs/connection-loss.md`: the server
answers pings and reads by itself, while the leader ends the session of which it hears nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.connection_loss.lagging import Lag, lagging_follower
from tests.support.family_helpers import soon
from tests.support.installed_servers import InstalledBackend
from tests.support.server_control import Backend
from zkwire import (
    Client,
    LockLostError,
    OperationTimeoutError,
    SequentialLock,
    SetData,
    ZooKeeperError,
)
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import Frame

pytestmark = pytest.mark.apache

SESSION_TIMEOUT = 2.0
LIMIT = 40.0


@pytest.fixture(scope="module")
def lag(backend: Backend) -> Iterator[Lag]:
    if not isinstance(backend, InstalledBackend):
        pytest.skip(f"changes the links between servers, which are {backend}")
    with lagging_follower(backend) as lag:
        yield lag


@pytest.fixture
def split(lag: Lag) -> Iterator[Lag]:
    yield lag
    lag.end()


@pytest.fixture
def holder(split: Lag) -> Iterator[Client]:
    with Client(split.hosts, session_timeout=SESSION_TIMEOUT) as client:
        yield client


@pytest.fixture
def rival(split: Lag) -> Iterator[Client]:
    with Client(split.up_to_date.hosts, session_timeout=SESSION_TIMEOUT) as client:
        yield client


def test_a_holder_behind_it_claims_beside_the_next_one_and_only_what_passes_the_leader_tells(
    split: Lag, holder: Client, rival: Client, fresh_path: str
) -> None:
    """The limit of the lease; and that the fence, `guard` and an answered `sync` have none."""
    rival.create(fresh_path)
    data = f"{fresh_path}/data"
    rival.create(data, b"before")
    first, second = (
        SequentialLock(holder, f"{fresh_path}/l"),
        SequentialLock(rival, f"{fresh_path}/l"),
    )
    assert first.acquire(LIMIT)
    holder.sync(first.path)
    assert first.held
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.acquire, LIMIT)
        soon("the rival is in the queue", lambda: len(second.contenders()) == 2)
        split.cut_off()
        assert waiting.result()
    assert second.held
    assert first.held, "if it knows better now, the document has to say so"
    assert first.fence < second.fence

    with pytest.raises(OperationTimeoutError):
        holder.pipeline.sync(first.path).result(0.5)
    with ThreadPoolExecutor(1) as pool:
        guarded = pool.submit(first.guard, [SetData(data, b"by the first")])
        (stat,) = second.guard([SetData(data, b"by the second")])
        split.end()
        with pytest.raises(ZooKeeperError):
            guarded.result()
    soon("the first one is told", first.lost.is_set)
    assert rival.get_data(data) == (b"by the second", stat)
    second.release()
    with pytest.raises(LockLostError):
        first.release()


def test_an_answered_sync_comes_behind_the_loss_of_the_lock(
    split: Lag, holder: Client, rival: Client, fresh_path: str
) -> None:
    """So `held` after a `sync` is what the leader knew meanwhile."""
    lock = SequentialLock(holder, fresh_path)
    assert lock.acquire(LIMIT)
    split.cut_off()
    rival.sync(fresh_path)  # its server may not have heard of the lock yet
    (contender,) = SequentialLock(rival, fresh_path).contenders()
    rival.delete(contender.path)
    asked = holder.pipeline.sync(fresh_path)
    assert lock.held
    split.end()
    asked.result(LIMIT)
    assert not lock.held
    assert lock.lost.is_set()


def test_hazard_A46_a_follower_that_crashes_before_it_reports_an_answered_ping(
    backend: Backend, fresh_path: str
) -> None:
    """The leader counts from the ping before, which the lease takes into account with a margin."""
    if not isinstance(backend, InstalledBackend):
        pytest.skip(f"changes the links between servers, which are {backend}")
    with lagging_follower(backend) as lag:
        assert held_beside_the_next_holder(lag, f"{fresh_path}-a", 0.0), (
            "then docs are to be changed"
        )
        lag.end()
        lag.ensemble.restore()
        assert not held_beside_the_next_holder(lag, f"{fresh_path}-b", 0.6)


def held_beside_the_next_holder(lag: Lag, path: str, margin: float) -> bool:
    """What a holder believes whose server crashed right behind an answer, when the next one holds.

    The server's report is held back from just before the ping on, so that it comes never.
    """
    timeout = 4.0
    pings = 0

    def nothing_behind_the_third(frame: Frame) -> None:
        nonlocal pings
        pings += frame.op == "ping" and frame.direction == "c2s"
        if pings == 3:
            lag.cut_off()

    with (
        FaultProxy(lag.hosts) as proxy,
        Client(lag.up_to_date.hosts, session_timeout=LIMIT) as rival,
        Client(proxy.hosts, session_timeout=timeout, lease_margin=margin) as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        first, second = SequentialLock(holder, path), SequentialLock(rival, path)
        assert first.acquire(LIMIT)
        waiting = pool.submit(second.acquire, LIMIT)
        soon("the rival is in the queue", lambda: len(second.contenders()) == 2)
        proxy.rule(nothing_behind_the_third)
        proxy.wait_for(lambda _: pings == 3)
        soon("it is answered", lambda: first.lease_remaining() > timeout * 0.75)
        proxy.refuse()
        lag.ensemble.servers[2].kill()
        assert waiting.result()
        return first.held
