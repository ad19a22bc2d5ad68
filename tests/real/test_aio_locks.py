"""The async locks: what only tasks can show.

The algorithms are those of the locks for threads, so their scenarios are run there; what a lost
connection does to the async ones is in `tests/connection_loss/recipes.py`, a cancellation in
`test_aio_cancellation`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.real.test_lock_processes import outrun
from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import (
    AsyncKind,
    async_kinds,
    eventually,
    watch_count,
)
from tests.support.lock_helpers import (
    LONG,
    SHORT,
    Kind,
    Workers,
    all_kinds,
    assert_strictly_rising,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    Client,
    ForkedError,
    NoNodeError,
)

# --- between processes ----------------------------------------------------------------------------


@pytest.mark.own_server
@all_kinds
def test_stopped_holder_knows_when_it_wakes(
    zookeeper: ZooKeeperServer, kind: Kind, fresh_path: str, tmp_path: Path
) -> None:
    """Stopped for longer than its session lives; what it must look at waits for it already."""
    register = tmp_path / "register"
    with Client(zookeeper.hosts, session_timeout=LONG) as client, Workers() as workers:
        rival = kind(client, fresh_path)
        arguments = (zookeeper.hosts, kind.__name__, fresh_path, SHORT, register)
        worker = workers.start("writing_in_a_task", *arguments)
        outrun(worker, rival, register)


# --- tasks ----------------------------------------------------------------------------------------


async def nodes(client: AsyncClient, path: str) -> list[str]:
    try:
        names, stat = await client.get_children_with_stat(path)
    except NoNodeError:
        return []
    return [path] if stat.ephemeral_owner else names


@pytest.mark.own_server
@async_kinds
async def test_tasks_of_one_client_exclude_each_other(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    inside = 0
    turns: list[tuple[int, int]] = []

    async def work(number: int) -> None:
        nonlocal inside
        lock = kind(client, fresh_path)
        for _ in range(5):
            while not await lock.acquire():
                await asyncio.sleep(0)
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            assert lock.held
            turns.append((number, lock.fence))
            inside -= 1
            await lock.release()

    async with AsyncClient(zookeeper.hosts) as client:
        await asyncio.gather(*map(work, range(8)))
        assert len(turns) == 40
        assert_strictly_rising(fence for _, fence in turns)
        assert await nodes(client, fresh_path) == []
        await eventually("no watch is left", lambda: watch_count(client) == 0)


@pytest.mark.own_server
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@async_kinds
async def test_forked_child_holds_nothing(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        lock, other = kind(client, fresh_path), kind(client, f"{fresh_path}-other")
        assert await lock.acquire()
        session_id = client.session_id

        def child() -> None:
            async def use() -> None:
                for call in (lock.release, other.try_acquire, other.acquire):
                    with pytest.raises(ForkedError):
                        await call()

            assert not lock.held
            assert lock.lease_remaining() == 0.0
            asyncio.run(use())

        in_child(child)
        assert lock.held
        assert not lock.lost.is_set()
        await lock.release()
        assert client.session_id == session_id
        assert await nodes(client, fresh_path) == []
