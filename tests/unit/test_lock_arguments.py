"""What no lock is made of: refused when it is made, not when it is acquired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from zkwire import (
    AsyncClient,
    Client,
    Election,
    MultiLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    SequentialLock,
)

SHOWING: dict[str, Callable[[Any, Any], object]] = {
    "SequentialLock": lambda client, text: SequentialLock(client, "/lock", text),
    "ReadWriteLock": lambda client, text: ReadWriteLock(client, "/lock", text),
    "Semaphore": lambda client, text: Semaphore(client, "/lock", 2, text),
    "ReentrantLock": lambda client, text: ReentrantLock(client, "/lock", text),
    "Election": lambda client, text: Election(client, "/lock", text),
}


@pytest.fixture
def client() -> Client:
    return Client("127.0.0.1:1")  # which nothing here asks anything


@pytest.mark.parametrize("kind", SHOWING)
def test_a_text_is_a_text(client: Client, kind: str) -> None:
    for wrong in (None, b"who", 5):
        with pytest.raises(TypeError, match="text must be a str, not "):
            SHOWING[kind](client, wrong)
    with pytest.raises(ValueError, match=r"text contains a surrogate, .*\\ud800"):
        SHOWING[kind](client, "\ud800")


KINDS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(["NonBlockingLock", "BlockingLock", "SequentialLock", "ReadWriteLock"], ()),
    **dict.fromkeys(["ReentrantLock", "Election"], ()),
    "Semaphore": (2,),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_is_of_a_client_of_its_own_kind(kind: str) -> None:
    blocking, tasks = Client("127.0.0.1:1"), AsyncClient("127.0.0.1:1")
    for_threads, for_tasks = getattr(zkwire, kind), getattr(zkwire, f"Async{kind}")
    for wrong in ("127.0.0.1:1", None, tasks, blocking):
        if wrong is not blocking:
            with pytest.raises(TypeError, match="client must be a Client or a Supervisor, not "):
                for_threads(wrong, "/lock", *KINDS[kind])
        if wrong is not tasks:
            with pytest.raises(TypeError, match="client must be an AsyncClient, not "):
                for_tasks(wrong, "/lock", *KINDS[kind])


def test_a_multi_lock_is_of_locks(client: Client) -> None:
    lock = SequentialLock(client, "/lock")
    for wrong in (
        *(ReentrantLock(client, "/b"), Semaphore(client, "/b", 2), ReadWriteLock(client, "/b")),
        *(MultiLock(lock), [lock], client, None),
    ):
        with pytest.raises(TypeError, match="a MultiLock takes locks such as SequentialLock, not "):
            MultiLock(lock, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="locks such as AsyncSequentialLock, not SequentialLock"):
        zkwire.AsyncMultiLock(lock)  # type: ignore[arg-type]
