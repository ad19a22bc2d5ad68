"""Partitioners, as both clients show them: who owns what, who is told, and what each end leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE, Running, Stage
from tests.support.server_control import poll
from zkwire import Client, ClientClosedError, LockLostError, NoNodeError, Partitioner, Share

ITEMS = ["a", "b", "c", "d", "e"]


def first(partitioner: Partitioner) -> Share:
    """The next share, which comes soon."""
    share = partitioner.next(PATIENCE)
    assert share is not None
    return share


def hand_over(partitioner: Partitioner, share: Share) -> Share:
    """The next share, as soon as this one has changed."""
    assert share.wait(PATIENCE)
    return first(partitioner)


def until(partitioner: Partitioner, share: Share, items: Iterable[str]) -> Share:
    """A share of these items; they may come one by one."""
    while set(share) != set(items):
        share = hand_over(partitioner, share)
    return share


def nodes(client: Client, path: str) -> list[str]:
    """The nodes of members and of locks; not the containers above them."""
    found = []
    for above in [f"{path}/members", *(f"{path}/items/{item}" for item in ITEMS)]:
        try:
            found += [f"{above}/{name}" for name in client.get_children(above)]
        except NoNodeError:
            continue
    return found


def test_one_member_has_everything(stage: Stage, fresh_path: str) -> None:
    client = stage.client()
    with Partitioner(client, fresh_path, reversed(ITEMS), name="me") as partitioner:
        share = first(partitioner)
        assert list(share) == ITEMS
        assert len(set(share.values())) == 5
        assert not share.changed
        assert not share.leaving | share.lost
        assert repr(share) == "<Share a, b, c, d, e>"
        assert (partitioner.state, partitioner.name) == ("acquired", "me")
        locks = {item: stage.observer.get_children(f"{fresh_path}/items/{item}") for item in ITEMS}
        for item, (lock,) in locks.items():
            data, stat = stage.observer.get_data(f"{fresh_path}/items/{item}/{lock}")
            assert (stat.czxid, data) == (share[item], b"me")
        assert not share.wait(0)
        assert partitioner.next(0) is None
    assert share.lost == set(ITEMS)
    assert nodes(stage.observer, fresh_path) == []
    assert client._session.watch_count == 0
    assert client._driver.active_locks == set()
    assert client._driver.services == {}


def test_an_item_moves_when_work_on_it_has_stopped(stage: Stage, fresh_path: str) -> None:
    with Partitioner(stage.client(), fresh_path, ITEMS, name="m0") as one:
        share = first(one)
        with Partitioner(stage.client(), fresh_path, ITEMS, name="m1") as other:
            assert share.wait(PATIENCE)
            assert 2 <= len(share.leaving) <= 3
            assert share.changed
            assert (one.state, other.state) == ("releasing", "allocating")
            assert other.next(0.2) is None, "no item was let go"
            for item in share.leaving:
                share.check(item)
            left = first(one)
            assert set(left) == set(share) - share.leaving
            theirs = until(other, first(other), share.leaving)
            assert all(theirs[item] > share[item] for item in theirs)
            assert all(left[item] == share[item] for item in left)
            with pytest.raises(LockLostError, match="no longer"):
                share.check(next(iter(theirs)))
            assert (one.state, other.state) == ("acquired", "acquired")
        until(one, left, ITEMS)


def test_a_loop_ends_with_the_partitioner(stage: Stage, fresh_path: str) -> None:
    """And so does a wait; a second reader is refused meanwhile."""
    partitioner = Partitioner(stage.client(), fresh_path, ITEMS)
    seen: list[Mapping[str, int]] = []

    def work() -> None:
        for share in partitioner:
            seen.append(share)

    running = Running(work)
    poll("it waits", lambda: (seen and partitioner._algorithm._reading) or None, PATIENCE)
    with pytest.raises(RuntimeError, match="one reader"):
        partitioner.next(0)
    partitioner.close()
    running.result()
    partitioner.close()
    assert partitioner.state == "closed"
    assert repr(partitioner) == f"<Partitioner {fresh_path} closed>"
    with pytest.raises(ClientClosedError):
        partitioner.next(0)
    assert nodes(stage.observer, fresh_path) == []


# --- what can go wrong ----------------------------------------------------------------------------


def test_other_items_than_the_oldest_member(stage: Stage, fresh_path: str) -> None:
    with Partitioner(stage.client(), fresh_path, ITEMS, name="old") as one:
        share = first(one)
        newcomer = Partitioner(stage.client(), fresh_path, [*ITEMS, "f"], name="new")
        with pytest.raises(ValueError, match=r"member 'old'.* other items .*: it has not 'f'"):
            newcomer.next(PATIENCE)
        assert newcomer.state == "failed"
        newcomer.close()
        assert not share.wait(0.2)
        assert set(share) == set(ITEMS)
        poll(
            "the newcomer has left",
            lambda: stage.observer.get_children(f"{fresh_path}/members") == ["old"] or None,
            PATIENCE,
        )


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"items": []}, ValueError, "no items"),
    ({"items": ["a", "b", "a"]}, ValueError, "'a' is there twice"),
    ({"items": ["a/b"]}, ValueError, "an item must not contain a slash: 'a/b'"),
    ({"items": [""]}, ValueError, "an item must not be empty"),
    ({"items": [".."]}, ValueError, "^an item must not be '.' or '..': '..'"),
    ({"items": ["a\x01"]}, ValueError, r"^an item has the forbidden .* at 1: 'a\\x01'"),
    ({"items": "abc"}, TypeError, "a list of names"),
    ({"items": b"abc"}, TypeError, "a list of names"),
    ({"items": 5}, TypeError, "a list of names"),
    ({"items": [5]}, TypeError, "an item must be a str, not int"),
    ({"name": "a/b"}, ValueError, "a member's name must not contain a slash"),
    ({"name": 5}, TypeError, "a member's name must be a str"),
    ({"name": "."}, ValueError, "^a member's name must not be '.' or '..': '.'"),
    ({"path": "/"}, ValueError, "root cannot be a partitioner"),
]


@pytest.mark.own_server
def test_bad_arguments(stage: Stage, fresh_path: str) -> None:
    for arguments, kind, match in BAD:
        given: dict[str, Any] = {"path": fresh_path, "items": ITEMS, **arguments}
        with pytest.raises(kind, match=match):
            Partitioner(stage.observer, given.pop("path"), **given)
    client = Client(stage.hosts)
    client.close()
    with pytest.raises(ClientClosedError):
        Partitioner(client, fresh_path, ITEMS)
    assert stage.observer.exists(fresh_path) is None
