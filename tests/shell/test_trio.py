"""zkwire.trio: the operations and the locks under trio and anyio, cut off and cancelled, too."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.conftest import open_descriptors
from tests.support.server_control import poll
from tests.support.snippets import blocks
from zkwire import (
    AsyncClient,
    AsyncReentrantLock,
    AsyncSequentialLock,
    ClientClosedError,
    LockCancelledError,
    LockLostError,
    NoNodeError,
    OutcomeUnknownError,
    State,
    Watch,
)
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after

trio = pytest.importorskip("trio")
anyio = pytest.importorskip("anyio")

from zkwire.trio import TrioClient  # noqa: E402  # behind the check that there is trio

LONG = 60.0
TIMEOUT = 2.0
CLIENTS: dict[str, Any] = {"trio": TrioClient, "asyncio": AsyncClient}
each_library = pytest.mark.parametrize("library", CLIENTS)


def under(main: Callable[..., Any]) -> Callable[..., None]:
    """The test, run by trio or by the library that it asks for."""

    @functools.wraps(main)
    def run(**fixtures: Any) -> None:
        async def limited() -> None:
            with anyio.fail_after(LONG):
                await main(**fixtures)

        anyio.run(limited, backend=fixtures.get("library", "trio"))

    return run


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(tick=0.2, timeouts=(TIMEOUT, TIMEOUT)) as server:
        yield server
        assert list(server.sessions) == []


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.hosts) as proxy:
        yield proxy


# --- operations -----------------------------------------------------------------------------------


def test_the_page_runs_on_a_server(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("how-to/trio", server.hosts):
        exec(block, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        *("b'1'", "EventType.NODE_DATA_CHANGED", "fence: True"),
        *("asyncio True", "trio True"),
    ]


@under
async def test_a_cut_connection_ends_the_request_and_not_the_session(proxy: FaultProxy) -> None:
    async with TrioClient(proxy.hosts, session_timeout=TIMEOUT) as client:
        await client.create("/watched")
        watch, session_id = Watch(), client.session_id
        await client.get_data("/watched", watch=watch)
        proxy.on("create", action=cut_after)
        with pytest.raises(OutcomeUnknownError):
            await client.create("/lost", ephemeral=True)
        await client.connect()
        await client.set_data("/watched", b"changed")
        assert (await watch).path == "/watched"
        await trio.sleep(1.5 * TIMEOUT)  # longer than the session timeout: pings keep it
        stat = await client.exists("/lost")
        assert stat is not None
        assert stat.ephemeral_owner == session_id


@under
async def test_requests_leave_in_order_from_a_turn_and_from_threads(server: Server) -> None:
    async with TrioClient(server.hosts.replace("127.0.0.1", "localhost")) as client:
        client.create("/node", b"0")
        replies = [client.set_data("/node", b"%d" % n) for n in range(500)]
        assert [(await reply).version for reply in replies] == list(range(1, 501))
        assert replies[0].result().version == 1

        async def ask() -> Any:
            return await client.create("/by-thread")

        path = await trio.to_thread.run_sync(lambda: trio.from_thread.run(ask))
        assert path == "/by-thread"


def test_an_error_of_a_callback_goes_into_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @under
    async def main() -> None:
        called = trio.Event()

        async def awaited(_: object) -> None:
            await trio.sleep(0)
            called.set()
            raise ValueError("of an async callback")

        def failing(_: object) -> None:
            raise ValueError("of a callback")

        async with TrioClient(server.hosts) as client:
            await client.exists("/node", watch=Watch(failing))
            await client.exists("/node", watch=Watch(awaited))
            await client.create("/node")
            await called.wait()
            client.delete("/none")
            with pytest.raises(NoNodeError):
                await client.get_data("/none")

    with caplog.at_level(logging.ERROR, "zkwire"):
        main()
    told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert told[:2] == ["of a callback", "of an async callback"]
    assert [message.partition(":")[0] for message in told[2:]] == ["delete /none"]


# --- the ends of clients --------------------------------------------------------------------------


def test_the_end_of_a_client_is_told_and_leaves_no_descriptor(server: Server) -> None:
    before = open_descriptors()
    seen: list[State] = []

    @under
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with TrioClient(server.hosts) as client:
                client.add_state_listener(seen.append)
                await client.create("/gone", ephemeral=True)
                scope.cancel()
                await trio.sleep(LONG)
        assert list(server.sessions) == []  # the close got there, in spite of the cancellation
        await client.close()
        with pytest.raises(ClientClosedError):
            await client.get_data("/")
        async with TrioClient(server.hosts) as left:
            assert await left.exists("/gone") is None

    main()
    assert seen == [State.CLOSED]
    # The server of this process closes its end when its own thread has seen the end of the client.
    poll("the descriptors are closed", lambda: open_descriptors() <= before or None, LONG)


def test_a_client_belongs_to_one_run_and_ends_with_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = (TrioClient(server.hosts, session_timeout=TIMEOUT) for _ in range(2))
    with pytest.raises(RuntimeError, match="trio"):
        client.get_data("/")
    replies = list[Any]()

    def fail(stop: Callable[[], None]) -> None:
        stop()
        raise KeyError("a bug")

    async def connect() -> None:
        for each in (client, other):  # the end of one harms no other
            replies.append(each.exists("/"))
            await replies[-1]
            monkeypatch.setattr(each._driver, "_stop", partial(fail, each._driver._stop))

    under(connect)()
    assert client.state is other.state is State.CLOSED  # though nobody has closed them
    assert caplog.text.count("KeyError: 'a bug'") == 2
    with pytest.raises(ClientClosedError, match="has been closed"):
        replies[0].add_done_callback(print)
    with pytest.raises(RuntimeError, match="this TrioClient belongs to another run"):
        under(client.connect)()
    while server.sessions:
        for session in list(server.sessions):
            server.expire(session.session_id)


# --- locks and other recipes ----------------------------------------------------------------------


@each_library
@pytest.mark.parametrize("how", ["scope", "scope and cut", "another task"])
@under
async def test_a_cancelled_acquire_leaves_nothing(
    proxy: FaultProxy, how: str, library: str
) -> None:
    async with CLIENTS[library](proxy.hosts) as client:
        holder, other = (AsyncSequentialLock(client, "/lock") for _ in range(2))
        assert await holder.acquire()
        if how == "scope and cut":
            proxy.on("create", action=cut_after)
        in_queue = anyio.Event()
        async with anyio.create_task_group() as group:

            async def acquire() -> None:
                try:
                    await other.acquire(on_position=lambda _: in_queue.set())
                except LockCancelledError:
                    assert how == "another task"

            group.start_soon(acquire)
            await in_queue.wait()
            if how == "another task":
                assert other.cancel()
            else:
                group.cancel_scope.cancel()
        while len(await client.get_children("/lock")) > 1:
            await anyio.sleep(0.01)
        assert holder.held
        await holder.release()
        assert await other.acquire(timeout=LONG)
        await other.release()
        assert await client.get_children("/lock") == []


@under
async def test_a_lost_lock_cancels_its_body(server: Server) -> None:
    async with TrioClient(server.hosts) as client, TrioClient(server.hosts) as outsider:
        lock = AsyncSequentialLock(client, "/lock")
        with pytest.raises(LockLostError):  # noqa: PT012  # by what it waits for
            async with lock, lock.cancel_on_loss():
                await outsider.delete_tree("/lock")
                await trio.sleep(LONG)
        assert await lock.acquire(timeout=LONG)
        with pytest.raises(LockLostError):  # noqa: PT012  # without the release's own error
            async with lock.cancel_on_loss():
                await outsider.delete_tree("/lock")
                await trio.sleep(LONG)


@under
async def test_a_re_entrant_lock_is_released_when_its_task_ends(server: Server) -> None:
    async with TrioClient(server.hosts) as client:
        lock = AsyncReentrantLock(client, "/lock")

        async def end_with_it() -> None:
            async with lock:
                await lock.acquire()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_with_it)
        assert await lock.acquire(timeout=LONG)
        await lock.release()
