"""The asyncio client as its users see it: the same face, order, contexts, coroutines, callbacks."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.shell.test_client import within
from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import (
    awaited,
    blocking,
    cancelled_at,
    complaints,
    eventually,
    every_point,
    watch_count,
)
from tests.support.fake_server import FakeServer
from tests.support.hooks import Clock, hooked
from tests.support.lock_helpers import LONG, PATIENCE
from tests.support.operation_samples import SAMPLES
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    Client,
    ClientClosedError,
    ConnectionLossError,
    Create,
    Delete,
    EventType,
    ForkedError,
    NoNodeError,
    OutcomeUnknownError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.net.connection import INTERRUPTED
from zkwire.session.request import Request
from zkwire.session.session import Session
from zkwire.session.waitable import Awaited, Waitable
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, hold
from zkwire.wire import ops


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


async def _by_two_tasks(reply: Any) -> Any:
    return (await asyncio.gather(*map(asyncio.create_task, [reply, reply])))[1]


WAYS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "TaskGroup": _in_a_group,
    "shield": lambda reply: asyncio.wait_for(asyncio.shield(reply), PATIENCE),
    "two tasks": _by_two_tasks,
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


async def test_a_lock_that_is_acquired_during_a_detach_is_not_left_behind(
    hosts: str, fresh_path: str
) -> None:
    async with AsyncClient(hosts) as client:
        flicker = Flicker()

        async def work(_: object) -> None:
            while not flicker.ready:
                await Awaited(flicker)

        client._driver.spawn(work)
        await client.connect()
        leaving = asyncio.create_task(client.detach())
        await asyncio.sleep(0)
        async with AsyncSequentialLock(client, fresh_path):
            flicker.moments = 2
            flicker.flicker()
            with pytest.raises(RuntimeError, match="a lock is held"):
                await leaving
        assert (await client.detach()).session_id


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


# --- misuse ---------------------------------------------------------------------------------------


async def test_a_block_commits_its_transaction_once_and_not_after_an_error(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        async with client.transaction() as t:
            t.create("/a")
        async with client.transaction() as t:
            t.create("/b")
            await t.commit()
        with suppress(KeyError):
            async with client.transaction() as t:
                t.delete("/a")
                raise KeyError
        assert {*await client.get_children("/")} == {"a", "b", "zookeeper"}


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
async def test_a_forked_child_is_refused_and_leaves_the_session_alone(fake: FakeServer) -> None:
    """Nothing that was planned in the parent's loop happens in the child's."""
    clock = Clock()
    async with hooked(AsyncClient)(fake.hosts, session_timeout=6.0, _now=clock) as client:
        await client.exists("/")
        reply, driver = client.exists("/"), client._driver.io
        assert driver is not None

        def child() -> None:
            clock.ahead += 15  # everything is overdue now: pings, the connection's end
            for _ in range(3):
                driver.turn()
            driver.wake()
            assert client._driver.current_connection is None
            assert client._session.state is State.CONNECTED, "the child has acted on the session"
            assert client.lease_remaining() == 0.0

            async def use() -> None:
                for ask in (lambda: client.exists("/"), client.connect, lambda: reply):
                    with pytest.raises(ForkedError):
                        await awaited(ask())
                await client.close()

            asyncio.run(use())

        in_child(child)
        assert (await reply) is not None
        for _ in range(10):
            assert await client.exists("/") is not None
        assert len(fake.connections) == 1


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


HOWS = ("waiting", "answered", "twice")


async def assert_in_step(client: AsyncClient, path: str) -> None:
    """The next operations are answered right."""
    while True:
        with suppress(ConnectionLossError):
            await client.sync()
            break
    assert await client.create(path, path.encode()) == path
    one, none, other = await asyncio.gather(
        client.get_data(path), client.exists("/none"), client.get_data(path)
    )
    assert (one.data, none, other.data) == (path.encode(), None, path.encode())
    assert client._session.queued == 0
    assert not client._session.unanswered
    assert client.state is State.CONNECTED


# --- verbs ----------------------------------------------------------------------------------------


async def _called(call: Callable[[AsyncClient], Awaitable[Any]], client: AsyncClient) -> Any:
    return await call(client)


async def walked(client: AsyncClient) -> list[str]:
    return [path async for path in client.walk("/a")]


async def committed(client: AsyncClient) -> list[Any]:
    async with client.transaction() as t:
        t.check("/a")
        t.set_data("/a", b"t")
    return t.results


async def two_in_a_row(client: AsyncClient) -> Any:
    first, second = client.get_data("/a"), client.get_data("/a/b")
    return await first, await second


VERBS: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    **{
        f"{sample.method}, {sample.op.name}": partial(lambda call, c: call(c, "/a"), sample.call)
        for sample in SAMPLES
        if sample.op is not ops.REMOVE_WATCHES
    },
    "remove_watches": lambda c: c.remove_watches("/watched"),
    "ensure_path": lambda c: c.ensure_path("/x/y/z"),
    "delete_tree": lambda c: c.delete_tree("/a"),
    "walk": walked,
    "transaction": committed,
    "two in a row": two_in_a_row,
    "wait_for_state": lambda c: c.wait_for_state(State.DISCONNECTED, timeout=0.02),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_operation_cancelled_anywhere_leaves_the_connection_in_step(
    verb: str, server: Server
) -> None:
    """Also where the connection breaks at the same moment."""
    tried = 0
    async with (
        AsyncClient(server.hosts, session_timeout=LONG) as client,
        AsyncClient(server.hosts, session_timeout=LONG) as observer,
    ):
        session_id = client.session_id
        for how, cut in itertools.product(HOWS, (None, server.cut_all)):
            for cancelling in every_point(how, cut):
                for path in ("/a/b", "/a/gone"):
                    await observer.ensure_path(path)
                for made in ("/a/new", "/a/m"):
                    with suppress(NoNodeError):
                        await observer.delete(made)
                await observer.delete_tree("/x")
                if verb == "remove_watches":
                    await client.exists("/watched", watch=Watch())
                with suppress(ZooKeeperError):
                    await cancelled_at(_called(VERBS[verb], client), cancelling)
                tried += cancelling.happened
                await assert_in_step(client, f"/n{how}{cancelling.nth}{bool(cut)}")
        assert client.session_id == session_id
    if verb == "two in a row":  # when the first fails, the second is not awaited
        gc.collect()
        await asyncio.sleep(0)
        assert all("OutcomeUnknownError" in each for each in complaints().take())
    assert tried >= 2 * len(HOWS)
