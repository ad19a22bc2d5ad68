"""The asyncio client connects, closes, idles, starts no thread; TLS, SASL, read-only servers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import zkwire
from tests.shell.test_aio_client import SLACK, state_of
from tests.shell.test_client import refused_port, within
from tests.support.aio_helpers import awaited, blocking, eventually, library_threads, run, spinning
from tests.support.fake_server import Connection, FakeServer, deaf, mute, serve, silent
from tests.support.hooks import hooked
from tests.support.lock_helpers import PATIENCE
from tests.support.secure_servers import SecureServer
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    Client,
    ClientClosedError,
    DigestMD5,
    NoNodeError,
    NotReadOnlyError,
    NotSentError,
    State,
)
from zkwire.testing import Server, VirtualClock

CLOSE_BOUND = 1.0 + SLACK


# --- connecting and closing -----------------------------------------------------------------------


async def test_failing_to_connect_says_why_and_leaves_nothing() -> None:
    port = refused_port()
    with within(1.0 + SLACK + CLOSE_BOUND), pytest.raises(NotSentError, match="refused"):
        async with AsyncClient(f"127.0.0.1:{port}", session_timeout=1.0):
            raise AssertionError("it is not connected")
    client = AsyncClient(f"127.0.0.1:{port}", session_timeout=1.0)
    with pytest.raises(NotSentError, match="refused"):
        await client.connect(0.5)
    with within(1.0 + SLACK), pytest.raises(NotSentError, match="refused"):
        await client.exists("/")
    await client.close()


async def test_a_cancelled_connect_leaves_nothing() -> None:
    with FakeServer(silent) as server:

        async def use() -> None:
            async with AsyncClient(server.hosts):
                raise AssertionError("it is not connected")

        task = asyncio.ensure_future(use())
        await blocking(server.wait_for, lambda: server.connections)
        task.cancel()
        with within(CLOSE_BOUND), pytest.raises(asyncio.CancelledError):
            await task


async def test_close_is_idempotent_and_may_be_called_by_many(hosts: str) -> None:
    client = AsyncClient(hosts)
    await client.connect()
    last = client.exists("/")
    with within(CLOSE_BOUND):
        assert await asyncio.gather(*(client.close() for _ in range(5))) == [None] * 5
        await client.close()
    assert await last is not None, "what was asked for before is still answered"
    assert state_of(client) is State.CLOSED
    told: list[State] = []
    never = AsyncClient(hosts)
    never.add_state_listener(told.append)
    await never.close()
    await never.close()
    assert state_of(never) is State.CLOSED
    await eventually("the listener is told", lambda: told == [State.CLOSED])


async def test_close_tells_the_server(whole: str, fresh_path: str) -> None:
    async with AsyncClient(whole) as observer:
        client = AsyncClient(whole)
        await client.connect()
        await client.create(fresh_path, ephemeral=True)
        closing = [asyncio.ensure_future(client.close()) for _ in range(2)]
        await asyncio.gather(*closing)
        # A close waits for its answer, but not for long.
        await eventually("the session is over", lambda: _gone(observer, fresh_path))
        for how in ("waiting", "again"):
            client = AsyncClient(whole)
            await client.connect()
            await client.create(fresh_path, ephemeral=True)
            first = asyncio.ensure_future(client.close())
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            if how == "again":
                await client.close()
            assert state_of(client) is State.CLOSED
            gone = lambda: _gone(observer, fresh_path)  # noqa: E731
            await eventually("the request to close was sent", gone)


async def _gone(client: AsyncClient, path: str) -> bool:
    await client.sync(path)
    return await client.exists(path) is None


@pytest.mark.parametrize("kind", ["mute", "deaf", "silent", "nobody"])
async def test_close_is_bounded_whatever_the_server_does(kind: str) -> None:
    scripts: dict[str, Callable[[Connection], None]] = {
        "mute": mute,
        "deaf": deaf,
        "silent": silent,
        "nobody": serve,
    }
    with FakeServer(scripts[kind]) as server:
        client = AsyncClient(server.hosts, session_timeout=20.0)
        if kind == "silent":
            client.exists("/")
            await blocking(server.wait_for, lambda: server.connections)
        else:
            await client.connect()
        if kind == "nobody":
            server.stop_listening()
            server.reset_all()
            await client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
        waiting = asyncio.ensure_future(awaited(client.create("/a", bytes(100_000))))
        await asyncio.sleep(0)
        others = [client.create(f"/{n}", bytes(900_000)) for n in range(20)]
        with within(CLOSE_BOUND):
            await client.close()
        if kind != "nobody":
            with pytest.raises(ClientClosedError):
                await waiting
            with pytest.raises(ClientClosedError):
                await others[-1]
        else:
            with pytest.raises(ClientClosedError):
                await waiting
        await blocking(server.close)


async def test_close_while_connecting_and_calls_while_closing() -> None:
    with FakeServer(mute) as server:
        client = AsyncClient(server.hosts)
        connecting = asyncio.ensure_future(client.connect())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientClosedError):
            await connecting
        client = AsyncClient(server.hosts)
        await client.connect()
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosedError, match="being closed"):
            client.exists("/")
        await closing


async def test_detach_and_resume(whole: str, fresh_path: str) -> None:
    one = AsyncClient(whole)
    with pytest.raises(RuntimeError, match="no session yet"):
        await one.detach()
    await one.connect()
    await one.create(fresh_path, ephemeral=True)
    lock = AsyncSequentialLock(one, f"{fresh_path}-lock")
    assert await lock.acquire()
    with pytest.raises(RuntimeError, match="is held"):
        await one.detach()
    other = AsyncSequentialLock(one, f"{fresh_path}-lock")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await other.acquire()
    await lock.release()
    credentials = await one.detach()
    assert state_of(one) is State.CLOSED
    async with AsyncClient(whole, resume=credentials) as two:
        assert two.session_id == credentials.session_id
        assert await two.get_children(f"{fresh_path}-lock") == []
        await two.delete(f"{fresh_path}-lock")
        stat = await two.exists(fresh_path)
        assert stat is not None
        assert stat.ephemeral_owner == two.session_id
        blocking_again = await two.detach()

    def resume() -> int:
        with Client(whole, resume=blocking_again) as three:
            assert three.exists(fresh_path) is not None
            return three.session_id

    assert await blocking(resume) == credentials.session_id


# --- no thread, no complaint ----------------------------------------------------------------------


async def test_no_thread_is_started(hosts: str, fresh_path: str) -> None:
    before = set(threading.enumerate())
    seen: list[Any] = []
    async with AsyncClient(hosts, trace=seen.append) as client:
        client.add_state_listener(seen.append)
        await client.exists("/", watch=seen.append)
        await asyncio.gather(*(client.exists("/") for _ in range(100)))
        lock = AsyncSequentialLock(client, f"{fresh_path}/lock")
        lock.lost.add_callback(seen.append)
        async with lock:
            await client.ensure_path(f"{fresh_path}/a/b")
        started = {t for t in set(threading.enumerate()) - before if "fake" not in t.name}
        assert not {t.name for t in started if "zkwire-server" not in t.name}
        assert not library_threads()


async def test_a_slow_look_up_of_a_name_does_not_block_the_loop() -> None:
    """It has the only thread that there ever is; one that never ends is left behind at close."""
    gate, calls = threading.Event(), itertools.count()

    def resolver(host: str, port: int) -> list[Any]:
        assert host == "some.where"
        next(calls)
        gate.wait(PATIENCE)
        return [(2, ("127.0.0.1", port))]

    with FakeServer() as server:
        hosts = f"some.where:{server.port}"
        client = hooked(AsyncClient)(hosts, _resolver=resolver)
        reply = client.exists("/a")
        ticks = 0
        while not library_threads() or ticks < 50:
            await asyncio.sleep(0)
            ticks += 1
        assert library_threads() == {"zkwire-resolve"}
        assert not reply.ready
        gate.set()
        assert await reply is None
        await client.close()
        gate.clear()
        hurried = hooked(AsyncClient)(hosts, _resolver=resolver)
        waiting = asyncio.ensure_future(hurried.connect())
        await asyncio.sleep(0.01)
        with within(CLOSE_BOUND):
            await hurried.close()
        with pytest.raises(ClientClosedError):
            await waiting
        gate.set()


def test_a_look_up_that_ends_after_the_loop_disturbs_nobody() -> None:
    gate = threading.Event()

    def resolver(host: str, port: int) -> list[Any]:
        gate.wait(PATIENCE)
        return []

    async def main() -> AsyncClient:
        client = hooked(AsyncClient)("some.where:1", _resolver=resolver)
        client.exists("/a")
        await asyncio.sleep(0.01)
        return client  # not closed: that is the point

    client = asyncio.run(main())
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "zkwire-resolve":
            thread.join(PATIENCE)
    asyncio.run(client.close())


def test_debug_mode_has_nothing_to_complain_about(
    whole: str, fresh_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No slow callback (see `run`), no exception that nobody fetched, nothing never awaited."""

    async def main() -> None:
        async with AsyncClient(whole) as client:
            await client.create(fresh_path)
            replies = [client.create(f"{fresh_path}/{n}") for n in range(1000)]
            await replies[-1]
            task = asyncio.ensure_future(awaited(client.get_data("/none")))
            with suppress(NoNodeError):
                await task
            async with AsyncSequentialLock(client, f"{fresh_path}/lock"):
                pass
            await client.delete_tree(fresh_path)

    with caplog.at_level(logging.WARNING, logger="asyncio"):
        run(main, debug=True)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_a_client_with_nothing_to_do_rests(hosts: str) -> None:
    async with AsyncClient(hosts, session_timeout=20) as client:
        await client.exists("/")
        await asyncio.sleep(0)
        with spinning() as count:
            await asyncio.sleep(0.2)
        assert count() < 10


# --- 10,000 idle seconds --------------------------------------------------------------------------


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in which time passes only when nothing else happens; ``clock`` follows it.

    A wait for bytes gets a moment of real time first; while a client waits for an answer, as much
    as it takes.
    """

    def __init__(self, clock: VirtualClock, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._clock, self._busy = clock, busy
        real = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            if timeout is not None and timeout <= 0:
                return real(0)
            while True:
                ready = real(0.002)
                if ready or not (self._busy() or timeout is None):
                    break
            if not ready and timeout is not None:
                self._clock.advance(timeout)
            return ready

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._clock()


def test_ten_thousand_idle_seconds(fresh_path: str) -> None:
    """Pings keep the session; nothing else is sent, nothing accumulates, nothing breaks."""
    clock = VirtualClock(1000.0)
    clients: list[AsyncClient] = []

    def busy() -> bool:
        return any(c._session._live._pings or c._session.unanswered for c in clients)

    async def main(hosts: str) -> None:
        traced: list[str] = []
        client = hooked(AsyncClient)(
            hosts, session_timeout=30.0, _now=clock, trace=lambda f: traced.append(str(f))
        )
        clients.append(client)
        async with client:
            await client.create(fresh_path, ephemeral=True)
            lock = AsyncSequentialLock(client, "/lock")
            assert await lock.acquire()
            start, session_id = clock(), client.session_id
            before = len(traced)
            await asyncio.sleep(10_000)
            assert clock() - start >= 10_000
            pings = len(traced) - before
            assert 2 * 990 <= pings <= 2 * 1010, pings
            assert (client.session_id, state_of(client)) == (session_id, State.CONNECTED)
            assert lock.held
            assert client.lease_remaining() > 19.0
            assert await client.exists(fresh_path) is not None
            await lock.release()

    with Server(now=clock, tick=2.0) as server:
        run(
            lambda: main(server.hosts),
            loop_factory=lambda: VirtualLoop(clock, busy),
            seconds=20_000,
            debug=False,
        )


# --- TLS, SASL, read-only -------------------------------------------------------------------------


@pytest.mark.since("3.5")
@pytest.mark.real
@pytest.mark.apache
async def test_tls(tls_zookeeper: SecureServer, fresh_path: str) -> None:
    context = tls_zookeeper.client_context()
    async with AsyncClient(tls_zookeeper.hosts, tls=context) as client:
        data = bytes(900_000)
        await client.create(fresh_path, data)
        answers = await asyncio.gather(*(client.get_data(fresh_path) for _ in range(8)))
        assert all(answer.data == data for answer in answers)
        await asyncio.gather(*(client.create(f"{fresh_path}/{n}", bytes(500)) for n in range(500)))
        assert len(await client.get_children(fresh_path)) == 500
        async with AsyncSequentialLock(client, f"{fresh_path}/lock"):
            pass
        await client.delete_tree(fresh_path)
    plain = AsyncClient(tls_zookeeper.server.hosts, tls=context, session_timeout=2.5)
    with pytest.raises(NotSentError, match="TLS"):
        await plain.connect()
    await plain.close()


async def test_sasl_of_the_embedded_server_and_auth() -> None:
    with Server(sasl_users={"bob": "secret"}, enforce_auth=["sasl"]) as server:
        async with AsyncClient(server.hosts, sasl=DigestMD5("bob", "secret")) as client:
            await client.create("/a")
    with Server() as server:
        async with AsyncClient(server.hosts, auth=[("digest", b"me:pw")]) as client:
            await client.create("/mine", acl=zkwire.CREATOR_ALL_ACL)
            assert "digest" in [info.auth_scheme for info in await client.who_am_i()]
        async with AsyncClient(server.hosts) as other:
            with pytest.raises(zkwire.NoAuthError):
                await other.get_data("/mine")
            await other.add_auth("digest", b"me:pw")
            assert (await other.get_data("/mine")).data == b""


async def test_read_only_and_back() -> None:
    with Server(read_only=True) as server:
        states: list[State] = []
        client = AsyncClient(server.hosts, read_only=True, session_timeout=6.0)
        client.add_state_listener(states.append)
        async with client:
            assert client.state is State.CONNECTED_READ_ONLY
            assert await client.exists("/") is not None
            with pytest.raises(NotReadOnlyError):
                await client.create("/a")
            await blocking(server.set_read_only, False)
            await client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
            assert await client.create("/a") == "/a"
    with Server(read_only=True) as server:
        refused = AsyncClient(server.hosts, session_timeout=0.5)
        with pytest.raises(NotSentError):
            await refused.connect()
        await refused.close()


async def test_follow_reconfig() -> None:
    with Server() as one, Server() as two:
        async with AsyncClient(one.hosts, follow_reconfig=True) as client:
            port = two.port
            text = f"server.1=h:1:2:participant;127.0.0.1:{port}\nversion=100".encode()
            await client.exists("/")
            await eventually("it watches", lambda: client._session.watch_count)
            await blocking(one.set_config, text)
            expected = [("127.0.0.1", port)]
            await eventually("it follows", lambda: client._session.hosts._hosts == expected)


@asynccontextmanager
async def connected(hosts: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(hosts) as client:
        yield client


async def test_a_reply_has_no_asyncio_around_it(fake: FakeServer) -> None:
    """`await` on an answered reply does not suspend; one on an open one suspends once."""
    async with connected(fake.hosts) as client:
        reply = client.exists("/")
        await client.sync()
        with spinning() as count:
            await reply
        assert count() == 0
