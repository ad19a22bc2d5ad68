"""What both clients say when a connection breaks, and what a broken server costs them.

The fake server writes down what it received and what it executed, so each verdict is compared with
the truth: *refused*, *not sent*, *outcome unknown*, *over*. What the state machine decides is
tested elsewhere; this is about the I/O around it: what is sent and when, and what is held back."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, SLACK, within
from tests.shell.test_roles import Clock
from tests.support.aio_helpers import blocking, eventually, spinning
from tests.support.both_clients import Side, answer, asking, both, done, ended
from tests.support.both_clients import ending as ending  # noqa: PLC0414 - others ask for it here
from tests.support.fake_server import (
    Connection,
    FakeServer,
    GoneError,
    Node,
    answering,
    mute,
    reply,
    serve,
)
from tests.support.hooks import hooked
from tests.support.lock_helpers import Running
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    Client,
    ClientClosedError,
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
    ZooKeeperError,
)
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.net.dial import readable_within
from zkwire.session.request import SEND_BATCH
from zkwire.testing import FaultProxy, Server

MEGABYTE = 1024 * 1024

# --- each way to end ------------------------------------------------------------------------------


def ends_with(
    error: ZooKeeperError | None,
    kind: type[ZooKeeperError],
    op: str,
    path: str,
    maybe_applied: bool,
    advice: str = "",
) -> bool:
    """Check everything that an error has to say."""
    assert type(error) is kind, repr(error)
    assert (error.op, error.path, error.maybe_applied) == (op, path, maybe_applied)
    assert str(error).startswith(f"{op} {path}: ")
    assert advice in str(error)
    return True


async def refusal(call: Callable[[], Any]) -> ZooKeeperError:
    """What a call raises."""
    with pytest.raises(ZooKeeperError) as caught:
        await done(call())
    return caught.value


WRITES: dict[str, tuple[Any, ...]] = {"create": (), "delete": (), "set_data": (b"",)}
READS = ("exists", "get_data", "get_children", "sync")


@both
@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_an_unknown_outcome_says_whether_to_look(side: Side, how: str) -> None:
    def dies(connection: Connection) -> None:
        connection.greet()
        connection.request()
        if how == "RST":
            connection.reset()

    verbs = [*WRITES, *READS]
    with FakeServer(*[dies] * len(verbs), serve) as server:
        async with side.opened(server.hosts) as client:
            for verb in verbs:
                error = await refusal(partial(getattr(client, verb), "/a", *WRITES.get(verb, ())))
                writes = verb in WRITES
                advice = "look before you repeat it" if writes else "repeat it freely"
                assert ends_with(error, OutcomeUnknownError, verb, "/a", writes, advice)
            with within(1.0):
                assert await done(client.exists("/")) is not None
            assert len(server.sessions) == 1, "the session is the same"


def takes_notes(connection: Connection) -> None:
    """A script that answers nothing, and notes what it is asked."""
    connection.greet()
    for _ in connection.requests():
        pass


@both
async def test_what_the_end_of_the_session_says_of_calls(side: Side) -> None:
    with FakeServer(takes_notes, serve) as server:
        async with side.opened(server.hosts) as client:
            sent = asking(client).create("/a")
            await blocking(server.wait_for, lambda: server.count("create"))
            server.expire(client.session_id)
            await eventually("it has expired", lambda: client.state is State.EXPIRED)
            # It was in flight on a connection that broke first.
            assert type(ending(sent)) is OutcomeUnknownError
            error = await refusal(lambda: client.create("/b"))
            advice = "make a new Client"
            assert ends_with(error, SessionExpiredError, "create", "/b", False, advice)
            assert await done(client.wait_for_state(State.CONNECTED)) is State.EXPIRED
    with FakeServer(takes_notes) as server:
        async with side.opened(server.hosts) as client:
            sent = asking(client).create("/a")
            await blocking(server.wait_for, lambda: server.count("create"))
            reading = asking(client).exists("/b")
        assert ends_with(ending(sent), ClientClosedError, "create", "/a", True)
        assert ends_with(ending(reading), ClientClosedError, "exists", "/b", False)
        error = await refusal(lambda: client.create("/c"))
        assert ends_with(error, ClientClosedError, "create", "/c", False)


# --- a deep pipeline and a dying server -----------------------------------------------------------


def check_verdicts(server: FakeServer, calls: list[Any]) -> tuple[int, int, int]:
    """Compare the verdicts on creates of /0, /1, ... with what the server knows; their counts.

    The last calls may have met the next connection.
    """
    errors = [ending(call) for call in calls]
    first = next((n for n, error in enumerate(errors) if error), len(calls))
    behind = [n for n in range(first, len(calls)) if errors[n] is None]
    end = behind[0] if behind else len(calls)
    verdicts = [type(None), OutcomeUnknownError, NotSentError]
    kinds = [verdicts.index(type(error)) for error in errors[:end]]
    assert kinds == sorted(kinds), "answered, then unknown, then not sent"
    assert all(e.maybe_applied == (type(e) is OutcomeUnknownError) for e in errors if e)
    executed = [q for q in server.executed if q.op == "create"]
    one, two = ([int(q.path[1:]) for q in executed if q.connection == c] for c in (0, 1))
    if first == len(calls):  # all that had been sent by the end was answered
        assert one + two == list(range(len(calls)))
        return first, 0, 0
    answered, unknown, not_sent = map(kinds.count, range(3))
    assert one == list(range(len(one))), "twice, or out of order"
    assert two == behind == list(range(end, len(calls)))
    assert answered <= len(one) <= answered + unknown
    received = {int(q.path[1:]) for q in server.received if q.op == "create"}
    assert received.isdisjoint(n for n, kind in enumerate(kinds) if kind == 2)
    return answered, unknown, not_sent


def dying(rng: random.Random, most: int, how: str) -> Callable[[Connection], None]:
    """A script that dies at some request; the answers to the last few are lost."""
    dies_at, unanswered = rng.randrange(most), rng.randrange(20)

    def script(connection: Connection) -> None:
        connection.greet()
        for number in range(dies_at):
            connection.answer(connection.request())
            if number == dies_at - unanswered:
                connection.flush()
                connection.put = lambda data: None  # type: ignore[method-assign]
        if how == "RST":
            connection.flush()
            connection.reset()

    return script


@both
@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("size", [0, 2000])
async def test_verdicts_on_a_pipeline_that_the_server_dies_in(
    side: Side, how: str, size: int, seed: int
) -> None:
    asyncio.get_running_loop().set_debug(False)
    rng = random.Random(f"{seed}-{how}-{size}")
    count, rounds = (3000, 8) if not side.asyncio else (1500, 4)
    for _ in range(rounds):
        with FakeServer(dying(rng, count, how), serve) as server:
            async with side.opened(server.hosts, session_timeout=20) as client:
                calls = []
                for number in range(count):
                    calls.append(asking(client).create(f"/{number}", bytes(size)))
                    if number % 100 == 0:
                        await asyncio.sleep(0)
                some = calls[:: count // 8] if not side.asyncio else []
                waiting = [Running(partial(ending, call)) for call in some]
                with within(PATIENCE):
                    for one in waiting:
                        one.result()
                    await ended(calls)
                check_verdicts(server, calls)


@both
async def test_what_the_kernel_never_took_was_not_sent(side: Side) -> None:
    """The server does not read, so most of a long pipeline cannot leave; then it dies."""
    gate = threading.Event()

    def deaf_then_dead(connection: Connection) -> None:
        assert gate.wait(PATIENCE)
        connection.reset()

    with FakeServer(answering(10, deaf_then_dead), serve) as server:
        async with side.opened(server.hosts, session_timeout=20) as client:
            body = bytes(100_000)
            calls = [asking(client).create(f"/{n}", body) for n in range(400)]
            assert await answer(calls[9]) == "/9"
            link = client._driver.current_connection
            await eventually("the kernel takes no more", lambda: link.pending)
            assert len(link.backlog) <= SEND_BATCH + len(body) + 1000
            with spinning() as count:
                await asyncio.sleep(0.2)
            assert count() < 20, "it must rest while the server does not read"
            # The last is behind all that the kernel takes, and behind what was cut for sending.
            for number, sent in ((11, True), (399, False)):
                with pytest.raises(OperationTimeoutError) as caught:
                    await answer(calls[number], 0.1)
                assert caught.value.maybe_applied == sent
            gate.set()
            last = calls.pop()
            await ended(calls)
            assert type(ending(last)) is NotSentError
            answered, unknown, not_sent = check_verdicts(server, calls)
            assert (answered, unknown >= 1, not_sent >= 200) == (10, True, True)
            assert await done(client.exists("/")) is not None


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


def again(client: Client) -> None:
    """Ask until an answer comes: the next connection, if this one is still in use."""
    while True:
        with suppress(ConnectionLossError):
            assert client.exists("/") is not None
            return


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


def test_a_hold_without_a_connection_wakes_the_io_thread() -> None:
    """It may wait for an attempt to connect that outlasts the lease."""
    over = threading.Event()

    class Holder:
        def _lose(self, message: str = "") -> tuple[()]:
            return ()

        _let_go = _lose

    def hangs_up(connection: Connection) -> None:
        connection.greet()
        over.wait(PATIENCE)

    with FakeServer(hangs_up, mute) as server, Client(server.hosts) as client:
        driver, me, woken = client._driver, threading.get_ident(), list[int]()
        client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
        driver.wake = lambda: woken.append(threading.get_ident())  # type: ignore[method-assign]
        driver.hold(Holder())
        assert me not in woken  # the reader of a connection looks often enough
        over.set()
        client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
        woken.clear()
        driver.hold(Holder())
        assert me in woken
        del driver.wake


@both
async def test_small_requests_leave_at_once(side: Side, fake: FakeServer) -> None:
    async with side.opened(fake.hosts) as client:
        link = client._driver.current_connection
        assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await done(client.exists("/a"))


# --- under asyncio --------------------------------------------------------------------------------


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


# --- servers that break the protocol --------------------------------------------------------------


def data_reply(xid: int, data: bytes) -> bytes:
    return reply(xid, r.GetDataResponse(data, Node(data, 1).stat()))


OK = data_reply(1, b"data")
GARBAGE: dict[str, bytes] = {
    "length -1": struct.pack(">i", -1),
    "length 15": frame(bytes(15)),
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "the wrong xid": data_reply(7, b""),
    "a body with a byte too many": frame(OK[4:] + b"\0"),
    "data longer than the frame": frame(OK[4:20] + struct.pack(">i", 10**6) + OK[24:]),
    "a notification cut short": frame(reply(-1, r.WatcherEvent(1, 3, "/a"))[4:-1]),
}


def answers_first(
    garbage: bytes, then: Callable[[Connection], object] = Connection.wait_gone
) -> Callable[[Connection], None]:
    """A script that answers the first request with these bytes, and then waits.

    All later requests are served.  A connection that ends before its first one changes nothing.
    """
    asked: list[Connection] = []

    def script(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if not asked:
                asked.append(connection)
                connection.send(garbage)
                then(connection)
                return
            connection.answer(request)

    return script


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_for_a_reply(kind: str) -> None:
    """It costs one connection: a definite error for the call, and the next one is answered."""
    with FakeServer(answers_first(GARBAGE[kind])) as server, Client(server.hosts) as client:
        session_id = client.session_id
        verb, arguments = ("create", ("/x",)) if "xid" in kind else ("get_data", ("/",))
        call = getattr(client.pipeline, verb)(*arguments)
        behind = client.pipeline.create("/y")
        with within(1.0), pytest.raises((ProtocolError, GarbledError)) as caught:
            call.result()
        assert caught.value.maybe_applied == ("xid" in kind)
        with within(1.0):
            error = ending(behind)  # none, if it was asked for after the break
            assert error is None or isinstance(error, ConnectionLossError)
            assert client.exists("/") is not None
        assert client.session_id == session_id
        assert len(server.connections) == 2


@contextmanager
def impatient(hosts: str) -> Iterator[Client]:
    """A client that gives a silent connection up soon, once it is connected."""
    with closing(Client(hosts, session_timeout=0.6)) as client:
        client.connect(PATIENCE)
        yield client


def answers_pings(connection: Connection) -> None:
    for _ in connection.requests():
        connection.flush()


UNENDED: dict[str, tuple[bytes, Callable[[Connection], object], str]] = {
    # A length that is garbage swallows the answers to pings, a few bytes in each third of T.
    "grows": (struct.pack(">i", 10 * MEGABYTE), answers_pings, "/"),
    "stays": (OK[:-10], Connection.wait_gone, "nothing arrived"),
    "is cut": (OK[:-10], lambda _: None, "/"),
}


@pytest.mark.parametrize("how", UNENDED)
def test_a_frame_that_never_ends_is_given_up(how: str) -> None:
    sent, then, message = UNENDED[how]
    with FakeServer(answers_first(sent, then)) as server, impatient(server.hosts) as client:
        with within(0.6 + SLACK), pytest.raises(OutcomeUnknownError, match=message):
            client.get_data("/")
        again(client)


# --- memory ---------------------------------------------------------------------------------------


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fail if the block, with the client and the fake server in it, allocates more at any time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < limit, f"{(peak - before) / MEGABYTE:.1f} MB"


def test_endless_frames_are_read_and_forgotten() -> None:
    """A flood of notifications that nobody asked for: no memory, and answers get through."""
    event = r.WatcherEvent(EventType.NODE_DATA_CHANGED, 3, "/" + "f" * 9999)
    flood = reply(-1, event, zxid=-1) * 10
    stop = threading.Event()

    def script(connection: Connection) -> None:
        connection.greet()

        def pour() -> None:
            with suppress(GoneError):
                while not stop.is_set():
                    connection.send(flood)

        pouring = threading.Thread(target=pour)
        pouring.start()
        try:
            for request in connection.requests():
                connection.answer(request)
                connection.flush()
        finally:
            stop.set()
            pouring.join()

    with FakeServer(script) as server, Client(server.hosts, session_timeout=20) as client:
        with memory_below(5 * MEGABYTE), within(PATIENCE):
            for _ in range(20):
                assert client.exists("/") is not None
        assert len(server.connections) == 1


@pytest.mark.real
def test_a_big_reply_of_a_real_server(zookeeper: Any, fresh_path: str) -> None:
    """Frames of more than 1 MiB are ordinary: servers do not apply their limit to replies."""
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        names = [f"{n:0200d}" for n in range(7000)]
        for call in [client.pipeline.create(f"{fresh_path}/{name}") for name in names]:
            call.result(60)
        assert sorted(client.get_children(fresh_path)) == names
        with Client(zookeeper.hosts, receive_limit=1_000_000) as small:
            with pytest.raises(ReplyTooLargeError):
                small.get_children(fresh_path)
            assert small.exists(fresh_path) is not None
        client.delete_tree(fresh_path)
