"""What a contender that polls costs: six requests at most for each try on a lock that is held."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.support.family_helpers import lease_nodes, leased, sent
from tests.support.lock_helpers import GRACE, Stage
from zkwire import (
    AsyncClient,
    AsyncSemaphore,
    AsyncSequentialLock,
    Lease,
    OperationTimeoutError,
    Semaphore,
    SequentialLock,
)

MOST = 6
LONG_ENOUGH = 0.2  # seconds, in which every request of a try is sent


def hold(stage: Stage, path: str, kind: str) -> SequentialLock | Lease:
    client = stage.client(direct=True)
    if kind == "semaphore":
        return leased(Semaphore(client, path, 1), GRACE)
    lock = SequentialLock(client, path)
    assert lock.acquire(GRACE)
    return lock


def only_holder(stage: Stage, path: str) -> None:
    below = stage.nodes(path)
    nodes = lease_nodes(stage, path) if f"{path}/leases" in below else below
    assert len(nodes) == 1


def asked_since(stage: Stage) -> list[str]:
    return [op for op in sent(stage) if op != "ping"]


@pytest.mark.since("3.5")
@pytest.mark.parametrize("kind", ["fair", "semaphore"])
def test_a_poll_in_a_thread_costs_six_requests(stage: Stage, fresh_path: str, kind: str) -> None:
    holder, client = hold(stage, fresh_path, kind), stage.client()
    semaphore = Semaphore(client, fresh_path, 1)
    for _ in range(2):
        lock = SequentialLock(client, fresh_path) if kind == "fair" else semaphore.lease()
        stage.proxy.reset()
        with suppress(OperationTimeoutError):
            assert lock.acquire(LONG_ENOUGH) is False
        client.exists("/")  # behind all that the try has asked for
    asked = asked_since(stage)[:-1]
    assert len(asked) <= MOST, asked
    only_holder(stage, fresh_path)
    holder.release()


@pytest.mark.since("3.5")
@pytest.mark.parametrize("kind", ["fair", "semaphore"])
def test_a_poll_in_a_task_costs_six_requests(stage: Stage, fresh_path: str, kind: str) -> None:
    holder = hold(stage, fresh_path, kind)

    async def poll() -> list[str]:
        async with AsyncClient(stage.proxy.hosts) as client:
            semaphore = AsyncSemaphore(client, fresh_path, 1)
            for _ in range(2):
                fair = kind == "fair"
                lock = AsyncSequentialLock(client, fresh_path) if fair else semaphore.lease()
                stage.proxy.reset()
                with suppress(OperationTimeoutError):
                    assert await lock.acquire(LONG_ENOUGH) is False
                await client.exists("/")
            return asked_since(stage)[:-1]

    asked = asyncio.run(poll())
    assert len(asked) <= MOST, asked
    only_holder(stage, fresh_path)
    holder.release()
