"""The queue on a server: its calls, for threads and asyncio; see also test_kazoo_neighbours.

With every cut at each request of put, take and get: each item is put once and delivered once, and
no claim, no mark and no place in the line is left.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import zkwire.recipes.queue
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT, Running, Stage, requests
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import sweep
from zkwire import (
    AsyncClient,
    AsyncQueue,
    Client,
    LockLostError,
    NoNodeError,
    Queue,
    QueueEmptyError,
    QueueFullError,
    QueueItem,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.net.driver import Driver
from zkwire.recipes._recipe import LockInUseError
from zkwire.recipes.queue import most_bytes

# ruff: noqa: PT012 - how a block ends is what some of these tests are about

MOST_BYTES = most_bytes(SEND_LIMIT)


@pytest.fixture
def queue(observer: Client, fresh_path: str) -> Queue:
    return Queue(observer, fresh_path)


@pytest.mark.parametrize("flat", [False, True], ids=["entries", "flat"])
def test_items_come_by_priority_and_within_one_in_order(
    observer: Client, fresh_path: str, flat: bool
) -> None:
    queue = Queue(observer, fresh_path, flat=flat)
    assert queue
    assert (len(queue), queue.peek(), queue.path) == (0, None, fresh_path)
    zxids = [queue.put(b"b"), *queue.put_many([b"c", b"d"]), queue.put(b"a", 99)]
    assert zxids == sorted(zxids)
    assert queue.size() == 4
    seen, first = queue.peek(), queue.get()
    assert seen == first
    assert (first.data, first.priority, first.zxid, first.deliveries) == (b"a", 99, zxids[-1], 0)
    items = iter(queue)
    assert [next(items).data for _ in range(3)] == [b"b", b"c", b"d"]
    with pytest.raises(QueueEmptyError):
        queue.get(0)
    waiting = Running(lambda: next(items))
    queue.put(b"c")
    assert waiting.result().data == b"c"


def test_limits_are_refused_before_anything_is_put(observer: Client, fresh_path: str) -> None:
    queue = Queue(observer, fresh_path, max_items=2)
    queue.put(b"a")
    with pytest.raises(QueueFullError, match="has 1 of 2 items and cannot take 2 more"):
        queue.put_many([b"b", b"c"])
    queue.put(bytes(MOST_BYTES))
    any_queue: Any = queue
    refused: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: queue.put(b"x" * (MOST_BYTES + 1)), ValueError, "."),
        (lambda: any_queue.put("text"), TypeError, "."),
        (lambda: queue.put(b"", 1000), ValueError, "priority"),
        (lambda: queue.put(b"", -1), ValueError, "priority"),
        (lambda: queue.put(b"", True), TypeError, "priority"),
        (lambda: any_queue.put(b"", "1"), TypeError, "priority"),
        (lambda: Queue(observer, fresh_path, max_items=0), ValueError, "max_items"),
        (lambda: Queue(observer, "/"), ValueError, "root"),
        (
            lambda: any_queue.put_many(b"abc"),
            TypeError,
            r"list of items: put\(\) takes a single one",
        ),
        (lambda: any_queue.put_many("abc"), TypeError, "list of items"),
    ]
    for call, error, says in refused:
        with pytest.raises(error, match=says):
            call()
    assert len(queue) == 2
    assert len(queue.get().data + queue.get().data) == MOST_BYTES + 1
    large = Queue(observer, fresh_path)
    assert len(set(large.put_many([bytes(100_000)] * 5))) == 3, "in several requests"
    assert large.put_many([]) == []
    assert len(large) == 5


def test_a_taking_is_for_one_block(queue: Queue) -> None:
    queue.put_many([b"a", b"b"])
    taking = queue.take()
    with taking, pytest.raises(LockInUseError):
        taking.__enter__()
    with pytest.raises(LockInUseError), taking:
        pass


# --- a claim that is lost -------------------------------------------------------------------------


def test_the_loss_of_a_claim_is_told_while_the_work_goes_on(stage: Stage, fresh_path: str) -> None:
    """Not its end, and not to a copy in another process. A client that ends gives its item back."""
    client, told = stage.client(timeout=SHORT), threading.Event()
    queue, other = Queue(client, fresh_path), Queue(stage.observer, fresh_path)
    queue.put_many([b"a", b"b"])
    with queue.take() as item:
        ended = Running(lambda lost=item.lost: lost.wait(PATIENCE))  # type: ignore[misc]
        assert not item.lost.is_set()  # type: ignore[union-attr]
    assert ended.result(GRACE) is False
    with pytest.raises(LockLostError), queue.take() as item:
        assert item.lost is not None
        item.lost.add_callback(lambda _: told.set())
        stage.expire(client)
        assert item.lost.wait(PATIENCE)
        assert told.wait(PATIENCE)
    copied = pickle.loads(pickle.dumps(item))
    assert (copied[:-1], copied.lost) == (item[:-1], None)
    last = stage.client()
    Queue(last, fresh_path).take().__enter__()
    waiting = Running(lambda: other.get(PATIENCE))
    last.close()
    assert waiting.result().deliveries == 2


# --- requests, with four consumers ----------------------------------------------------------------


@pytest.mark.parametrize(("how", "most"), [("get", 4), ("take", 5)])
def test_four_consumers_do_not_disturb_each_other(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch, how: str, most: int
) -> None:
    """Alone, one gets an item with two requests, and takes it with three."""
    monkeypatch.setattr(zkwire.recipes.queue, "FRESH", PATIENCE)
    number = 400
    Queue(stage.observer, fresh_path).put_many([b"x"] * number)
    queues = [Queue(stage.client(), fresh_path) for _ in range(4)]
    stage.proxy.reset()
    done = Counter[str]()

    def consume(queue: Queue) -> None:
        with suppress(QueueEmptyError):
            while True:
                if how == "get":
                    item = queue.get(0)
                else:
                    with queue.take(0) as item:
                        pass
                done[item.name] += 1

    for call in [Running(partial(consume, queue)) for queue in queues]:
        call.result()
    each = len(requests(stage.proxy.frames())) / number
    print(f"{how}: {each:.2f} requests for an item, with four consumers")
    assert (len(done), set(done.values())) == (number, {1})
    assert each < most


# --- asyncio --------------------------------------------------------------------------------------


async def test_the_same_under_asyncio(
    zookeeper: ZooKeeperServer, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        queue = AsyncQueue(client, fresh_path)
        await asyncio.gather(queue.put(b"a"), queue.put_many([b"b", b"c"]), queue.put(b"first", 1))
        assert (await queue.get()).data == b"first"
        with pytest.raises(ZeroDivisionError):
            async with queue.take():
                raise ZeroDivisionError
        async with queue.take(1.0) as item:
            assert item.deliveries == 2
        async for _ in queue:
            if await queue.size() == 0:
                break
        await queue.put(b"again")
        with monkeypatch.context() as patched:
            patched.setattr(Driver, "lease_deadline", 0.0)
            with pytest.raises(LockLostError, match="in the moment it was claimed"):
                await queue.take().__aenter__()
        assert (await queue.get()).deliveries == 1
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        await queue.put(b"late")
        assert (await waiting).data == b"late"
        assert await queue.peek() is None
        assert fresh_path in repr(queue)


# --- every cut ------------------------------------------------------------------------------------


class Work:
    """A queue whose client is behind the proxy, and one of an observer."""

    def __init__(self, stage: Stage, client: Client, path: str, *, flat: bool) -> None:
        self.proxy = stage.proxy
        self.own = Queue(client, path, flat=flat)
        self.other = Queue(stage.observer, path, flat=flat)
        self._observer = stage.observer
        self._side = f"{path}-zkwire-queue" if flat else path

    def left(self) -> list[bytes]:
        """The items that are left, in order."""
        items: list[bytes] = []
        with suppress(QueueEmptyError):
            while True:
                items.append(self.other.get(0).data)
        return items

    def nodes(self) -> list[str]:
        found: list[str] = []
        for folder in ("taken", "marks", "waiting"):
            with suppress(NoNodeError):
                found += self._observer.get_children(f"{self._side}/{folder}")
        return found


def put(work: Work) -> None:
    """Put two items into a queue that nothing is known of."""
    first = Running(lambda: work.own.put(b"a")).result()
    second = Running(lambda: work.own.put(b"b")).result()
    assert 0 < first < second
    seen = work.other.peek()
    assert seen is not None
    assert (seen.data, seen.zxid) == (b"a", first)
    assert work.left() == [b"a", b"b"]


def put_many(work: Work) -> None:
    items = [b"%d" % number for number in range(150)]
    zxids = Running(lambda: work.own.put_many(items)).result()
    assert zxids == sorted(zxids)
    assert (len(set(zxids)), len(zxids)) == (2, len(items))
    assert work.left() == items


def put_taken(work: Work) -> None:
    """Put an item that a consumer removes at once, before any look for it."""
    work.other.put(b"first")
    work.other.get()
    delivered: list[QueueItem] = []
    consumer = Running(lambda: delivered.append(work.other.get(PATIENCE)))
    zxid = Running(lambda: work.own.put(b"a")).result()
    consumer.result()
    assert [(item.data, item.zxid) for item in delivered] == [(b"a", zxid)]
    assert work.left() == []


def get(work: Work) -> None:
    work.other.put_many([b"a", b"b", b"c"])
    assert [Running(work.own.get).result().data for _ in range(2)] == [b"a", b"b"]
    assert work.left() == [b"c"]


def get_flat(work: Work) -> None:
    """A removal without a claim."""
    get(work)


def get_waiting(work: Work) -> None:
    work.other.put(b"first")
    work.other.get()
    consumer = Running(lambda: work.own.get(PATIENCE))
    poll("it waits", lambda: len(requests(work.proxy.frames())) >= 4 or None, GRACE)
    work.other.put(b"a")
    assert consumer.result().data == b"a"
    assert work.left() == []


def get_nothing(work: Work) -> None:
    with pytest.raises(QueueEmptyError):
        Running(lambda: work.own.get(0)).result()


def take(work: Work) -> None:
    work.other.put_many([b"a", b"b", b"c"])

    def taken() -> list[bytes]:
        done: list[bytes] = []
        for _ in range(2):
            with work.own.take() as item:
                done.append(item.data)
        return done

    assert Running(taken).result() == [b"a", b"b"]
    assert work.left() == [b"c"]


def take_failing(work: Work) -> None:
    """The item is given back, and is the first one again."""
    work.other.put_many([b"a", b"b"])

    def failing() -> bytes:
        with suppress(ZeroDivisionError), work.own.take():
            raise ZeroDivisionError
        with work.own.take() as item:
            return item.data

    done = Running(failing).result()
    poll("no node is left", lambda: not work.nodes() or None, GRACE)
    assert sorted([done, *work.left()]) == [b"a", b"b"]


CYCLES = (put, put_many, put_taken, get, get_flat, get_waiting, get_nothing, take, take_failing)


@pytest.mark.parametrize("cycle", CYCLES, ids=lambda cycle: cycle.__name__)
def test_every_cut_and_every_pair_at_every_request(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str, cycle: Callable[[Work], None]
) -> None:
    def life(stage: Stage, client: Client, path: str) -> None:
        work = Work(stage, client, path, flat=cycle is get_flat)
        cycle(work)
        poll(f"no node is left: {work.nodes()}", lambda: not work.nodes() or None, GRACE)

    sweep(zookeeper, observer, fresh_path, life)
