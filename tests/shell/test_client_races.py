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
from zkwire.net.wakeup import Sleeper
from zkwire.session.waitable import Waitable
from zkwire.testing import Server

# --- what is left to a thread that has been woken -------------------------------------------------


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
