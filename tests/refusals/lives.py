"""The life of each recipe, for `zkwire.testing.kit`: what is called, and what is true after it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from tests.support.lock_helpers import Running
from tests.support.recipe_samples import (
    BEGUN_BY_A_METHOD,
    LOCKS,
    RECIPES,
    called,
    is_service,
    kind_of,
    made,
)
from tests.support.recipe_samples import lock as lock_of
from tests.support.recipe_samples import rival as lock_rival
from zkwire import (
    AsyncClient,
    AsyncSupervisor,
    Barrier,
    Client,
    Counter,
    DoubleBarrier,
    LockLostError,
    LockTimeoutError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    OncePer,
    Queue,
    QueueEmptyError,
    SequentialLock,
    SetData,
    Supervisor,
)
from zkwire.testing.kit import LIMIT, Life, Stage

LIVES: dict[str, Life] = {}
"""By title, for a client."""
SUPERVISED: dict[str, Life] = {}
"""By title, for a supervisor."""

HOUR = 3600.0
A_WHILE = 0.1  # seconds, after which a lock that is held is given up
LOST = "the lock is lost (`lost`, LockLostError)"


def of(lives: dict[str, Life], title: str) -> Callable[[Life], Life]:
    """Note a life."""

    def note(life: Life) -> Life:
        lives[title] = life
        return life

    return note


def make(stage: Stage, kind: str, *arguments: Any, **named: Any) -> Any:
    """A recipe of the stage's client, by the name of the blocking one."""
    return kind_of(kind, stage.client)(stage.client, *arguments, **named)


# --- locks ----------------------------------------------------------------------------------------


def own_lock(title: str, stage: Stage) -> Any:
    return lock_of(title, stage.client, stage.path)


def rival_of(title: str, stage: Stage) -> Any:
    return lock_rival(title, stage.other, stage.path)


async def acquire(stage: Stage, lock: Any) -> None:
    """Acquire it; NodeExists says to the lock that does not wait that another client has it."""
    try:
        while not await stage.call(lock.acquire, LIMIT):
            assert stage.code == NodeExistsError.code
    except LockLostError as error:  # of a MultiLock, whose others go on being acquired meanwhile
        note_loss(stage, error)
        assert await stage.call(lock.acquire, LIMIT)
    assert lock.held or lost(stage, lock)


def note_loss(stage: Stage, loss: LockLostError) -> None:
    """It is told as a loss, and the reason is the refusal."""
    assert "may not be watched" in str(loss)
    stage.note(LOST)


def lost(stage: Stage, lock: Any) -> bool:
    """Whether the lock was lost because its node may not be watched."""
    if not lock.lost.is_set():
        return False
    assert stage.refused is not None
    assert stage.refused.op == "get_children2"
    stage.note(LOST)
    return True


async def release(stage: Stage, lock: Any) -> None:
    try:
        await stage.call(lock.release, again=False)
    except LockLostError:
        assert lost(stage, lock)
    assert not lock.held


async def free_lock(stage: Stage, title: str) -> None:
    """It is acquired, looked at, and released; then another client acquires it."""
    lock = await watched_lock(stage, title)
    await release(stage, lock)
    rival = rival_of(title, stage)

    def acquired_and_released() -> bool:
        acquired = rival.acquire(LIMIT)
        rival.release()
        return acquired

    await in_thread(stage, acquired_and_released)  # an event loop may still clean up behind a cut


async def watched_lock(stage: Stage, title: str) -> Any:
    """It is acquired, and its node is watched if that is allowed."""
    lock = own_lock(title, stage)
    await acquire(stage, lock)
    await stage.until(lambda: stage.watches or lost(stage, lock))
    return lock


async def entered_lock(stage: Stage, title: str) -> None:
    """As a context manager."""
    lock, entered = own_lock(title, stage), list[Any]()
    try:
        await stage.within(lambda: lock.within(LIMIT), entered.append)
    except LockTimeoutError:
        assert (title, stage.code) == ("NonBlockingLock", NodeExistsError.code)
    except LockLostError as error:
        note_loss(stage, error)
    else:
        assert entered


async def contended_lock(stage: Stage, title: str) -> None:
    """Another client has it: a try fails, and the one that waits gets it afterwards."""
    lock, rival = own_lock(title, stage), rival_of(title, stage)

    async def wait() -> None:
        await acquire(stage, lock)
        await release(stage, lock)

    assert rival.acquire(LIMIT)
    assert not await stage.call(lock.try_acquire)
    waiting = stage.start(wait())
    await stage.until(lambda: stage.watches)
    rival.release()
    await waiting.result()


async def late_lock(stage: Stage, title: str) -> None:
    """Another client has it, and goes on having it when the time is over."""
    lock, rival = own_lock(title, stage), rival_of(title, stage)
    assert rival.acquire(LIMIT)
    assert not await stage.call(lock.acquire, A_WHILE)
    await stage.until(lambda: not stage.ephemerals, "it has left")
    rival.release()


async def deleted_lock(stage: Stage, title: str) -> None:
    """An outsider deletes the node of the holder, which notices."""
    lock = await watched_lock(stage, title)
    for node in stage.ephemerals:
        stage.other.delete(node)
    await stage.until(lambda: not lock.held)
    with suppress(LockLostError):
        await stage.call(lock.release, again=False)


for _title in LOCKS:
    LIVES[_title] = partial(free_lock, title=_title)
    LIVES[f"{_title}, `with`"] = partial(entered_lock, title=_title)
    if _title != "NonBlockingLock":
        LIVES[f"{_title}, contended"] = partial(contended_lock, title=_title)
        LIVES[f"{_title}, not in time"] = partial(late_lock, title=_title)
for _title in ("BlockingLock", "SequentialLock"):
    LIVES[f"{_title}, node deleted"] = partial(deleted_lock, title=_title)


def note_own_refusal(stage: Stage, error: MultiError) -> None:
    """It is of the caller's own operations, as of a multi."""
    assert getattr(error.__cause__, "code", 0) == stage.code
    stage.note("MultiError, as of a `multi`")


@of(LIVES, "guard")
async def guarded_write(stage: Stage) -> None:
    stage.other.create(stage.path)
    lock = make(stage, "SequentialLock", f"{stage.path}/lock")

    def write() -> Any:
        return lock.guard([SetData(stage.path, b"mine")])

    async def write_async() -> None:
        await write()

    await acquire(stage, lock)
    try:
        await stage.call(write_async if stage.asynchronous else write)
        assert stage.other.get_data(stage.path).data == b"mine"
    except MultiError as error:
        note_own_refusal(stage, error)
    except LockLostError:
        assert lost(stage, lock)
    await release(stage, lock)


@of(LIVES, "contenders")
async def look_at_contenders(stage: Stage) -> None:
    rival = SequentialLock(stage.other, stage.path, "other")
    lock = make(stage, "SequentialLock", stage.path)
    assert rival.acquire(LIMIT)
    (contender,) = await stage.call(lock.contenders)
    assert contender.text in ("other", None)  # None: it may not be read
    rival.release()


# --- classic --------------------------------------------------------------------------------------


@of(LIVES, "Counter")
async def counter(stage: Stage) -> None:
    path = f"{stage.path}/jobs/number"
    own, other = make(stage, "Counter", path), Counter(stage.other, path)
    await stage.call(own.set, 5)
    assert stage.raised is None or not stage.raised.maybe_applied
    assert await stage.call(own.add, 2) == 7
    assert other.add(10) == 17
    assert await stage.call(own.add, 1) == 18
    assert not await stage.call(own.compare_and_set, 17, 1)
    assert await stage.call(own.compare_and_set, 18, 20)
    assert await stage.call(own.get) == other.get() == 20


def children(client: Client, path: str) -> list[str]:
    with suppress(NoNodeError):
        return client.get_children(path)
    return []


@of(LIVES, "Barrier")
async def barrier(stage: Stage) -> None:
    path = f"{stage.path}/b"
    own, other = make(stage, "Barrier", path), Barrier(stage.other, path)
    await stage.call(own.close)
    if stage.other.exists(path) is None:  # another client has opened it since
        assert stage.code == NodeExistsError.code
        await stage.call(own.close)
    assert not await stage.call(own.wait, 0)
    waiting = stage.start(stage.call(own.wait, LIMIT))
    await stage.until(lambda: stage.watches)
    other.open()
    assert await waiting.result()
    await stage.call(own.close)
    await stage.call(own.open)
    assert stage.other.exists(path) is None


@of(LIVES, "DoubleBarrier")
async def double_barrier(stage: Stage) -> None:
    def rival() -> DoubleBarrier:
        return DoubleBarrier(stage.other, stage.path, 2)

    async def leave() -> None:
        await stage.call(own.leave, LIMIT, again=False)

    own, first = make(stage, "DoubleBarrier", stage.path, 2), rival()
    entering = Running(lambda: first.enter(LIMIT))
    await stage.until(lambda: f"{stage.path}/ready" in others_watches(stage), "it waits there")
    if await stage.call(own.enter, LIMIT, again=False):
        leaving = stage.start(leave())
        await stage.until(lambda: not stage.ephemerals, "it waits for the other, or was refused")
    else:  # and is no member: the round waits for another
        last = rival()
        leaving = stage.start(in_thread(stage, lambda: last.enter(LIMIT) and last.leave(LIMIT)))
    await stage.until(lambda: entering.ended)
    assert entering.result()
    await in_thread(stage, lambda: first.leave(LIMIT))
    await leaving.result()


def others_watches(stage: Stage) -> list[str]:
    server, session = stage._server, stage.other.session_id
    return server.inspect(lambda: server.watches(session))


async def in_thread(stage: Stage, function: Callable[[], Any]) -> None:
    """What another client does, in a thread: it is true."""
    running = Running(function)
    await stage.until(lambda: running.ended)
    assert running.result()


@of(LIVES, "OncePer")
async def once_per(stage: Stage) -> None:
    path = f"{stage.path}/job"
    own, other = make(stage, "OncePer", path, HOUR), OncePer(stage.other, path, HOUR)
    assert await stage.call(own.claim)
    assert not await stage.call(own.claim)
    assert not other.claim()
    await stage.call(own.give_back, again=False)
    await stage.until(other.claim, "it is given back")


# --- queue ----------------------------------------------------------------------------------------


def items_left(stage: Stage, folder: str = "/entries") -> list[bytes]:
    """The items in the queue, in order."""
    names, read = children(stage.other, stage.path + folder), stage.other.pipeline.get_data
    items = sorted(name for name in names if name.startswith("entry-"))
    replies = [read(f"{stage.path}{folder}/{name}") for name in items]
    return [reply.result(LIMIT).data for reply in replies]


async def put_and_get(stage: Stage, flat: bool) -> None:
    own = make(stage, "Queue", stage.path, flat=flat)
    other = Queue(stage.other, stage.path, flat=flat)
    await stage.call(own.put, b"a")
    await stage.call(own.put, b"b")
    assert (await stage.call(own.peek)).data == b"a"
    got = (await stage.call(own.get)).data
    assert got == b"a" or stage.code == NodeExistsError.code  # which says: another has claimed it
    left = items_left(stage, "" if flat else "/entries")
    assert [got, *left] in ([b"a", b"b"], [b"b", b"a"])
    other.get(0)
    with suppress(QueueEmptyError):
        await stage.call(own.get, 0)
        raise AssertionError("there is nothing to get")


LIVES["Queue: put, get"] = partial(put_and_get, flat=False)
LIVES["Queue, flat: put, get"] = partial(put_and_get, flat=True)


@of(LIVES, "Queue.put_many")
async def put_many(stage: Stage) -> None:
    own = make(stage, "Queue", stage.path, max_items=500)
    items = [b"%d" % number for number in range(150)]
    await stage.call(own.put_many, items, again=False)
    if stage.raised is not None:
        done = items_left(stage)
        assert done == items[: len(done)]
        assert bool(done) == stage.raised.maybe_applied
        await stage.call(own.put_many, items[len(done) :])
    assert items_left(stage) == items


@of(LIVES, "Queue.get, waiting")
async def get_waiting(stage: Stage) -> None:
    own, other = make(stage, "Queue", stage.path), Queue(stage.other, stage.path)
    waiting = stage.start(stage.call(own.get, LIMIT))
    await stage.until(lambda: [path for path in stage.watches if path.endswith("/entries")])
    other.put(b"a")
    assert (await waiting.result()).data == b"a"
    assert items_left(stage) == []


@of(LIVES, "Queue.take")
async def take(stage: Stage) -> None:
    own, other = make(stage, "Queue", stage.path), Queue(stage.other, stage.path)
    other.put_many([b"a", b"b"])
    done: list[bytes] = []
    await stage.within(lambda: own.take(LIMIT), lambda item: done.append(item.data))
    assert done[-1] == b"a" or stage.code == NodeExistsError.code
    assert sorted([done[-1], *items_left(stage)]) == [b"a", b"b"]


@of(LIVES, "Queue.take, block fails")
async def take_failing(stage: Stage) -> None:
    own, other = make(stage, "Queue", stage.path), Queue(stage.other, stage.path)
    other.put_many([b"a", b"b"])

    def fail(item: Any) -> None:
        raise ZeroDivisionError

    with suppress(ZeroDivisionError):
        await stage.within(lambda: own.take(LIMIT), fail)
    await stage.until(lambda: not children(stage.other, f"{stage.path}/taken"), "given back")
    assert [other.get(0).data for _ in range(2)] == [b"a", b"b"]


# --- services -------------------------------------------------------------------------------------


def data_of(client: Client, path: str) -> bytes | None:
    with suppress(NoNodeError):
        return client.get_data(path).data
    return None


def delete(client: Client, path: str) -> None:
    with suppress(NoNodeError):
        client.delete(path)


async def kept_node(stage: Stage, ephemeral: bool = True, expires: bool = False) -> None:
    """It is put back when it is deleted, or when the session has expired."""
    path = f"{stage.path}/db" if expires else f"{stage.path}/services/db"
    node = make(stage, "PersistentNode", path, b"a", ephemeral=ephemeral)
    assert await stage.ask(node.wait_present, LIMIT)
    if expires:
        stage.expire()
        await stage.until(lambda: stage.sessions > 1 and data_of(stage.other, path) == b"a", "back")
    else:
        await stage.ask(node.set_data, b"b", LIMIT)
        assert data_of(stage.other, path) == b"b"
        delete(stage.other, path)
        await stage.until(lambda: data_of(stage.other, path) == b"b", "put back")
    await stage.ask(node.close)
    await stage.until(lambda: data_of(stage.other, path) is None, "closed")


LIVES["PersistentNode"] = kept_node
LIVES["PersistentNode, ephemeral=False"] = partial(kept_node, ephemeral=False)
SUPERVISED["PersistentNode, next session"] = partial(kept_node, expires=True)


@of(LIVES, "Group")
async def group(stage: Stage) -> None:
    own = make(stage, "Group", stage.path)
    membership = await stage.ask(own.join, b"me", "one", LIMIT)
    stage.other.create(f"{stage.path}/two", b"other", ephemeral=True)
    await has_members(stage, own, ["one", "two"])
    delete(stage.other, f"{stage.path}/two")
    await has_members(stage, own, ["one"])
    await stage.ask(membership.close)
    await has_members(stage, own, [])
    await stage.ask(own.close)


async def has_members(stage: Stage, group: Any, names: list[str]) -> None:
    seen = await stage.ask(group.members, LIMIT)
    if len(seen) < len(names):  # the data of a member were refused: it is read again
        assert await stage.ask(group.wait_for, len(names), LIMIT)
        seen = await stage.ask(group.members, LIMIT)
    assert sorted(member.name for member in seen) == names


async def cache(stage: Stage, expires: bool = False) -> None:
    stage.other.create(stage.path, b"a")
    own = make(stage, "Cache", stage.path)
    assert await stage.ask(own.wait_ready, LIMIT)
    assert own.get(stage.path).data == b"a"
    if expires:
        stage.expire()
    else:
        stage.other.create(f"{stage.path}/child", b"c")
        await stage.until(lambda: f"{stage.path}/child" in own, "it is seen")
    stage.other.set_data(stage.path, b"b")
    await stage.until(lambda: own.get(stage.path).data == b"b", "the data are seen")
    await stage.ask(own.close)


LIVES["Cache"] = cache
SUPERVISED["Cache, next session"] = partial(cache, expires=True)


@of(LIVES, "watch_data")
async def watch_data(stage: Stage) -> None:
    stage.other.create(stage.path, b"a")
    seen = stage.client.watch_data(stage.path)
    assert (await stage.ask(seen.next, LIMIT)).data == b"a"
    stage.other.set_data(stage.path, b"b")
    assert (await stage.ask(seen.next, LIMIT)).data == b"b"
    stage.other.delete(stage.path)
    assert (await stage.ask(seen.next, LIMIT)).data is None
    await stage.ask(seen.close)


@of(LIVES, "watch_children")
async def watch_children(stage: Stage) -> None:
    stage.other.create(stage.path)
    seen = stage.client.watch_children(stage.path)
    assert (await stage.ask(seen.next, LIMIT)).children == []
    stage.other.create(f"{stage.path}/a")
    assert (await stage.ask(seen.next, LIMIT)).children == ["a"]
    await stage.ask(seen.close)


@of(LIVES, "Partitioner")
async def partitioner(stage: Stage) -> None:
    own = make(stage, "Partitioner", stage.path, ["x", "y"], name="one")

    async def shares(items: list[str]) -> Any:
        while sorted(share := await stage.ask(own.next, LIMIT)) != items:
            pass
        return share

    share = await shares(["x", "y"])
    assert min(share[item] for item in "xy") > 0
    await stage.ask(own.close)
    await stage.until(lambda: not stage.ephemerals, "closed")


# --- those of which a sample says enough ----------------------------------------------------------


async def sampled(stage: Stage, name: str) -> None:
    """It is made, called once, and ended if it is a service."""
    recipe = made(name, stage.client, f"{stage.path}/a")
    if is_service(recipe):
        assert await stage.ask(called, name, recipe) is not False
        await stage.ask(recipe.close)
    else:
        assert await stage.call(called, name, recipe) is not False


_SHOWN = {re.split(r"\W", title)[0] for title in LIVES} | BEGUN_BY_A_METHOD
LIVES |= {name: partial(sampled, name=name) for name in RECIPES if name not in _SHOWN}


# --- services that outlive a session --------------------------------------------------------------


@of(SUPERVISED, "Supervisor.lead")
async def lead(stage: Stage) -> None:
    terms: list[int] = []

    def work(lock: Any) -> None:
        terms.append(lock.fence)
        lock.lost.wait()

    async def work_async(lock: Any) -> None:
        terms.append(lock.fence)
        await asyncio.Event().wait()

    stage.client.lead(stage.path, work_async if stage.asynchronous else work)
    await stage.until(lambda: terms, "the first term")
    stage.expire()
    await stage.until(lambda: len(terms) > 1, "the second term")


CELLS: list[tuple[str, Life, type[Any]]] = [
    (title, life, kind)
    for lives, kinds in (
        (LIVES, (Client, AsyncClient)),
        (SUPERVISED, (Supervisor, AsyncSupervisor)),
    )
    for title, life in lives.items()
    for kind in kinds
]
"""Every life with every client."""
