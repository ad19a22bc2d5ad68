"""What is bound to a client: it is not copied, and says what it is to be made with, at once."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import zkwire
from tests.support.both_clients import LOCKS, Side, both
from tests.unit.test_exports import TWINS
from zkwire.recipes.sequential import AsyncSequentialLock

HOSTS = "127.0.0.1:1"  # which nothing here asks anything


@both
def test_what_is_bound_to_a_client_is_not_copied(side: Side) -> None:
    client = side.Client(HOSTS)
    lock, pair = side.Lock(client, "/a"), side.ReadWriteLock(client, "/a")
    queue = side.Queue(client, "/a")
    things = [client, lock, lock.lost, pair.read, pair.write, queue.take(), client.transaction()]
    classes = [getattr(zkwire, side.prefix + name) for name in TWINS]
    things += [zkwire.Watch(), *(cls.__new__(cls) for cls in classes)]
    for thing in things:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError) as caught:
                copied(thing)
            said = f"{type(thing).__name__} cannot be copied or pickled: it belongs to this process"
            assert str(caught.value).startswith(said)


@both
def test_an_operation_of_a_supervisor_says_who_has_it(side: Side) -> None:
    call = "(await supervisor.client())" if side.asyncio else "supervisor.client()"
    supervisor = side.Supervisor(HOSTS)
    for name in ("create", "get_data", "ensure_path", "transaction", "state", "detach"):
        with pytest.raises(AttributeError) as caught:
            getattr(supervisor, name)
        assert str(caught.value).endswith(f"no attribute '{name}': a client has it, {call}.{name}")
        assert (caught.value.name, caught.value.obj) == (name, supervisor)
    for name in ("creat", "_driver", "__len__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(supervisor, name)


KINDS = sorted({*LOCKS.values()} - {"MultiLock"})
COUNT: dict[str, tuple[Any, ...]] = {"Semaphore": (2,)}


@both
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_is_of_a_client_of_its_own_kind_and_its_text_a_text(side: Side, kind: str) -> None:
    """Refused when it is made, not when it is acquired."""
    own, other = side.Client(HOSTS), Side("" if side.asyncio else "Async")
    said = "an AsyncClient" if side.asyncio else "a Client or a Supervisor"
    for wrong in (HOSTS, None, other.Client(HOSTS)):
        with pytest.raises(TypeError, match=f"client must be {said}, not "):
            getattr(side, kind)(wrong, "/lock", *COUNT.get(kind, ()))
    if kind.endswith("BlockingLock"):  # which shows none
        return
    for text in (None, b"who", 5):
        with pytest.raises(TypeError, match="text must be a str, not "):
            getattr(side, kind)(own, "/lock", *COUNT.get(kind, ()), text)
    with pytest.raises(ValueError, match=r"text contains a surrogate, .*\\ud800"):
        getattr(side, kind)(own, "/lock", *COUNT.get(kind, ()), "\ud800")
    with pytest.raises(TypeError, match="callable"):
        AsyncSequentialLock(zkwire.AsyncClient(HOSTS), "/a").lost.add_callback(5)  # type: ignore[arg-type]


def test_a_multi_lock_is_of_locks() -> None:
    side = Side("")
    client = side.Client(HOSTS)
    lock = side.SequentialLock(client, "/lock")
    others = [side.ReentrantLock(client, "/b"), side.Semaphore(client, "/b", 2)]
    others += [side.ReadWriteLock(client, "/b"), side.MultiLock(lock), [lock], None]
    for wrong in others:
        with pytest.raises(TypeError, match="a MultiLock takes locks such as SequentialLock, not "):
            side.MultiLock(lock, wrong)
    with pytest.raises(TypeError, match="locks such as AsyncSequentialLock, not SequentialLock"):
        zkwire.AsyncMultiLock(lock)
