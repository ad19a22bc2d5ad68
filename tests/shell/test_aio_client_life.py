"""The asyncio client connects, idles, starts no thread; TLS, SASL, read-only servers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from tests.shell.test_client import CLOSE_BOUND, within
from tests.support.aio_helpers import awaited, blocking, eventually, library_threads, run, spinning
from tests.support.fake_server import FakeServer, silent
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

# --- connecting and leaving -----------------------------------------------------------------------


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
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await AsyncSequentialLock(one, f"{fresh_path}-lock").acquire()
    await lock.release()
    credentials = await one.detach()
    assert one.state is State.CLOSED
    async with AsyncClient(whole, resume=credentials) as two:
        assert two.session_id == credentials.session_id
        assert await two.get_children(f"{fresh_path}-lock") == []
        await two.delete(f"{fresh_path}-lock")
        stat = await two.exists(fresh_path)
        assert stat is not None
        assert stat.ephemeral_owner == two.session_id
        credentials = await two.detach()
    with Client(whole, resume=credentials) as three:
        assert three.exists(fresh_path) is not None
        assert three.session_id == credentials.session_id


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
        started = {t.name for t in set(threading.enumerate()) - before if "fake" not in t.name}
        assert not {name for name in started if "zkwire-server" not in name}
        assert not library_threads()


async def test_a_slow_look_up_of_a_name_does_not_block_the_loop() -> None:
    """It has the only thread that there ever is; one that never ends is left behind at close."""
    gate = threading.Event()

    def resolver(host: str, port: int) -> list[Any]:
        assert host == "some.where"
        gate.wait(PATIENCE)
        return [(2, ("127.0.0.1", port))]

    with FakeServer() as server:
        hosts = f"some.where:{server.port}"
        client = hooked(AsyncClient)(hosts, _resolver=resolver)
        reply = client.exists("/a")
        for ticks in itertools.count():
            await asyncio.sleep(0)
            if library_threads() and ticks > 50:
                break
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
            with pytest.raises(NoNodeError):
                await asyncio.ensure_future(awaited(client.get_data("/none")))
            async with AsyncSequentialLock(client, f"{fresh_path}/lock"):
                pass
            await client.delete_tree(fresh_path)

    with caplog.at_level(logging.WARNING, logger="asyncio"):
        run(main, debug=True)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_what_needs_no_loop_leaves_it_alone(fake: FakeServer) -> None:
    """A client with nothing to do rests; an await on what has been answered does not suspend."""
    async with AsyncClient(fake.hosts, session_timeout=20) as client:
        reply = client.exists("/")
        await client.sync()
        with spinning() as count:
            await reply
        assert count() == 0
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
        self._clock = clock
        selector: Any = self._selector  # type: ignore[attr-defined]
        real = selector.select

        def select(timeout: float | None = None) -> Any:
            if timeout is not None and timeout <= 0:
                return real(0)
            while not (ready := real(0.002)) and (busy() or timeout is None):
                pass
            if not ready and timeout is not None:
                clock.advance(timeout)
            return ready

        selector.select = select

    def time(self) -> float:
        return self._clock()


def test_ten_thousand_idle_seconds(fresh_path: str) -> None:
    """Pings keep the session; nothing else is sent, nothing accumulates, nothing breaks."""
    clock = VirtualClock(1000.0)
    clients: list[AsyncClient] = []
    traced: list[object] = []

    def busy() -> bool:
        return any(c._session._live._pings or c._session.unanswered for c in clients)

    async def main(hosts: str) -> None:
        options: dict[str, Any] = {"_now": clock, "trace": traced.append}
        async with hooked(AsyncClient)(hosts, session_timeout=30.0, **options) as client:
            clients.append(client)
            await client.create(fresh_path, ephemeral=True)
            lock = AsyncSequentialLock(client, "/lock")
            assert await lock.acquire()
            start, session_id, before = clock(), client.session_id, len(traced)
            await asyncio.sleep(10_000)
            assert clock() - start >= 10_000
            assert 2 * 990 <= len(traced) - before <= 2 * 1010
            assert (client.session_id, client.state) == (session_id, State.CONNECTED)
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
