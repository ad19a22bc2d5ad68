"""What each lock does by itself when its connection is lost during an acquire or a release.

The client's requests after the loss are read off the proxy, what is on the server is looked up by
an observer while the client is kept away, and each life ends with the same question: does exactly
one hold, and can the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

from tests.connection_loss.case import Case, Setting, repeat
from tests.connection_loss.clients import BLOCKING, Make, Recipes
from tests.connection_loss.document import table
from tests.connection_loss.lagging import Lag
from tests.connection_loss.points import told
from tests.support.lock_frames import meaning, refusal
from tests.support.lock_helpers import GRACE, PATIENCE, Running, requests
from tests.support.server_control import poll
from zkwire import Client, ZooKeeperError
from zkwire.testing.proxy import Frame, Gate, cut_after, cut_before
from zkwire.testing.proxy.faults import Hold

AT_ONCE = 6
HEADS = ("point of failure", "on the server", "what the lock does by itself", "the caller gets",
         "then")  # fmt: skip


class Kind(NamedTuple):
    """One kind of lock."""

    title: str
    make: Make
    create: int = 1
    """Which create is that of the node which decides; a lease stands in another queue before."""
    waits: bool = True
    rival: Make | None = None
    """Whom it must not share the lock with, if that is another kind."""
    nodes: int = 1
    """How many nodes a holder has."""
    below: tuple[str, ...] = ("",)
    """Where they are, from the lock's path on."""


def sequential(recipes: Recipes, client: Any, path: str) -> Any:
    return recipes.SequentialLock(client, path)


def writing(recipes: Recipes, client: Any, path: str) -> Any:
    return recipes.ReadWriteLock(client, path).write


def lease(recipes: Recipes, client: Any, path: str) -> Any:
    """A lease that is not taken yet."""
    return recipes.Semaphore(client, path, 1).lease()


def both(recipes: Recipes, client: Any, path: str) -> Any:
    return recipes.MultiLock(*(sequential(recipes, client, f"{path}/{name}") for name in "ab"))


KINDS = (
    Kind("NonBlockingLock", lambda recipes, client, path: recipes.NonBlockingLock(client, path),
         waits=False),
    Kind("BlockingLock", lambda recipes, client, path: recipes.BlockingLock(client, path)),
    Kind("SequentialLock", sequential),
    Kind("ReentrantLock, twice", lambda recipes, client, path: recipes.ReentrantLock(client, path),
         rival=sequential),
    Kind("Election", lambda recipes, client, path: recipes.Election(client, path).lead()),
    Kind("ReadWriteLock, the write side", writing),
    Kind("ReadWriteLock, the read side",
         lambda recipes, client, path: recipes.ReadWriteLock(client, path).read, rival=writing),
    Kind("Semaphore, one lease", lease, create=2, below=("/leases", "/locks")),
    Kind("MultiLock, of two SequentialLocks", both, create=2, nodes=2, below=("/a", "/b")),
)  # fmt: skip


class LockTrial(Case):
    """One lock of one client behind the proxy, and another contender's, on the same path."""

    def __init__(self, setting: Setting, kind: Kind) -> None:
        super().__init__(setting)
        self.kind = kind
        self.other = (kind.rival or kind.make)(BLOCKING.recipes, self.observer, self.path)
        assert self.other.acquire(GRACE)  # so that what the lock's path needs is there
        self.other.release()
        for node in filter(self.observer.exists, map(self.path.__add__, kind.below)):
            data = self.observer.get_data(node).data
            self.observer.delete(node)  # a server may remove an empty container at any moment
            self.observer.create(node, data)
        self.own = self.subjects_lock(kind.make)
        self._connection = 0

    def all_nodes(self) -> list[str]:
        """The nodes of all contenders."""
        return [node for place in self.kind.below for node in self.nodes(self.path + place)]

    def own_nodes(self, view: Client | None = None) -> int:
        """How many nodes of this client there are, as the server says."""
        owner = self.subject.session_id
        stats = [(view or self.observer).exists(node) for node in self.all_nodes()]
        return sum(stat is not None and stat.ephemeral_owner == owner for stat in stats)

    def owned(self, reply: Frame) -> bool:
        """Whether this is a lock's node of this client: its data begins with the session's id."""
        return f"{self.subject.session_id & 2**64 - 1:016x}".encode() in reply.raw

    def cut(self) -> None:
        """Keep the client away from now on, and wait until it has noticed."""
        self._connection = max([0, *(frame.connection for frame in self.proxy.frames())])
        self.proxy.refuse()
        self.proxy.cut_all()
        poll("it notices", lambda: not self.subject.state.usable or None, PATIENCE)

    def wait_cut(self, op: str, nth: int = 1) -> None:
        """Wait until a request has met its fate, and the connection is gone."""

        def met(frames: list[Frame]) -> bool:
            sent = [f for f in frames if f.direction == "c2s" and meaning(f) == op]
            return len(sent) >= nth and not self.proxy.connections

        self.proxy.wait_for(met, PATIENCE)
        self._connection = max(frame.connection for frame in self.proxy.frames())

    def come_back(self) -> None:
        """Let the client connect again."""
        self.proxy.refuse(False)

    def wait_cleaned(self) -> None:
        """Wait until each node of its own has been deleted, or seen to be gone, since the loss.

        That is done in the background, so a caller's next request may be sent before.
        """

        def ended(reply: Frame) -> bool:
            gone = reply.op == "get_data" and bool(reply.error or not self.owned(reply))
            deleted = meaning(reply) == "delete" and (reply.op == "delete" or not refusal(reply))
            return deleted or gone

        def cleaned(frames: list[Frame]) -> bool:
            replies = [
                f for f in frames if f.direction == "s2c" and f.connection > self._connection
            ]
            return sum(map(ended, replies)) >= self.kind.nodes

        self.proxy.wait_for(cleaned, PATIENCE)
        going = self.subject._driver.pending_cleanups
        poll("its clean-up has ended", lambda: not going or None, PATIENCE)

    def done_by_itself(self) -> str:
        """The requests since the loss; the tests' own are those about the root."""
        repeat(self.subject.sync)
        sent = requests(self.proxy.frames())
        ops = [f.op for f in sent if f.connection > self._connection and f.path != "/"]
        return ", ".join(f"`{op}`" for op in ops) or "nothing"

    def held_by_one(self) -> str:
        """The lock is held, by as many nodes as it needs, and by no other contender."""
        assert self.own.held
        needed = self.kind.nodes  # beside them, the place in a queue is given up in the background
        poll(f"it has {needed} nodes", lambda: self.own_nodes() == needed or None, PATIENCE)
        assert not self.other.try_acquire(), "two hold"
        return "held, by one node" if self.kind.nodes == 1 else f"held, by {self.kind.nodes} nodes"

    def free_again(self) -> str:
        """Nothing is left, and the next one gets it."""
        assert not self.own.held
        poll("its nodes are gone", lambda: not self.own_nodes() or None, PATIENCE)
        if not self.other.held:
            assert self.other.acquire(GRACE)
        return "free for the next"


Point: TypeAlias = Callable[[LockTrial], tuple[str, ...]]


def words(nodes: int, of: int = 1) -> str:
    """What the server has of a contender, or of a holder that has several."""
    if nodes and of > 1:
        return f"{nodes} of its {of} nodes"
    return {0: "no node", 1: "its node"}.get(nodes, f"{nodes} nodes")


def outcome(call: Running[object]) -> str:
    """What the caller gets."""
    try:
        return f"`{call.result()}`"
    except ZooKeeperError as error:
        return told(error)


# --- acquire --------------------------------------------------------------------------------------


def acquiring(trial: LockTrial) -> Running[object]:
    """It acquires, however long that takes."""
    return Running(lambda: trial.own.acquire(PATIENCE))


def acquire_without_connection(trial: LockTrial) -> tuple[str, ...]:
    """The first request waits for a connection."""
    trial.cut()
    call = acquiring(trial)
    seen = words(trial.own_nodes())
    trial.come_back()
    got = outcome(call)
    return "no connection", seen, trial.done_by_itself(), got, trial.held_by_one()


def acquire_not_received(trial: LockTrial) -> tuple[str, ...]:
    """The create of the node that decides never arrives."""
    trial.proxy.on("create2", nth=trial.kind.create, action=cut_before)
    return "create sent, not received", *acquire_through_loss(trial)


def acquire_reply_lost(trial: LockTrial) -> tuple[str, ...]:
    """The node is there, and its maker does not know."""
    trial.proxy.on("create2", nth=trial.kind.create, action=cut_after)
    return "create applied, reply lost", *acquire_through_loss(trial)


def acquire_through_loss(trial: LockTrial) -> tuple[str, ...]:
    """Look while the client is away, and let it come back."""
    trial.proxy.refuse()
    call = acquiring(trial)
    trial.wait_cut("create2", trial.kind.create)
    seen = words(decisive(trial))
    trial.come_back()
    got = outcome(call)
    return seen, trial.done_by_itself(), got, trial.held_by_one()


def acquire_behind(trial: LockTrial, lag: Lag) -> tuple[str, ...]:
    """The node is there, and the server to look for it at does not have it yet."""
    gate = Gate()
    trial.proxy.upstream = lag.hosts
    trial.proxy.on(
        "create2",
        nth=trial.kind.create,
        action=lambda frame: (Hold(gate, frame), *cut_after(frame)),
    )
    trial.proxy.refuse()
    call = acquiring(trial)
    gate.wait_reached(PATIENCE)
    lag.catch_up()  # a server that is behind of what the client has seen would refuse it
    lag.begin()
    gate.release()
    trial.wait_cut("create2", trial.kind.create)
    seen = words(decisive(trial))
    assert decisive(trial, lag.view) == 0, "the server is not behind"
    trial.come_back()
    trial.proxy.wait_for(
        lambda frames: requests(frames)[-1].connection > trial._connection, PATIENCE
    )
    lag.end()
    got = outcome(call)
    seen += "; the next server does not show it yet"
    point = "create applied, then moved to a server that is behind"
    return point, seen, trial.done_by_itself(), got, trial.held_by_one()


def decisive(trial: LockTrial, view: Client | None = None) -> int:
    """Its nodes, but for the one in the queue for leases."""
    return trial.own_nodes(view) - (trial.kind.create - 1)


def acquire_expired(trial: LockTrial) -> tuple[str, ...]:
    """The node was there, and ends with the session before any client knows."""
    trial.proxy.refuse()
    trial.proxy.on("create2", nth=trial.kind.create, action=cut_after)
    call = acquiring(trial)
    trial.wait_cut("create2", trial.kind.create)
    trial.expire(trial.subject)
    got = outcome(call)
    seen = words(trial.own_nodes())
    return "create applied, then the session expired", seen, "nothing", got, trial.free_again()


def acquire_woken_unheard(trial: LockTrial) -> tuple[str, ...]:
    """The event that it waits for happens while it is away."""
    assert trial.other.acquire(GRACE)
    call = acquiring(trial)
    trial.proxy.wait_for(waits, PATIENCE)
    trial.cut()
    trial.other.release()
    seen = f"{words(trial.own_nodes())}; the holder has released"
    trial.come_back()
    got = outcome(call)
    return "connection lost while waiting", seen, trial.done_by_itself(), got, trial.held_by_one()


def waits(frames: list[Frame]) -> bool:
    """Whether a read that sets a watch has been answered."""
    return any(
        f.request is not None
        and f.op in {"get_data", "get_children"}
        and f.error == 0
        and f.request.raw[-1] == 1
        for f in frames
        if f.direction == "s2c"
    )


# --- release --------------------------------------------------------------------------------------


def hold(trial: LockTrial) -> None:
    """It holds, and its own-node watch is set."""
    assert trial.own.acquire(GRACE)
    trial.subject.sync()
    trial.proxy.reset()


def release_without_connection(trial: LockTrial) -> tuple[str, ...]:
    """`held` ends at once, the node when there is a connection."""
    hold(trial)
    trial.cut()
    call: Running[object] = Running(trial.own.release)
    poll("it holds no more", lambda: not trial.own.held or None, PATIENCE)
    seen = words(trial.own_nodes(), trial.kind.nodes)
    trial.come_back()
    got = outcome(call)
    end = trial.free_again()
    return "no connection", seen, trial.done_by_itself(), got, end


def release_not_received(trial: LockTrial) -> tuple[str, ...]:
    """The node is still there, and no contender holds."""
    hold(trial)
    trial.proxy.on("delete", action=cut_before)
    return "delete sent, not received", *release_through_loss(trial)


def release_reply_lost(trial: LockTrial) -> tuple[str, ...]:
    """The node is gone, and the next one may hold already."""
    hold(trial)
    trial.proxy.on("delete", action=cut_after)
    return "delete applied, reply lost", *release_through_loss(trial)


def release_through_loss(trial: LockTrial) -> tuple[str, ...]:
    """Look while the client is away; the next one acquires if it can."""
    trial.proxy.refuse()
    call: Running[object] = Running(trial.own.release)
    trial.wait_cut("delete")
    nodes = trial.own_nodes()
    if not nodes:
        assert trial.other.acquire(GRACE)  # it must be left alone
    trial.come_back()
    got = outcome(call)
    trial.wait_cleaned()
    end = trial.free_again()
    did = trial.done_by_itself()
    assert trial.other.held
    assert trial.all_nodes()
    return words(nodes, trial.kind.nodes), did, got, end


def release_expired(trial: LockTrial) -> tuple[str, ...]:
    """The lock was lost with the session."""
    hold(trial)
    trial.expire(trial.subject)
    assert trial.own.lost.wait(PATIENCE)
    call: Running[object] = Running(trial.own.release)
    got = outcome(call)
    return "the session had expired", words(trial.own_nodes()), "nothing", got, trial.free_again()


def node_deleted_unheard(trial: LockTrial) -> tuple[str, ...]:
    """The lock was lost when an outsider deleted the node."""
    hold(trial)
    trial.cut()
    trial.observer.delete(trial.all_nodes()[-1])  # of several, the one that is released first
    trial.come_back()
    assert trial.own.lost.wait(PATIENCE)
    call: Running[object] = Running(trial.own.release)
    got = outcome(call)
    trial.wait_cleaned()
    end = trial.free_again()
    return ("its node deleted by an outsider while disconnected", words(trial.own_nodes()),
            trial.done_by_itself(), got, end)  # fmt: skip


ACQUIRE: tuple[Point, ...] = (
    acquire_without_connection, acquire_not_received, acquire_reply_lost, acquire_expired,
    acquire_woken_unheard,
)  # fmt: skip
RELEASE: tuple[Point, ...] = (
    release_without_connection, release_not_received, release_reply_lost, release_expired,
    node_deleted_unheard,
)  # fmt: skip

Rows = dict[tuple[str, str], list[tuple[str, ...]]]


def run_all(setting: Setting) -> Rows:
    """Every kind of lock at every point."""
    cells = [
        (kind, name, point)
        for kind in KINDS
        for name, points in (("acquire", ACQUIRE), ("release", RELEASE))
        for point in points
        if kind.waits or point is not acquire_woken_unheard
    ]

    def run(cell: tuple[Kind, str, Point]) -> tuple[str, ...]:
        kind, _, point = cell
        try:
            with LockTrial(setting, kind) as trial:
                return point(trial)
        except Exception as error:
            error.add_note(f"in {point.__name__} of {kind.title}, with {setting.client_kind.title}")
            raise

    rows: Rows = {}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="experiment") as pool:
        for (kind, name, _), row in zip(cells, pool.map(run, cells), strict=True):
            rows.setdefault((name, kind.title), []).append(row)
    return rows


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """Every kind of lock, moved to a server that is behind; one after the other."""
    rows: Rows = {}
    for kind in KINDS:
        with LockTrial(setting, kind) as trial:
            try:
                rows["acquire", kind.title] = [acquire_behind(trial, lag)]
            except Exception as error:
                error.add_note(
                    f"in an experiment on {kind.title}, with {setting.client_kind.title}"
                )
                raise
            finally:
                lag.end()
    return rows


def render(rows: Rows) -> str:
    """One section for each group of locks that do exactly the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for (name, title), lines in rows.items():
        groups.setdefault((name, table(HEADS, lines)), []).append(title)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    return "\n\n".join(
        f"### {'; '.join(f'{name} {title}' for title in titles)}\n\n{body}"
        for (name, body), titles in ordered
    )
