"""The queue on a server: its calls, for threads and asyncio; see also test_kazoo_neighbours."""

from __future__ import annotations

import asyncio
import pickle
import re
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import zkwire.recipes.queue
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT, Running, Stage, requests
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    AsyncQueue,
    Client,
    LockLostError,
    Queue,
    QueueEmptyError,
    QueueFullError,
    SequenceExhaustedError,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.net.driver import Driver
from zkwire.recipes._recipe import LockInUseError
from zkwire.recipes.queue import most_bytes
from zkwire.wire.paths import LAST_SEQUENCE

# ruff: noqa: PT012 - how a block ends is what some of these tests are about

pytestmark = pytest.mark.real

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "queue.md"

MOST_BYTES = most_bytes(SEND_LIMIT)

layouts = pytest.mark.parametrize("flat", [False, True], ids=["entries", "flat"])


@pytest.fixture
def queue(observer: Client, fresh_path: str) -> Queue:
    return Queue(observer, fresh_path)


@layouts
def test_items_come_by_priority_and_within_one_in_order(
    observer: Client, fresh_path: str, flat: bool
) -> None:
    queue = Queue(observer, fresh_path, flat=flat)
    assert queue
    assert (len(queue), queue.peek(), queue.path) == (0, None, fresh_path)
    zxids = [queue.put(b"b"), *queue.put_many([b"c", b"d"]), queue.put(b"a", 99)]
    assert zxids == sorted(zxids)
    assert queue.size() == 4
    seen = queue.peek()
    first = queue.get()
    assert seen == first
    assert (first.data, first.priority, first.zxid, first.deliveries) == (b"a", 99, zxids[-1], 0)
    assert [queue.get(0).data for _ in range(3)] == [b"b", b"c", b"d"]
    with pytest.raises(QueueEmptyError):
        queue.get(0)


def test_the_iterator_yields_items_as_they_come(queue: Queue) -> None:
    items = iter(queue)
    queue.put_many([b"a", b"b"])
    assert [next(items).data, next(items).data] == [b"a", b"b"]
    waiting = Running(lambda: next(items))
    queue.put(b"c")
    assert waiting.result().data == b"c"


def test_limits_are_refused_before_anything_is_put(observer: Client, fresh_path: str) -> None:
    queue = Queue(observer, fresh_path, max_items=2)
    queue.put(b"a")
    with pytest.raises(QueueFullError, match="has 1 of 2 items and cannot take 2 more"):
        queue.put_many([b"b", b"c"])
    queue.put(bytes(MOST_BYTES))
    for wrong, error in ((b"x" * (MOST_BYTES + 1), ValueError), ("text", TypeError)):
        with pytest.raises(error):
            queue.put(wrong)  # type: ignore[arg-type]
    for priority, kind in (
        (1000, ValueError),
        (-1, ValueError),
        (True, TypeError),
        ("1", TypeError),
    ):
        with pytest.raises(kind, match="priority"):
            queue.put(b"", priority)  # type: ignore[arg-type]
    assert len(queue) == 2
    assert len(queue.get().data + queue.get().data) == MOST_BYTES + 1
    with pytest.raises(ValueError, match="max_items"):
        Queue(observer, fresh_path, max_items=0)
    with pytest.raises(ValueError, match="root"):
        Queue(observer, "/")


def test_many_large_items_go_in_several_requests(queue: Queue) -> None:
    zxids = queue.put_many([bytes(100_000)] * 5)
    assert len(set(zxids)) == 3
    assert queue.put_many([]) == []
    for one in (b"abc", "abc"):
        with pytest.raises(TypeError, match="list of items: put\\(\\) takes a single one"):
            queue.put_many(one)  # type: ignore[arg-type]
    assert len(queue) == 5


def test_a_queue_at_the_end_of_its_numbers_says_so(
    queue: Queue, observer: Client, fresh_path: str
) -> None:
    entries = f"{fresh_path}/entries"
    queue.put(b"")
    queue._algorithm._number = LAST_SEQUENCE
    with pytest.raises(SequenceExhaustedError, match=f"delete {entries}, make a new Queue"):
        queue.put(b"")
    assert queue.get(PATIENCE).data == b""
    observer.delete(entries)
    assert Queue(observer, fresh_path).put(b"")


def test_a_taking_is_for_one_block(queue: Queue) -> None:
    queue.put_many([b"a", b"b"])
    taking = queue.take()
    with taking, pytest.raises(LockInUseError):
        taking.__enter__()
    with pytest.raises(LockInUseError), taking:
        pass


# --- a claim that is lost -------------------------------------------------------------------------


def test_an_expired_consumer_removes_nothing(stage: Stage, fresh_path: str) -> None:
    """And another has the item by then."""
    other = Queue(stage.observer, fresh_path)
    other.put(b"a")
    client = stage.client()
    with pytest.raises(LockLostError, match="expired"), Queue(client, fresh_path).take():
        stage.expire(client)
        again = other.take(GRACE)
        item = again.__enter__()
    assert item.deliveries == 2
    again.__exit__(None, None, None)
    assert len(other) == 0


def test_an_item_is_given_back_if_the_lease_is_over_before_the_work_begins(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause, of which this session knows nothing; it may live."""
    queue.put(b"a")
    taking = queue.take()
    with monkeypatch.context() as patched:
        patched.setattr(Driver, "lease_deadline", 0.0)
        with pytest.raises(LockLostError, match="in the moment it was claimed"), taking:
            raise AssertionError("the work begins")
    with taking as item:  # it may be used again, and the next loss is told
        assert item.deliveries == 2
        assert item.lost is not None
        assert not item.lost.ready
    assert len(queue) == 0


def test_the_loss_of_a_claim_is_told_while_the_work_goes_on(stage: Stage, fresh_path: str) -> None:
    """Not its end, and not to a copy in another process."""
    client, told = stage.client(), threading.Event()
    queue = Queue(client, fresh_path)
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


def test_a_consumer_that_dies_gives_its_item_back(
    stage: Stage, zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    other = Queue(stage.observer, fresh_path)
    other.put(b"a")
    client = stage.client(timeout=SHORT)
    taking = Queue(client, fresh_path).take()
    taking.__enter__()
    waiting = Running(lambda: other.get(PATIENCE))
    client.close()
    assert waiting.result().deliveries == 1


# --- requests, with four consumers ----------------------------------------------------------------


@pytest.mark.parametrize(("how", "most"), [("get", 4), ("take", 5)])
def test_four_consumers_do_not_disturb_each_other(
    stage: Stage,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    most: int,
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
                    done[queue.get(0).name] += 1
                else:
                    with queue.take(0) as item:
                        pass
                    done[item.name] += 1

    for call in [Running(partial(consume, queue)) for queue in queues]:
        call.result()
    each = len(requests(stage.proxy.frames())) / number
    with capsys.disabled():
        print(f"\n{how}: {each:.2f} requests for an item, with four consumers")
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


@pytest.mark.since("3.5")
async def test_a_cancelled_consumer_leaves_nothing(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        queue = AsyncQueue(client, fresh_path)
        waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
        while len(await client.get_children("/")) and not await queue._runtime.operations.exists(
            f"{fresh_path}/waiting"
        ):
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await queue.put(b"a")
        async with queue.take():
            assert await client.get_children(f"{fresh_path}/waiting") == []


# --- the document ---------------------------------------------------------------------------------


def test_the_example_of_the_document_runs(
    observer: Client, stage: Stage, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    observer.create(fresh_path)
    exec(block.replace("127.0.0.1:2181", stage.hosts + fresh_path), {})
    assert capsys.readouterr().out.splitlines() == [
        "working on b'urgent'",
        "removed b'resize image 7' and 2 are left",
    ]
