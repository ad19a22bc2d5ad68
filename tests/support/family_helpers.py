"""What the tests of the lock family share: contenders that queue, and who holds at which moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage, answers
from tests.support.server_control import poll
from zkwire import Client
from zkwire.blocking.locks import Lease, PathLock, Semaphore
from zkwire.testing.proxy import Frame


class Lockable(Protocol):
    """Every lock of the family, the one of several locks included."""

    def acquire(self, timeout: float | None = None) -> bool: ...
    def try_acquire(self) -> bool: ...
    def release(self) -> None: ...
    @property
    def held(self) -> bool: ...


class Member:
    """Somebody who queues for a lock, keeps it until told, and releases it."""

    def __init__(self, name: str, lock: Lockable, granted: SimpleQueue[str]) -> None:
        self.name = name
        self.lock = lock
        self._granted = granted
        self._go = threading.Event()
        self._running = Running(self._live)

    def _live(self) -> None:
        assert self.lock.acquire(4 * PATIENCE)
        self._granted.put(self.name)
        assert self._go.wait(4 * PATIENCE)
        self.lock.release()

    def leave(self) -> None:
        """Have the lock released, and wait until it is."""
        self._go.set()
        self._running.result()


class Queue:
    """Members in their order of arrival, and who has been granted the lock."""

    def __init__(self, stage: Stage, path: str) -> None:
        self._stage = stage
        self._path = path
        self._granted: SimpleQueue[str] = SimpleQueue()
        self.members: dict[str, Member] = {}
        self.granted: list[str] = []

    def join(self, name: str, lock: Lockable) -> None:
        """One more, behind all those before."""
        before = self._present()
        self.members[name] = Member(name, lock, self._granted)
        soon(f"{name} queues", lambda: self._present() == before + 1, PATIENCE)

    def _present(self) -> int:
        """How many contenders there are, the holders included."""
        return len(self._stage.nodes(self._path))

    def expect(self, *names: str) -> None:
        """These are the next ones that get the lock, and they all do."""
        for _ in names:
            self.granted.append(self._granted.get(timeout=PATIENCE))
        assert sorted(self.granted[-len(names) :]) == sorted(names)
        assert all(self.members[name].lock.held for name in names)

    def expect_nobody(self) -> None:
        """Nobody else has the lock. (Who is granted it later shows in the order.)"""
        with pytest.raises(Empty):
            self._granted.get_nowait()

    def leave(self, *names: str) -> None:
        """These release."""
        for name in names:
            self.members[name].leave()


class LeaseQueue(Queue):
    """As `Queue`, for leases: a contender may have two nodes, so sessions are counted."""

    def _present(self) -> int:
        nodes = lease_nodes(self._stage, self._path)
        return len({node.rpartition("/")[2][:16] for node in nodes})


# --- a lease, as a lock ---------------------------------------------------------------------------


def lease_of(client: Client, path: str, count: int = 1) -> Lease:
    """A lease that is not taken yet."""
    return Semaphore(client, path, count).lease()


def leased(semaphore: Semaphore, timeout: float | None = None) -> Lease:
    """A lease that is taken."""
    lease = semaphore.lease()
    assert lease.acquire(timeout)
    return lease


def lease_nodes(stage: Stage, path: str) -> list[str]:
    """All nodes of a semaphore's contenders: the leases, then the queue for them."""
    return stage.nodes(f"{path}/leases") + stage.nodes(f"{path}/locks")


def looked(frames: list[Frame]) -> bool:
    """Whether somebody waits for a predecessor, whose watch is set."""
    return bool(answers(frames, "get_data"))


def watches_children(frames: Iterable[Frame], below: str) -> bool:
    """Whether somebody behind the proxy waits for a change among the children of ``below``."""
    return any(
        frame.request is not None
        and frame.request.op == "get_children"
        and frame.request.path == below
        and frame.request.raw[-1] == 1
        for frame in answers(list(frames), "get_children")
    )


# --- small things ---------------------------------------------------------------------------------


def lose(stage: Stage, lock: PathLock, node: str) -> None:
    """Somebody deletes the holder's node, and the holder learns of it."""
    stage.observer.delete(node)
    assert lock.lost.wait(PATIENCE)


def soon(what: str, look: Callable[[], Any], seconds: float = GRACE) -> None:
    """Wait until ``look()`` is true."""
    poll(what, lambda: look() or None, seconds)
