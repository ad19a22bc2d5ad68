"""The asyncio client's life in one loop: what it refuses, and what forks and interrupts leave."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any
from uuid import uuid4

import pytest

from tests.shell.test_client import CLOSE_BOUND, within
from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import awaited, blocking, library_threads
from tests.support.fake_server import FakeServer
from tests.support.hooks import hooked
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    Client,
    ClientClosedError,
    EventType,
    ForkedError,
    OutcomeUnknownError,
    State,
    Watch,
)
from zkwire.net.connection import INTERRUPTED
from zkwire.session.session import Session
from zkwire.session.waitable import Awaited, Waitable
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, hold

# --- connecting and leaving -----------------------------------------------------------------------


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


# --- misuse ---------------------------------------------------------------------------------------


def test_without_a_loop_there_is_a_clear_error() -> None:
    client = AsyncClient("127.0.0.1:1")
    for ask in (
        *(client.start, lambda: client.exists("/a"), lambda: client.create("/a")),
        lambda: client.get_data("/a", watch=Watch()),
    ):
        with pytest.raises(RuntimeError, match="no running event loop"):
            ask()
    assert client.state is State.NOT_STARTED
    assert client._session.queued == 0
    asyncio.run(client.close())


async def test_another_loop_is_refused_and_harms_nothing(server: Server) -> None:
    """The client's loop goes on meanwhile; what was asked for there is answered there."""
    gate = Gate()

    async def elsewhere(client: AsyncClient, reply: Any, watch: Watch) -> None:
        async def call() -> None:
            await client.exists("/")

        for ask in (
            *(call, client.connect, client.close, client.detach),
            lambda: client.wait_for_state(State.CLOSED),
            lambda: client.ensure_path("/a"),
            lambda: awaited(reply),
            lambda: awaited(watch),
            AsyncSequentialLock(client, "/lock").try_acquire,
            lambda: anext(client.walk("/")),
        ):
            with pytest.raises(RuntimeError, match="another event loop"):
                await ask()

    with FaultProxy(server.hosts) as proxy:
        async with AsyncClient(proxy.hosts) as client:
            watch = Watch()
            await client.exists("/new", watch=watch)
            proxy.on("get_data", action=hold(gate))
            reply = client.get_data("/")
            late = client.create("/late")
            await blocking(lambda: asyncio.run(elsewhere(client, reply, watch)))
            gate.release()
            assert (await reply).data == b""
            assert await late == "/late"
            assert client.state is State.CONNECTED
            await client.create("/new")
            assert (await watch).type is EventType.NODE_CREATED


def test_use_after_the_loop_has_ended(server: Server) -> None:
    """Whoever forgot to close it: a clear error in the next loop, and close lets go."""
    client = AsyncClient(server.hosts)

    async def use() -> None:
        await client.exists("/")

    asyncio.run(use())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(use())
    asyncio.run(client.close())
    assert client.state is State.CLOSED
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(client.connect())


async def test_blocking_waits_are_refused_with_the_reason(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        watch, lost = Watch(), AsyncSequentialLock(client, "/lock").lost
        await client.exists("/none", watch=watch)
        for wait in (
            *(watch.wait, lambda: watch.wait(5.0), lambda: lost.wait(5.0)),
            lambda: next(iter(watch)),
        ):
            with within(1.0), pytest.raises(RuntimeError, match="block the event loop"):
                wait()
        with pytest.raises(RuntimeError, match="use await"):
            watch.wait()
        assert watch.wait(0) is None
        assert lost.wait(0) is False
    with Client(hosts) as threaded:
        unasked = Watch()
        threaded.exists("/none", watch=unasked)
        with pytest.raises(RuntimeError, match="await belongs to AsyncClient"):
            await unasked


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_forked_child_is_refused_and_the_parent_goes_on(hosts: str) -> None:
    async with AsyncClient(hosts, session_timeout=6.0) as client:
        await client.exists("/")
        session_id = client.session_id
        reply = client.exists("/")

        def child() -> None:
            async def use() -> None:
                async def call() -> None:
                    await client.exists("/")

                for ask in (call, client.connect, lambda: awaited(reply)):
                    with pytest.raises(ForkedError):
                        await ask()
                await client.close()

            assert client.lease_remaining() == 0.0
            asyncio.run(use())

        in_child(child)
        assert (await reply) is not None
        for _ in range(10):
            assert await client.exists("/") is not None
        assert client.session_id == session_id


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_forked_child_that_goes_on_with_the_loop_leaves_the_session_alone() -> None:
    """Nothing that was planned in the parent's loop happens in the child's."""
    with FakeServer() as server:
        client = AsyncClient(server.hosts, session_timeout=0.3)
        await client.connect(PATIENCE)
        async with client:
            await client.exists("/")
            driver = client._driver.io
            assert driver is not None

            def child() -> None:
                time.sleep(0.5)  # everything is overdue now: pings, the connection's end
                for _ in range(3):
                    driver.turn()
                driver.wake()
                assert client._driver.current_connection is None
                state = client._session.state
                assert state is State.CONNECTED, "the child has acted on the session"

            in_child(child)


# --- interrupts -----------------------------------------------------------------------------------


async def test_what_an_interrupted_read_has_taken_is_not_waited_for(
    hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may run its loop again; the call whose answer is gone must end."""
    async with AsyncClient(hosts) as client:
        pump = client._driver
        link = pump.current_connection
        assert link is not None
        reply = client.set_data("/", b"")
        receive = Session.receive_data

        def interrupted(session: Session, data: bytes, now: float) -> None:
            monkeypatch.setattr(Session, "receive_data", receive)
            raise KeyboardInterrupt

        monkeypatch.setattr(Session, "receive_data", interrupted)

        def read() -> None:
            while link.closed_because is None:
                pump.read(link)

        with pytest.raises(KeyboardInterrupt):
            read()
        assert link.closed_because == INTERRUPTED
        with pytest.raises(OutcomeUnknownError):
            await reply
        assert await client.exists("/") is not None


async def test_what_is_behind_an_interrupted_call_is_called_later(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        called: list[str] = []

        def interrupted() -> None:
            if not called:
                called.append("interrupted")
                raise KeyboardInterrupt

        client._session.callbacks += [interrupted, lambda: called.append("behind")]
        with pytest.raises(KeyboardInterrupt):
            client._driver.call_callbacks()
        client._driver.call_callbacks()
        assert called == ["interrupted", "behind"]


class Flicker(Waitable):
    """Wakes its waiters when it is not ready any more, and once more when it is."""

    __slots__ = ("moments",)

    def __init__(self) -> None:
        super().__init__()
        self.moments = 0

    @property
    def ready(self) -> bool:
        return self.moments >= 2

    def flicker(self) -> None:
        self.moments += 1
        for waker in self._take_wakers():
            waker()


async def test_a_lock_that_is_acquired_during_a_detach_is_not_left_behind(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        flicker = Flicker()

        async def work(_: object) -> None:
            while not flicker.ready:
                await Awaited(flicker)

        client._driver.spawn(work)
        await client.connect()
        leaving = asyncio.create_task(client.detach())
        await asyncio.sleep(0)
        async with AsyncSequentialLock(client, f"/detached-{uuid4().hex}"):
            flicker.moments = 2
            flicker.flicker()
            with pytest.raises(RuntimeError, match="a lock is held"):
                await leaving
        assert (await client.detach()).session_id
