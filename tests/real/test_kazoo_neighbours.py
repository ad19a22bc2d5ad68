"""Locks and recipes of zkwire beside unchanged ones of kazoo, and ``names="kazoo"``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import pytest

from tests.interop.neighbours import table
from tests.interop.neighbours.pairs import GRANTS, PAIRS, Pair, contend
from tests.interop.neighbours.scenarios import KAZOO, SCENARIOS, Scene, outcome, rows_with
from tests.interop.neighbours.sides import kazoo_side
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    Client,
    Election,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    SequentialLock,
    Supervisor,
)
from zkwire.testing import Ensemble

Make = Callable[[Any, str], Any]
OWN: dict[str, Make] = {
    "mutex": lambda client, path: SequentialLock(client, path, names="kazoo"),
    "re-entrant": lambda client, path: ReentrantLock(client, path, names="kazoo"),
    "election": lambda client, path: Election(client, path, names="kazoo").lead(),
    "read": lambda client, path: ReadWriteLock(client, path, names="kazoo").read,
    "write": lambda client, path: ReadWriteLock(client, path, names="kazoo").write,
    "semaphore": lambda client, path: Semaphore(client, path, 1, names="kazoo").lease(),
}
KAZOOS: dict[str, Make] = {
    "mutex": lambda client, path: client.Lock(path),
    "election": lambda client, path: client.Election(path).lock,
    "read": lambda client, path: client.ReadLock(path),
    "write": lambda client, path: client.WriteLock(path),
    "semaphore": lambda client, path: client.Semaphore(path, max_leases=1),
}
PLAIN: dict[str, Make] = {
    "mutex": SequentialLock,
    "read": lambda client, path: ReadWriteLock(client, path).read,
    "write": lambda client, path: ReadWriteLock(client, path).write,
    "semaphore": lambda client, path: Semaphore(client, path, 1).lease(),
}
EXCLUDING = [
    ("mutex", "mutex"),
    ("re-entrant", "mutex"),
    ("election", "election"),
    ("read", "write"),
    ("write", "read"),
    ("write", "write"),
    ("semaphore", "semaphore"),
]


@pytest.fixture
def theirs(kazoo: Any, zookeeper: ZooKeeperServer) -> Iterator[Any]:
    """A client of kazoo's."""
    with kazoo_side(zookeeper.hosts) as side:
        yield side.client


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[Client]:
    with Client(zookeeper.hosts) as client:
        yield client


@pytest.mark.parametrize(("own", "kind"), EXCLUDING)
def test_a_lock_with_kazoos_names_and_one_of_kazoos_exclude_each_other(
    theirs: Any, client: Client, fresh_path: str, own: str, kind: str
) -> None:
    ours, other = OWN[own](client, fresh_path), KAZOOS[kind](theirs, fresh_path)
    with ours:
        assert not other.acquire(blocking=False)
        waiting = Running(lambda: other.acquire(timeout=PATIENCE))
    assert waiting.result()
    assert not ours.try_acquire()
    own_turn = Running(lambda: ours.acquire(PATIENCE) and ours.held)
    other.release()
    assert own_turn.result()


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.with_kazoos_names], ids=lambda pair: pair.title
)
def test_contenders_of_both_never_hold_at_once(
    kazoo: Any, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
) -> None:
    """Two of each, in processes; the session of one holder ends meanwhile."""
    assert contend(zookeeper, fresh_path, pair, GRANTS).wrong == []


def test_a_supervisors_leader_and_kazoos_exclude_each_other(
    theirs: Any, zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    terms: SimpleQueue[SequentialLock] = SimpleQueue()

    def term(lock: SequentialLock) -> None:
        terms.put(lock)
        lock.lost.wait()

    other = KAZOOS["election"](theirs, fresh_path)
    assert other.acquire(timeout=PATIENCE)
    with Supervisor(zookeeper.hosts) as supervisor:
        supervisor.lead(fresh_path, term, names="kazoo")
        poll("both stand there", lambda: len(theirs.get_children(fresh_path)) == 2, PATIENCE)
        assert terms.empty()
        other.release()
        assert terms.get(timeout=PATIENCE).held
        assert not other.acquire(blocking=False)


def test_a_lease_is_seen_by_holders_and_counted(
    theirs: Any, client: Client, fresh_path: str
) -> None:
    semaphore = Semaphore(client, fresh_path, 2, "ours", names="kazoo")
    other = theirs.Semaphore(fresh_path, "theirs", max_leases=2)
    with semaphore.lease() as lease:
        assert other.acquire(timeout=PATIENCE)
        assert sorted(other.lease_holders()) == ["ours", "theirs"]
        assert [one.text for one in semaphore.holders()] == ["ours", "theirs"]
        assert [one.text for one in lease.contenders()] == ["ours", "theirs"]
        assert not semaphore.lease().try_acquire()
        other.release()
    with pytest.raises(ValueError, match="is a semaphore of 2, not of 3"):
        Semaphore(client, fresh_path, 3, names="kazoo").lease().acquire(PATIENCE)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_lock_that_finds_kazoos_nodes_warns_once(
    theirs: Any, client: Client, fresh_path: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = KAZOOS["write" if kind == "read" else kind](theirs, fresh_path)
    assert other.acquire(timeout=PATIENCE)
    with caplog.at_level(logging.WARNING, "zkwire"):
        if kind == "semaphore":
            with client.transaction() as t:  # where it has been used already
                for folder in ("leases", "locks"):
                    t.create(f"{fresh_path}/{folder}")
        lock = PLAIN[kind](client, fresh_path)
        for _ in range(2):
            if lock.try_acquire():
                lock.release()
        poll("it warns", lambda: caplog.messages or None, PATIENCE)
        with OWN[kind](client, f"{fresh_path}/other"):
            pass
    (message,) = caplog.messages
    assert message.startswith(f"{fresh_path}: ")
    assert "give it names='kazoo'" in message
    other.release()


def test_other_names_are_refused(client: Client) -> None:
    for make in (SequentialLock, ReentrantLock, Election, ReadWriteLock):
        with pytest.raises(ValueError, match="names must be 'zkwire' or 'kazoo', not 'curator'"):
            make(client, "/l", names="curator")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="names must be"):
        Supervisor("zoo:2181").lead("/l", print, names="curator")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="names must be"):
        Semaphore(client, "/l", 1, names="curator")  # type: ignore[arg-type]


# --- what the pages say, each side losing a session meanwhile -------------------------------------


@pytest.mark.apache
@pytest.mark.parametrize(
    "pair",
    [pair for pair in PAIRS if not (pair.with_curator or pair.with_kazoos_names)],
    ids=lambda pair: pair.title,
)
def test_locks_on_one_path(
    kazoo: Any, zookeeper: ZooKeeperServer, fresh_path: str, pair: Pair
) -> None:
    table.assert_as_stored(zookeeper, fresh_path, pair)


@pytest.mark.apache
@pytest.mark.parametrize(("page", "title"), rows_with(KAZOO))
def test_recipes_on_one_path(
    kazoo: Any, zookeeper: ZooKeeperServer, observer: Client, fresh_path: str, page: str, title: str
) -> None:
    scenario, _ = SCENARIOS[page][title]
    with kazoo_side(zookeeper.hosts) as theirs, ExitStack() as stack:
        seen = outcome(scenario, Scene(zookeeper.hosts, fresh_path, observer, stack), theirs)
    assert seen == table.stored()["recipes"][page][title][KAZOO]


# --- kazoo on the embedded server -----------------------------------------------------------------


def test_kazoo_moves_to_another_server_of_an_embedded_ensemble(kazoo: Any) -> None:
    with Ensemble(3) as ensemble:
        client = kazoo.client.KazooClient(ensemble.hosts)
        client.start(PATIENCE)
        try:
            assert client.server_version() == (3, 8, 0)  # by `envi`
            session_id, _ = client.client_id
            client.create("/a", ephemeral=True)
            member = ensemble.server_for_session(session_id)
            assert member is not None
            member.stop()
            assert client.retry(client.exists, "/a").ephemeralOwner == session_id
        finally:
            client.stop()
            client.close()
