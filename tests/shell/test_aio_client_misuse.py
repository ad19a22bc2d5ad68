"""What the asyncio client refuses, and what an interrupt leaves."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from tests.shell.test_client import within
from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import awaited, blocking
from tests.support.fake_server import FakeServer
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
from zkwire.net.dial import shut_down
from zkwire.session.session import Session
from zkwire.session.waitable import Awaited, Waitable
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, hold

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


async def test_after_close(hosts: str) -> None:
    client = AsyncClient(hosts)
    watch = Watch()
    async with client:
        await client.exists("/none", watch=watch)
    for ask in (
        lambda: client.exists("/"),
        lambda: client.get_data("/", watch=Watch()),
        lambda: client.remove_watches("/none"),
        lambda: client.multi([]),
    ):
        with pytest.raises(ClientClosedError):
            ask()
    for waiting in (
        client.connect(),
        client.detach(),
        client.ensure_path("/a"),
        awaited(watch),
        AsyncSequentialLock(client, "/lock").acquire(),
    ):
        with pytest.raises(ClientClosedError):
            await waiting
    with pytest.raises(ClientClosedError):
        _ = client.credentials
    assert await client.wait_for_state(State.CONNECTED) is State.CLOSED
    await client.close()


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


async def test_who_is_woken_for_nothing_goes_on_waiting(hosts: str) -> None:
    """A connection that lasted a moment is no time limit that has passed."""
    async with AsyncClient(hosts) as client:
        flicker = Flicker()
        waiter = asyncio.create_task(client._driver.within(flicker, PATIENCE))
        for _ in range(2):
            while not flicker._wakers:
                await asyncio.sleep(0)
            assert not waiter.done()
            flicker.flicker()
        assert await waiter
        assert not await client._driver.within(Flicker(), 0.01)


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


async def test_a_broken_pipe_is_read_to_its_end_by_a_loop_that_does_not_tell(hosts: str) -> None:
    """uvloop listens no more to a socket that has had an error."""
    async with AsyncClient(hosts) as client:
        link, driver = client._driver.current_connection, client._driver.io
        assert link is not None
        assert driver is not None
        driver.connector.listen(0)
        shut_down(link.sock)
        link.send(b"0")
        assert link.broken_pipe
        driver.turn()
        assert client._driver.current_connection is not link
        assert await client.exists("/") is not None
