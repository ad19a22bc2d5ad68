"""Which thread reads, and when: a leader, a listener, the I/O thread; races between threads."""

from __future__ import annotations

import contextlib
import itertools
import ssl
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import open_descriptors
from tests.shell.test_client import CLOSE_BOUND, PATIENCE, within
from tests.shell.test_client_threads import Interruption, ask, on_signal
from tests.support.certificates import Certificate
from tests.support.fake_server import FakeServer, echo
from tests.support.family_helpers import soon
from tests.support.hooks import Clock, hooked
from tests.support.lock_helpers import Running
from zkwire import (
    Client,
    ClientClosedError,
    EventType,
    SequentialLock,
    SessionExpiredError,
    State,
    Watch,
    testing,
)
from zkwire.blocking.io_thread import IOThread
from zkwire.blocking.leader import LONGEST_WAIT, LeaderFollower
from zkwire.blocking.sync import run
from zkwire.net.background import Deferred
from zkwire.net.dial import readable_within
from zkwire.net.wakeup import Sleeper
from zkwire.session.request import ANSWERED, Request
from zkwire.session.waitable import Waitable
from zkwire.testing.proxy import FaultProxy, hold
from zkwire.testing.proxy import Gate as ProxyGate
from zkwire.wire import ops

# --- what is left to a thread that has been woken -------------------------------------------------


LATE = 100 * PATIENCE


def with_times(monkeypatch: pytest.MonkeyPatch, **times: float) -> None:
    """Other times of the I/O thread."""
    for name, seconds in times.items():
        monkeypatch.setattr(f"zkwire.blocking.io_thread.{name}", seconds)


class Player:
    """A client beside a server of the test's own, and its parts."""

    def __init__(self, *tls: ssl.SSLContext) -> None:
        """With the client's and the server's context if it is to be over TLS."""
        self.clock = Clock()
        self.server = FakeServer(tls=tls[1] if tls else None)
        self.client: Client = hooked(Client)(
            self.server.hosts, session_timeout=20, _now=self.clock, tls=tls[0] if tls else None
        )

    def __enter__(self) -> Player:
        for path in ("/a", "/b"):
            self.client.create(path)
        self.driver = self.client._driver
        self.io: Any = self.driver.io
        self.link: Any = self.driver.current_connection
        return self

    def __exit__(self, *error: Any) -> None:
        self.client.close()
        self.server.__exit__(*error)


@pytest.fixture
def player() -> Iterator[Player]:
    with Player() as player:
        yield player


def test_an_event_is_read_at_once_though_the_io_thread_stands_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first waiter listens for itself; another one has the I/O thread listen at once."""
    with_times(monkeypatch, REARM=LATE, MOMENT=LATE)  # it would come back too late
    with Player() as player:
        client, io, link = player.client, player.io, player.link
        link.reader = "somebody"
        reply = client.pipeline.sync()
        soon("the I/O thread has seen somebody read", lambda: io._rearm_at is not None)
        link.reader = None
        reply.result(PATIENCE)
        first, second = Watch(), Watch()
        client.get_data("/a", watch=first)
        client.get_data("/b", watch=second)
        change = partial(player.server.connections[-1].event, EventType.NODE_DATA_CHANGED)

        listener = Running(lambda: first.wait(PATIENCE))
        soon("it listens", lambda: link.listener is not None)
        assert io._rearm_at is not None
        change("/a")
        assert listener.result() is not None
        assert link.listener is None

        link.listener = "another thread"
        sleeper = Running(lambda: second.wait(PATIENCE))
        soon("it listens again", lambda: io._rearm_at is None)
        change("/b")
        assert sleeper.result() is not None
        link.listener = None


# --- what has come counts, however late it is read ------------------------------------------------


@pytest.mark.parametrize("epolls", [True, False])
def test_hazard_E13_who_reads_and_does_not_get_on_is_read_for(
    epolls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stand in a signal handler, a finalizer or a debugger; nobody else waits for it."""
    if not epolls:
        monkeypatch.setattr("zkwire.net.wakeup.EpollPoller.epolls_for", lambda *_: None)
    with Player() as player:
        link = player.link
        link.reader = "somebody"
        reply = player.client.pipeline.get_data("/a")
        soon("there is an answer", lambda: reply.ready)
        with_times(monkeypatch, MOMENT=LATE, LONGEST_REARM=LATE, REARM=LATE)
        reply = player.client.pipeline.get_data("/a")
        assert readable_within(link.sock, PATIENCE)  # and the I/O thread stands back
        player.clock.ahead = 19.0
        player.driver.wake()
        soon("there is an answer", lambda: reply.ready)
        assert player.driver.current_connection is player.link
        link.reader = None


def test_who_waits_learns_that_somebody_else_has_read_for_it(player: Player) -> None:
    link = player.link
    wait, recv, received = link.wait, link._recv, list[bytes]()

    def receive(most: int, flags: int) -> bytes:
        received.append(recv(most, flags))
        return received[-1]

    def too_late(seconds: float | None, most: int) -> object:
        """The I/O thread has been faster, so no byte is to come any more."""
        link.wait = wait
        assert readable_within(link.sock, PATIENCE)
        player.io.read_soon()
        soon("it has been read", lambda: not player.driver.session.unanswered)
        return wait(seconds, most)

    link.wait, link._recv = too_late, receive
    assert Running(lambda: player.client.get_data("/a")).result(PATIENCE).data == b""
    assert len(received) == 1, "only the answer to a ping has woken it"


def test_the_role_goes_to_a_thread_that_still_waits(player: Player) -> None:
    """One whose answer has been read in the meantime would not read, and would wake no other."""
    answered, waiting = Request(ops.SYNC), Request(ops.SYNC)
    answered.outcome = ANSWERED
    sleepers = [Sleeper(request) for request in (answered, waiting)]
    for sleeper in reversed(sleepers):
        player.driver._followers[sleeper] = None
    player.driver.wake_follower()
    assert not sleepers[1]._lock.locked()


# --- interrupts -----------------------------------------------------------------------------------


class Alarm(BaseException):
    """What a signal handler raises."""


def test_hazard_E13_an_interrupted_wait_costs_nobody_anything() -> None:
    """The answers are held back, two threads wait, and a time limit ends the wait of the reader."""
    gate, rung, replies, others = ProxyGate(), list[bool](), list[str](), list[Running[Any]]()

    def ring() -> None:
        if not rung:
            rung.append(True)
            raise Alarm

    with (
        testing.Server() as server,
        FaultProxy(upstream=server.hosts) as proxy,
        Client(proxy.hosts, session_timeout=20) as client,
        on_signal(ring) as send,
    ):
        client.create("/a")
        link: Any = client._driver.current_connection
        proxy.on("get_data", action=hold(gate), reply=True)
        client.pipeline.get_data("/a")

        def alarm() -> None:
            soon("somebody reads", lambda: link.reader is not None)
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
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_hazard_E13_an_interrupted_send_costs_nobody_anything(
    *,
    behind: bool,
    interrupt: BaseException,
    alone: bool,
    secure: bool,
    trusting: ssl.SSLContext,
    shown: Certificate,
) -> None:
    """What the kernel has not taken is sent later, and so is what others left to this thread."""
    with Player(*(trusting, shown.server_context()) * secure) as player:
        client, others = player.client, list[Any]()

        def meanwhile() -> None:
            Running(lambda: others.append(client.pipeline.create("/c"))).result(PATIENCE)

        link: Any = player.link._wire if secure else player.link
        link._taken = Interrupting(behind, interrupt, meanwhile)
        with pytest.raises(type(interrupt)):
            (client if alone else client.pipeline).set_data("/a", b"new")
        soon("the other one is answered", lambda: others[0].ready)
        assert others[0].result() == "/c"
        assert client.get_data("/a").data == b"new"
        assert player.driver.current_connection is player.link
        assert [request.op for request in player.server.executed].count("set_data") == 1


# --- the end of the I/O thread --------------------------------------------------------------------


def test_an_io_thread_that_fails_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if its way out fails as well."""

    class Broken:
        def see(self, state: State) -> list[Callable[[], object]]:
            raise ZeroDivisionError

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


def test_the_io_thread_ends_with_the_session() -> None:
    """Nobody needs to close what has expired."""
    descriptors, states = open_descriptors(), list[State]()
    with testing.Server() as server:
        client, watch = Client(server.hosts), Watch()
        client.add_state_listener(states.append)
        client.get_data("/", watch=watch)
        thread = client._driver.thread
        assert thread is not None
        server.expire(client.session_id)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        soon("it is told", lambda: states[-1] is State.EXPIRED)
        for ask in (lambda: client.exists("/"), watch.wait):
            with pytest.raises(SessionExpiredError):
                ask()
        assert client.wait_for_state(State.CLOSED) is State.EXPIRED
    assert open_descriptors() == descriptors
    client.close()


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

    late.waiting += [submitting, failing, list, lambda: called.append("other")]
    late.discard(list)
    late.discard(None)
    assert len(late.waiting) == 3
    late.call()
    assert reported == [ValueError]
    assert called == ["submitting", "other"]
    late.waiting += [late.waiting.clear, lambda: called.append("again")]  # by another thread
    late.call()
    assert called.count("again") == 1
    assert not late.waiting


def test_in_a_burst_the_io_thread_looks_more_and_more_seldom() -> None:
    io, late, at = object.__new__(IOThread), Deferred(), list[float | None]()
    driver: Any = SimpleNamespace(now=lambda: 0.0, deferred=late, flush=list)
    io._driver, io._defer_pause = driver, 0.01
    for waiting, since in (*[(0, True)] * 5, (1, True), (1, False)):
        late.waiting += [list] * waiting
        io.deferred_since = since
        io._call_deferred()
        at.append(io.call_deferred_at)
        assert not late.waiting
    assert at == [0.02, 0.04, 0.08, 0.08, 0.08, 0.01, None]
    assert LeaderFollower._wait_limit(driver, 1e9) == LONGEST_WAIT


def test_a_caller_that_is_cancelled_asks_for_nothing() -> None:
    driver: Any = SimpleNamespace(interrupted={1: 2}, _refuse_interrupted=[].pop)
    with pytest.raises(IndexError):
        run(LeaderFollower.exchange(driver, None, Waiting()))


class Waiting(Waitable):
    """What does not come."""

    ready = False


@pytest.fixture
def client() -> Iterator[Client]:
    with FakeServer(echo) as server, Client(server.hosts, session_timeout=60) as client:
        ask(client, "/connected")
        for _ in range(2):  # the I/O thread has nothing more to do: it sends what is there
            done = threading.Event()
            client._driver.call_soon(done.set)
            assert done.wait(PATIENCE)
        yield client


def test_an_interrupted_thread_does_what_was_left_to_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is interrupted at, from the moment when others left it to it."""
    driver = client._driver
    left: list[Any] = []

    def sleep(sleeper: Sleeper, _: float | None) -> None:
        driver._successor = sleeper
        left.append(driver.operations.get_data("/left"))

    def interrupted_at(n: int) -> str | None:
        with contextlib.suppress(KeyboardInterrupt), Interruption(n) as interruption:
            driver._sleep(Waiting(), None, False)
        return interruption.where

    monkeypatch.setattr(Sleeper, "sleep", sleep)
    for n in itertools.count(1):
        where = Running(partial(interrupted_at, n)).result()
        assert driver._successor.thread is None, where
        soon(f"all has left: {where}", lambda: not driver.session.queue)
        if where is None:
            break
    assert len(left) > 10


# --- on top of the client's own work --------------------------------------------------------------


@pytest.fixture
def client_with_a(fake: FakeServer) -> Iterator[Client]:
    with Client(fake.hosts, session_timeout=20) as client:
        client.create("/a")
        yield client


def nested(client: Client, function: Callable[[], object]) -> None:
    """Call it in a thread that has the state lock."""

    def call() -> None:
        with client._driver.mutex:
            function()

    Running(call).result()


def refused_here(ask: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="leave the call to another thread"):
        ask()


def refused(client: Client, ask: Callable[[], object]) -> None:
    """It is refused there, at once."""
    nested(client, lambda: refused_here(ask))


def test_closing_many_watches_and_the_client_takes_no_time(client_with_a: Client) -> None:
    watches = [Watch() for _ in range(8)]
    for number, watch in enumerate(watches):
        client_with_a.exists(f"/{number}", watch=watch)
    with within(CLOSE_BOUND):
        nested(client_with_a, lambda: [*map(Watch.close, watches)])
    soon("all are closed", lambda: client_with_a._session.watch_count == 0)
    with within(CLOSE_BOUND):
        nested(client_with_a, client_with_a.close)
    soon("it is closed", lambda: client_with_a.state is State.CLOSED, CLOSE_BOUND)


# --- what needs an answer -------------------------------------------------------------------------


def test_a_question_is_refused_at_once_and_what_is_waited_for_not_given_up(
    client_with_a: Client,
) -> None:
    watch = Watch()
    client_with_a.get_data("/a", watch=watch)
    asks: list[Callable[[], object]] = [
        lambda: client_with_a.get_data("/a"),
        lambda: client_with_a.pipeline.get_data("/a"),
        lambda: client_with_a.wait_for_state(State.CLOSED),
        watch.wait,
    ]
    for question in asks:
        refused(client_with_a, question)
        assert client_with_a.get_data("/a").data == b""
        assert not client_with_a._session.unanswered
    client_with_a.set_data("/a", b"")
    assert watch.wait(PATIENCE) is not None
    reply = client_with_a.pipeline.get_data("/a")
    nested(client_with_a, lambda: None if reply.ready else refused_here(reply.result))
    assert reply.result().data == b""


def test_a_refused_release_is_done_behind_it() -> None:
    with testing.Server() as server, Client(server.hosts) as client, Client(server.hosts) as other:
        lock = SequentialLock(client, "/lock")
        assert lock.acquire()
        refused(client, lock.release)
        assert not lock.held
        assert SequentialLock(other, "/lock").acquire(PATIENCE)


# --- a handler at every point ---------------------------------------------------------------------


class Handler(Interruption):
    """Calls a function at the n-th point, in the place of an interrupt."""

    def __init__(self, n: int, function: Callable[[], object]) -> None:
        super().__init__(n)
        self._function = function

    def _happen(self, where: str) -> None:
        self._function()


@pytest.mark.parametrize("how", ["alone", "pipeline"])
def test_hazard_E11_a_signal_handler_may_ask_wherever_it_comes(
    client_with_a: Client, how: str
) -> None:
    """It gets its answer or is refused, at once, and what it has interrupted goes on."""
    outcomes: Counter[str] = Counter()

    def ask() -> None:
        try:
            outcomes[client_with_a.get_data("/a").data.decode() or "answered"] += 1
        except RuntimeError:
            outcomes["refused"] += 1

    def all_points() -> int:
        for n in range(1, 10_000):
            with Handler(n, ask) as handler:
                if how == "alone":
                    client_with_a.get_data("/a")
                else:
                    client_with_a.pipeline.get_data("/a")
                    client_with_a.pipeline.get_data("/a").result()
            if handler.where is None:
                return n
        raise AssertionError("there is no end")

    link = client_with_a._driver.current_connection
    points = Running(all_points).result(60.0)
    assert sum(outcomes.values()) == points - 1 > (20 if sys.version_info >= (3, 13) else 30)
    assert set(outcomes) == {"answered", "refused"}
    assert client_with_a._driver.current_connection is link
