"""A lock inside a loop over sessions: its loss is the end of a turn, and never of the program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support.aio_helpers import blocking
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncSequentialLock,
    AsyncSupervisor,
    Client,
    LockLostError,
    SequentialLock,
    Supervisor,
)
from zkwire.testing import Server

TIMEOUT = 1.0


def delete_its_node(server: Server) -> None:
    """An outsider does it."""
    with Client(server.hosts) as outsider:
        (name,) = outsider.get_children("/lock")
        outsider.delete(f"/lock/{name}")


def outlast_its_lease(server: Server) -> None:
    """No server is reached for a session timeout; then one is, and mostly the session lives."""
    server.stop()


ends = pytest.mark.parametrize("end", [delete_its_node, outlast_its_lease])


@ends
def test_a_turn_follows_one_that_has_lost_its_lock(
    server: Server, end: Callable[[Server], None]
) -> None:
    sessions, fences = list[int](), list[int]()
    with Supervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        for session in supervisor:
            with session as client, SequentialLock(client, "/lock") as lock:
                sessions.append(client.session_id)
                fences.append(lock.fence)
                if len(fences) == 2:
                    break
                end(server)
                assert lock.lost.wait(PATIENCE)
                server.start()
                lock.check()
    assert len(set(sessions)) == 1 or end is outlast_its_lease
    assert fences[0] < fences[1]


@ends
async def test_under_asyncio_a_turn_follows_one_that_has_lost_its_lock(
    server: Server, end: Callable[[Server], None]
) -> None:
    sessions, fences = list[int](), list[int]()
    async with AsyncSupervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        async for session in supervisor:
            async with session as client, AsyncSequentialLock(client, "/lock") as lock:
                sessions.append(client.session_id)
                fences.append(lock.fence)
                if len(fences) == 2:
                    break
                lock.lost.add_callback(lambda _: server.start())
                async with lock.cancel_on_loss():
                    await blocking(end, server)
                    await asyncio.Event().wait()
    assert len(set(sessions)) == 1 or end is outlast_its_lease
    assert fences[0] < fences[1]


def test_the_loss_of_another_clients_lock_is_raised(server: Server) -> None:
    def lose(other: Client, supervisor: Supervisor) -> None:
        for session in supervisor:
            with session, SequentialLock(other, "/lock") as lock:
                delete_its_node(server)
                assert lock.lost.wait(PATIENCE)
                lock.check()

    with (
        Client(server.hosts) as other,
        Supervisor(server.hosts) as supervisor,
        pytest.raises(LockLostError, match="was deleted"),
    ):
        lose(other, supervisor)
