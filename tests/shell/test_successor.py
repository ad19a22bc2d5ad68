"""What a thread leaves to one that has been woken and has not run since: to send, to hand on."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from functools import partial
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
