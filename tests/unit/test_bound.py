"""What is bound to a client: it is not copied, and says what it is to be made with."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import zkwire
from tests.unit.test_exports import TWINS

KINDS = ["", "Async"]
HOSTS = "127.0.0.1:1"  # which nothing here asks anything


def made(name: str, *arguments: object) -> Any:
    return getattr(zkwire, name)(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_bound_to_a_client_is_not_copied(kind: str) -> None:
    client = made(f"{kind}Client", HOSTS)
    lock, pair = (made(f"{kind}{name}", client, "/a") for name in ("Lock", "ReadWriteLock"))
    queue = made(f"{kind}Queue", client, "/a")
    things = [client, lock, lock.lost, pair.read, pair.write, queue.take(), client.transaction()]
    classes = [getattr(zkwire, f"{kind}{name}") for name in TWINS]
    things += [zkwire.Watch(), *(cls.__new__(cls) for cls in classes)]
    for thing in things:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError) as caught:
                copied(thing)
            said = f"{type(thing).__name__} cannot be copied or pickled: it belongs to this process"
            assert str(caught.value).startswith(said)


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_of_a_supervisor_says_who_has_it(kind: str) -> None:
    call = "(await supervisor.client())" if kind else "supervisor.client()"
    supervisor = made(f"{kind}Supervisor", HOSTS)
    for name in ("create", "get_data", "ensure_path", "transaction", "state", "detach"):
        with pytest.raises(AttributeError) as caught:
            getattr(supervisor, name)
        assert str(caught.value).endswith(f"no attribute '{name}': a client has it, {call}.{name}")
        assert (caught.value.name, caught.value.obj) == (name, supervisor)
    for name in ("creat", "_driver", "__len__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(supervisor, name)
