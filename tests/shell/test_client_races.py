"""Threads that leave work to each other, meet at one step, or run on top of the client's work."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, within
from tests.shell.test_client_threads import Interruption, ask
from tests.support.fake_server import FakeServer, echo
from tests.support.family_helpers import soon
from tests.support.lock_helpers import Running
from zkwire import Client, SequentialLock, State, Watch, testing
from zkwire.blocking import driver as drivers
from zkwire.net.wakeup import Sleeper
from zkwire.session.request import Request
from zkwire.session.waitable import Waitable
from zkwire.testing import Server
from zkwire.wire import ops

# --- what is left to a thread that has been woken -------------------------------------------------

NO_THREAD = -1
"""The number of a thread that does not run until the test does so in its place."""


class Over(Waitable):
    """What a sleeper has waited for."""

    ready = True


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


def woken(client: Client, waitable: Waitable, thread: int | None = NO_THREAD) -> Sleeper:
    """A sleeper that another thread has just woken."""
    sleeper = client._driver._successor = Sleeper(waitable)
    sleeper.thread = thread
    return sleeper


def following(client: Client) -> Sleeper:
    """One that waits for a reader."""
    follower = Sleeper(Request(ops.SYNC))
    client._driver._followers[follower] = None
    return follower


def run_again(client: Client, sleeper: Sleeper) -> None:
    """What the woken thread does behind its sleep for an answer."""
    sleeper.thread = None
    client._driver._slept(sleeper, client._driver._followers)


def test_what_others_submit_meanwhile_leaves_in_one_piece(client: Client) -> None:
    """That of a thread which becomes the leader, and that of those which find one."""
    driver = client._driver
    connection: Any = driver.current_connection
    sizes: list[int] = []
    send = connection._send

    def count(data: bytes, flags: int) -> int:
        sizes.append(len(data))
        sent: int = send(data, flags)
        return sent

    # The I/O thread sends what it finds when it is awake for another reason: here it is busy.
    busy, over = threading.Event(), threading.Event()
    driver.call_soon(busy.set)
    driver.call_soon(partial(over.wait, PATIENCE))
    assert busy.wait(PATIENCE)
    connection._send = count
    sleeper = woken(client, Over())
    threads = [Running(partial(ask, client, f"/{n}")) for n in range(3)]
    soon("all have submitted", lambda: driver.session.queued == len(threads))
    assert not sizes
    run_again(client, sleeper)
    for thread in threads:
        thread.result()
    over.set()
    assert len(sizes) == 1


@pytest.mark.parametrize("thread", [None, threading.get_ident()], ids=["runs", "same"])
def test_nothing_is_left_to_a_thread_that_runs_or_to_the_same_one(
    client: Client, thread: int | None
) -> None:
    """A finalizer may stand on top of the sleep in the same thread."""
    woken(client, Over(), thread)
    assert not client._driver._has_successor()


def test_it_is_the_last_one_that_was_woken_whoever_has_done_so(client: Client) -> None:
    driver = client._driver
    first, last = Sleeper(Over()), Sleeper(Over())
    driver._wake_sleepers([first, last])
    assert driver._successor is last
    follower = following(client)
    driver.wake_follower()
    assert driver._successor is follower


def test_nothing_is_left_to_the_main_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may keep that from running for long."""
    found: dict[threading.Thread, int | None] = {}

    def sleep(sleeper: Sleeper, _: float | None) -> None:
        found[threading.current_thread()] = sleeper.thread

    monkeypatch.setattr(Sleeper, "sleep", sleep)
    client._driver._sleep(Waiting(), None, False)
    Running(lambda: client._driver._sleep(Waiting(), None, False)).result()
    assert found.pop(threading.main_thread()) is None
    assert found.popitem()[1] is not None


def test_the_choice_of_the_next_leader_is_left_to_it(client: Client) -> None:
    sleeper, follower = woken(client, Over()), following(client)
    client._driver.wake_follower()
    assert follower._lock.locked()
    run_again(client, sleeper)
    assert not follower._lock.locked()


def test_it_wakes_no_other_if_there_is_a_leader_or_it_becomes_one(client: Client) -> None:
    follower, connection = following(client), client._driver.current_connection
    run_again(client, woken(client, Request(ops.SYNC)))  # it is to lead
    assert connection is not None
    connection.reader = "another thread"
    run_again(client, woken(client, Over()))
    connection.reader = None
    assert follower._lock.locked()


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


# --- two threads at the same step -----------------------------------------------------------------

MEETING_SECONDS = 1.0
"""So long the first thread waits for the second, in vain where all is well."""


def meeting() -> Callable[[], None]:
    """Where two threads wait for each other, once."""
    barrier = threading.Barrier(2)

    def wait() -> None:
        with suppress(threading.BrokenBarrierError):
            barrier.wait(MEETING_SECONDS)

    return wait


def test_each_thread_keeps_the_value_that_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads are the first: the values of one must not take the place of the other's."""
    meet, made = meeting(), threading.local

    def late_local() -> Any:
        meet()
        return made()

    monkeypatch.setattr(threading, "local", late_local)
    value = drivers.value_of_each_thread(object)
    both_have_one = threading.Barrier(2)

    def twice() -> tuple[object, object]:
        first = value()
        both_have_one.wait(60)
        return first, value()

    (one, again), (other, anew) = (each.result() for each in [Running(twice), Running(twice)])
    assert one is again
    assert other is anew
    assert one is not other


def test_of_two_threads_one_acquires_the_object(server: Server) -> None:
    with Client(server.hosts) as client:
        lock: Any = SequentialLock(client, "/lock")
        algorithm, meet = lock._algorithm, meeting()

        def is_busy(self: Any) -> bool:
            busy: bool = self.__dict__["_busy"]
            if not busy:
                meet()
            return busy

        def set_busy(self: Any, busy: bool) -> None:
            self.__dict__["_busy"] = busy

        watched = type("Watched", (type(algorithm),), {"_busy": property(is_busy, set_busy)})
        algorithm.__class__ = watched

        def acquire() -> bool | None:
            try:
                acquired: bool = lock.try_acquire()
                return acquired
            except RuntimeError:  # as is documented for one object in two threads
                return None

        outcomes = [each.result() for each in [Running(acquire), Running(acquire)]]
        assert sorted(outcomes, key=str) == [None, True]
        lock.release()
        with Client(server.hosts) as other:
            assert other.get_children("/lock") == []


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


# --- what can be done later -----------------------------------------------------------------------


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


def test_listeners_come_and_go(client_with_a: Client) -> None:
    heard, others = list[State](), list[State]()
    client_with_a.add_state_listener(heard.append)

    def change() -> None:
        client_with_a.remove_state_listener(heard.append)
        client_with_a.add_state_listener(others.append)

    nested(client_with_a, change)
    client_with_a.sync()
    soon("it has been done", lambda: not client_with_a._driver.tasks)
    client_with_a.close()
    assert (heard, others) == ([], [State.CLOSED])


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
