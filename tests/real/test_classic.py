"""Counters, barriers, what is due once per period, and watches forever, on a server."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Running,
    Stage,
    requests,
    timed,
    watch_table_size,
)
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    Barrier,
    Client,
    ClientClosedError,
    Counter,
    DoubleBarrier,
    NoChildrenForEphemeralsError,
    OncePer,
    OperationTimeoutError,
    SeenData,
)
from zkwire.recipes._node import KEPT
from zkwire.testing.proxy import black_hole, cut_before

# --- counters -------------------------------------------------------------------------------------

MANY = 2**100
WIDTHS: dict[Any, tuple[int, bytes]] = {
    "int32": (2**31 - 1, b"\x7f\xff\xff\xff"),
    "int64": (2**63 - 1, b"\x7f" + b"\xff" * 7),
}


def test_a_counter_counts(observer: Client, fresh_path: str) -> None:
    counter = Counter(observer, f"{fresh_path}/deep/down")
    with pytest.raises(RuntimeError, match="neither been read nor changed"):
        print(counter.version)
    assert counter.get() == 0
    assert counter.add(MANY) == MANY
    first = counter.version
    counter.set(-5)
    assert counter.version > first
    assert counter.add(-1) == counter.get() == -6
    assert not counter.compare_and_set(5, 1)
    assert counter.compare_and_set(-6, 1)
    assert counter.add() == 2
    data, stat = observer.get_data(counter.path)
    assert (data, stat.mzxid) == (b"2", counter.version)
    for format, (most, data) in WIDTHS.items():
        wide = Counter(observer, f"{fresh_path}/{format}", format=format)
        wide.set(most)
        assert observer.get_data(wide.path).data == data
        for change in (lambda: wide.add(1), lambda: wide.set(-most - 2)):  # noqa: B023
            with pytest.raises(OverflowError, match=f"does not fit into {format}"):
                change()
        assert wide.get() == most
        with pytest.raises(ValueError, match="no number of the format text"):
            Counter(observer, wide.path).get()


def test_what_is_no_number(observer: Client, fresh_path: str) -> None:
    observer.create(fresh_path, b"12 apples")
    formats: tuple[Any, ...] = ("text", "int32")
    for format in formats:
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


def test_marks_do_not_pile_up(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    def marks(*paths: str) -> int:
        names = [name for path in paths for name in observer.get_children(path)]
        return sum(name.endswith("-mark") for name in names)

    others = [f"{fresh_path}/{number}" for number in range(2 * KEPT)]
    with Client(zookeeper.hosts) as client:
        for path in (*[fresh_path] * 20, *others):
            Counter(client, path).add(1)
            assert marks(fresh_path) == 1 or path is not fresh_path
        poll("few marks are left", lambda: marks(*others) <= KEPT or None, GRACE)
    assert marks(fresh_path, *others) == 0


# --- barriers -------------------------------------------------------------------------------------

LIMIT = 0.3


def nothing_left(client: Client, path: str) -> None:
    soon("nothing is left", lambda: client.get_children(path) == [])


def test_a_wait_without_a_server(stage: Stage, fresh_path: str) -> None:
    barrier = Barrier(stage.client(), fresh_path)
    stage.proxy.refuse()
    stage.proxy.cut_all()
    passed, seconds = timed(lambda: barrier.wait(LIMIT))
    assert not passed
    assert LIMIT <= seconds < GRACE
    stage.proxy.refuse(False)
    stage.proxy.on("get_data", action=cut_before)
    assert barrier.wait(PATIENCE)


def test_arguments_and_misuse(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    counts: tuple[Any, ...] = (0, True, 1.5)
    for count in counts:
        with pytest.raises(ValueError, match="at least one member"):
            DoubleBarrier(observer, fresh_path, count)
    with pytest.raises(ValueError, match="the root"):
        Barrier(observer, "/")
    member = DoubleBarrier(observer, fresh_path, 1, "one")
    with pytest.raises(RuntimeError, match="not inside"):
        member.leave()
    assert member.enter()
    (name,) = [name for name in observer.get_children(fresh_path) if name != "ready"]
    assert observer.get_data(f"{fresh_path}/{name}").data == b"one"
    with pytest.raises(RuntimeError, match="inside already"), member:
        pass
    assert member.leave()
    with member:
        pass
    with pytest.raises(ZeroDivisionError), member:
        print(1 / 0)
    nothing_left(observer, fresh_path)
    alone = DoubleBarrier(observer, fresh_path, 2)
    entering = Running(alone.enter)
    soon("it waits", lambda: observer.get_children(fresh_path))
    with pytest.raises(RuntimeError, match="another thread"):
        alone.enter()
    assert DoubleBarrier(observer, fresh_path, 2).enter()
    assert entering.result()
    with Client(zookeeper.hosts) as client:
        ended = DoubleBarrier(client, fresh_path, 1)
    with pytest.raises(ClientClosedError), ended:
        pass


def test_nodes_that_an_outsider_deletes(observer: Client, fresh_path: str) -> None:
    """A member that waits stands anew; one that leaves has left."""
    observer.create(fresh_path)
    observer.create(f"{fresh_path}/ready")  # of a dead round
    member, other = (DoubleBarrier(observer, fresh_path, 2) for _ in range(2))
    entering = Running(member.enter)
    soon("it waits", lambda: watch_table_size(observer) == 2)  # no longer looks
    (name,) = observer.get_children(fresh_path)
    observer.delete(f"{fresh_path}/{name}")
    soon("it is back", lambda: observer.get_children(fresh_path) == [name])
    assert other.enter()
    assert entering.result()
    observer.delete_tree(fresh_path)
    assert other.leave()
    assert member.leave()


# --- once per period ------------------------------------------------------------------------------

HOUR = timedelta(hours=1)
WRONG: list[tuple[Any, type[Exception]]] = [
    (0, ValueError), (float("nan"), ValueError), (1e308, ValueError), (True, TypeError),
    ("1h", TypeError),
]  # fmt: skip


def test_it_is_given_back(observer: Client, fresh_path: str) -> None:
    one, other = (OncePer(observer, fresh_path, HOUR) for _ in range(2))
    with pytest.raises(RuntimeError, match="nothing was claimed"):
        one.give_back()
    assert one.claim()
    one.give_back()
    assert other.claim()
    other.give_back()
    assert one.claim()
    observer.set_data(fresh_path, b"by hand")
    one.give_back()  # another has it by now
    assert observer.get_data(fresh_path).data == b"by hand"
    assert not other.claim()
    observer.delete(fresh_path)
    assert other.claim()
    observer.delete(fresh_path)
    other.give_back()


def test_what_is_no_period_is_refused(observer: Client, fresh_path: str) -> None:
    for wrong, error in WRONG:
        with pytest.raises(error, match="period must be"):
            OncePer(observer, fresh_path, wrong)
    observer.create(fresh_path, b"claimed", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        OncePer(observer, fresh_path, HOUR).claim()


@pytest.mark.parametrize("op", ["get_data", "create", "set_data"])
def test_a_call_that_is_late_leaves_nothing(stage: Stage, fresh_path: str, op: str) -> None:
    def free() -> bool | None:
        stat = stage.observer.exists(fresh_path)
        return stat is None or stat.data_length == 0 or None

    job = OncePer(stage.client(), fresh_path, HOUR)
    if op == "set_data":
        assert job.claim()
    stage.proxy.on(op, action=black_hole)
    with pytest.raises(OperationTimeoutError) as caught:
        job.give_back(0.2) if op == "set_data" else job.claim(0.2)
    assert not caught.value.maybe_applied or op == "set_data"
    stage.heal()
    stage.proxy.cut_all()
    poll("it is free", free, GRACE)
    assert job.claim()


# --- a node's states forever ----------------------------------------------------------------------


def test_what_is_refused_at_once_leaves_nothing(stage: Stage, fresh_path: str) -> None:
    client = stage.client()

    async def later(_: SeenData) -> None: ...

    class Later:
        async def __call__(self, _: SeenData) -> None: ...

    for wrong, path, error in (
        (later, fresh_path, TypeError),
        (partial(later), fresh_path, TypeError),
        (Later(), fresh_path, TypeError),
        ("later", fresh_path, TypeError),
        (None, fresh_path[1:], ValueError),
    ):
        with pytest.raises(error):
            client.watch_data(path, wrong)  # type: ignore[arg-type]
    watch = client.watch_data(fresh_path)
    for limit, error in ((-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="timeout"):
            watch.next(limit)  # type: ignore[arg-type]
    assert not client._driver.services
    assert not [frame for frame in requests(stage.proxy.frames()) if frame.path == fresh_path]


def test_a_second_reader_is_refused(stage: Stage, fresh_path: str) -> None:
    watch = stage.client().watch_data(fresh_path)
    states = iter(watch)
    next(states)
    waiting = Running(lambda: next(states))
    while not watch._algorithm._wanted:
        pass
    with pytest.raises(RuntimeError, match="one reader"):
        next(iter(watch))
    stage.observer.create(fresh_path, b"0")
    assert waiting.result().data == b"0"
    watch.close()
