"""A lock inside a loop over sessions: its loss is the end of a turn, and never of the program."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.support.aio_helpers import blocking
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.supervisor_helpers import kill
from zkwire import (
    AsyncSequentialLock,
    AsyncSupervisor,
    Client,
    LockLostError,
    SequentialLock,
    Supervisor,
)
from zkwire.testing import Server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "hold-a-lock.md"
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
    """A turn swallows the loss of its own session's lock, and of no other."""

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


def test_the_page_about_a_lock_for_ever_holds_it_for_ever(server: Server) -> None:
    """Its node is deleted, its session ends, and at last its work fails."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    fences: SimpleQueue[int] = SimpleQueue()
    ended = threading.Event()

    def work(_: str, fence: int) -> None:
        fences.put(fence)
        if ended.is_set():
            raise KeyError("the program's own")

    code = block.replace("127.0.0.1:2181", server.hosts).replace("wait(1.0)", "wait(0.01)")
    program = Running(lambda: exec(code.replace("/locks/report", "/lock"), {"print": work}))

    def later(fence: int) -> int:
        while (newer := fences.get(timeout=PATIENCE)) <= fence:
            pass
        return newer

    fence = later(0)
    delete_its_node(server)
    fence = later(fence)
    kill(server, next(iter(server.sessions)).session_id)
    later(fence)
    ended.set()
    with pytest.raises(KeyError, match="the program's own"):
        program.result()
