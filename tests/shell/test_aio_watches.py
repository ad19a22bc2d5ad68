"""Watches under asyncio: awaited, iterated over, shared, closed, ended, restored."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.aio_helpers import awaited, blocking, eventually, watch_count
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    ClientClosedError,
    Event,
    EventType,
    SessionExpiredError,
    State,
    Watch,
)
from zkwire.testing import Server


@pytest.fixture
def hosts(whole: str) -> str:
    return whole


def types(events: list[Event]) -> list[EventType]:
    return [EventType(event.type) for event in events]


@pytest.mark.since("3.6")
async def test_a_persistent_watch_in_order_while_nobody_waits(hosts: str, fresh_path: str) -> None:
    async with AsyncClient(hosts) as client, AsyncClient(hosts) as other:
        await client.create(fresh_path)
        watch = await client.add_watch(fresh_path, Watch(), recursive=True)
        paths = [f"{fresh_path}/{number}" for number in range(200)]
        await asyncio.gather(*(other.create(path) for path in paths))
        events = []
        async for event in watch:
            events.append(event)
            if len(events) == 200:
                break
        assert [event.path for event in events] == paths
        assert set(types(events)) == {EventType.NODE_CREATED}
        watch.close()
        await eventually("it is forgotten", lambda: watch_count(client) == 0)


@pytest.mark.since("3.6")
async def test_iteration_ends_with_what_it_iterates_over(hosts: str, fresh_path: str) -> None:
    async with AsyncClient(hosts) as client:
        await client.create(fresh_path)
        # A watch set by reads: as many events as reads.
        once = Watch()
        await client.get_data(fresh_path, watch=once)
        client.set_data(fresh_path, b"")
        assert types([event async for event in once]) == [EventType.NODE_DATA_CHANGED]
        # Closed from the body: what has come before is still handed out, then it ends.
        lasting = await client.add_watch(fresh_path, Watch())
        for _ in range(3):
            await client.set_data(fresh_path, b"")
        seen = []
        async for event in lasting:
            seen.append(event)
            lasting.close()
        assert len(seen) == 3
        # Set again by each round: an endless loop over one object.
        again, rounds = Watch(), 0
        await client.get_data(fresh_path, watch=again)
        client.set_data(fresh_path, b"")
        async for _ in again:
            rounds += 1
            if rounds < 4:
                await client.get_data(fresh_path, watch=again)
                client.set_data(fresh_path, b"")
        assert rounds == 4
        # A break leaves the watch as it is.
        kept = await client.add_watch(fresh_path, Watch())
        for _ in range(2):
            await client.set_data(fresh_path, b"")
        async for _ in kept:
            break
        await client.set_data(fresh_path, b"")
        assert len([await kept, await kept]) == 2
        kept.close()


@pytest.mark.since("3.6")
async def test_a_close_ends_those_that_wait(hosts: str, fresh_path: str) -> None:
    async with AsyncClient(hosts) as client:
        await client.create(fresh_path)
        watch = await client.add_watch(fresh_path, Watch())

        async def follow() -> list[Event]:
            return [event async for event in watch]

        waiting = [asyncio.ensure_future(w) for w in (awaited(watch), awaited(watch))]
        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        watch.close()
        for each in waiting:
            with pytest.raises(ClientClosedError, match="watch has been closed"):
                await each
        assert await following == []
        watch.close()
        assert [event async for event in watch] == []
        with pytest.raises(ValueError, match="closed"):
            client.get_data(fresh_path, watch=watch)


@pytest.mark.parametrize("how", ["close", "expire"])
async def test_the_end_of_the_session_reaches_all_that_wait(how: str, server: Server) -> None:
    client = AsyncClient(server.hosts)
    await client.connect()
    await client.create("/w")
    once, lasting = Watch(), Watch()
    told: list[Event] = []
    await client.get_data("/w", watch=once)
    await client.add_watch("/w", lasting)
    await client.get_children("/w", watch=told.append)

    async def follow() -> None:
        async for _ in lasting:
            pass

    waiting = [asyncio.ensure_future(each) for each in (awaited(once), awaited(lasting), follow())]
    await client.set_data("/w", b"x")
    await asyncio.sleep(0)
    if how == "close":
        await client.close()
    else:
        await blocking(server.expire, client.session_id)
    expected = ClientClosedError if how == "close" else SessionExpiredError
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[0] == Event(EventType.NODE_DATA_CHANGED, "/w", State.CONNECTED)
    # One of the two has got the event.
    ends = [result for result in results[1:] if not isinstance(result, Event)]
    assert {type(end) for end in ends} == {expected}
    with pytest.raises(expected):
        await lasting
    await eventually("the callback is told", lambda: types(told) == [EventType.NONE])
    await client.close()


@pytest.mark.since("3.6")
async def test_several_waiters_share_the_events(hosts: str, fresh_path: str) -> None:
    """Each event goes to one of them; none is lost, none is doubled."""
    async with AsyncClient(hosts) as client, AsyncClient(hosts) as other:
        await client.create(fresh_path)
        watch = await client.add_watch(fresh_path, Watch(), recursive=True)
        got: list[Event] = []

        async def wait() -> None:
            while True:
                got.append(await watch)

        waiters = [asyncio.ensure_future(wait()) for _ in range(5)]
        for number in range(50):
            await other.create(f"{fresh_path}/{number}")
            if number % 10 == 0:
                waiters.pop().cancel()
                if not waiters:
                    waiters = [asyncio.ensure_future(wait()) for _ in range(3)]
        await eventually("all have come", lambda: len(got) == 50)
        assert [event.path for event in got] == [f"{fresh_path}/{n}" for n in range(50)]
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        watch.close()


async def test_two_await_a_watch_that_fires_once(hosts: str, fresh_path: str) -> None:
    async with AsyncClient(hosts) as client:
        watch = Watch()
        await client.exists(fresh_path, watch=watch)
        waiting = [asyncio.ensure_future(awaited(watch)) for _ in range(2)]
        await asyncio.sleep(0)
        await client.create(fresh_path)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [Event, RuntimeError]


@pytest.mark.since("3.6")
async def test_an_event_that_comes_with_the_callers_cancellation(
    hosts: str, fresh_path: str
) -> None:
    """`asyncio.timeout` around an await, again and again: every event arrives, once."""
    async with AsyncClient(hosts) as client, AsyncClient(hosts) as other:
        await client.create(fresh_path)
        watch = await client.add_watch(fresh_path, Watch(), recursive=True)
        got: list[str] = []

        async def write() -> None:
            for number in range(100):
                await other.create(f"{fresh_path}/{number}")

        writing = asyncio.ensure_future(write())
        async with asyncio.timeout(PATIENCE):
            while len(got) < 100:
                try:
                    async with asyncio.timeout(0.0005):
                        event = await watch
                        got.append(event.path)
                except TimeoutError:
                    pass
        await writing
        assert got == [f"{fresh_path}/{number}" for number in range(100)]
        watch.close()
