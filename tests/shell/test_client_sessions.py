"""What both clients say of their session, replies and watches, and how they end."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.shell.test_client import (
    ARGUMENTS,
    CLOSE_BOUND,
    PATIENCE,
    all_ended,
    nowhere,
    undisturbed,
    within,
)
from tests.support.aio_helpers import blocking, eventually
from tests.support.both_clients import Side, asking, both, done, ending
from tests.support.fake_server import Connection, FakeServer, deaf, mute, reply, serve
from tests.support.lock_helpers import Running
from zkwire import (
    ACL,
    AsyncClient,
    AuthFailedError,
    Client,
    ClientClosedError,
    Event,
    NoAuthError,
    Perms,
    SessionExpiredError,
    State,
    ZooKeeperError,
    digest_id,
)
from zkwire.blocking.io_thread import IOThread
from zkwire.net import connection
from zkwire.net.server_list import ServerListUpdates
from zkwire.testing import Server

# --- callbacks of threads -------------------------------------------------------------------------


@both
async def test_set_hosts_before_the_first_use_and_from_a_thread(side: Side, server: Server) -> None:
    client: Any = side.Client("nowhere.invalid:1/app")
    with pytest.raises(ValueError, match="the chroot of a client stays, '/app'"):
        client.set_hosts(f"{server.hosts}/other")
    with pytest.raises(ValueError, match="names no server"):
        client.set_hosts("")
    client.set_hosts(f"{server.hosts}/app")
    client.set_hosts(server.hosts)
    assert repr(client) == f"<{side.prefix}Client {server.hosts}/app not started>"
    with Client(server.hosts) as other:
        other.create("/app", b"x")
    assert (await done(client.get_data("/"))).data == b"x"
    await blocking(client.set_hosts, f"localhost:{server.port}")
    await blocking(server.cut_all)
    await eventually("again", lambda: client.server == ("127.0.0.1", server.port))
    await done(client.close())


async def test_set_hosts_is_what_follow_reconfig_keeps_with_tls() -> None:
    session = SimpleNamespace(change=None)
    driver: Any = SimpleNamespace(tls=object(), session=session, when_ready=lambda *_: None)
    updates = ServerListUpdates(driver, [("a", 1)])
    client = AsyncClient("a:1", follow_reconfig=True)
    client._updates = updates
    client.set_hosts("b:2")
    assert updates._given == [("b", 2)]
    await client.close()


# --- replies that no caller waits for -------------------------------------------------------------

PUBLIC = ["add_done_callback", "ready", "result"]
OF_A_COROUTINE = ["close", "send", "throw"]


@both
async def test_a_reply_has_the_few_public_attributes(side: Side, server: Server) -> None:
    server.stop()  # the answer comes when this has looked
    client: Any = side.Client(server.hosts)
    reply = asking(client).get_data("/")
    more = OF_A_COROUTINE if side.asyncio else []
    assert [n for n in dir(reply) if n[0] != "_"] == sorted(PUBLIC + more)
    assert repr(reply) == "<reply of get_data /: not yet>"
    assert not reply.ready
    server.start()
    await done(client.connect())
    await eventually("answered", lambda: reply.ready)
    assert repr(reply) == "<reply of get_data /: ended>"
    assert reply.result().data == b""
    await done(client.close())


def test_a_done_callback_of_threads_may_block_and_may_fail(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the callback thread; after a close its caller runs it."""
    reported, names, told = list[Any](), list[str](), threading.Event()

    def hook(args: threading.ExceptHookArgs) -> None:
        reported.append(args.exc_value)
        told.set()

    def ask(reply: Any) -> None:
        client.create("/from-a-callback")
        names.append(threading.current_thread().name)

    monkeypatch.setattr(threading, "excepthook", hook)
    with Client(server.hosts) as client:
        reply = client.pipeline.exists("/")
        reply.add_done_callback(ask)
        reply.add_done_callback(lambda _: 1 // 0)
        assert told.wait(PATIENCE)
        assert client.exists("/from-a-callback") is not None
    assert isinstance(reported[0], ZeroDivisionError)
    assert names[0].endswith("-callbacks")
    seen = list[threading.Thread]()
    reply.add_done_callback(lambda _: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


@both
async def test_a_done_callback_that_cannot_be_called_is_refused(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        reply = asking(client).exists("/")
        with pytest.raises(TypeError, match="function must be callable"):
            reply.add_done_callback(None)
        assert await reply is not None
        if not side.asyncio:
            with pytest.raises(TypeError, match="nothing awaits it"):
                reply.add_done_callback(asyncio.sleep)


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


@both
async def test_close_of_a_client_never_used_is_told(side: Side) -> None:
    told: list[State] = []
    never: Any = side.Client("127.0.0.1:1")
    never.add_state_listener(told.append)
    await done(never.close())
    await eventually("the listener is told", lambda: told == [State.CLOSED])


@contextmanager
def having(link: connection.Connection, role: str) -> Iterator[None]:
    """Have a role on a connection."""
    setattr(link, role, link)
    yield
    setattr(link, role, None)


@pytest.mark.parametrize("hold", ["mutex", "reader", "writer"])
async def test_hazard_E8_close_where_the_caller_has_been_interrupted(
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


def test_hazard_A25_a_callback_may_block_and_the_session_lives_on(fake: FakeServer) -> None:
    """Pings go on, and so do calls, for longer than the session timeout."""
    entered, leave = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    with Client(fake.hosts, session_timeout=2.4) as client:
        client.exists("/a", watch=block)
        client.create("/a")
        assert entered.wait(PATIENCE)
        fake.wait_for(lambda: fake.count("ping") >= 4)
        assert client.exists("/a") is not None
        leave.set()
        assert len(fake.sessions) == 1


def test_a_callback_that_raises_is_reported_and_the_next_one_runs(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one that nobody awaits; and a hook of the program's own may fail as callbacks do."""
    reported: list[threading.ExceptHookArgs] = []
    hooks: list[type[BaseException]] = []
    called = [threading.Event(), threading.Event()]

    async def note(event: Event) -> None:
        raise AssertionError("awaited")

    def broken(args: threading.ExceptHookArgs) -> None:
        raise ArithmeticError("in the hook")

    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: hooks.append(kind))
    monkeypatch.setattr(threading, "excepthook", reported.append)
    for watch in (lambda event: 1 / 0, note, lambda event: called[0].set()):
        client.exists(fresh_path, watch=watch)
    client.create(fresh_path)
    assert called[0].wait(PATIENCE)
    first, second = reported
    assert first.exc_type is ZeroDivisionError
    assert first.thread is not None
    assert "callbacks" in first.thread.name
    expected = "note is async: callbacks of a Client are not awaited"
    assert expected in str(second.exc_value)
    monkeypatch.setattr(threading, "excepthook", broken)
    for watch in (lambda event: 1 / 0, lambda event: called[1].set()):
        client.get_data(fresh_path, watch=watch)
    client.delete(fresh_path)
    assert called[1].wait(PATIENCE)
    assert hooks == [ArithmeticError]


# --- callbacks of watches forever -----------------------------------------------------------------

watches = pytest.mark.parametrize("watch", ["watch_data", "watch_children"])


@both
@watches
async def test_a_callback_that_returns_false_ends_its_watch(
    side: Side, watch: str, server: Server
) -> None:
    async with side.opened(server.hosts) as client:
        seen = list[Any]()

        async def once(state: Any) -> bool:
            seen.append(state)
            return len(seen) < 2

        async def change(name: str) -> None:
            makes = client.create if watch == "watch_children" else client.set_data
            await done(makes(name) if watch == "watch_children" else makes("/", name.encode()))

        begun = getattr(client, watch)("/", side.function(once))
        assert await done(begun.wait_called(PATIENCE)) is True
        assert [state.stat.version for state in seen] == [0]
        await change("/a")
        await eventually("twice", lambda: len(seen) == 2)
        await eventually("no watch is left", lambda: not server.watches(client.session_id))
        await change("/b")
        assert len(seen) == 2
        begun.close()
        for seconds in (0, None):
            assert await done(begun.wait_called(seconds)) is True


def test_wait_called_tells_a_timeout_a_refusal_and_a_missing_callback(server: Server) -> None:
    gate = threading.Event()
    with Client(server.hosts) as client:
        watch = client.watch_data("/", lambda _: gate.wait(PATIENCE) and 0)
        assert not watch.wait_called(0.05)
        gate.set()
        assert watch.wait_called(PATIENCE)
        assert server.watches(client.session_id) == ["/"], "other false values end nothing"
        client.create("/secret", b"", [ACL(Perms.ALL, digest_id("bob", "secret"))])
        refused = client.watch_data("/secret", print)
        with pytest.raises(NoAuthError):
            refused.wait_called(PATIENCE)
        refused.close()
        with pytest.raises(ClientClosedError):
            refused.wait_called(PATIENCE)
        with pytest.raises(RuntimeError, match="there is no callback"):
            client.watch_data("/").wait_called()


@both
@watches
async def test_a_callback_with_other_parameters_is_refused_at_once(
    side: Side, watch: str, server: Server
) -> None:
    client: Any = side.Client(server.hosts)
    begin = getattr(client, watch)
    refusals: list[tuple[Any, bool, str]] = [
        (lambda data, stat: None, False, "with the state alone, without with_event=True"),
        (lambda: None, False, "with the state alone"),
        (lambda state: None, True, "with the state and the event"),
        (lambda *, state: None, False, "with the state alone"),
        (7, False, "must be callable"),
    ]
    for callback, with_event, message in refusals:
        with pytest.raises(TypeError, match=message):
            begin("/", callback, with_event=with_event)
    with pytest.raises(TypeError, match="with_event needs a callback"):
        begin("/", with_event=True)
    with pytest.raises(TypeError, match="with_event must be True or False"):
        begin("/", print, with_event="yes")
    for callback, with_event in [(type, False), (lambda *given: None, True), ([].append, False)]:
        begin("/", callback, with_event=with_event).close()
    await eventually("no watch is left", lambda: not server.watches(client.session_id))
    await done(client.close())
