"""Counters on a server: exact whatever happens, and nothing piles up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE, Stage
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import sweep
from zkwire import Client, Counter, NoChildrenForEphemeralsError
from zkwire.recipes._node import KEPT

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


def test_every_cut_at_every_request_of_a_counter(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    def life(stage: Stage, client: Client, path: str) -> None:
        counter = Counter(client, path)
        assert [counter.add(number, PATIENCE) for number in (1, 10, 100)] == [1, 11, 111]
        assert stage.observer.get_data(path).stat.mzxid == counter.version
        stage.observer.set_data(path, b"7")
        assert counter.add(1, PATIENCE) == 8
        counter._algorithm._contention.crowded = True
        assert counter.add(1, PATIENCE) == 9
        assert counter.compare_and_set(9, 5, PATIENCE)
        left = stage.observer.get_children
        poll("only the mark is left", lambda: len(left(path)) == 1 or None, GRACE)
        data, stat = stage.observer.get_data(path)
        assert (data, stat.mzxid, stat.version) == (b"5", counter.version, 7)

    sweep(zookeeper, observer, fresh_path, life)
