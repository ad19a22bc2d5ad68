"""One call of each recipe: the one list from which other lists of the tests follow.

A recipe is any public class with a twin for asyncio that a client is not; the test of this table
says which one it lacks.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import zkwire
from tests.support.lock_helpers import PATIENCE
from zkwire.recipes._service import Service


class Sample(NamedTuple):
    """How a recipe is made, and one call of it: ``method`` may be one of a part of it."""

    method: str
    given: tuple[object, ...] = ()
    arguments: tuple[object, ...] = ()
    """What it is made with, after the client and the path."""


RECIPES: dict[str, Sample] = {
    **dict.fromkeys(
        ("NonBlockingLock", "BlockingLock", "SequentialLock", "ReentrantLock", "MultiLock"),
        Sample("acquire", (PATIENCE,)),
    ),
    "ReadWriteLock": Sample("read.acquire", (PATIENCE,)),
    "Semaphore": Sample("lease.acquire", (PATIENCE,), (2,)),
    "Election": Sample("lead.acquire", (PATIENCE,)),
    "Barrier": Sample("close"),
    "DoubleBarrier": Sample("enter", (PATIENCE,), (1,)),
    "OncePer": Sample("claim", (), (60,)),
    "Counter": Sample("add"),
    "Queue": Sample("put", (b"",)),
    "PersistentNode": Sample("wait_present", (PATIENCE,)),
    "Group": Sample("join", (b"me",)),
    "Cache": Sample("wait_ready", (PATIENCE,)),
    "Partitioner": Sample("next", (PATIENCE,), (["item"],)),
    "DataWatch": Sample("next", (PATIENCE,)),
    "ChildrenWatch": Sample("next", (PATIENCE,)),
}
BEGUN_BY_A_METHOD = {"DataWatch", "ChildrenWatch"}  # of a client, as users have them


def kind_of(name: str, client: Any) -> Any:
    """The class for this client."""
    prefix = "Async" if type(client).__name__.startswith("Async") else ""
    return getattr(zkwire, prefix + name)


def made(name: str, client: Any, path: str, **named: Any) -> Any:
    """One of them, with these options."""
    if name == "MultiLock":
        both = [made("SequentialLock", client, f"{path}/{n}", **named) for n in "ab"]
        return kind_of(name, client)(*both)
    return kind_of(name, client)(client, path, *RECIPES[name].arguments, **named)


def called(name: str, recipe: Any) -> Any:
    """What the call of its sample returns, or under asyncio a coroutine."""
    *parts, method = RECIPES[name].method.split(".")
    for part in parts:
        recipe = getattr(recipe, part)
        recipe = recipe() if callable(recipe) else recipe
    return getattr(recipe, method)(*RECIPES[name].given)


def is_service(recipe: Any) -> bool:
    """Whether it works by itself, between calls."""
    return isinstance(getattr(recipe, "_algorithm", recipe), Service)


def used(name: str, client: Any, path: str) -> object:
    """Make it and call it, for threads, with success; a service has ended then."""
    recipe = made(name, client, path)
    with recipe if is_service(recipe) else nullcontext():
        result = called(name, recipe)
    assert result is not False, f"{name} did not succeed"
    return result


# --- locks, and what excludes them ----------------------------------------------------------------

LOCKS = (
    "NonBlockingLock", "BlockingLock", "SequentialLock", "ReadWriteLock.read",
    "ReadWriteLock.write", "Semaphore", "MultiLock", "ReentrantLock", "Election",
)  # fmt: skip
"""Whatever is acquired and released, by the names that `lock` takes."""


def lock(title: str, client: Any, path: str, **named: Any) -> Any:
    """One of these; of a semaphore the only lease, of a multi-lock two sequential ones."""
    match title.split("."):
        case ["Semaphore"]:
            return kind_of(title, client)(client, path, 1, **named).lease()
        case ["Election"]:
            return made(title, client, path, **named).lead()
        case [name, side]:
            return getattr(made(name, client, path, **named), side)
        case _:
            return made(title, client, path, **named)


def rival(title: str, client: Any, path: str) -> Any:
    """Another client's lock, for which the one with this title has to wait."""
    if title == "MultiLock":
        return made("SequentialLock", client, f"{path}/b")
    rivals = {
        "NonBlockingLock": "BlockingLock",
        "ReadWriteLock.read": "ReadWriteLock.write",
        "ReentrantLock": "SequentialLock",
        "Election": "SequentialLock",
    }
    return lock(rivals.get(title, title), client, path)
