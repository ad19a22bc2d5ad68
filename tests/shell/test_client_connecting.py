"""How both clients find their server and keep time limits, and what a lost connection costs."""

from __future__ import annotations

import random
import re
import select
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.shell.test_client import (
    CLOSE_BOUND,
    NOWHERE,
    PATIENCE,
    SLACK,
    Addresses,
    StuckResolver,
    all_ended,
    named,
    nowhere,
    within,
)
from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, asking, both, done, ended
from tests.support.both_clients import ending as ending  # noqa: PLC0414 - others ask for it here
from tests.support.fake_server import Connection, FakeServer, answering, reply, serve, silent
from tests.support.hooks import Clock, hooked
from tests.support.server_control import free_port, poll
from zkwire import AsyncClient, Client, ConnectionLossError, NotSentError, State, ZooKeeperError
from zkwire.net import connection as link
from zkwire.net.dial import MOST_LOOK_UPS, Dialer, readable_within
from zkwire.testing import Server

LOCAL = "127.0.0.1", 0
NAMED = r"zoo.example:2181: the look-up of the name zoo.example has been running for ([\d.]+) s"

# --- connecting -----------------------------------------------------------------------------------


def refuse(connection: Connection) -> None:
    connection.hello()
    connection.send(reply(0, error=-119))
    connection.wait_gone()


def greeted_by_a_reset(connection: Connection) -> None:
    connection.hello()
    connection.reset()


def test_connect_names_every_server_and_what_it_said() -> None:
    hint = "before it greeted (perhaps it expects TLS"
    scripts: dict[str, Any] = {
        "the server is read-only and refuses new sessions": refuse,
        f"the server closed it {hint}": Connection.hello,
        f"the server reset it {hint}": greeted_by_a_reset,
        "no answer to the greeting (perhaps it is no ZooKeeper server": silent,
    }
    with ExitStack() as stack:
        said = {stack.enter_context(FakeServer(s)).hosts: words for words, s in scripts.items()}
        said[f"127.0.0.1:{free_port()}"] = "Connection refused"
        client = Client(",".join(said), session_timeout=4.0)  # each is to be tried, pauses or not
        with within(4.0 + SLACK), pytest.raises(NotSentError) as caught:
            client.connect()
        for server, words in said.items():
            assert f"{server}: {words}" in str(caught.value)
        assert not caught.value.maybe_applied
        client.close()


@both
async def test_a_connect_that_fails_ends_in_time_and_leaves_nothing(side: Side) -> None:
    client: Any = side.Client(f"127.0.0.1:{free_port()}", session_timeout=0.2)
    enter = client.__enter__ if not side.asyncio else client.__aenter__
    with within(0.2 + SLACK + CLOSE_BOUND), pytest.raises(NotSentError, match="refused"):
        await done(enter())
    all_ended()
    with FakeServer(silent) as server:
        client = side.Client(server.hosts)
        with within(0.2 + SLACK), pytest.raises(NotSentError, match=r"within 0\.2 s"):
            await done(client.connect(0.2))
        await done(client.close())


def test_ipv6() -> None:
    try:
        server = FakeServer(host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server, Client(server.hosts) as client:
        assert server.hosts.startswith("[::1]:")
        assert client.exists("/") is not None


# --- names ----------------------------------------------------------------------------------------


def at_name(*addresses: FakeServer | int, **options: Any) -> Client:
    """A client of a name that stands for these addresses."""
    resolver = lambda host, port: named(*addresses)  # noqa: E731
    return hooked(Client)("zoo.example", _resolver=resolver, **options)


def test_hazard_A31_names_are_resolved_at_each_attempt() -> None:
    """A31: the addresses behind a name change, and the client follows."""
    with FakeServer() as one, FakeServer() as two:
        two.sessions = one.sessions
        asked: list[tuple[str, int]] = []
        now = one

        def resolver(host: str, port: int) -> Addresses:
            asked.append((host, port))
            return named(now)

        with hooked(Client)("zoo.example:4711", _resolver=resolver) as client:
            for then in (two, one):
                now = then
                before = len(then.connections)
                for connection in one.connections + two.connections:
                    with suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)
                then.wait_for(lambda then=then, n=before: len(then.connections) > n)  # type: ignore[misc]
                client.connect()
                client.sync()
        assert set(asked) == {("zoo.example", 4711)}
        assert len(asked) >= 3


def test_known_A48_clients_spread_over_the_addresses_of_one_name() -> None:
    """A resolver names the same one first for all of them."""
    with FakeServer() as one, FakeServer() as two, FakeServer() as three:
        for seed in range(12):
            with at_name(one, two, three, _seed=seed) as client:
                client.connect(PATIENCE)
        assert all(2 <= len(server.connections) <= 6 for server in (one, two, three))


@pytest.mark.parametrize(
    "bad", ["zoo.example:1", "a..b:1", "x" * 64 + ".example:1", "nul\0byte:1", "snow\u2603:1"]
)
def test_a_name_that_cannot_be_resolved_costs_its_server_only(bad: str, fake: FakeServer) -> None:
    def resolver(host: str, port: int) -> Addresses:
        host.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    for seed in range(3):
        hosts = f"{bad},{fake.hosts}"
        with within(1.0), hooked(Client)(hosts, _resolver=resolver, _seed=seed) as client:
            assert client.exists("/") is not None
    client = hooked(Client)(bad, session_timeout=1.0, _resolver=resolver)
    with pytest.raises(NotSentError, match="cannot resolve"):
        client.connect()
    client.close()
    all_ended()


def test_stuck_look_ups_do_not_pile_up_and_are_named() -> None:
    """A31: each attempt begins one, as long as few are running."""
    with FakeServer() as server, StuckResolver(server) as resolver:
        client = hooked(Client)("zoo.example", session_timeout=0.2, _resolver=resolver)
        begun = time.monotonic()
        client.pipeline.sync()
        poll("they run", lambda: len(resolver.asked) >= MOST_LOOK_UPS or None, PATIENCE)
        for _ in range(3):
            with pytest.raises(NotSentError, match=NAMED) as caught:
                client.connect(0.4)
        running = re.search(NAMED, str(caught.value))
        assert running is not None
        assert 1.0 <= float(running[1]) <= time.monotonic() - begun + 0.1
        assert resolver.asked == ["zoo.example"] * MOST_LOOK_UPS
        with resolver:
            pass
        client.connect(PATIENCE)
        client.close()


# --- time limits ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("where", NOWHERE)
async def test_an_untimed_call_ends_within_two_session_timeouts(side: Side, where: str) -> None:
    with nowhere(where) as (hosts, options):
        client: Any = side.Client(hosts, session_timeout=0.5, **options)
        if where == "silent session":
            await done(client.connect(PATIENCE))
        with within(1.0 + SLACK), pytest.raises(ZooKeeperError) as caught:
            await done(client.create("/a"))
        assert caught.value.maybe_applied == (where == "silent session")
        await done(client.close())


# --- below the clients ----------------------------------------------------------------------------


def dialer_of(addresses: list[Any], first: Any = None) -> tuple[Dialer, Any, list[socket.socket]]:
    """The dialer of a name that has these addresses, its driver, and what it has listened to."""
    target, sockets = ("zoo.example", 2181), list[socket.socket]()
    found = SimpleNamespace(found=[*addresses], used=False, ask=lambda: None)
    session = SimpleNamespace(hosts=SimpleNamespace(arrange=list))
    driver = SimpleNamespace(now=lambda: 0.0, tls=None, session=session, look_ups={target: found})
    listen: Any = lambda sock, *_: sockets.append(sock)  # noqa: E731
    return Dialer(target, driver, listen, first, 10.0), driver, sockets


def dialled(addresses: list[Any], first: Any = None) -> Dialer:
    """One whose attempt has ended."""
    dialer, _, sockets = dialer_of(addresses, first)
    dialer.advance()
    while not dialer.over:
        select.select((), sockets[-1:], (), PATIENCE)
        dialer.ready(selectors.EVENT_WRITE)
    return dialer


def test_the_addresses_of_a_name_share_the_time_and_are_tried_in_turn() -> None:
    """The next attempt begins behind the one that was reached."""
    with ExitStack() as stack:
        here, there = (
            (socket.AF_INET, stack.enter_context(socket.create_server(LOCAL)).getsockname())
            for _ in range(2)
        )
        nobody = socket.AF_INET, ("127.0.0.1", free_port())
        waiting, driver, _ = dialer_of([here, there])
        waiting.advance()
        assert (waiting.due, waiting.address) == (5.0, here)
        driver.now = lambda: 5.0
        waiting.advance()
        assert (waiting.due, waiting.address) == (10.0, there)
        assert dialled([nobody, nobody]).failure == "Connection refused"
        last, one = dialled([nobody, nobody, here]), dialled([here, there])
        assert (last.address, last.following, one.following) == (here, nobody, there)
        two = dialled([here, there], one.following)
        assert (two.address, two.following) == (there, here)
        for dialer in (waiting, last, one, two):
            dialer.cancel()


def test_what_the_kernel_has_taken_is_known_to_the_byte() -> None:
    here, there = socket.socketpair()
    with here, there:
        connection, data = link.Connection(here), bytes(10_000_000)
        connection.written += len(data)
        connection.send(data)
        assert 0 < connection.written < len(data)
        assert len(connection.backlog) == len(data) - connection.written
        here.shutdown(socket.SHUT_WR)
        received = 0
        while piece := there.recv(1_000_000):
            received += len(piece)
        assert received == connection.written


@both
async def test_answers_that_arrived_before_the_break_count(side: Side) -> None:
    """The client is still sending when the server, which has answered, resets the connection."""
    with FakeServer(answering(100, Connection.half_close), serve) as server:
        async with side.opened(server.hosts, session_timeout=20) as client:
            errors = await ended(
                [asking(client).create(f"/{n}", bytes(50_000)) for n in range(400)]
            )
            assert errors[:100] == [None] * 100
            assert errors[100] is not None


# --- the state of things --------------------------------------------------------------------------


async def retried(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result, on this connection or on a later one."""
    while True:
        with suppress(ConnectionLossError):
            return await done(call(*arguments))


@both
async def test_hazard_A44_the_state_at_rest_is_the_real_one(
    side: Side, fake: FakeServer, seed: int
) -> None:
    """A44: after any pattern of cuts the last word is "connected", and a call proves it."""
    rng = random.Random(seed)
    async with side.opened(fake.hosts, session_timeout=20) as client:
        for _ in range(100):
            for _ in range(rng.randrange(1, 4)):
                with suppress(OSError):
                    fake.connections[-1].sock.shutdown(rng.choice([0, 1, 2]))
                if rng.random() < 0.5:
                    with suppress(ConnectionLossError):
                        await done(client.exists("/"))
            await done(client.connect())
            await retried(client.exists, "/")
            # The server may still be about to hear of the last cut.
            await eventually("at rest", lambda: client.state is State.CONNECTED)
        assert len(fake.sessions) == 1


@both
async def test_small_requests_leave_at_once(side: Side, fake: FakeServer) -> None:
    async with side.opened(fake.hosts) as client:
        link = client._driver.current_connection
        assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await done(client.exists("/a"))


async def test_a_loop_that_was_blocked_reads_before_it_judges(server: Server) -> None:
    """An answer in the kernel is no silence; a connection that is about to go is not used."""
    clock = Clock()
    async with hooked(AsyncClient)(server.hosts, session_timeout=20, _now=clock) as client:
        first = client._driver.current_connection
        clock.ahead += 15
        assert await client.exists("/") is not None
        link, driver = client._driver.current_connection, client._driver.io
        assert link is not None
        assert driver is not None
        assert link is not first
        waiting = client.set_data("/", b"")
        assert readable_within(link.sock, PATIENCE)  # and nobody has read it
        clock.ahead += 15
        driver.turn()
        assert waiting.ready
        assert (await waiting).version == 1
        assert client._driver.current_connection is link
