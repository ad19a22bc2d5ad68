"""A re-entrant lock whose owner, a thread or a task, has ended without releasing it."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.aio_helpers import blocking, complaints
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from zkwire import (
    AsyncClient,
    AsyncReentrantLock,
    AsyncSequentialLock,
    Client,
    ReentrantLock,
    SequentialLock,
)
from zkwire.testing import Server

PATH = "/lock"
WARNED = "has ended and still held"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.hosts) as client:
        yield client


def in_a_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function, name="worker")
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def warned(caplog: pytest.LogCaptureFixture, owner: str) -> None:
    """It is logged that this owner has ended."""
    text = f"{PATH}: {owner} {WARNED}"
    poll("somebody is warned", lambda: text in caplog.text or None, PATIENCE)


class Holder:
    """A thread that holds until it is to end, with or without a release."""

    def __init__(self, client: Client) -> None:
        self.lock, self.end = ReentrantLock(client, PATH), threading.Event()
        self.release = False
        self._held = threading.Event()
        self.running = Running(self._hold)
        assert self._held.wait(PATIENCE)

    def _hold(self) -> bool:
        assert self.lock.acquire()
        self._held.set()
        assert self.end.wait(PATIENCE)
        held = self.lock.held
        if self.release:
            self.lock.release()
        return held


@pytest.mark.parametrize("often", [1, 2])
def test_hazard_B38_a_thread_that_has_ended_holds_no_lock(
    client: Client, caplog: pytest.LogCaptureFixture, often: int
) -> None:
    lock = ReentrantLock(client, PATH)
    in_a_thread(lambda: [lock.acquire() for _ in range(often)])
    assert lock.acquire(PATIENCE)  # in another thread, by the same object
    warned(caplog, "the thread worker")
    lock.release()
    assert SequentialLock(client, PATH).acquire(PATIENCE)
    assert len(client.get_children(PATH)) == 1


def test_a_thread_that_waits_is_next(client: Client) -> None:
    holder = Holder(client)
    waiter = Running(holder.lock.acquire)
    poll("somebody waits", lambda: len(client.get_children(PATH)) == 2 or None, PATIENCE)
    holder.end.set()
    holder.running.result()
    assert waiter.result()


def test_a_lock_that_was_released_is_let_alone(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where another thread holds by the same object."""
    lock = ReentrantLock(client, PATH)

    def cycle() -> None:
        with lock:
            pass

    with lock:
        in_a_thread(lambda: lock.acquire(0))
        assert lock.held
    in_a_thread(cycle)
    client.sync()
    with lock:
        assert lock.held
    assert WARNED not in caplog.text


def test_a_thread_keeps_a_lock_whose_object_is_gone_and_may_end_after_its_client(
    client: Client,
) -> None:
    """Only the thread's end says that it has nothing more to do."""
    ReentrantLock(client, PATH).acquire()
    gc.collect()
    client.sync()
    assert not SequentialLock(client, PATH).try_acquire()
    lock = ReentrantLock(client, "/other")

    def close() -> None:
        assert lock.acquire()
        client.close()

    in_a_thread(close)
    assert not lock.held


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_threads_that_a_fork_ends_have_not_ended(client: Client) -> None:
    """They end in the child only, whose copies of the parent's clients must do nothing."""
    holder = Holder(client)
    holder.release = True
    pid = os.fork()
    if pid == 0:
        os._exit(bool(client._driver.background_tasks))
    assert os.waitpid(pid, 0)[1] == 0
    client.sync()
    holder.end.set()
    assert holder.running.result() is True


# --- asyncio --------------------------------------------------------------------------------------


async def test_hazard_B38_a_task_that_has_ended_holds_no_lock(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """As the one that `asyncio.wait_for` makes up to Python 3.11."""

    async def again() -> bool:
        return await lock.acquire() and await lock.acquire()

    async with AsyncClient(server.hosts) as client:
        lock = AsyncReentrantLock(client, PATH)
        for acquiring in (lock.acquire(), again()):
            await asyncio.create_task(acquiring, name="worker")
            async with asyncio.timeout(PATIENCE), lock:
                assert len(await client.get_children(PATH)) == 1
    warned(caplog, "the task worker")


async def test_one_note_is_kept_for_the_end_of_a_task(server: Server) -> None:
    """However often it may acquire, by whatever object."""
    async with AsyncClient(server.hosts) as client:
        task = asyncio.current_task()
        assert task is not None
        before = len(task._callbacks or ())
        for _ in range(3):
            lock = AsyncReentrantLock(client, PATH)
            async with lock, lock:
                assert len(task._callbacks) == before + 1
        assert len(task._callbacks) == before + 1


@pytest.mark.parametrize("kind", [AsyncReentrantLock, AsyncSequentialLock])
async def test_a_task_that_is_collected_in_another_thread_holds_no_lock(
    server: Server,
    kind: type[AsyncReentrantLock | AsyncSequentialLock],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # the task dies of its clean-up

    async def hold() -> None:
        async with kind(client, PATH):
            held.set()
            await asyncio.get_running_loop().create_future()  # which nothing else refers to

    held = asyncio.Event()
    async with AsyncClient(server.hosts) as client:
        asyncio.get_running_loop().create_task(hold())
        await held.wait()
        await blocking(gc.collect)
        assert await AsyncSequentialLock(client, PATH).acquire(PATIENCE)
    assert "was destroyed but it is pending" in str(complaints().take())
