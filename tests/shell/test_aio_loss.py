"""What the asyncio client says when a connection breaks, and what it makes of a broken server.

The fake server writes down what it received and what it executed, so each verdict is compared with
the truth. What the state machine decides is tested elsewhere; this is about the I/O layer around
it: what it sends and when, what it holds back, and that a loop with nothing to do rests.
"""

from __future__ import annotations

import asyncio
import random
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.shell.test_client import within
from tests.shell.test_client_loss import (
    MEGABYTE,
    check_verdicts,
    check_verdicts_around,
    dying,
    ending,
)
from tests.shell.test_roles import Clock
from tests.support.aio_helpers import awaited, blocking, eventually, spinning
from tests.support.fake_server import (
    Connection,
    FakeServer,
    answering,
    deaf,
    reply,
    serve,
)
from tests.support.hooks import hooked
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    ConnectionLossError,
    EventType,
    GarbledError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.net.dial import readable_within
from zkwire.session.request import SEND_BATCH
from zkwire.testing import FaultProxy, Server

# What takes longer does not end by itself.
SLACK = 2.0


async def ended(calls: list[Any]) -> list[ZooKeeperError | None]:
    """Wait until all calls have ended; how."""

    async def one(call: Any) -> ZooKeeperError | None:
        try:
            await call
        except ZooKeeperError as error:
            return error
        return None

    return [await one(call) for call in calls]


# --- a deep pipeline and a dying server -----------------------------------------------------------


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("size", [0, 2000])
async def test_verdicts_on_a_pipeline_that_the_server_dies_in(
    how: str, size: int, seed: int
) -> None:
    rng = random.Random(f"{seed}-{how}-{size}")
    asyncio.get_running_loop().set_debug(False)
    for _ in range(4):
        count = 1500
        with FakeServer(dying(rng, count, how), serve) as server:
            async with AsyncClient(server.hosts, session_timeout=20) as client:
                calls = []
                for number in range(count):
                    calls.append(client.create(f"/{number}", bytes(size)))
                    if number % 100 == 0:
                        await asyncio.sleep(0)
                errors = await ended(calls)
                first = next((n for n, error in enumerate(errors) if error), count)
                behind = [n for n in range(first, count) if errors[n] is None]
                check_verdicts_around(server, calls, first, behind)


def request_of(reply: Any) -> Any:
    """What stands behind a reply."""
    return reply._request


async def test_what_the_kernel_never_took_was_not_sent_and_memory_is_bounded() -> None:
    """The server does not read, so most of a long pipeline cannot leave; then it dies."""
    gate = threading.Event()

    def deaf_then_dead(connection: Connection) -> None:
        assert gate.wait(PATIENCE)
        connection.reset()

    with FakeServer(answering(10, deaf_then_dead), serve) as server:
        async with AsyncClient(server.hosts, session_timeout=20) as client:
            body = bytes(100_000)
            calls = [client.create(f"/{n}", body) for n in range(400)]
            assert await calls[9] == "/9"
            link = client._driver.current_connection
            assert link is not None
            await eventually("the kernel takes no more", lambda: link.pending)
            assert len(link.backlog) <= SEND_BATCH + len(body) + 1000
            with spinning() as count:
                await asyncio.sleep(0.2)
            assert count() < 20, "it must rest while the server does not read"
            with pytest.raises(OperationTimeoutError) as caught:
                await client._driver.until(request_of(calls[11]), client._driver.now() + 0.01)
            assert caught.value.maybe_applied
            with pytest.raises(OperationTimeoutError) as caught:
                await client._driver.until(request_of(calls[399]), client._driver.now() + 0.01)
            assert not caught.value.maybe_applied, "it was taken back"
            gate.set()
            last = calls.pop()
            await ended(calls)
            assert type(ending(last)) is NotSentError
            answered, unknown, not_sent = check_verdicts(server, calls)
            assert answered == 10
            assert unknown >= 1
            assert not_sent >= 200
            assert await client.exists("/") is not None


async def test_a_server_that_reads_slowly_gets_everything_in_order() -> None:
    """And the client holds one batch outside of its queue, whatever is asked of it."""
    may_read = threading.Event()

    def slow(connection: Connection) -> None:
        connection.greet()
        assert may_read.wait(PATIENCE)
        for request in connection.requests():
            connection.answer(request)

    with FakeServer(slow) as server:
        asyncio.get_running_loop().set_debug(False)
        async with AsyncClient(server.hosts, session_timeout=20) as client:
            body = bytes(50_000)
            tracemalloc.start()
            try:
                calls = [client.create(f"/{n}", body) for n in range(300)]
                link = client._driver.current_connection
                assert link is not None
                await eventually("the kernel takes no more", lambda: link.pending)
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < 300 * 50_000 + 2 * MEGABYTE, f"{held} bytes"
            may_read.set()
            assert await asyncio.gather(*calls) == [f"/{n}" for n in range(300)]
            assert not link.pending
        assert [q.path for q in server.executed if q.op == "create"] == [
            f"/{n}" for n in range(300)
        ]


async def test_a_server_that_stops_reading_is_given_up() -> None:
    with FakeServer(deaf, serve) as server:
        client = AsyncClient(server.hosts, session_timeout=0.6)
        await client.connect(PATIENCE)
        async with client:
            calls = [client.create(f"/{n}", bytes(100_000)) for n in range(200)]
            with within(0.6 + SLACK):
                errors = await ended(calls)
            assert isinstance(errors[0], OutcomeUnknownError)
            assert isinstance(errors[199], NotSentError)
            assert (await retried(client, lambda: client.exists("/")))[0] is not None


async def test_answers_that_arrived_before_the_break_count() -> None:
    """The client is still sending when the server, which has answered, ends the connection."""

    with FakeServer(answering(100, Connection.half_close), serve) as server:
        async with AsyncClient(server.hosts, session_timeout=20) as client:
            errors = await ended([client.create(f"/{n}", bytes(50_000)) for n in range(400)])
            assert errors[:100] == [None] * 100
            assert errors[100] is not None


# --- single faults --------------------------------------------------------------------------------


async def retried(client: AsyncClient, ask: Callable[[], Any]) -> list[Any]:
    """The result, on this connection or on a later one."""
    while True:
        try:
            return [await ask()]
        except ConnectionLossError:
            pass


async def test_garbage_ends_the_connection_and_nothing_else() -> None:
    """All kinds of it are in test_broken_servers."""

    def broken(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(reply(77))  # an xid that was never sent
        connection.wait_gone()

    with FakeServer(broken, serve) as server:
        async with AsyncClient(server.hosts, session_timeout=20) as client:
            session_id = client.session_id
            first, second = client.create("/a"), client.create("/b")
            errors = await ended([first, second])
            assert isinstance(errors[0], GarbledError | ProtocolError | ReplyTooLargeError)
            assert errors[0].maybe_applied
            assert isinstance(errors[1], ConnectionLossError)
            assert await client.create("/c") == "/c"
            assert client.session_id == session_id


# --- silence and return ---------------------------------------------------------------------------


async def test_black_hole_and_return() -> None:
    """The connection is given up in time, calls end in time, watches and session are restored."""
    with Server(timeouts=(0.1, 60)) as server, FaultProxy(server.hosts) as proxy:
        # The client must be back in the last third of its time.
        async with AsyncClient(proxy.hosts, session_timeout=6.0) as client:
            session_id = client.session_id
            watch = Watch()
            await client.exists("/new", watch=watch)
            proxy.black_hole()
            sent = client.create("/sent")
            with within(4.0 + SLACK):
                (error,) = await ended([sent])
            assert isinstance(error, OutcomeUnknownError)
            proxy.black_hole(False)
            proxy.cut_all()
            await retried(client, lambda: client.create("/new"))
            async with asyncio.timeout(PATIENCE):
                assert (await watch).type is EventType.NODE_CREATED
            assert client.session_id == session_id


async def test_calls_end_when_no_server_comes_back(fake: FakeServer) -> None:
    client = AsyncClient(fake.hosts, session_timeout=0.4)
    await client.connect(PATIENCE)
    fake.stop_listening()
    fake.reset_all()
    await client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
    with within(0.4 + SLACK), pytest.raises(NotSentError, match="repeat it freely"):
        await client.create("/a")
    # The claim of a lock's holder ends in time, too, without anybody's asking.
    await client.close()


async def test_a_holder_learns_in_time_that_nobody_answers() -> None:
    with Server(timeouts=(0.1, 60)) as server, FaultProxy(server.hosts) as proxy:
        async with AsyncClient(proxy.hosts, session_timeout=2.0) as client:
            lock = AsyncSequentialLock(client, "/lock")
            assert await lock.acquire()
            told: list[Any] = []
            lock.lost.add_callback(told.append)
            proxy.black_hole()
            with within(2.0 + SLACK):
                assert await lock.lost is True
            assert not lock.held
            await eventually("the callback is called", lambda: told == [lock.lost])
            proxy.black_hole(False)
            proxy.cut_all()


async def test_expiry_ends_everything() -> None:
    with Server() as server, FaultProxy(server.hosts) as proxy:
        client = AsyncClient(proxy.hosts)
        states: list[State] = []
        client.add_state_listener(states.append)
        await client.connect()
        watch, lock = Watch(), AsyncSequentialLock(client, "/lock")
        await client.exists("/new", watch=watch)
        assert await lock.acquire()
        waiting = [asyncio.ensure_future(awaited(watch)), asyncio.ensure_future(awaited(lock.lost))]
        await asyncio.sleep(0)
        await blocking(server.expire, client.session_id)
        with pytest.raises(SessionExpiredError):
            await waiting[0]
        assert await waiting[1] is True
        with pytest.raises(SessionExpiredError):
            client.create("/a")
        with pytest.raises(SessionExpiredError):
            await client.connect()
        assert await client.wait_for_state(State.CONNECTED) is State.EXPIRED
        await eventually("listeners are told", lambda: states[-1:] == [State.EXPIRED])
        await client.close()
        assert client.state is State.EXPIRED


async def test_a_hundred_cuts_in_the_midst_of_tasks() -> None:
    """Whatever was said to have been done is done, once; the loop never stands still."""
    with Server() as server, FaultProxy(server.hosts) as proxy:
        async with (
            AsyncClient(proxy.hosts, session_timeout=20) as client,
            AsyncClient(server.hosts) as observer,
        ):
            session_id, stop = client.session_id, asyncio.Event()
            outcomes: dict[str, str] = {}

            async def work(name: int) -> None:
                number = 0
                while not stop.is_set():
                    path, number = f"/{name}-{number}", number + 1
                    try:
                        await client.create(path)
                        outcomes[path] = "done"
                    except NotSentError:
                        outcomes[path] = "not sent"
                    except OutcomeUnknownError:
                        outcomes[path] = "unknown"

            workers = [asyncio.ensure_future(work(n)) for n in range(8)]
            for number in range(100):
                done = len(outcomes)
                await eventually("they go on", lambda done=done: len(outcomes) > done + 8)  # type: ignore[misc]
                (proxy.cut_all if number % 2 else proxy.reset_all)()
            stop.set()
            await asyncio.gather(*workers)
            there = {f"/{name}" for name in await observer.get_children("/")}
            for path, outcome in outcomes.items():
                assert outcome != "done" or path in there
                assert outcome != "not sent" or path not in there
            assert client.session_id == session_id


# --- a loop that was blocked ----------------------------------------------------------------------


async def test_nothing_is_asked_on_a_connection_that_is_about_to_be_given_up() -> None:
    clock = Clock()
    with Server() as server:
        async with hooked(AsyncClient)(server.hosts, session_timeout=20, _now=clock) as client:
            link = client._driver.current_connection
            clock.ahead += 15
            assert await client.exists("/") is not None
            assert client._driver.current_connection is not link


async def test_answers_that_wait_in_the_kernel_are_no_silence() -> None:
    clock = Clock()
    with Server() as server:
        async with hooked(AsyncClient)(server.hosts, session_timeout=20, _now=clock) as client:
            link, driver = client._driver.current_connection, client._driver.io
            assert link is not None
            assert driver is not None
            reply = client.set_data("/", b"")
            assert readable_within(link.sock, PATIENCE)  # and nobody has read it
            clock.ahead += 15
            driver.turn()
            assert reply.ready
            assert (await reply).version == 1
            assert client._driver.current_connection is link
