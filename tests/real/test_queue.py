"""The queue on a server: its calls, for threads and asyncio; see also test_kazoo_neighbours."""

from __future__ import annotations

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
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    AsyncQueue,
    Client,
    LockLostError,
    NodeExistsError,
    Queue,
    QueueEmptyError,
    QueueFullError,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.net.driver import Driver
from zkwire.recipes._recipe import LockInUseError
from zkwire.recipes.queue import MOST_MISSING, most_bytes
from zkwire.testing.proxy import cut_after

# ruff: noqa: PT012 - how a block ends is what some of these tests are about

MOST_BYTES = most_bytes(SEND_LIMIT)
COPIED = 700  # more than one request uses up


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


def test_what_is_put_into_a_copied_queue_comes_behind_its_items(
    stage: Stage, observer: Client, fresh_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    items = f"{fresh_path}/entries"
    observer.ensure_path(items)
    for number in (2, COPIED):  # the counter stands at 2
        observer.create(f"{items}/entry-100-{number:010}", b"copied")
    queue = Queue(stage.client(), fresh_path)
    stage.proxy.on("multi", action=cut_after, nth=2)  # of those that use numbers up the first
    queue.put(b"new")
    assert max(observer.get_children(items)) == f"entry-100-{COPIED + 1:010}"
    assert [queue.get().data for _ in range(3)] == [b"copied", b"copied", b"new"]
    assert stage.proxy.unfired == []
    assert f"behind a name that is there already, with the number {COPIED}" in caplog.text
    far = MOST_MISSING + 2 * COPIED
    for number in (COPIED + 4, far):  # where the counter stands then
        observer.create(f"{items}/entry-100-{number:010}", b"copied")
    with pytest.raises(NodeExistsError, match="numbers are missing"):
        queue.put(b"no")
    assert len(queue) == 2


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


async def test_a_claim_whose_lease_is_over_is_lost_in_that_moment(
    zookeeper: ZooKeeperServer, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        queue = AsyncQueue(client, fresh_path)
        await queue.put(b"a")
        with monkeypatch.context() as patched:
            patched.setattr(Driver, "lease_deadline", 0.0)
            with pytest.raises(LockLostError, match="in the moment it was claimed"):
                await queue.take().__aenter__()
        assert (await queue.get()).deliveries == 1
        assert fresh_path in repr(queue)
