"""What a thread leaves to one that has been woken and has not run since: to send, to hand on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE
from tests.shell.test_client_threads import Interruption, ask
from tests.support.fake_server import FakeServer, echo
from tests.support.family_helpers import soon
from tests.support.lock_helpers import Running
from zkwire import Client
from zkwire.net.wakeup import Sleeper
from zkwire.session.request import Request
from zkwire.session.waitable import Waitable
from zkwire.wire import ops

NO_THREAD = -1
"""The number of a thread that does not run until the test does so in its place."""


class Over(Waitable):
    """What a sleeper has waited for."""

    @property
    def ready(self) -> bool:
        return True


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


def run_again(client: Client, sleeper: Sleeper) -> None:
    """What the woken thread does behind its sleep for an answer."""
    sleeper.thread = None
    client._driver._slept(sleeper, client._driver._followers)


def test_what_others_submit_meanwhile_leaves_in_one_piece(client: Client) -> None:
    """That of a thread which becomes the leader, and that of those which find one."""
    driver = client._driver
    connection = driver.current_connection
    assert connection is not None
    sizes: list[int] = []
    send = connection._send

    def count(data: bytes, flags: int) -> int:
        sizes.append(len(data))
        return send(data, flags)

    # The I/O thread sends what it finds when it is awake for another reason: here it is busy.
    busy, over = threading.Event(), threading.Event()

    def wait_for_the_end() -> None:
        busy.set()
        over.wait(PATIENCE)

    driver.call_soon(wait_for_the_end)
    assert busy.wait(PATIENCE)
    connection._send = count  # type: ignore[assignment]
    sleeper = woken(client, Over())
    threads = [Running(lambda n=n: ask(client, f"/{n}")) for n in range(3)]  # type: ignore[misc]
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
    follower = Sleeper(Request(ops.SYNC))
    driver._followers[follower] = None
    driver.wake_follower()
    assert driver._successor is follower


def test_nothing_is_left_to_the_main_thread(client: Client) -> None:
    """A signal handler may keep that from running for long."""
    found: dict[str, int | None] = {}

    def sleep(sleeper: Sleeper, _: float | None) -> None:
        found[threading.current_thread().name] = sleeper.thread

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Sleeper, "sleep", sleep)
        client._driver._sleep(Waiting(), None, False)
        Running(lambda: client._driver._sleep(Waiting(), None, False)).result()
    assert found.pop(threading.main_thread().name) is None
    assert found.popitem()[1] is not None


class Waiting(Waitable):
    """What does not come."""

    @property
    def ready(self) -> bool:
        return False


def test_the_choice_of_the_next_leader_is_left_to_it(client: Client) -> None:
    driver = client._driver
    sleeper, follower = woken(client, Over()), Sleeper(Request(ops.SYNC))
    driver._followers[follower] = None
    driver.wake_follower()
    assert follower._lock.locked()
    run_again(client, sleeper)
    assert not follower._lock.locked()


def test_it_wakes_no_other_if_there_is_a_leader_or_it_becomes_one(client: Client) -> None:
    driver, follower = client._driver, Sleeper(Request(ops.SYNC))
    driver._followers[follower] = None
    run_again(client, woken(client, Request(ops.SYNC)))  # it is to lead
    connection = driver.current_connection
    assert connection is not None
    connection.reader = "another thread"
    run_again(client, woken(client, Over()))
    connection.reader = None
    assert follower._lock.locked()


def test_an_interrupted_thread_does_what_was_left_to_it(client: Client) -> None:
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

    n = 0
    where: str | None = ""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Sleeper, "sleep", sleep)
        while where is not None:
            n += 1
            where = Running(lambda n=n: interrupted_at(n)).result()  # type: ignore[misc]
            assert driver._successor.thread is None, where
            soon(f"all has left: {where}", lambda: not driver.session.queue)
    assert len(left) > 10
