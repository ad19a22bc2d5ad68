"""An operation of the asyncio client as a coroutine, an unnoticed refusal, and other threads."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.aio_helpers import blocking, complaints, watch_count
from tests.support.fake_server import FakeServer, mute
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    ClientClosedError,
    Create,
    Delete,
    MultiError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    State,
    Watch,
)
from zkwire.session.request import Request
from zkwire.session.session import Session
from zkwire.testing import Server

# --- a coroutine ----------------------------------------------------------------------------------


async def _in_a_group(reply: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reply)
    return task.result()


async def _from_a_thread(reply: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(reply, loop))


async def _by_two_tasks(reply: Any) -> Any:
    return (await asyncio.gather(*map(asyncio.create_task, [reply, reply])))[1]


async def _with_eager_tasks(reply: Any) -> Any:
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    try:
        return await asyncio.create_task(reply)
    finally:
        loop.set_task_factory(None)


WAYS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "create_task": lambda reply: asyncio.wait_for(asyncio.create_task(reply), PATIENCE),
    "TaskGroup": _in_a_group,
    "run_coroutine_threadsafe": _from_a_thread,
    "wait_for": lambda reply: asyncio.wait_for(reply, PATIENCE),
    "shield": lambda reply: asyncio.wait_for(asyncio.shield(reply), PATIENCE),
    "two tasks": _by_two_tasks,
    "eager tasks": _with_eager_tasks,
}


@pytest.mark.parametrize("way", WAYS)
async def test_known_A50_asyncio_takes_an_operation_for_a_coroutine(
    way: str, fake: FakeServer
) -> None:
    async with AsyncClient(fake.hosts) as client:
        assert await WAYS[way](client.create("/a")) == "/a"
        with pytest.raises((NoNodeError, ExceptionGroup)):
            await WAYS[way](client.get_data("/none"))
        # The request has been sent at the call, before anything runs it.
        reply = client.create("/b")
        assert client._session.unanswered == 1
        assert "create /b" in repr(asyncio.ensure_future(reply))
        reply.close()
        assert await reply == "/b", "closed before it began, which is nothing"


async def test_a_cancelled_task_takes_back_what_was_not_sent(fake: FakeServer) -> None:
    async with AsyncClient(fake.hosts) as client:
        fake.stop_listening()
        fake.reset_all()
        await client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
        for turns in (0, 1):  # before it has begun, and while it waits
            task = asyncio.create_task(client.create("/a"))
            for _ in range(turns):
                await asyncio.sleep(0)
            assert client._session.queued == 1
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert client._session.queued == 0


async def test_called_in_another_thread_it_is_sent_by_the_loop(fake: FakeServer) -> None:
    async with AsyncClient(fake.hosts) as client:
        loop = asyncio.get_running_loop()

        def elsewhere() -> list[Any]:
            replies = [client.create("/a"), client.get_data("/a"), client.get_data("/none")]
            made = [asyncio.run_coroutine_threadsafe(each, loop) for each in replies]
            return [each.exception(PATIENCE) or each.result() for each in made]

        path, (data, _), error = await blocking(elsewhere)
        assert (path, data, type(error)) == ("/a", b"", NoNodeError)
        await client.close()
        assert [type(each) for each in await blocking(elsewhere)] == [ClientClosedError] * 3


def test_called_between_two_runs_of_the_loop_it_is_sent_by_the_next(fake: FakeServer) -> None:
    with asyncio.Runner() as runner:
        client = AsyncClient(fake.hosts)
        with pytest.raises(RuntimeError, match="no running event loop"):
            client.exists("/")
        runner.run(client.connect())
        reply: Any = client.exists("/")
        runner.get_loop().run_until_complete(reply)
        runner.run(client.close())
    with pytest.raises(ClientClosedError):
        client.exists("/")


# --- a refusal that goes unnoticed ----------------------------------------------------------------


async def test_known_A49_a_refusal_that_nobody_has_awaited_is_reported(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        client.delete("/none")
        client.multi([Create("/a"), Delete("/none")])
        client.create("/b")
        kept = client.get_data("/kept")
        await client.sync()
        await asyncio.sleep(0)
        first, second = complaints().take()
        assert "never retrieved: NoNodeError" in first
        assert "never retrieved: MultiError" in second
        del kept
        await asyncio.sleep(0)
        (third,) = complaints().take()
        assert "NoNodeError" in third


async def test_what_is_no_news_is_not_reported(server: Server) -> None:
    """Awaited, in whatever way it ended; taken back; ended by the close."""
    async with AsyncClient(server.hosts) as client:
        refused = client.get_data("/none"), client.multi([Delete("/none")]), client.exists("/")
        await refused[-1]
        with pytest.raises(NoNodeError):
            await refused[0]
        with pytest.raises(MultiError):
            refused[1].result()
        del refused
        cancelled = asyncio.ensure_future(client.get_data("/none"))
        cancelled.cancel()
        await client.sync()
        async with AsyncSequentialLock(client, "/l/o/c/k"):  # asks for what is not there
            pass
    with FakeServer(mute) as mute_server:
        async with AsyncClient(mute_server.hosts, operation_timeout=0.01) as client:
            with pytest.raises(OperationTimeoutError):
                await client.get_data("/none")
            client.get_data("/none")
    gc.collect()
    assert not complaints()


# --- what comes from another thread, or in the middle of something --------------------------------


async def test_hazard_E10_a_watch_closed_in_another_thread_is_closed_by_the_loop(
    server: Server,
) -> None:
    async with AsyncClient(server.hosts) as client:
        watch = Watch()
        await client.exists("/", watch=watch)
        closing = threading.Thread(target=watch.close)
        closing.start()
        closing.join()  # the loop stands still meanwhile
        assert watch.closed
        assert watch_count(client) == 1, "another thread has been in the state machine"
        await asyncio.sleep(0)
        assert watch_count(client) == 0


async def test_hazard_E10_a_watch_that_a_finalizer_closes_in_the_middle_of_a_request(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """Between the moment when a request gets its number and the moment when it is sent."""
    async with AsyncClient(server.hosts) as client:
        watch = Watch()
        await client.exists("/", watch=watch)
        send_alone = Session.send_alone

        def collecting(session: Session, request: Request, now: float) -> bytes:
            data = send_alone(session, request, now)
            watch.close()
            return data

        monkeypatch.setattr(Session, "send_alone", collecting)
        assert (await client.get_data("/")).data == b""
        assert watch_count(client) == 0
        assert client.state is State.CONNECTED


async def test_a_callback_for_a_loss_may_be_added_in_another_thread(server: Server) -> None:
    heard: list[object] = []
    async with AsyncClient(server.hosts) as client:
        lock = AsyncSequentialLock(client, "/lock")
        await lock.acquire()
        lost = lock.lost
        await blocking(lost.add_callback, heard.append)
        server.expire(client.session_id)
        assert await lost
        await blocking(lost.add_callback, heard.append)
        with pytest.raises(SessionExpiredError):
            await client.exists("/")
    assert heard == [lost, lost]
