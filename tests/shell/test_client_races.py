"""Two threads at the same step of one object, which a Python without its own lock lets both take.

The steps are held open here, so that each test fails on every Python if the steps are two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.lock_helpers import Running
from zkwire import Client, SequentialLock
from zkwire.blocking import driver as drivers
from zkwire.recipes._service import ObservableService
from zkwire.testing import Server

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


def test_waiters_come_and_go_while_a_service_tells_them() -> None:
    """Without an interpreter's lock a copy of what they stand in must be one step."""
    service, over = ObservableService.__new__(ObservableService), threading.Event()
    waiting: dict[Any, None] = {}
    service._waiting = waiting

    def come_and_go() -> int:
        rounds = 0
        while not over.is_set():
            condition: Any = object()
            waiting[condition] = None
            del waiting[condition]
            rounds += 1
        return rounds

    class Told:
        def notify(self) -> None:
            pass

    waiting.update((Told(), None) for _ in range(200))  # so many take a while to copy
    workers = [Running(come_and_go) for _ in range(2)]
    try:
        for _ in range(5000):
            with suppress(AttributeError):  # an object that has been caught is told nothing
                service._changed()
    finally:
        over.set()
    assert all(worker.result() > 0 for worker in workers)
