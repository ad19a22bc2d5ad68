"""Many threads on one client, interrupts at every point, floods, forks and exits.

The shapes that leader/follower designs break in: a wake-up that is lost, an answer that reaches the
wrong thread, a role that nobody gives back, a connection that nobody reads. A test that hangs shows
where every thread stands (`faulthandler_timeout`); most give up earlier by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc  # noqa: F401  (pytest's hook would import it in the midst of a collection)
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any, Self

import pytest

import zkwire
from tests.shell.test_client import (
    CLOSE_BOUND,
    PATIENCE,
    PAUSE,
    SLACK,
    Background,
    own_threads,
    poll_state,
    undisturbed,
    within,
)
from tests.support.fake_server import (
    Connection,
    FakeServer,
    echo,
    mute,
    reply,
    serve,
)
from tests.support.server_control import poll
from zkwire import (
    Client,
    ClientClosedError,
    ConnectionLossError,
    Event,
    EventType,
    ForkedError,
    OperationTimeoutError,
    SequentialLock,
    State,
    Watch,
)
from zkwire.blocking.waiting import Sleeper
from zkwire.jute import records as r
from zkwire.session.waitable import Waitable
from zkwire.testing.proxy.proxy import (
    Action,
    FaultProxy,
    Frame,
    cut_after,
    cut_before,
    drip,
    rst_after,
    rst_before,
    split,
    truncate,
)

ROOT = Path(__file__).resolve().parents[2]
STALL = 60.0
ROUNDS = 1200  # of all threads together


def ask(client: Client, tag: str) -> None:
    """One call whose answer can be for nobody else."""
    assert client.get_data(tag).data.decode() == tag


def again(call: Callable[[], object]) -> None:
    """Repeat what a lost connection has ended."""
    while True:
        with contextlib.suppress(ConnectionLossError):
            call()
            return


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
            raise self._kind(self.where)


# The library itself. The standard library (the start of a thread, the making of a pair of sockets,
# the formatting of a warning) is not made for interrupts.
_INTERRUPTED = str(Path(zkwire.__file__).parent)
_opnames: dict[CodeType, dict[int, str]] = {}


def opnames(code: CodeType) -> dict[int, str]:
    """The name of the instruction at each offset."""
    if code not in _opnames:
        _opnames[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
    return _opnames[code]


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


def test_the_interruption_finds_the_points() -> None:
    """Which ones there are in a function that begins, makes a call, and makes a call in a call."""
    watch = Watch()
    for _ in range(2):  # Python 3.13 shows the instructions of a function from its second run on
        found = list(interrupted_everywhere(lambda: repr(watch)))
    assert [where.partition(" ")[2].split(" ")[-1] for where in found] == ["__repr__"] * len(found)
    assert len(found) == 2  # it begins, and len() has returned


def test_an_interrupt_anywhere_in_a_call_hurts_nobody_else() -> None:
    """The next call of this thread and of another one are answered, with their own answers."""
    with FakeServer(echo) as server, Client(server.hosts, session_timeout=20) as client:
        points = 0
        for where in interrupted_everywhere(lambda: ask(client, "/interrupted")):
            points += 1
            with within(1.0):
                other = Background(lambda: ask_until_answered(client, "/other"))
                ask_until_answered(client, f"/{points}")
                other.result()
            assert len(server.sessions) == 1, where
        assert points > 30


@pytest.mark.parametrize("kind", [TimeoutError, LookupError])
def test_whatever_a_signal_handler_raises_reaches_the_caller(kind: type[Exception]) -> None:
    """An alarm's TimeoutError is an OSError, and no failure of the connection that it hits."""
    with FakeServer(echo) as server, Client(server.hosts, session_timeout=20) as client:
        points = 0
        while True:
            points += 1
            try:
                with Interruption(points, kind) as interruption:
                    ask(client, "/interrupted")
            except kind:
                pass
            else:
                assert interruption.where is None, f"{interruption.where} has swallowed it"
                break
            with within(1.0):
                ask_until_answered(client, f"/{points}")
        assert points > 30


def test_an_interrupted_leader_leaves_its_followers_somebody_who_reads() -> None:
    """Others wait at the moment of the interrupt; each gets its answer, or learns of the loss."""
    with FakeServer(echo) as server, Client(server.hosts, session_timeout=20) as client:
        go = threading.Barrier(4)
        outcomes: Counter[str] = Counter()

        def follow(number: int) -> None:
            while True:
                go.wait(STALL)
                if stop:
                    return
                try:
                    ask(client, f"/{number}")
                except ConnectionLossError:
                    outcomes["lost"] += 1
                else:
                    outcomes["answered"] += 1
                go.wait(STALL)

        stop = False
        followers = [Background(lambda n=n: follow(n)) for n in range(3)]  # type: ignore[misc]

        def lead() -> None:
            ask(client, "/leader")

        def scenario() -> None:
            lead()

        points = 0
        while True:
            points += 1
            go.wait(STALL)
            with (
                contextlib.suppress(KeyboardInterrupt, ConnectionLossError),
                Interruption(points) as interruption,
            ):
                scenario()
            go.wait(STALL)  # every follower has come back
            if interruption.where is None:
                break
        stop = True
        go.wait(STALL)
        for follower in followers:
            follower.result()
        assert outcomes["answered"] > outcomes["lost"]
        assert sum(outcomes.values()) == 3 * points


def test_an_interrupt_anywhere_in_a_pipeline() -> None:
    with FakeServer(echo) as server, Client(server.hosts, session_timeout=20) as client:
        kept: list[Any] = []

        def scenario() -> None:
            for n in range(3):
                kept.append((n, client.pipeline.get_data(f"/{n}")))
            for n, call in kept:
                assert call.result().data == b"/%d" % n

        for where in interrupted_everywhere(scenario):
            with within(1.0):
                for n, call in kept:
                    try:
                        assert call.result().data == b"/%d" % n, where
                    except ConnectionLossError:
                        continue
                ask_until_answered(client, "/after")
            kept.clear()


def test_an_interrupt_anywhere_loses_no_event() -> None:
    """The interrupted thread is the one that reads the event; a callback and a waiter both get it.

    Once, at that, wherever the interrupt has come.
    """
    with FakeServer() as server, Client(server.hosts, session_timeout=20) as client:
        client.create("/a")
        hits, misses, n = 0, 0, 0
        # It may be the I/O thread that reads the event, and there are no points; not for long.
        while misses < 20:
            n += 1
            called: SimpleQueue[Event] = SimpleQueue()
            watch = Watch()
            client.get_data("/a", watch=called.put)
            client.get_data("/a", watch=watch)
            waiting = Background(lambda watch=watch: watch.wait(STALL))  # type: ignore[misc]
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
        assert hits > 60


# An interrupt between the making of descriptors and the store of them leaves them to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["wait", "wait in vain", "close", "connect", "exit"])
def test_an_interrupt_anywhere_else(how: str) -> None:
    """In a wait for an event, in the end of a watch, in the making of a connection, in its end."""
    with FakeServer() as server, Client(server.hosts, session_timeout=20) as other:
        other.create("/a")
        n = 0
        while True:
            n += 1
            client = Client(server.hosts, session_timeout=20)
            watch = Watch()
            scenario: Callable[[], object] = client.connect
            if how != "connect":
                client.get_data("/a", watch=watch)
            if how == "wait":
                other.pipeline.set_data("/a", b"")
                scenario = watch.wait
            elif how == "wait in vain":
                scenario = partial(watch.wait, 0.001)
            elif how == "close":
                scenario = watch.close
            elif how == "exit":
                scenario = client.close
            with contextlib.suppress(KeyboardInterrupt), Interruption(n) as interruption:
                scenario()
            with within(1.0):
                if how != "exit":
                    assert client.exists("/a") is not None, interruption.where
                    other.exists("/a")
            with within(CLOSE_BOUND):
                client.close()
            assert own_threads() == {t for t in own_threads() if not t.startswith(name_of(client))}
            if interruption.where is None:
                break
        assert n > 1  # the event may have come before the wait
        gc.collect()


def name_of(client: Client) -> str:
    """What the names of a client's threads begin with."""
    return client._driver.name + "-"


# --- stress ---------------------------------------------------------------------------------------


class Stress:
    """Threads that ask for tagged answers until each has done its share, and a stall detector."""

    def __init__(self, client: Client, seed: object) -> None:
        self.client = client
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self, threads: int, rounds: int) -> None:
        """Have every thread do its rounds; fails if any of them stalls, or gets a wrong answer."""
        workers = [
            Background(lambda n=n: self._work(n, rounds, random.Random(f"{self.seed}-{n}")))  # type: ignore[misc]
            for n in range(threads)
        ]
        deadline = time.monotonic() + STALL
        for worker in workers:
            worker.result(deadline - time.monotonic())

    def _work(self, number: int, rounds: int, rng: random.Random) -> None:
        counts: Counter[str] = Counter()
        kinds = [self._one, self._one, self._many, self._timed, self._unread, self._watch]
        for n in range(rounds):
            kind = rng.choice(kinds)
            try:
                kind(f"/{number}/{n}", rng)
                counts[kind.__name__] += 1
            except ConnectionLossError:
                counts["lost"] += 1
        with self._lock:
            self.counts += counts

    def _one(self, tag: str, rng: random.Random) -> None:
        ask(self.client, tag)

    def _many(self, tag: str, rng: random.Random) -> None:
        tags = [f"{tag}/{n}" for n in range(rng.randrange(1, 60))]
        calls = [(each, self.client.pipeline.get_data(each)) for each in tags]
        rng.shuffle(calls)
        for each, call in calls:
            assert call.result().data.decode() == each

    def _timed(self, tag: str, rng: random.Random) -> None:
        call = self.client.pipeline.get_data(tag)
        with contextlib.suppress(OperationTimeoutError):
            assert call.result(rng.random() / 1000).data.decode() == tag

    def _unread(self, tag: str, rng: random.Random) -> None:
        for n in range(rng.randrange(5)):
            self.client.pipeline.get_data(f"{tag}/{n}")

    def _watch(self, tag: str, rng: random.Random) -> None:
        watch = Watch()
        path = "/watched" + tag.replace("/", "-")
        self.client.exists(path, watch=watch)
        self.client.create(path)
        event = watch.wait(STALL)
        assert event is not None
        assert (event.type, event.path) == (EventType.NODE_CREATED, path)


def check_order(frames: list[Frame]) -> None:
    """A18: xids rise strictly on each connection, from 1 up, and nothing is sent but frames."""
    xids: dict[int, list[int]] = {}
    for frame in frames:
        if frame.direction == "c2s" and frame.kind == "request" and (frame.xid or 0) > 0:
            xids.setdefault(frame.connection, []).append(frame.xid or 0)
        assert frame.kind != "raw" or frame.direction == "s2c"
    for row in xids.values():
        assert all(a < b for a, b in pairwise(row))


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_stress(threads: int, seed: int) -> None:
    """Every thread gets its own answers, and none of them waits for ever."""
    with FakeServer(echo) as server, FaultProxy(server.hosts) as proxy:
        with Client(proxy.hosts, session_timeout=20) as client:
            stress = Stress(client, seed)
            stress.run(threads, ROUNDS // threads)
            assert stress.counts["lost"] == 0
            assert stress.counts.total() == ROUNDS // threads * threads
        check_order(proxy.frames())
        assert len(server.connections) == 1


@pytest.mark.parametrize("threads", [1, 3, 8, 64])
def test_stress_with_cuts(threads: int, seed: int) -> None:
    """The same, while connections break at random frames in every way there is."""
    rng = random.Random(f"{seed}-{threads}")

    def fault(frame: Frame) -> Action | None:
        if frame.kind == "connect" or rng.random() > 0.004:
            return None
        action: Action = rng.choice([cut_before, cut_after, rst_before, rst_after, split])
        return truncate(rng.randrange(12)) if rng.random() < 0.2 else action

    with FakeServer(echo) as server, FaultProxy(server.hosts) as proxy:
        with Client(proxy.hosts, session_timeout=20) as client:
            proxy.rule(fault)
            stress = Stress(client, seed)
            stress.run(threads, ROUNDS // threads)
            proxy.clear()
            with within(1.0):
                ask_until_answered(client, "/last")
            assert poll_state(client, State.CONNECTED)
        check_order(proxy.frames())
        # It was one, and it was closed.
        poll("the session is closed", lambda: not server.sessions or None, PATIENCE)
        assert {c.session_id for c in server.connections if c.session_id} == {0x1000}


def test_calls_from_many_threads_keep_their_own_order(seed: int) -> None:
    """A18: what a thread asks for first is executed first; 16 threads, blocking and pipelined."""
    with FakeServer() as server, Client(server.hosts, session_timeout=20) as client:

        def work(number: int) -> None:
            rng = random.Random(f"{seed}-{number}")
            calls = []
            for n in range(200):
                calls.append(client.pipeline.create(f"/{number}-{n:03d}"))
                if rng.random() < 0.05:
                    calls[-1].result()
            for call in calls:
                call.result()

        for worker in [Background(lambda n=n: work(n)) for n in range(16)]:  # type: ignore[misc]
            worker.result(STALL)
        created = [q.path[1:].split("-") for q in server.executed if q.op == "create"]
        for number in range(16):
            mine = [name for owner, name in created if owner == str(number)]
            assert mine == sorted(mine)
            assert len(mine) == 200


class Injected(BaseException):
    """What is thrown into threads from outside."""


# A thread that has done so much more has not been hit: Python has ignored the exception.
IGNORED = 50


def throw_into(thread_id: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(Injected)
    )


# Python ignores what hits a weak reference's callback, and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_exceptions_thrown_into_threads_hurt_nobody_else(seed: int) -> None:
    """Into leaders, followers and sleepers alike; one at a time for each thread."""
    with FakeServer(echo) as server, Client(server.hosts, session_timeout=20) as client:
        number_of_threads, injections = 6, 400
        idents = [0] * number_of_threads
        done = [0] * number_of_threads
        hit = [0] * number_of_threads
        stop = threading.Event()

        def work(number: int) -> None:
            idents[number] = threading.get_ident()
            rng = random.Random(f"{seed}-{number}")
            while True:
                try:
                    while not stop.is_set():
                        with contextlib.suppress(ConnectionLossError):
                            if rng.random() < 0.7:
                                ask(client, f"/{number}/{done[number]}")
                            else:
                                tags = [f"/{number}/{n}" for n in range(20)]
                                calls = [client.pipeline.get_data(tag) for tag in tags]
                                data = [call.result().data.decode() for call in calls]
                                assert data == tags
                        done[number] += 1
                    return
                except Injected:
                    hit[number] += 1

        workers = [Background(lambda n=n: work(n)) for n in range(number_of_threads)]  # type: ignore[misc]
        rng = random.Random(seed)
        deadline = time.monotonic() + STALL
        for _ in range(injections):
            number = rng.randrange(number_of_threads)
            wanted, moved = hit[number] + 1, done[number]
            if idents[number]:
                throw_into(idents[number])
            # It has been caught, and the thread has gone on: it is back in its try.
            while idents[number] and (hit[number] < wanted or done[number] <= moved + 1):
                assert time.monotonic() < deadline, f"thread {number} stalls: {done} {hit}"
                if hit[number] < wanted and done[number] > moved + IGNORED:
                    throw_into(idents[number])
                    moved = done[number]
                time.sleep(0)
        stop.set()
        for worker in workers:
            worker.result(STALL)
        assert sum(hit) > injections / 2
        with within(1.0):
            ask_until_answered(client, "/last")
        assert len(server.sessions) == 1


CHILD_UNDER_INTERRUPTS = """
import contextlib, random, signal, sys, threading, time
from zkwire import Client, ConnectionLossError

hosts, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
armed = False
hits = 0

def interrupt(signum, frame):
    global hits
    if armed:
        hits += 1
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
client = Client(hosts, session_timeout=20)
client.connect()

def ask(tag):
    data = client.get_data(tag).data.decode()
    assert data == tag, (data, tag)

stop = False
def others(number):
    n = 0
    while not stop:
        n += 1
        with contextlib.suppress(ConnectionLossError):
            ask(f"/{number}/{n}")
    counts.append(n)

counts = []
threads = [threading.Thread(target=others, args=(n,)) for n in range(2)]
for thread in threads:
    thread.start()
longest = 0.0
for n in range(rounds):
    started = time.monotonic()
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, rng.random() * 0.002 + 1e-6)
        while True:
            with contextlib.suppress(ConnectionLossError):
                ask(f"/main/{n}")
                calls = [client.pipeline.get_data(f"/p/{i}") for i in range(5)]
                assert [c.result().data for c in calls] == [b"/p/%d" % i for i in range(5)]
    except KeyboardInterrupt:
        armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    longest = max(longest, time.monotonic() - started)
stop = True
for thread in threads:
    thread.join(30)
    assert not thread.is_alive(), "a thread hangs"
while True:
    with contextlib.suppress(ConnectionLossError):
        ask("/last")
        break
client.close()
left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
assert not left, left
assert hits == rounds and min(counts) > 1, (hits, counts)
print("longest", longest)
"""


def run_child(code: str, *arguments: object, seconds: float = STALL) -> str:
    """Run Python code in a process of its own; it must succeed without a word to say of errors."""
    child = subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", code, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    return child.stdout


def test_ctrl_c_at_random_in_a_main_thread(seed: int) -> None:
    with FakeServer(echo) as server:
        longest = run_child(CHILD_UNDER_INTERRUPTS, server.hosts, seed % 1000, 600).split()[1]
        assert float(longest) < 2.0 + PAUSE
        assert len({c.session_id for c in server.connections if c.session_id}) == 1


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


def test_a_signal_handler_that_dwells_in_a_reader_does_not_cost_the_session() -> None:
    """The reader holds the read role all the while; pings go on, and then a new connection."""
    dwelt: list[bool] = []
    handled = threading.Event()

    def dwell() -> None:
        handled.set()
        server.wait_for(lambda: len(server.connections) >= 2 and server.count("ping") >= 4)
        dwelt.append(poll_state(client, State.CONNECTED))

    with FakeServer(mute, serve) as server, on_signal(dwell) as send:
        client = Client(server.hosts, session_timeout=0.9)
        client.connect()
        call = client.pipeline.exists("/a")
        sender = Background(lambda: send_when_read(client, send, handled))
        with pytest.raises(ConnectionLossError):
            call.result()
        sender.result()
        assert dwelt[0]
        assert client.exists("/") is not None
        assert len(server.sessions) == 1
        client.close()


def send_when_read(client: Client, send: Callable[[], None], handled: threading.Event) -> None:
    """Send the signal once a caller has the read role, and again until it has been seen to.

    One that arrives right before a system call begins waits until that ends: so CPython has it.
    """
    while (link := client._driver.current_connection) is None or link.reader is None:
        time.sleep(0.001)
    while not handled.is_set():
        send()
        handled.wait(0.05)


def handled_while_reading(handler: Callable[[Client], None]) -> None:
    """A signal hits a thread that reads for its answer; the handler closes the client."""
    handled = threading.Event()

    def handle() -> None:
        handled.set()
        handler(client)

    with FakeServer(mute) as server, on_signal(handle) as send:
        client = Client(server.hosts, session_timeout=20)
        client.connect()
        call = client.pipeline.exists("/a")
        sender = Background(lambda: send_when_read(client, send, handled))
        with pytest.raises(ClientClosedError):
            call.result()
        sender.result()
        client.close()
        assert own_threads() == set()


def test_close_in_a_signal_handler_of_a_reader() -> None:
    """E8."""
    took: list[float] = []

    def close(client: Client) -> None:
        started = time.monotonic()
        client.close()
        took.append(time.monotonic() - started)

    handled_while_reading(close)
    assert took[0] < CLOSE_BOUND + PAUSE


def test_a_question_in_a_signal_handler_of_a_reader_is_answered() -> None:
    """The reader waits for an answer that comes behind the handler's."""
    got: list[bytes] = []

    def handle() -> None:
        got.append(client.get_data("/b").data)
        client.pipeline.set_data("/a", b"")

    with FakeServer() as server, on_signal(handle) as send:
        client = Client(server.hosts, session_timeout=20)
        client.create("/a")
        client.create("/b", b"data")
        link = client._driver.current_connection
        assert link is not None
        wait = link.wait

        def signalled(seconds: float | None, most: int) -> object:
            link.wait = wait
            send()
            return wait(seconds, most)

        link.wait = signalled
        assert client.exists("/a") is not None
        assert got == [b"data"]
        client.close()


# --- pings under load -----------------------------------------------------------------------------


def longest_gap(frames: list[Frame]) -> float:
    """The longest time between two frames of the client on one connection."""
    times = [frame.time for frame in frames if frame.direction == "c2s"]
    return max(b - a for a, b in pairwise(times))


@pytest.mark.parametrize("reader", ["a caller", "the I/O thread"])
def test_pings_go_out_under_a_flood(reader: str) -> None:
    """A23: bytes keep the socket readable for longer than the session timeout."""
    timeout = 3.0
    notification = reply(-1, r.WatcherEvent(EventType.NODE_CREATED, 3, "/flood"), zxid=-1)
    over = threading.Event()

    def flood(connection: Connection) -> None:
        connection.greet()
        connection.answer(connection.request())
        connection.flush()
        waiting = connection.request()

        def pour() -> None:
            ends = time.monotonic() + 1.5 * timeout
            with contextlib.suppress(OSError):
                while time.monotonic() < ends:
                    connection.sock.sendall(notification * 1000)
                connection.answer(waiting)
            over.set()

        pouring = threading.Thread(target=pour)
        pouring.start()
        try:
            while not over.is_set():
                connection.request(pings=True)  # and leave them unanswered
            for request in connection.requests():
                connection.answer(request)
        finally:
            pouring.join()

    with FakeServer(flood) as server, Client(server.hosts, session_timeout=timeout) as client:
        client.create("/a")
        call = client.pipeline.exists("/a")
        if reader == "the I/O thread":
            assert over.wait(PATIENCE)
        assert call.result(PATIENCE) is not None
        times = [q.time for q in server.received]
        # Due after a third; what matters is that the server never reaches its own limit.
        assert max(b - a for a, b in pairwise([*times, time.monotonic()])) < timeout
        assert server.count("ping") >= 3
        assert len(server.connections) == 1


def test_pings_go_out_while_a_big_reply_trickles_in() -> None:
    """A24: 900 KB take two session timeouts; the session is kept, and so is the connection."""
    timeout = 3.0
    with (
        FakeServer() as server,
        FaultProxy(server.hosts) as proxy,
        Client(proxy.hosts, session_timeout=timeout) as client,
    ):
        client.create("/big", bytes(900_000))
        proxy.on("get_data", action=drip(2 * timeout))
        with within(2 * timeout + 4 * SLACK):
            assert len(client.get_data("/big").data) == 900_000
        assert longest_gap(proxy.frames()) < timeout  # which is due after a third
        assert len(server.connections) == 1
        assert server.count("ping") >= 4


# --- forks ----------------------------------------------------------------------------------------

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


def assert_forked(client: Client, call: Any, watch: Watch, lock: SequentialLock) -> None:
    """A27: in the child everything raises at once, and nothing reaches the server."""
    started = time.monotonic()
    attempts: list[Callable[[], object]] = [
        lambda: client.create("/child"),
        lambda: client.create_with_stat("/child"),
        lambda: client.delete("/a"),
        lambda: client.set_data("/a", b"child"),
        lambda: client.exists("/a"),
        lambda: client.get_data("/a"),
        lambda: client.get_children("/a"),
        lambda: client.get_children_with_stat("/a"),
        client.sync,
        client.connect,
        client.__enter__,
        lambda: client.pipeline.create("/child"),
        lambda: client.pipeline.get_data("/a", watch=Watch()),
        # Another thread may have read its answer before the fork.
        *([] if call.ready else [call.result, lambda: call.result(0.5)]),
        watch.wait,
        lambda: lock.acquire(0.5),
        lock.try_acquire,
    ]
    for number, attempt in enumerate(attempts):
        try:
            attempt()
        except ForkedError:
            continue
        except RuntimeError as error:
            if "already" in str(error):  # the lock object held it before the fork
                continue
            raise
        raise AssertionError(f"attempt {number} did not raise")
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    assert client.lease_remaining() == 0.0
    watch.close()
    client.close()
    client.close()
    assert time.monotonic() - started < 1.0 + PAUSE


@forks
def test_a_forked_child_leaves_the_session_alone(seed: int) -> None:
    """In the middle of traffic: threads of the parent read, write and hold locks at the fork."""
    with FakeServer() as server:
        client = Client(server.hosts, session_timeout=20)
        client.create("/a")
        watch, stop = Watch(), threading.Event()
        client.get_data("/a", watch=watch)
        lock = SequentialLock(client, "/lock")
        assert lock.acquire(PATIENCE)

        def traffic(number: int) -> int:
            done = 0
            while not stop.is_set():
                client.exists(f"/{number}/{done}")
                done += 1
            return done

        workers = [Background(lambda n=n: traffic(n)) for n in range(3)]  # type: ignore[misc]
        session_id = client.session_id
        for _ in range(25):
            call = client.pipeline.exists("/unread")
            in_child(lambda call=call: assert_forked(client, call, watch, lock))  # type: ignore[misc]
            assert call.result(PATIENCE) is None
            assert lock.held
        stop.set()
        for worker in workers:
            assert worker.result() > 0
        assert (client.session_id, client.state) == (session_id, State.CONNECTED)
        assert client.get_data("/a").data == b""
        assert len(server.connections) == 1
        client.set_data("/a", b"")
        assert watch.wait(PATIENCE) is not None
        lock.release()
        client.close()


@forks
def test_a_fork_while_a_lock_of_the_client_is_held() -> None:
    """The holder does not exist in the child; whoever asks there must not wait for it."""
    with FakeServer() as server, Client(server.hosts) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        call = client.pipeline.exists("/b")
        call.result()
        lock = SequentialLock(client, "/lock")
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            link = client._driver.current_connection
            assert link is not None
            with client._driver.mutex:
                link.reader = link.writer = hold
                held.set()
                assert let_go.wait(PATIENCE)
                link.reader = link.writer = None

        holder = Background(hold)
        assert held.wait(PATIENCE)

        def child() -> None:
            started = time.monotonic()
            for attempt in (client.sync, watch.wait, lock.try_acquire):
                with pytest.raises(ForkedError):
                    attempt()
            watch.close()
            client.close()
            assert time.monotonic() - started < 1.0 + PAUSE

        in_child(child)
        let_go.set()
        holder.result()
        client.sync()


@forks
def test_a_client_that_was_not_used_before_a_fork_works_in_the_child() -> None:
    with FakeServer() as server:
        client = Client(server.hosts)

        def child() -> None:
            with client:
                client.create("/from-the-child")

        in_child(child)
        with client:
            assert client.exists("/from-the-child") is not None


@forks
def test_a_child_can_have_a_client_of_its_own_beside_its_parents() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        client.sync()

        def child() -> None:
            with pytest.raises(ForkedError):
                client.sync()
            with Client(server.hosts) as own:
                own.create("/from-the-child")

        in_child(child)
        assert client.exists("/from-the-child") is not None


def work_in_pool(_: int) -> str:
    """For a process of multiprocessing: what its parent's client says there."""
    try:
        _inherited[0].sync()
    except ForkedError as error:
        return str(error)
    return "no error"


_inherited: list[Client] = []


@forks
def test_processes_of_multiprocessing() -> None:
    """Their ends run exit handlers and the collector: the parent's session lives on."""
    with FakeServer() as server, Client(server.hosts) as client:
        client.sync()
        _inherited[:] = [client]
        try:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                answers = pool.map_async(work_in_pool, range(4)).get(PATIENCE)
                pool.close()
                pool.join()
        finally:
            _inherited.clear()
        assert all("parent process" in answer for answer in answers)
        client.sync()
        assert len(server.connections) == 1


# --- exits ----------------------------------------------------------------------------------------

EXITS = {
    "open": "client.connect()",
    "never used": "",
    "connecting": "client.pipeline.exists('/a')",
    "with calls in flight": "client.connect(); [client.pipeline.exists('/a') for _ in range(1000)]",
    "with a watch": "client.exists('/a', watch=print)",
    "with a callback that blocks": """
        called = threading.Event()
        def block(event):
            called.set()
            threading.Event().wait()
        client.exists('/a', watch=block)
        client.create('/a')
        called.wait()
    """,
    "with threads that wait": """
        client.connect()
        def wait():
            client.pipeline.get_data('/silent').result()
        for _ in range(3):
            threading.Thread(target=wait, daemon=True).start()
    """,
    "with a lock": "assert SequentialLock(client, '/lock').acquire(5)",
    "with an exception": """
        client.connect()
        sys.stderr.close()
        sys.stderr = None
        raise SystemExit(0)
    """,
    "closed at exit": "client.connect(); atexit.register(client.close)",
    "closed by its finalizer": """
        client.connect()
        class Owner:
            def __del__(self):
                client.close()
        owner = Owner()
        owner.owner = owner
    """,
    "with no server": "client = Client('127.0.0.1:1'); client.pipeline.exists('/a')",
    "with a name that is looked up": """
        client = Client('zoo.example', _resolver=lambda host, port: threading.Event().wait())
        client.pipeline.exists('/a')
    """,
}


@pytest.mark.parametrize("how", EXITS)
def test_an_exit_is_quick_and_silent(how: str) -> None:
    """E7."""

    def silent_for_one(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if request.path != "/silent":
                connection.answer(request)

    code = f"""
import atexit, sys, threading
from zkwire import Client, SequentialLock
client = Client(sys.argv[1])
{textwrap.dedent(EXITS[how])}
"""
    with FakeServer(silent_for_one) as server:

        def seconds() -> float:
            started = time.monotonic()
            assert run_child(code, server.hosts) == ""
            return time.monotonic() - started

        undisturbed(seconds, 2.0 + PAUSE)


def test_no_sleep_depends_on_a_wake_up_alone() -> None:
    """Else a Ctrl-C that comes right before the system call is not noticed until somebody wakes."""
    Sleeper(Waitable()).sleep(None)
