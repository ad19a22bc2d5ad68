"""Many threads on one client: interrupts at every point, signal handlers, stress, floods.

The shapes that leader/follower designs break in: a wake-up that is lost, an answer that reaches the
wrong thread, a role that nobody gives back, a connection that nobody reads. A test that hangs shows
where every thread stands (`faulthandler_timeout`); most give up earlier by themselves."""

from __future__ import annotations

import contextlib
import dis
import gc
import itertools
import logging
import os
import random
import select
import signal
import socket
import ssl
import sys
import threading
import time
import tracemalloc  # noqa: F401  (pytest's hook would import it in the midst of a collection)
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any, Self, TypeVar

import pytest

import zkwire
from tests.shell.test_client import CLOSE_BOUND, PATIENCE, all_ended, within
from tests.support.both_clients import again
from tests.support.certificates import Certificate
from tests.support.fake_server import FakeServer, echo
from tests.support.lock_helpers import Running
from tests.support.server_control import poll
from zkwire import (
    Cache,
    Client,
    ConnectionLossError,
    DataWatch,
    Event,
    EventType,
    Group,
    OperationTimeoutError,
    Partitioner,
    PersistentNode,
    State,
    Watch,
)
from zkwire.net.connection import INTERRUPTED
from zkwire.net.wakeup import EventFd, Listener, WakeupEpolls
from zkwire.session.waitable import Alarm
from zkwire.testing import Server
from zkwire.testing.proxy import (
    Action,
    FaultProxy,
    Frame,
    cut_after,
    cut_before,
    rst_after,
    rst_before,
    split,
    truncate,
)

ROOT = Path(__file__).resolve().parents[2]
STALL = 60.0
T = TypeVar("T")


def ask(client: Client, tag: str) -> None:
    """One call whose answer can be for nobody else."""
    assert client.get_data(tag).data.decode() == tag


def ask_until_answered(client: Client, tag: str) -> None:
    again(lambda: ask(client, tag))


# --- interrupts at every point --------------------------------------------------------------------


class Interruption:
    """Raises an error of a ``kind`` in this thread at the n-th point where the interpreter would.

    CPython looks for signals when a function begins, when a call of a C function has returned and
    when a loop goes round; never between. So the n-th such point of a piece of code can be chosen,
    and all of them tried. Only points in the client count.
    """

    def __init__(self, n: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.where: str | None = None
        self._kind = kind
        self._left = n
        self._last: tuple[FrameType, int] | None = None
        self._previous: Any = None

    def __enter__(self) -> Self:
        gc.disable()  # what a finalizer of an earlier test raises would reach nobody
        self._previous = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._previous)
        gc.enable()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        last, self._last = self._last, None
        if event == "call":
            code = frame.f_code
            if not code.co_filename.startswith(_INTERRUPTED) or code.co_name == "__del__":
                return None  # what a finalizer raises reaches nobody
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._point(frame)
        elif event == "opcode":
            self._last = frame, frame.f_lasti
            if last is not None and last[0] is frame:
                name = opnames(frame.f_code)[last[1]]
                if name.startswith(("CALL", "JUMP_BACKWARD")):
                    self._point(frame)
        return self._trace

    def _point(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left == 0:
            code = frame.f_code
            self.where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"
            sys.settrace(None)
            self._happen(self.where)

    def _happen(self, where: str) -> None:
        raise self._kind(where)


# The library itself. The standard library (the start of a thread, the making of a pair of sockets,
# the formatting of a warning) is not made for interrupts.
_INTERRUPTED = str(Path(zkwire.__file__).parent)
_opnames: dict[CodeType, dict[int, str]] = {}


def opnames(code: CodeType) -> dict[int, str]:
    """The name of the instruction at each offset."""
    if code not in _opnames:
        _opnames[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
    return _opnames[code]


# The points in a lone request.  Python 3.13 shows the instructions of a function from its second
# run under one trace on: there an interrupt comes where a function begins.
FEWEST = 18 if sys.version_info >= (3, 13) else 30


def interrupted_everywhere(scenario: Callable[[], object]) -> Iterator[str]:
    """Run a scenario again and again, interrupted at its first point, its second, ..., its last."""
    n = 0
    while True:
        n += 1
        with contextlib.suppress(KeyboardInterrupt), Interruption(n) as interruption:
            scenario()
        if interruption.where is None:
            return
        yield f"point {n}, {interruption.where}"


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def echoing(
    request: pytest.FixtureRequest, trusting: ssl.SSLContext, shown: Certificate
) -> Iterator[Client]:
    """A client of a server that echoes paths; in the end its session is the first one."""
    tls = trusting if request.param else None
    with FakeServer(echo, tls=shown.server_context() if tls else None) as server:
        with Client(server.hosts, tls=tls, session_timeout=20) as client:
            client.connect()
            yield client
        assert {c.session_id for c in server.connections if c.session_id} <= {0x1000}


@pytest.mark.parametrize("beside", [0, 3])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError, LookupError])
def test_an_interrupt_anywhere_in_a_call_hurts_nobody_else(
    echoing: Client, kind: type[BaseException], beside: int
) -> None:
    """The next call of this thread and those of others are answered, with their own answers.

    Also those of others that wait at the moment of the interrupt.  An alarm's TimeoutError is an
    OSError, and no failure of the connection that it hits.
    """
    points = 0
    where: str | None = ""
    while where is not None:
        points += 1
        others = [Running(partial(ask_until_answered, echoing, f"/{n}")) for n in range(beside)]
        with contextlib.suppress(kind), Interruption(points, kind) as interruption:
            again(lambda: ask(echoing, "/interrupted"))
            assert interruption.where is None, f"{interruption.where} has swallowed it"
        where = interruption.where
        with within(1.0):
            others.append(Running(lambda: ask_until_answered(echoing, "/other")))
            ask_until_answered(echoing, f"/{points}")
            for other in others:
                other.result()
        # No byte of an interrupted read is believed, so garbage is never seen.
        assert echoing._session.last_failure.endswith((INTERRUPTED, "none was tried")), where
    assert points > FEWEST


@pytest.mark.parametrize("kind", ["Client", "Supervisor"])
def test_an_interrupted_constructor_leaves_no_service_running(server: Server, kind: str) -> None:
    """The caller has none that it could close.  Behind the last call nothing can be done."""
    with getattr(zkwire, kind)(server.hosts) as owner:
        client = owner.client(PATIENCE) if kind == "Supervisor" else owner
        client.exists("/")
        for _ in range(5):
            served, made = False, list[PersistentNode]()

            def make(made: list[PersistentNode] = made) -> None:
                made.append(PersistentNode(owner, "/node"))

            for where in interrupted_everywhere(make):
                left = list(client._driver.services)
                served = served or where.endswith("call_soon")
                assert not left or made or where.endswith("__init__"), where
            for node in made:  # by the call that was not interrupted
                node.close(PATIENCE)
            if served:  # not in every sweep: other threads decide on the way too
                break
        assert served


def used(service: T, use: Callable[[T], object]) -> T:
    """It runs in the background by now."""
    use(service)
    return service


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "begin",
    [
        lambda client: used(PersistentNode(client, "/node"), PersistentNode.wait_present),
        lambda client: used(Group(client, "/group"), Group.join),
        lambda client: used(Partitioner(client, "/shares", ["item"]), Partitioner.next),
        lambda client: used(Cache(client, "/"), Cache.wait_ready),
        lambda client: used(client.watch_data("/"), DataWatch.next),
    ],
    ids=["PersistentNode", "Group", "Partitioner", "Cache", "DataWatch"],
)
def test_an_interrupted_end_of_a_block_ends_the_service(
    server: Server, begin: Callable[[Client], Any]
) -> None:
    """In the background.  Before anything of `__exit__` has run nothing can be done.

    Up to its wait for the end: by then the service has been told.
    """
    with Client(server.hosts) as client:
        n = 0
        where: str | None = ""

        def left() -> int:
            return len(client._driver.services) + len(server._processor.state.watchers)

        while where is not None and not where.startswith("leader.py"):
            n, service = n + 1, begin(client)
            with contextlib.suppress(KeyboardInterrupt), Interruption(n) as interruption:
                service.__exit__(None, None, None)
            where = interruption.where
            if where is not None and where.endswith(" __exit__"):
                service.close()
            poll(f"{n}, {where}", lambda: None if left() else True, PATIENCE)
        assert n > 5
    gc.collect()  # here, where its warnings are expected


def test_an_interrupt_anywhere_loses_no_event(fake: FakeServer) -> None:
    """The interrupted thread is the one that reads the event; a callback and a waiter both get it.

    Once, at that, wherever the interrupt has come.
    """
    with Client(fake.hosts, session_timeout=20) as client:
        client.create("/a")
        hits, misses, n = 0, 0, 0
        # It may be the waiter that reads the event, and there are fewer points; not for long.
        while misses < 20:
            n += 1
            called: SimpleQueue[Event] = SimpleQueue()
            watch = Watch()
            client.get_data("/a", watch=called.put)
            client.get_data("/a", watch=watch)
            waiting = Running(lambda watch=watch: watch.wait(STALL))  # type: ignore[misc]
            with contextlib.suppress(KeyboardInterrupt), Interruption(n) as interruption:
                client.set_data("/a", b"")
            again(lambda: client.set_data("/a", b""))
            event = waiting.result(STALL)
            assert event is not None, interruption.where
            assert called.get(timeout=STALL) == event, interruption.where
            again(client.sync)
            assert called.empty(), interruption.where
            with pytest.raises(RuntimeError, match="not set"):
                watch.wait(0)
            hits += interruption.where is not None
            misses = misses + 1 if interruption.where is None else 0
        assert hits > 30


# An interrupt between the making of descriptors and the store of them leaves them to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["wait", "wait in vain", "close", "connect", "exit"])
def test_an_interrupt_anywhere_else(how: str, fake: FakeServer) -> None:
    """In a wait for an event, in the end of a watch, in the making of a connection, in its end."""
    with Client(fake.hosts, session_timeout=20) as other:
        other.create("/a")
        for n in itertools.count(1):
            client, watch = Client(fake.hosts, session_timeout=20), Watch()
            if how != "connect":
                client.get_data("/a", watch=watch)
            if how == "wait":
                other.pipeline.set_data("/a", b"")
            scenarios: dict[str, Callable[[], object]] = {
                "wait": watch.wait,
                "wait in vain": partial(watch.wait, 0.001),
                "close": watch.close,
                "connect": client.connect,
                "exit": client.close,
            }
            with contextlib.suppress(KeyboardInterrupt), Interruption(n) as interruption:
                scenarios[how]()
            with within(1.0):
                if how != "exit":
                    assert client.exists("/a") is not None, interruption.where
                    other.exists("/a")
            with within(CLOSE_BOUND):
                client.close()
            all_ended(name_of(client))
            if interruption.where is None:
                break
        assert n > 1  # the event may have come before the wait
        gc.collect()


def name_of(client: Client) -> str:
    """What the names of a client's threads begin with."""
    return client._driver.name + "-"


def test_a_thread_can_be_woken_while_its_connection_is_closed() -> None:
    """What wakes it has no role, so its epoll may be closed by then, or its number another's."""
    with contextlib.ExitStack() as sockets:
        pair = [sockets.enter_context(each) for each in socket.socketpair()]
        eventfd = EventFd()
        epolls = WakeupEpolls(pair[0], eventfd)
        eventfd.wake(epolls.listener)
        assert not Listener(Alarm(0.0), epolls).sleep(0.0)
        assert not epolls.listener.poll(0.0)  # woken once
        epolls.close()
        eventfd.wake(epolls.caller)
        eventfd.wake(epolls.listener)
        EventFd().wake(sockets.enter_context(select.epoll()))  # one that it has not joined


# --- signal handlers ------------------------------------------------------------------------------


@contextlib.contextmanager
def on_signal(handler: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Run a function as a signal handler of this thread; yields what sends the signal."""
    main = threading.get_ident()
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: handler())
    try:
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(function: Callable[[], None]) -> None:
    """Run a function in a forked child, which then ends as processes do."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    deadline = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, "the child has failed: see its traceback"
            return
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.001)


def test_a_thread_that_configures_logging_may_wait_for_a_client(server: Server) -> None:
    """It holds the lock of ``logging``, as ``dictConfig`` does while it makes a handler."""
    client = zkwire.Client(server.hosts)
    with vars(logging)["_lock"]:
        connected = client.wait_for_state(zkwire.State.CONNECTED, timeout=PATIENCE)
    client.close()
    assert connected


ROUNDS = 1200  # of all threads together


# --- stress ---------------------------------------------------------------------------------------


def use(client: Client, tag: str, rng: random.Random) -> None:
    """Ask in one of several ways; each answer can be for nobody else."""
    match rng.randrange(6):
        case 0:
            tags = [f"{tag}/{n}" for n in range(rng.randrange(1, 60))]
            calls = [(each, client.pipeline.get_data(each)) for each in tags]
            rng.shuffle(calls)
            for each, call in calls:
                assert call.result().data.decode() == each
        case 1:
            call = client.pipeline.get_data(tag)
            with contextlib.suppress(OperationTimeoutError):
                assert call.result(rng.random() / 1000).data.decode() == tag
        case 2:  # nobody reads the answers
            for n in range(rng.randrange(5)):
                client.pipeline.get_data(f"{tag}/{n}")
        case 3:
            watch, path = Watch(), "/watched" + tag.replace("/", "-")
            client.exists(path, watch=watch)
            client.create(path)
            event = watch.wait(STALL)
            assert event is not None
            assert (event.type, event.path) == (EventType.NODE_CREATED, path)
        case _:
            ask(client, tag)


def lost(client: Client, seed: object, number: int, rounds: int) -> int:
    """How often a thread has lost its connection in so many rounds."""
    rng, losses = random.Random(f"{seed}-{number}"), 0
    for n in range(rounds):
        try:
            use(client, f"/{number}/{n}", rng)
        except ConnectionLossError:
            losses += 1
    return losses


def check_order(frames: list[Frame]) -> None:
    """A18: xids rise strictly on each connection, from 1 up, and nothing is sent but frames."""
    xids: dict[int, list[int]] = {}
    for frame in frames:
        if frame.direction == "c2s" and frame.kind == "request" and (frame.xid or 0) > 0:
            xids.setdefault(frame.connection, []).append(frame.xid or 0)
        assert frame.kind != "raw" or frame.direction == "s2c"
    for row in xids.values():
        assert all(a < b for a, b in pairwise(row))


def cutting(rng: random.Random) -> Callable[[Frame], Action | None]:
    """Connections break at random frames in every way there is."""

    def fault(frame: Frame) -> Action | None:
        if frame.kind == "connect" or rng.random() > 0.004:
            return None
        action: Action = rng.choice([cut_before, cut_after, rst_before, rst_after, split])
        return truncate(rng.randrange(12)) if rng.random() < 0.2 else action

    return fault


@pytest.mark.parametrize("cuts", [False, True], ids=["calm", "cuts"])
@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_stress(threads: int, cuts: bool, seed: int) -> None:
    """Every thread gets its own answers, and none of them waits forever."""
    with FakeServer(echo) as server, FaultProxy(server.hosts) as proxy:
        with Client(proxy.hosts, session_timeout=20) as client:
            if cuts:
                proxy.rule(cutting(random.Random(f"{seed}-{threads}")))
            work = [
                Running(partial(lost, client, seed, n, ROUNDS // threads)) for n in range(threads)
            ]
            losses = sum(worker.result(STALL) for worker in work)
            proxy.clear()
            assert cuts or losses == 0
            with within(1.0):
                ask_until_answered(client, "/last")
            poll("the state", lambda: client.state is State.CONNECTED or None, PATIENCE)
        check_order(proxy.frames())
        # It was one, and it was closed.
        poll("the session is closed", lambda: not server.sessions or None, PATIENCE)
        assert {c.session_id for c in server.connections if c.session_id} == {0x1000}
        assert cuts or len(server.connections) == 1
