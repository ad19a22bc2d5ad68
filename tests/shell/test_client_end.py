"""Both clients end, from wherever they are, or idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.shell.test_client import (
    ARGUMENTS,
    CLOSE_BOUND,
    PATIENCE,
    all_ended,
    nowhere,
    refused_port,
    undisturbed,
    within,
)
from tests.support.aio_helpers import blocking, eventually
from tests.support.both_clients import Side, answer, asking, both, done, ending, event_of
from tests.support.fake_server import Connection, FakeServer, deaf, mute, reply, serve
from tests.support.lock_helpers import Running
from zkwire import (
    AsyncClient,
    AuthFailedError,
    Client,
    ClientClosedError,
    EventType,
    NotSentError,
    OperationTimeoutError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.blocking.io_thread import IOThread
from zkwire.net import connection

# --- the end --------------------------------------------------------------------------------------


def rejecting(connection: Connection) -> None:
    """A script that refuses the credentials."""
    connection.greet()
    connection.request()
    connection.send(reply(-4, error=-115))


SCRIPTS: dict[str, Callable[[Connection], None]] = {
    "connected": serve,
    "closed": serve,
    "expired": serve,
    "server lost": serve,
    "waiting for answers": mute,
    "stuffed": deaf,
    "disconnected": lambda connection: connection.greet(),
}
LONELY = {
    "dialling a black hole": "black hole",
    "looking a name up": "blocked resolver",
    "refused": "refused",
    "greeting": "silent accept",
}
STATES = ["never used", "rejected", *SCRIPTS, *LONELY]


async def client_that_is(state: str, side: Side, stack: ExitStack) -> Any:
    """A client in this state; the servers that it needs end with the stack."""
    if state == "never used":
        return side.Client("127.0.0.1:1")
    if state in LONELY:
        hosts, options = stack.enter_context(nowhere(LONELY[state]))
        client = side.Client(hosts, **options)
        asking(client).create("/a")
        return client
    server = stack.enter_context(FakeServer(SCRIPTS.get(state, rejecting)))
    if state == "rejected":
        client = side.Client(server.hosts, auth=[("digest", b"a:b")])
        with pytest.raises(AuthFailedError):
            await done(client.connect())
        return client
    client = side.Client(server.hosts)
    await done(client.connect())
    if state == "closed":
        await done(client.close())
    elif state == "expired":
        server.expire(client.session_id)
        await eventually("it has expired", lambda: client.state is State.EXPIRED)
    elif state == "server lost":
        await blocking(server.close)
    elif state == "waiting for answers":  # others do, too, one of them as the reader
        if not side.asyncio:
            for _ in range(3):
                Running(lambda: client.create("/a"))
        asking(client).create("/b")
    elif state == "stuffed":  # the server does not read, and the kernel takes no more
        for _ in range(20):
            asking(client).set_data("/a", bytes(900_000))
    elif state == "disconnected":
        with pytest.raises(ZooKeeperError):
            await done(client.create("/a"))
    return client


@both
@pytest.mark.parametrize("state", STATES)
async def test_close_from_every_state(side: Side, state: str) -> None:
    """A38: within its bound, no thread left, and the descriptors are the fixture's to count."""
    with ExitStack() as stack:
        client = await client_that_is(state, side, stack)
        last = None
        with suppress(ZooKeeperError):
            last = None if state == "never used" else asking(client).exists("/last")
        with within(CLOSE_BOUND):
            await done(client.close())
        all_ended(but="zkwire-resolve" if state == "looking a name up" else "")
        assert last is None or (last.ready and (ending(last) or state == "connected"))
        with within(0.1):
            await done(client.close())
        await assert_dead_at_once(client)


async def assert_dead_at_once(client: Any) -> None:
    """A39: everything raises, at once."""
    expected = {
        State.CLOSED: ClientClosedError,
        State.EXPIRED: SessionExpiredError,
        State.AUTH_FAILED: AuthFailedError,
    }[client.state]
    for verb, arguments in ARGUMENTS.items():
        good = {name: value for name, value, _ in arguments}
        for operations in (client, asking(client)):
            with within(0.1), pytest.raises(expected) as caught:
                getattr(operations, verb)(**good)
            assert caught.value.path == good.get("path", caught.value.path)
            assert caught.value.op is not None
            assert not caught.value.maybe_applied
    enter = client.__aenter__ if isinstance(client, AsyncClient) else client.__enter__
    for begin in (client.connect, enter):
        with within(0.1), pytest.raises(expected):
            await done(begin())
    with pytest.raises(expected):
        _ = client.credentials
    assert client.lease_remaining() == 0.0
    assert client.state.value in repr(client)


@both
async def test_close_ends_the_session_on_the_server(
    side: Side, hosts: str, fresh_path: str
) -> None:
    async with side.opened(hosts) as observer:
        client: Any = side.Client(hosts)
        await done(client.create(fresh_path, ephemeral=True))
        watch = Watch()
        await done(observer.exists(fresh_path, watch=watch))
        await done(client.close())
        assert (await event_of(watch, observer)).type == EventType.NODE_DELETED


def test_hazard_E9_start_and_close_at_once(seed: int, fake: FakeServer) -> None:
    """E9: eight threads use and close fresh clients; each call ends, each thread ends."""
    rng = Random(seed)

    def act(number: int, client: Client, barrier: threading.Barrier, closers: list[int]) -> None:
        barrier.wait(PATIENCE)
        if number in closers:
            client.close()
            return
        with suppress(ClientClosedError):
            client.exists("/a")

    for _ in range(40):
        client, barrier = Client(fake.hosts), threading.Barrier(8)
        closers = rng.sample(range(8), rng.randrange(1, 8))
        for one in [Running(partial(act, n, client, barrier, closers)) for n in range(8)]:
            one.result()
        client.close()
        all_ended()


@contextmanager
def having(link: connection.Connection, role: str) -> Iterator[None]:
    """Have a role on a connection."""
    setattr(link, role, link)
    yield
    setattr(link, role, None)


@pytest.mark.parametrize("hold", ["mutex", "reader", "writer"])
async def test_close_where_the_caller_has_been_interrupted_in_the_middle(
    hold: str, fake: FakeServer
) -> None:
    """E8: a signal handler may run while its thread holds any of the client's locks."""
    client = Client(fake.hosts)
    client.connect()
    pump = client._driver
    link = pump.current_connection
    assert link is not None
    with pump.mutex if hold == "mutex" else having(link, hold), within(CLOSE_BOUND):
        client.close()
    client.close()
    all_ended()
    await assert_dead_at_once(client)


# --- idle -----------------------------------------------------------------------------------------


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the I/O thread has turned round."""
    turns: list[float] = []
    turn = IOThread.turn

    def counted(self: IOThread, ready: Any) -> None:
        turns.append(time.monotonic())
        turn(self, ready)

    monkeypatch.setattr(IOThread, "turn", counted)
    return turns


def mute_but_for_pings(connection: Connection) -> None:
    connection.greet()
    for _ in connection.requests():
        connection.flush()


@pytest.mark.parametrize("reader", ["nobody", "a caller"])
def test_an_idle_client_does_nothing(turns: list[float], reader: str) -> None:
    """The I/O thread turns for pings and their answers, whether it reads them or a caller does."""
    script = serve if reader == "nobody" else mute_but_for_pings
    with FakeServer(script) as server, Client(server.hosts, session_timeout=0.9) as client:
        call = client.pipeline.exists("/a")
        if reader == "nobody":
            call.result()
        else:
            waiting = Running(call.result)
        server.wait_for(lambda: server.count("ping") >= 1)

        def turns_for_three_pings() -> int:
            before, pings = len(turns), server.count("ping")
            server.wait_for(lambda: server.count("ping") >= pings + 3)
            return len(turns) - before

        # One for the ping, and for its answer one, or two beside a caller who is faster; more, if
        # the machine has paused for so long that there is a new connection.
        undisturbed(turns_for_three_pings, 3 * 4)
        client.close()
        if reader == "a caller":
            with pytest.raises(ZooKeeperError):  # or with a connection that broke
                waiting.result()


async def test_a_search_and_a_full_kernel_do_not_make_it_spin(turns: list[float]) -> None:
    client = Client(f"127.0.0.1:{refused_port()}", session_timeout=1.5)
    with pytest.raises(NotSentError):
        client.create("/a")
    client.close()
    assert len(turns) < 100
    turns.clear()
    with ExitStack() as stack:
        client = await client_that_is("stuffed", Side(""), stack)
        with pytest.raises(OperationTimeoutError):
            await answer(client.pipeline.exists("/a"), 0.5)
        assert len(turns) < 200
        client.close()
