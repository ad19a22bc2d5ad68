"""The asyncio client as its users see it: the same face, order, contexts, coroutines, callbacks."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tests.support.aio_helpers import awaited, blocking, complaints, eventually, watch_count
from tests.support.fake_server import FakeServer
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    ClientClosedError,
    Create,
    Delete,
    NoNodeError,
    SessionExpiredError,
    State,
    Watch,
)
from zkwire.session.request import Request
from zkwire.session.session import Session
from zkwire.testing import Server

# --- the same face --------------------------------------------------------------------------------


async def test_conveniences(whole: str, fresh_path: str) -> None:
    async with AsyncClient(whole) as client:
        await client.ensure_path(f"{fresh_path}/a/b")
        await client.create(f"{fresh_path}/c")
        found = [path async for path in client.walk(fresh_path)]
        assert found[0] == fresh_path
        assert sorted(found[1:]) == [f"{fresh_path}/{n}" for n in ("a", "a/b", "c")]
        async with client.transaction() as t:
            t.check(fresh_path)
            t.create(f"{fresh_path}/t", b"x")
        assert t.results == [None, f"{fresh_path}/t"]
        async with client.transaction() as t:
            t.create(f"{fresh_path}/once")
            await t.commit()
        with suppress(KeyError):
            async with client.transaction() as t:
                t.delete(f"{fresh_path}/once")
                raise KeyError
        assert await client.exists(f"{fresh_path}/once") is not None
        await client.delete_tree(fresh_path)
        assert await client.exists(fresh_path) is None
        async for _ in client.walk("/"):
            break
        with pytest.raises(NoNodeError):
            async for _ in client.walk(fresh_path):
                pass


# --- the order of the calls -----------------------------------------------------------------------


async def test_collected_first_and_awaited_later_often_and_by_several(
    hosts: str, fresh_path: str
) -> None:
    async with AsyncClient(hosts) as client:
        first = client.exists(fresh_path)
        second = client.get_data(f"{fresh_path}/none")
        assert not first.ready
        assert await client.exists(f"{fresh_path}/b") is None
        assert first.ready, "replies come in order"
        both = await asyncio.gather(awaited(second), awaited(second), return_exceptions=True)
        assert [type(each) for each in both] == [NoNodeError] * 2
        assert both[0] is not both[1], "a traceback would grow"
        assert [await first, await first, first.result()] == [None, None, None]
        unfinished = client.exists(f"{fresh_path}/c")
        with pytest.raises(RuntimeError, match="not ended"):
            unfinished.result()
        assert await asyncio.gather(awaited(unfinished), awaited(unfinished)) == [None, None]


# --- callbacks, listeners, traces -----------------------------------------------------------------


async def test_what_raises_is_reported_and_disturbs_nobody(hosts: str, fresh_path: str) -> None:
    seen: list[Any] = []

    def bad(thing: Any) -> None:
        raise KeyError(f"bad {type(thing).__name__}")

    async def bad_later(_: Any) -> None:
        await asyncio.sleep(0)
        raise KeyError("bad later")

    client = AsyncClient(hosts, trace=bad)
    client.add_state_listener(bad)
    client.add_state_listener(seen.append)
    async with client:
        for watch in (bad, bad_later, seen.append):
            await client.exists(fresh_path, watch=watch)
        await client.create(fresh_path)
        await eventually("the good callback is called", lambda: len(seen) > 3)
        await eventually("the coroutine's error is told", lambda: "later" in str(complaints()))
    assert State.CONNECTED in seen
    assert await eventually("all is told", lambda: seen[-1] is State.CLOSED)
    gc.collect()
    heard = "\n".join(complaints().take())
    for word in ("bad Event", "bad later", "bad State", "bad TraceFrame"):
        assert word in heard, heard


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
