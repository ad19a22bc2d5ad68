"""Counters on a server: exact whatever happens, and nothing piles up."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import sweep
from zkwire import (
    AsyncClient,
    AsyncCounter,
    Client,
    Counter,
    NoChildrenForEphemeralsError,
    NotEmptyError,
    OperationTimeoutError,
    OutcomeUnknownError,
    SequentialLock,
)
from zkwire.recipes._node import KEPT
from zkwire.recipes.counter import NumberFormat
from zkwire.testing.proxy import black_hole, cut_after

MANY = 2**100


def marks(client: Client, path: str) -> list[str]:
    return [name for name in client.get_children(path) if name.endswith("-mark")]


def test_a_counter_counts(observer: Client, fresh_path: str) -> None:
    counter = Counter(observer, f"{fresh_path}/deep/down")
    with pytest.raises(RuntimeError, match="neither been read nor changed"):
        print(counter.version)
    assert counter.get() == 0
    assert counter.add(MANY) == MANY
    assert counter.add() == MANY + 1
    first = counter.version
    counter.set(-5)
    assert counter.version > first
    assert counter.add(-1) == counter.get() == -6
    assert not counter.compare_and_set(5, 1)
    assert counter.compare_and_set(-6, 1)
    data, stat = observer.get_data(counter.path)
    assert (data, stat.mzxid) == (b"1", counter.version)
    assert observer.get_data(f"{fresh_path}/deep").stat.ephemeral_owner == 0


async def test_a_counter_counts_under_asyncio(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        counter = AsyncCounter(client, fresh_path, format="int64")
        assert await counter.add(3) == await counter.get() == 3
        assert not await counter.compare_and_set(1, 2)
        await counter.set(-1)
        assert (await client.get_data(fresh_path)).data == b"\xff" * 8
        assert counter.version == (await client.exists(fresh_path)).mzxid  # type: ignore[union-attr]
        await client.delete_tree(fresh_path)


def test_a_number_that_another_has_written_is_seen(observer: Client, fresh_path: str) -> None:
    """What an object remembers is worth nothing when the server has another number."""
    counter = Counter(observer, fresh_path)
    assert counter.add(1) == 1
    observer.set_data(fresh_path, b"7")
    assert not counter.compare_and_set(1, 2)
    assert counter.add(1) == 8
    with pytest.raises(NotEmptyError, match="Those of a counter are its clients' marks"):
        observer.delete(fresh_path)
    observer.delete_tree(fresh_path)
    observer.create(fresh_path, b"100")  # with a version that the object has seen
    assert counter.add(1) == 101


@pytest.mark.parametrize(
    ("format", "most", "data"),
    [("int32", 2**31 - 1, b"\x7f\xff\xff\xff"), ("int64", 2**63 - 1, b"\x7f" + b"\xff" * 7)],
)
def test_numbers_of_a_width(
    observer: Client, fresh_path: str, format: Any, most: int, data: bytes
) -> None:
    counter = Counter(observer, fresh_path, format=format)
    counter.set(most)
    assert observer.get_data(fresh_path).data == data
    for change in (lambda: counter.add(1), lambda: counter.set(-most - 2)):
        with pytest.raises(OverflowError, match=f"does not fit into {format}"):
            change()
    assert counter.get() == most
    with pytest.raises(ValueError, match="no number of the format text"):
        Counter(observer, fresh_path).get()


@pytest.mark.parametrize("data", ["5_0", " 5", "5\n", "+5", "--5", "-", "0x5", "\u0665", "\u00b2"])
def test_what_no_counter_writes_is_no_number(data: str) -> None:
    """int() takes the half of these."""
    with pytest.raises(ValueError, match="no number of the format text"):
        NumberFormat("text").decode(data.encode())


def test_what_is_no_number(observer: Client, fresh_path: str) -> None:
    observer.create(fresh_path, b"12 apples")
    for format in ("text", "int32"):
        with pytest.raises(ValueError, match=f"no number of the format {format}: b'12 apples'"):
            Counter(observer, fresh_path, format=format).add(1)
    for wrong in (True, 1.5, "1"):
        with pytest.raises(TypeError, match="takes an int"):
            Counter(observer, fresh_path).add(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="format must be one of"):
        Counter(observer, fresh_path, format="float")  # type: ignore[arg-type]
    observer.create(f"{fresh_path}-e", b"1", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        Counter(observer, f"{fresh_path}-e").add(1)
    assert observer.get_children(fresh_path) == []


def test_a_crowd(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    """Threads of one client and of others: each number once, no mark and no place is left over."""
    clients = [Client(zookeeper.hosts) for _ in range(4)]
    counters = [Counter(client, fresh_path) for client in clients for _ in range(2)]

    def add(counter: Counter) -> list[int]:
        return [counter.add(1, PATIENCE) for _ in range(15)]

    with ThreadPoolExecutor(len(counters)) as pool:
        numbers = sorted(itertools.chain(*pool.map(add, counters)))
    assert numbers == list(range(1, len(counters) * 15 + 1))
    names = clients[0].get_children(fresh_path)
    assert len(marks(clients[0], fresh_path)) <= len(counters)
    assert len({name[:16] for name in names}) == len(clients)
    for client in clients:
        client.close()


def test_marks_do_not_pile_up(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    with Client(zookeeper.hosts) as client, Client(zookeeper.hosts) as observer:
        for _ in range(20):
            Counter(client, fresh_path).add(1)
        assert len(marks(client, fresh_path)) == 1
        for number in range(2 * KEPT):
            Counter(client, f"{fresh_path}/{number}").add(1)

        def few() -> bool | None:
            paths = [f"{fresh_path}/{number}" for number in range(2 * KEPT)]
            left = sum(len(marks(observer, path)) for path in paths)
            return left <= KEPT or None

        poll("few marks are left", few, GRACE)
        client.close()
        assert marks(observer, fresh_path) == []


def test_a_call_in_doubt_says_so(stage: Stage, fresh_path: str) -> None:
    """And its mark does not stay: the next one begins anew, and finds what became of it."""
    client = stage.client()
    counter = Counter(client, fresh_path)
    assert counter.add(1) == 1
    stage.proxy.on("multi", action=black_hole)
    begun = time.monotonic()
    with pytest.raises(OperationTimeoutError) as caught:
        counter.add(1, 0.3)
    assert caught.value.maybe_applied
    assert time.monotonic() - begun < GRACE
    stage.heal()
    stage.proxy.cut_all()
    assert counter.add(10) in (11, 12)
    poll("one mark", lambda: len(marks(stage.observer, fresh_path)) == 1 or None, GRACE)


def test_a_turn_that_does_not_come(stage: Stage, fresh_path: str) -> None:
    """The one whose turn it is may be cut off: nothing waits for it for long."""
    counter = Counter(stage.client(), fresh_path)
    counter.add(1)
    counter._algorithm._contention.crowded = True
    with SequentialLock(stage.observer, fresh_path):
        assert counter.add(1) == 2
    assert counter.add(1) == 3
    assert counter._algorithm._contention.crowded is False
    left = stage.observer.get_children
    poll("no place is left", lambda: len(left(fresh_path)) == 1 or None, GRACE)


def test_a_mark_that_an_outsider_deletes(stage: Stage, fresh_path: str) -> None:
    counter = Counter(stage.client(), fresh_path)
    for expected in (1, 2):
        assert counter.add(1) == expected
        (mark,) = marks(stage.observer, fresh_path)
        stage.observer.delete(f"{fresh_path}/{mark}")
    counter.add(1)
    (mark,) = marks(stage.observer, fresh_path)
    stage.proxy.on("multi", action=cut_after)
    stage.proxy.on("connect", action=cut_after)
    stage.proxy.refuse()
    adding = Running(lambda: counter.add(1))
    poll("it is made", lambda: stage.observer.get_data(fresh_path).data == b"4" or None, GRACE)
    stage.observer.delete(f"{fresh_path}/{mark}")
    stage.proxy.refuse(False)
    with pytest.raises(OutcomeUnknownError, match="its mark was deleted"):
        adding.result()
    assert counter.add(1) == 5


def test_every_cut_at_every_request_of_a_counter(
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def life(stage: Stage, client: Client, path: str) -> None:
        counter = Counter(client, path)
        assert [counter.add(number, PATIENCE) for number in (1, 10, 100)] == [1, 11, 111]
        first = counter.version
        assert stage.observer.exists(path).mzxid == first  # type: ignore[union-attr]
        stage.observer.set_data(path, b"7")
        assert counter.add(1, PATIENCE) == 8
        counter._algorithm._contention.crowded = True
        assert counter.add(1, PATIENCE) == 9
        assert counter.compare_and_set(9, 5, PATIENCE)
        left = stage.observer.get_children
        poll("only the mark is left", lambda: len(left(path)) == 1 or None, GRACE)
        data, stat = stage.observer.get_data(path)
        assert (data, stat.mzxid, stat.version) == (b"5", counter.version, 7)

    runs = sweep(zookeeper, observer, fresh_path, life)
    with capsys.disabled():
        print(f"\ncounter: {runs} runs, 0 wrong")
