"""Which thread reads, and when: a leader, a listener, the I/O thread; pauses in a long pipeline."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

import zkwire.blocking.leader
import zkwire.net.wakeup
from tests.conftest import open_descriptors
from tests.shell.test_client import PATIENCE
from tests.shell.test_client_threads import on_signal
from tests.support.fake_server import Connection, FakeServer, reply
from tests.support.family_helpers import soon
from tests.support.hooks import hooked
from tests.support.lock_helpers import Running
from zkwire import (
    AsyncClient,
    Client,
    ClientClosedError,
    Event,
    EventType,
    SessionExpiredError,
    State,
    Watch,
    testing,
)
from zkwire.aio.loop import LoopIO
from zkwire.jute.records import GetDataRequest, GetDataResponse, Stat
from zkwire.net.background import Deferred
from zkwire.net.connection import LONG_LINE, LONG_LINE_OF_THREADS, LONGER_LINE, LONGEST_PAUSE
from zkwire.net.dial import readable_within
from zkwire.net.wakeup import Sleeper
from zkwire.session.request import ANSWERED, Request
from zkwire.session.waitable import Awaited, Waitable
from zkwire.testing.proxy import FaultProxy, hold
from zkwire.testing.proxy import Gate as ProxyGate
from zkwire.wire import ops


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.hosts, session_timeout=20) as client:
        yield client


@pytest.fixture
def late_io_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has stood back, the I/O thread would come back too late for a test."""
    monkeypatch.setattr(zkwire.blocking.io_thread, "REARM", 100 * PATIENCE)
    monkeypatch.setattr(zkwire.blocking.io_thread, "MOMENT", 100 * PATIENCE)


def watched(client: Client, path: str) -> Watch:
    watch = Watch()
    client.get_data(path, watch=watch)
    return watch


def parts(client: Client) -> tuple[Any, Any]:
    """Its I/O thread and its connection."""
    return client._driver.io, client._driver.current_connection


def have_stand_back(client: Client) -> None:
    """Have the I/O thread find somebody else reading, when an answer comes."""
    io, link = parts(client)
    link.reader = "somebody"
    reply = client.pipeline.sync()
    soon("the I/O thread has seen somebody read", lambda: io._rearm_at is not None)
    link.reader = None
    reply.result(PATIENCE)


# --- who waits for an event -----------------------------------------------------------------------


@pytest.mark.usefixtures("late_io_thread")
def test_an_event_is_read_at_once_though_the_io_thread_stands_back(
    server: FakeServer, client: Client
) -> None:
    """The first waiter listens for itself; another one has the I/O thread listen at once.

    That thread has stood back from callers that read, and would come back too late for this test.
    """
    client.create("/a")
    client.create("/b")
    io, connection = parts(client)
    have_stand_back(client)
    first, second = watched(client, "/a"), watched(client, "/b")
    listener = Running(lambda: first.wait(PATIENCE))
    soon("it listens", lambda: connection.listener is not None)
    assert io._rearm_at is not None
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")
    assert listener.result() is not None
    assert connection.listener is None

    connection.listener = "another thread"
    sleeper = Running(lambda: second.wait(PATIENCE))
    soon("it listens again", lambda: io._rearm_at is None)
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/b")
    assert sleeper.result() is not None
    connection.listener = None


@pytest.mark.usefixtures("late_io_thread")
def test_a_listener_that_finds_a_leader_has_the_io_thread_read(
    server: FakeServer, client: Client
) -> None:
    """A leader that is held up (by a signal handler, say) does not keep events from others."""
    client.create("/a")
    io, connection = parts(client)
    watch = watched(client, "/a")
    connection.reader = "a leader that is held up"
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")
    assert readable_within(connection.sock, PATIENCE)
    soon("the I/O thread leaves it to the leader", lambda: io._rearm_at is not None)
    assert not client._driver._listen(watch, None)
    soon("the event has been read", lambda: watch.ready)
    connection.reader = None


class Overtaken(Waitable):
    """Another thread makes it ready while the listener sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = iter([False, False])

    @property
    def ready(self) -> bool:
        return next(self._looks, True)


@pytest.mark.usefixtures("late_io_thread")
def test_a_listener_that_is_told_of_bytes_reads_them_though_its_own_wait_is_over(
    server: FakeServer, client: Client
) -> None:
    """The kernel tells no other thread of them: an event of others would wait for the next ping."""
    client.create("/a")
    _, connection = parts(client)
    others = watched(client, "/a")
    have_stand_back(client)
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")
    assert readable_within(connection.sock, PATIENCE)
    assert client._driver._listen(Overtaken(), None)
    assert others.ready


def test_without_epolls_the_io_thread_looks_ever_less_often_at_callers_who_go_on_reading(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zkwire.net.wakeup.EpollPoller, "epolls_for", lambda *_: None)
    monkeypatch.setattr(zkwire.blocking.io_thread, "REARM", 10 * PATIENCE)
    monkeypatch.setattr(zkwire.blocking.io_thread, "LONGEST_REARM", 40 * PATIENCE)
    with Client(server.hosts, session_timeout=20) as client:
        client.create("/a")
        pump, io = client._driver, client._driver.io
        assert io is not None

        have_stand_back(client)
        for times in (2, 4, 4):
            client.sync()
            io._rearm_at = pump.now()  # it is time to look; the thread itself sleeps for long
            assert io.stay_away(None)
            assert io._rearm_at > pump.now() + (10 * times - 1) * PATIENCE
        io._rearm_at = pump.now()
        assert not io.stay_away(None)  # nobody has read
        client.sync()
        assert not io.stay_away(pump.now())  # something else is due
        io.listen()


def test_a_signal_handler_gets_its_answer_while_its_thread_waits_for_an_event(
    server: FakeServer, client: Client
) -> None:
    """Who waits for an event must not have the read role: the handler stands on top of it."""
    client.create("/a")
    watch = watched(client, "/a")
    got: list[bytes] = []

    def handle(*_: object) -> None:
        got.append(client.get_data("/a").data)
        server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert watch.wait(PATIENCE) is not None
    finally:
        signal.signal(signal.SIGALRM, before)
    assert got == [b""]


# --- pauses in a long pipeline --------------------------------------------------------------------


def dripping(count: int, before: Callable[[int], object] = bool) -> Callable[[Connection], None]:
    """A server that answers so many reads one by one, when all of them have come."""

    def script(connection: Connection) -> None:
        connection.greet()
        asked = [connection.request() for _ in range(count)]
        assert all(isinstance(request.record, GetDataRequest) for request in asked)
        record = GetDataResponse(b"x", Stat(*[0] * 11))
        for number, request in enumerate(asked):
            before(number)
            connection.send(reply(request.xid, record))
        for closing in connection.requests():
            connection.put(reply(closing.xid))

    return script


@pytest.mark.parametrize(("count", "pauses"), [(LONG_LINE - 1, False), (LONG_LINE * 2, True)])
def test_a_reader_lets_answers_gather_in_a_long_pipeline_only(
    count: int, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with FakeServer(dripping(count)) as server, Client(server.hosts) as client:
        monkeypatch.setattr("zkwire.blocking.leader.time.sleep", slept.append)
        replies = [client.pipeline.get_data("/a") for _ in range(count)]
        assert all(reply.result(PATIENCE).data == b"x" for reply in replies)
    assert bool(slept) == pauses
    assert all(0 < seconds <= LONGEST_PAUSE for seconds in slept)


@pytest.mark.parametrize(
    ("threads", "pauses"), [(LONG_LINE_OF_THREADS - 1, False), (LONG_LINE_OF_THREADS * 2, True)]
)
def test_a_reader_pauses_for_the_answers_of_many_threads_that_sleep(
    threads: int, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    asleep, paused = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        paused.set()

    def before(number: int) -> None:
        assert asleep.wait(PATIENCE)  # the first answer is all that the first reader reads
        assert number == 0 or not pauses or paused.wait(PATIENCE)

    with (
        FakeServer(dripping(threads, before)) as server,
        Client(server.hosts) as client,
        ThreadPoolExecutor(threads) as pool,
    ):
        asked = [pool.submit(client.get_data, "/a") for _ in range(threads)]
        soon("all but the reader sleep", lambda: len(client._driver._followers) == threads - 1)
        monkeypatch.setattr("zkwire.blocking.leader.time.sleep", sleep)
        asleep.set()
        assert all(each.result(PATIENCE).data == b"x" for each in asked)
    assert bool(slept) == pauses


@pytest.mark.parametrize(("count", "pauses"), [(LONGER_LINE - 1, False), (LONGER_LINE * 2, True)])
def test_an_event_loop_lets_answers_gather_in_a_long_pipeline_only(
    count: int, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    pause, has_paused = LoopIO._pause, threading.Event()

    def note(driver: LoopIO, seconds: float) -> None:
        paused.append(seconds)
        has_paused.set()
        pause(driver, seconds)

    monkeypatch.setattr(LoopIO, "_pause", note)

    async def ask(hosts: str) -> None:
        async with AsyncClient(hosts) as client:
            replies = await asyncio.gather(*[client.get_data("/a") for _ in range(count)])
            assert all(reply.data == b"x" for reply in replies)

    def before(number: int) -> None:
        """A loop that is slow would find all the answers there."""
        assert not (number and pauses) or has_paused.wait(PATIENCE)

    with FakeServer(dripping(count, before)) as server:
        asyncio.run(ask(server.hosts))
    assert all(0 < seconds <= LONGEST_PAUSE for seconds in paused)
    assert bool(paused) == pauses


# --- what has come counts, however late it is read ------------------------------------------------


class Clock:
    """One that a test can put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def late(server: FakeServer) -> Iterator[tuple[Client, Clock]]:
    clock = Clock()
    with hooked(Client)(server.hosts, session_timeout=20, _now=clock) as client:
        client.create("/a", b"data")
        yield client, clock


@pytest.mark.usefixtures("late_io_thread")
def test_the_io_thread_reads_before_it_judges(
    server: FakeServer, late: tuple[Client, Clock]
) -> None:
    """Nobody has run for most of a session timeout, and it has stood back from callers who read."""
    client, clock = late
    _, link = parts(client)
    have_stand_back(client)
    reply = client.pipeline.get_data("/a")
    assert readable_within(link.sock, PATIENCE)
    clock.ahead = 19.0
    client._driver.wake()
    soon("there is an answer", lambda: reply.ready)
    assert reply.result().data == b"data"
    assert len(server.connections) == 1


@pytest.mark.parametrize("epolls", [True, False])
def test_hazard_E13_who_reads_and_does_not_get_on_is_read_for(
    epolls: bool, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stand in a signal handler, a finalizer or a debugger; nobody else waits for it."""
    if not epolls:
        monkeypatch.setattr(zkwire.net.wakeup.EpollPoller, "epolls_for", lambda *_: None)
    clock = Clock()
    with hooked(Client)(server.hosts, session_timeout=20, _now=clock) as client:
        client.create("/a")
        pump = client._driver
        link = pump.current_connection
        assert link is not None
        link.reader = "somebody"
        reply = client.pipeline.get_data("/a")
        soon("there is an answer", lambda: reply.ready)
        monkeypatch.setattr(zkwire.blocking.io_thread, "MOMENT", 100 * PATIENCE)
        monkeypatch.setattr(zkwire.blocking.io_thread, "LONGEST_REARM", 100 * PATIENCE)
        monkeypatch.setattr(zkwire.blocking.io_thread, "REARM", 100 * PATIENCE)
        reply = client.pipeline.get_data("/a")
        assert readable_within(link.sock, PATIENCE)  # and the I/O thread stands back
        clock.ahead = 19.0
        pump.wake()
        soon("there is an answer", lambda: reply.ready)
        assert pump.current_connection is link
        link.reader = None


def test_who_waits_learns_that_somebody_else_has_read_for_it(client: Client) -> None:
    client.create("/a")
    pump = client._driver
    link, io = pump.current_connection, pump.io
    assert link is not None
    assert io is not None
    wait, recv = link.wait, link._recv
    received: list[bytes] = []

    def receive(most: int, flags: int) -> bytes:
        received.append(recv(most, flags))
        return received[-1]

    def too_late(seconds: float | None, most: int) -> object:
        """The I/O thread has been faster, so no byte is to come any more."""
        link.wait = wait
        assert readable_within(link.sock, PATIENCE)
        io.read_soon()
        soon("it has been read", lambda: not pump.session.unanswered)
        return wait(seconds, most)

    link.wait = too_late
    link._recv = receive
    assert Running(lambda: client.get_data("/a")).result(PATIENCE).data == b""
    assert len(received) == 1, "only the answer to a ping has woken it"


def test_a_thread_that_submits_does_not_wait_for_a_receive(client: Client) -> None:
    _, link = parts(client)
    recv, begun, go_on = link._recv, threading.Event(), threading.Event()

    def receive(most: int, flags: int) -> bytes:
        begun.set()
        assert go_on.wait(2 * PATIENCE)
        return recv(most, flags)

    client.create("/a")
    link._recv = receive
    reader = Running(lambda: client.get_data("/a"))
    try:
        assert begun.wait(PATIENCE)
        reply = Running(lambda: client.pipeline.exists("/a")).result()
    finally:
        go_on.set()
    assert reader.result().data == b""
    assert reply.result(PATIENCE) is not None


# --- interrupts -----------------------------------------------------------------------------------


class Alarm(BaseException):
    """What a signal handler raises."""


def test_the_role_goes_to_a_thread_that_still_waits(client: Client) -> None:
    """One whose answer has been read in the meantime would not read, and would wake no other."""
    roles = client._driver
    answered, waiting = Request(ops.SYNC), Request(ops.SYNC)
    answered.outcome = ANSWERED
    sleepers = [Sleeper(request) for request in (answered, waiting)]
    for sleeper in reversed(sleepers):
        roles._followers[sleeper] = None
    roles.wake_follower()
    assert not sleepers[1]._lock.locked()


def test_hazard_E13_an_interrupted_wait_costs_nobody_anything() -> None:
    """The answers are held back, two threads wait, and a time limit ends the wait of the reader."""
    gate = ProxyGate()

    def ring() -> None:
        if not rung:
            rung.append(True)
            raise Alarm

    rung: list[bool] = []
    with (
        testing.Server() as server,
        FaultProxy(upstream=server.hosts) as proxy,
        Client(proxy.hosts, session_timeout=20) as client,
        on_signal(ring) as send,
    ):
        client.create("/a")
        link = client._driver.current_connection
        proxy.on("get_data", action=hold(gate), reply=True)
        client.pipeline.get_data("/a")
        replies: list[str] = []
        others: list[Running[Any]] = []

        def alarm() -> None:
            soon("somebody reads", lambda: link is not None and link.reader is not None)
            others.append(Running(lambda: replies.append(client.create("/b"))))
            soon("another waits", lambda: bool(client._driver._followers))
            while not rung:
                send()
                time.sleep(0.01)

        alarming = Running(alarm)
        with pytest.raises(Alarm):
            client.get_data("/a")
        alarming.result()
        gate.release()
        others[0].result(PATIENCE)
        assert replies == ["/b"]
        assert client._driver.current_connection is link
        assert client.get_data("/a").data == b""


class Interrupting(deque[int]):
    """What notes down how much the kernel takes, with an interrupt before or behind that step."""

    def __init__(self, behind: bool, interrupt: BaseException, first: Callable[[], object]) -> None:
        super().__init__()
        self._behind, self._first = behind, first
        self._interrupt: BaseException | None = interrupt

    def extend(self, taken: Iterable[int]) -> None:
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            self._first()
        if self._behind or interrupt is None:
            super().extend(taken)
        if interrupt is not None:
            raise interrupt


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), TimeoutError("of a signal handler")])
@pytest.mark.parametrize("alone", [False, True])
def test_hazard_E13_an_interrupted_send_costs_nobody_anything(
    behind: bool, interrupt: BaseException, alone: bool, server: FakeServer, client: Client
) -> None:
    """What the kernel has not taken is sent later, and so is what others left to this thread."""
    client.create("/a")
    _, link = parts(client)
    others: list[Any] = []

    def meanwhile() -> None:
        Running(lambda: others.append(client.pipeline.create("/b"))).result(PATIENCE)

    link._taken = Interrupting(behind, interrupt, meanwhile)
    with pytest.raises(type(interrupt)):
        (client if alone else client.pipeline).set_data("/a", b"new")
    soon("the other one is answered", lambda: others[0].ready)
    assert others[0].result() == "/b"
    assert client.get_data("/a").data == b"new"
    assert client._driver.current_connection is link
    assert [request.op for request in server.executed].count("set_data") == 1


def test_an_event_behind_blocking_calls_is_read_at_once(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The I/O thread does not stand back from callers who read for longer than a moment."""
    monkeypatch.setattr(zkwire.blocking.io_thread, "REARM", 100 * PATIENCE)
    called = SimpleQueue[Event]()
    client.create("/a")
    client.get_data("/a", watch=called.put)
    for _ in range(300):
        client.sync()
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")
    assert called.get(timeout=PATIENCE).path == "/a"


# --- the end of the I/O thread --------------------------------------------------------------------


class Broken:
    """Somebody who cannot be told of a state."""

    def see(self, state: State) -> list[Callable[[], object]]:
        raise ZeroDivisionError


def test_an_io_thread_that_fails_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if its way out fails as well."""
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    client = Client("127.0.0.1:1")
    client._driver.attach(Broken())
    with pytest.raises(ClientClosedError):
        Running(lambda: client.exists("/")).result()
    assert client._driver.thread is not None
    client._driver.thread.join(PATIENCE)
    assert reported == [ZeroDivisionError]
    client.close()


class Gate(Waitable):
    """Ready when a test says so."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        super().__init__()
        self.open = False

    @property
    def ready(self) -> bool:
        return self.open


def expired(server: testing.Server, client: Client) -> None:
    client.connect()
    server.expire(client.session_id)
    assert client.wait_for_state(State.EXPIRED, timeout=PATIENCE) is State.EXPIRED


def test_the_io_thread_ends_with_the_session() -> None:
    """Nobody needs to close what has expired."""
    descriptors = open_descriptors()
    with testing.Server() as server:
        client, states, done = Client(server.hosts), list[State](), threading.Event()
        client.add_state_listener(states.append)
        client.add_state_listener(lambda state: done.set() if state.terminal else None)
        watch = watched(client, "/")
        expired(server, client)
        assert client._driver.thread is not None
        client._driver.thread.join(PATIENCE)
        assert not client._driver.thread.is_alive()
        assert done.wait(PATIENCE)
        assert states[-1] is State.EXPIRED
        with pytest.raises(SessionExpiredError):
            client.exists("/")
        with pytest.raises(SessionExpiredError):
            watch.wait()
        assert client.wait_for_state(State.CLOSED) is State.EXPIRED
    assert open_descriptors() == descriptors
    client.close()


def test_the_io_thread_first_ends_what_runs_in_the_background() -> None:
    gate = Gate()

    async def work(_: object) -> None:
        await Awaited(gate)

    with testing.Server() as server:
        client = Client(server.hosts)
        client._driver.spawn(work)
        expired(server, client)
        thread = client._driver.thread
        assert thread is not None
        client._driver.wake()
        soon("it has nothing else to do", lambda: client._driver.current_connection is None)
        assert thread.is_alive()
        gate.open = True
        for waker in gate._take_wakers():
            waker()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    client.close()


def test_what_has_come_before_the_end_is_not_lost_to_it(client: Client) -> None:
    class Late(Gate):
        """Ready right behind the first look."""

        __slots__ = ()

        @property
        def ready(self) -> bool:
            before, self.open = self.open, True
            return before

    client.close()
    soon("its thread ends", lambda: client._driver.ended)
    assert client._driver.wait(Late())


# --- what is done before the next request ---------------------------------------------------------


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Alarm, TimeoutError, RecursionError])
def test_what_an_interrupt_hits_is_called_again(kind: type[BaseException]) -> None:
    """A signal handler's time limit is raised, and not reported as a failure of the function."""
    late, called = Deferred(), list[str]()

    def interrupted() -> None:
        called.append("interrupted")
        if len(called) == 1:
            raise kind

    late.waiting += [interrupted, lambda: called.append("other")]
    with pytest.raises(kind):
        late.call()
    late.call()
    assert called == ["interrupted", "interrupted", "other"]
    assert not late.waiting


def test_what_fails_or_calls_again_keeps_nobody_from_being_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, called, reported = Deferred(), list[str](), list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))

    def failing() -> None:
        raise ValueError("a path is too long")

    def submitting() -> None:
        called.append("submitting")
        late.call()

    late.waiting += [submitting, failing, lambda: called.append("other")]
    late.call()
    assert reported == [ValueError]
    assert called == ["submitting", "other"]
    late.waiting += [late.waiting.clear, lambda: called.append("again")]  # by another thread
    late.call()
    assert called.count("again") == 1
    assert not late.waiting
