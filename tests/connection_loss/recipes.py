"""What each lock does by itself when its connection is lost during an acquire or a release.

Each life ends with the same question: does exactly one hold, and can the next one.
"""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

from tests.connection_loss import losses
from tests.connection_loss.case import Row, Rows, Setting
from tests.connection_loss.clients import BLOCKING
from tests.connection_loss.lagging import Lag
from tests.connection_loss.losses import NOTHING, Call, Trial, outcome
from tests.support.lock_helpers import GRACE, PATIENCE, Running, requests
from tests.support.server_control import poll
from zkwire import Client
from zkwire.testing.proxy import Gate, cut_after
from zkwire.testing.proxy.faults import Hold

HEADS = ("point of failure", "on the server", "what the lock does by itself", "the caller gets",
         "then")  # fmt: skip


class Kind(NamedTuple):
    """One kind of lock."""

    title: str
    named: str
    """In `both_clients.LOCKS`."""
    create: int = 1
    """Which create is that of the node which decides; a lease stands in another queue before."""
    waits: bool = True
    rival: str = ""
    """Whom it must not share the lock with, if that is another kind."""
    nodes: int = 1
    """How many nodes a holder has."""
    below: tuple[str, ...] = ("",)
    """Where they are, from the lock's path on."""


KINDS = (
    Kind("NonBlockingLock", "non-blocking", waits=False),
    Kind("BlockingLock", "blocking"),
    Kind("SequentialLock", "sequential"),
    Kind("ReentrantLock, twice", "re-entrant", rival="sequential"),
    Kind("Election", "leadership"),
    Kind("ReadWriteLock, the write side", "write"),
    Kind("ReadWriteLock, the read side", "read", rival="write"),
    Kind("Semaphore, one lease", "lease", create=2, below=("/leases", "/locks")),
    Kind("MultiLock, of two SequentialLocks", "multi", create=2, nodes=2, below=("/a", "/b")),
)


class LockTrial(Trial):
    """One lock of one client behind the proxy, and another contender's, on the same path."""

    def __init__(self, setting: Setting, asked: Call, kind: Kind) -> None:
        super().__init__(setting, asked)
        self.kind = kind
        rival = kind.rival or kind.named
        self.other: Any = BLOCKING.recipes.lock(rival, self.observer, self.path)
        assert self.other.acquire(GRACE)  # so that what the lock's path needs is there
        self.other.release()
        for node in filter(self.observer.exists, map(self.path.__add__, kind.below)):
            data = self.observer.get_data(node).data
            self.observer.delete(node)  # a server may remove an empty container at any moment
            self.observer.create(node, data)
        self.own: Any = self.client_kind.recipes.lock(kind.named, self.home, self.path)
        self.seen: Any = self.run(lambda: getattr(self.own, "lock", self.own))
        self.times = 1 if self.seen is self.own else 2
        """How often a re-entrant lock is acquired."""

    def all_nodes(self) -> list[str]:
        """The nodes of all contenders."""
        return [node for place in self.kind.below for node in self.nodes(self.path + place)]

    def own_nodes(self, view: Client | None = None) -> int:
        return self.own_of(self.all_nodes(), view)

    def decisive(self, view: Client | None = None) -> int:
        """Its nodes, but for the one in the queue for leases."""
        return self.own_nodes(view) - (self.kind.create - 1)

    # --- what the calls are made of ---------------------------------------------------------------

    def acquire(self) -> bool:
        return all(self.run(partial(self.own.acquire, PATIENCE)) for _ in range(self.times))

    def entered(self) -> str:
        """What is there of a contender."""
        return words(max(0, self.decisive()))

    def release(self) -> None:
        for _ in range(self.times):
            self.run(self.own.release)

    def left(self) -> str:
        """What is there of a holder that leaves: when nothing is, the next one acquires."""
        nodes = self.own_nodes()
        poll("it holds no more", lambda: not self.seen.held or None, PATIENCE)
        if not nodes:
            assert self.other.acquire(GRACE)  # it must be left alone
        return words(nodes, self.kind.nodes)

    def held_by_one(self) -> str:
        """The lock is held, by as many nodes as it needs, and by no other contender."""
        assert self.seen.held
        needed = self.kind.nodes  # beside them, the place in a queue is given up in the background
        poll(f"it has {needed} nodes", lambda: self.own_nodes() == needed or None, PATIENCE)
        assert not self.other.try_acquire(), "two hold"
        return "held, by one node" if needed == 1 else f"held, by {needed} nodes"

    def free_again(self) -> str:
        """Nothing is left, and the next one gets it."""
        assert not self.seen.held
        poll("its nodes are gone", lambda: not self.own_nodes() or None, PATIENCE)
        if not self.other.held:
            assert self.other.acquire(GRACE)
        assert self.all_nodes()
        return "free for the next"


def words(nodes: int, of: int = 1) -> str:
    """What the server has of a contender, or of a holder that has several."""
    if nodes and of > 1:
        return f"{nodes} of its {of} nodes"
    return {0: "no node", 1: "its node"}.get(nodes, f"{nodes} nodes")


# --- acquire --------------------------------------------------------------------------------------


def acquire_behind(trial: Any, lag: Lag) -> Row:
    """The node is there, and the server to look for it at does not have it yet."""
    gate = Gate()
    trial.proxy.upstream = lag.hosts
    trial.proxy.on(
        "create2", nth=trial.asked.nth, action=lambda frame: (Hold(gate, frame), *cut_after(frame))
    )
    trial.proxy.refuse()
    call = trial.begin(trial.asked.call)
    gate.wait_reached(PATIENCE)
    lag.catch_up()  # a server that is behind of what the client has seen would refuse it
    lag.begin()
    gate.release()
    trial.wait_cut()
    seen = f"{words(trial.decisive())}; the next server does not show it yet"
    assert trial.decisive(lag.view) == 0, "the server is not behind"
    trial.come_back()
    trial.proxy.wait_for(
        lambda frames: requests(frames)[-1].connection > trial._connection, PATIENCE
    )
    lag.end()
    row: Row = trial.row("create applied, then moved to a server that is behind", seen, call)
    return row


def acquire_expired(trial: Any) -> Row:
    """The node was there, and ends with the session before any client knows."""
    call, _ = losses.lost(trial, cut_after)
    trial.end()
    trial.come_back()
    return ended(trial, "create applied, then the session expired", call)


def ended(trial: Any, point: str, call: Running[object]) -> Row:
    """What comes of it when the session is over."""
    got = outcome(call)
    return point, words(trial.own_nodes()), NOTHING, got, NOTHING, trial.free_again()


def acquire_woken_unheard(trial: Any) -> Row:
    """The event that it waits for happens while it is away."""
    assert trial.other.acquire(GRACE)
    call = trial.begin(trial.asked.call)
    trial.wait_watching()
    trial.cut()
    trial.other.release()
    seen = f"{words(trial.own_nodes())}; the holder has released"
    trial.come_back()
    row: Row = trial.row("connection lost while waiting", seen, call)
    return row


# --- release --------------------------------------------------------------------------------------


def release_expired(trial: Any) -> Row:
    """The lock was lost with the session."""
    trial.expire(trial.subject)
    assert trial.seen.lost.wait(PATIENCE)
    return ended(trial, "the session had expired", trial.begin(trial.asked.call))


def node_deleted_unheard(trial: Any) -> Row:
    """The lock was lost when an outsider deleted the node."""
    trial.cut()
    trial.observer.delete(trial.all_nodes()[-1])  # of several, the one that is released first
    trial.come_back()
    assert trial.seen.lost.wait(PATIENCE)
    point = "its node deleted by an outsider while disconnected"
    _, _, *rest = trial.row(point, "", trial.begin(trial.asked.call))
    return point, words(trial.own_nodes()), *rest


# --- all of them ----------------------------------------------------------------------------------

SAME = (losses.no_connection, losses.not_received, losses.reply_lost)


def acquiring(kind: Kind) -> Call:
    return Call(
        f"acquire {kind.title}", "create2", nth=kind.create, named="create",
        call=methodcaller("acquire"), seen=methodcaller("entered"),
        goal=methodcaller("held_by_one"), world=partial(LockTrial, kind=kind),
        points=(*SAME, acquire_expired, *(acquire_woken_unheard,) * kind.waits),
    )  # fmt: skip


def releasing(kind: Kind) -> Call:
    return Call(
        f"release {kind.title}", "delete", named="delete", prepare=methodcaller("acquire"),
        call=methodcaller("release"), seen=methodcaller("left"), goal=methodcaller("free_again"),
        world=partial(LockTrial, kind=kind),
        points=(*SAME, release_expired, node_deleted_unheard),
    )  # fmt: skip


def run_all(setting: Setting) -> Rows:
    """Every kind of lock at every point."""
    return without_advice(losses.run_all(setting, [*map(acquiring, KINDS), *map(releasing, KINDS)]))


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """Every kind of lock, moved to a server that is behind; one after the other."""
    behind = lag.around(partial(acquire_behind, lag=lag))
    cells = [(asked, behind, False) for asked in map(acquiring, KINDS)]
    return without_advice(losses.run_points(setting, cells, 1))


def without_advice(found: Rows) -> Rows:
    """What is safe next is told of other recipes only: here it is nothing."""
    assert {row[4] for rows in found.values() for row in rows} == {NOTHING}
    return {title: [(*row[:4], *row[5:]) for row in rows] for title, rows in found.items()}
