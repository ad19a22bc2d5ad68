"""Hazards of clients and locks that need bytes, threads or a server's fault.

Other rows of the table have a ``test_known_<row>_...`` or a ``test_hazard_<row>_...`` elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import zkwire
from tests.support.both_clients import Side
from tests.support.embedded_servers import EmbeddedServer
from tests.support.family_helpers import soon
from tests.support.lock_frames import meaning
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Lock,
    Running,
    Stage,
    acquire_as_third_party,
    acquire_soon,
    all_kinds,
    answers,
    assert_exclusive,
    assert_no_blind_repeat,
    assert_strictly_rising,
    holding,
    make_path,
    requests,
    single_kinds,
    wait_until_waiting,
    waiting_kinds,
)
from tests.support.scripted import Script, event_frame, reply_frame, types
from zkwire import (
    BlockingLock,
    Check,
    Client,
    Counter,
    Election,
    EventType,
    LockLostError,
    NonBlockingLock,
    NotEmptyError,
    SequenceExhaustedError,
    SequentialLock,
    SessionExpiredError,
    State,
    testing,
)
from zkwire.jute.frames import frame as pack_frame
from zkwire.jute.records import GetChildrenResponse, ReplyHeader
from zkwire.recipes.counter import LAST_VERSION
from zkwire.recipes.locks import GRANTS
from zkwire.testing.proxy import Frame, Gate, cut_after, cut_before, hold, rewrite
from zkwire.wire import ops
from zkwire.wire.ops import NOTIFICATION_XID

_EMPTY = pack_frame(ReplyHeader(0, 0, 0).encode() + GetChildrenResponse(()).encode())
nothing_there = rewrite(lambda raw: _EMPTY[:4] + raw[4:20] + _EMPTY[20:])
"""The reply to a listing as a server gives it that is behind."""


class EmbeddedStage(Stage):
    """A stage whose server is the embedded one, so that a test can also be the server's fault."""

    def __init__(self, embedded: testing.Server) -> None:
        self.embedded = embedded
        super().__init__(EmbeddedServer(embedded, lambda: None))

    def end(self, client: Client) -> None:
        """The server ends the session, as its time-out would, and the client has to find out."""
        assert self.embedded.expire(client.session_id)

    def sent(self, op: str) -> list[Frame]:
        """The requests of an operation that went through the proxy."""
        return [frame for frame in requests(self.proxy.frames()) if meaning(frame) == op]

    def wait_sent(self, op: str, count: int = 1) -> None:
        """Wait until the proxy has seen so many requests of an operation."""
        self.proxy.wait_for(lambda _: len(self.sent(op)) >= count, PATIENCE)

    def wait_queued(self, path: str, count: int) -> None:
        """Wait until so many contenders have a node."""
        soon(f"{count} queue", lambda: len(self.nodes(path)) == count, PATIENCE)


def node_of(stage: Stage, lock: Lock) -> str:
    """The one node of a lock that is held and that nobody else wants."""
    (node,) = stage.nodes(lock.path)
    return node


@pytest.fixture(scope="module")
def embedded() -> Iterator[testing.Server]:
    """A server in this process, whatever the other tests run on."""
    with testing.Server(tick=0.2, timeouts=(0.1, 60.0)) as server:
        yield server


@pytest.fixture
def stage(embedded: testing.Server) -> Iterator[EmbeddedStage]:
    """That server behind a proxy, and nothing left on it but what a test has left by intent."""
    with EmbeddedStage(embedded) as stage:
        yield stage
    embedded.clear()


@pytest.mark.parametrize("first", ["event", "answer"])
def test_hazard_A41_an_event_during_the_restoration(first: str) -> None:
    """Before or behind the answer to SetWatches: it is told once, to every kind of watch."""
    script = Script()
    script.connect()
    watches = [script.watching("get_data", "/a"), script.watching("exists", "/a")]
    script.greet_again()
    (restoring,) = [sent for sent in script.flush() if sent.xid == ops.SET_WATCHES_XID]
    pieces = [event_frame(EventType.NODE_DATA_CHANGED, "/a"), reply_frame(restoring.xid)]
    script.feed(b"".join(pieces if first == "event" else reversed(pieces)))
    assert script.state is State.CONNECTED
    assert [types(watch) for watch in watches] == [[EventType.NODE_DATA_CHANGED]] * 2
    script.reconnect()
    assert [sent for sent in script.sent if sent.xid == ops.SET_WATCHES_XID] == []


# --- the session ----------------------------------------------------------------------------------


@pytest.mark.parametrize("election", [False, True])
def test_hazard_A26_D11_a_contended_acquire_inside_a_callback(
    stage: EmbeddedStage, fresh_path: str, election: bool
) -> None:
    make_path(stage.observer, f"{fresh_path}-watched")
    client, results = stage.client(), list[bool]()
    rival, lock = (
        Election(each, fresh_path).lead() if election else SequentialLock(each, fresh_path)
        for each in (stage.observer, client)
    )
    client.get_data(f"{fresh_path}-watched", watch=lambda _: results.append(lock.acquire(PATIENCE)))
    with holding(rival):
        stage.observer.set_data(f"{fresh_path}-watched", b"go")
        wait_until_waiting(stage)
        assert results == []
    soon("the callback has got it", lambda: results == [True], PATIENCE)
    lock.release()


PACKAGE = Path(zkwire.__file__).parent
WALL_CLOCKS = re.compile(r"\b(time\.(time|time_ns|ctime|localtime|gmtime)|datetime|date\.today)\b")


def test_hazard_A28_nothing_reads_the_wall_clock() -> None:
    """Neither ``time.time`` nor ``datetime``, and not under another name.

    Servers show times of day, and so do the embedded one and the command.
    """
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] not in {"testing", "cli"}:
            tree = ast.parse(file.read_text())
            code = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            code += [
                f"{node.module}.{alias.name}"
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            ]
            code = [text for text in code if text != "datetime.timedelta"]  # which has no clock
            assert not [text for text in code if WALL_CLOCKS.match(text)], file


def test_hazard_A35_a_sync_counts_only_on_the_connection_of_its_listing(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The session moves between the two, so the sync is asked for again before the listing."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    stage.proxy.on("create2", action=cut_after)
    stage.proxy.on("get_children", nth=2, action=cut_after)
    assert lock.acquire(PATIENCE)
    looked = [f for f in requests(stage.proxy.frames()) if f.op in ("sync", "get_children")]
    last = looked[-1]
    assert [f.op for f in looked if f.connection == last.connection] == ["sync", "get_children"]
    lock.release()


# --- lost replies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("losses", [1, 2])
def test_hazard_B4_B28_B30_of_several_nodes_of_one_attempt_one_stays(
    stage: EmbeddedStage, fresh_path: str, losses: int
) -> None:
    """Creates are carried out and never answered, and the look-ups show nothing."""
    lock = stage.lock(SequentialLock, fresh_path)
    with holding(lock):
        node_before = node_of(stage, lock)
    stage.proxy.reset()
    for nth in range(1, losses + 1):
        stage.proxy.on("create2", nth=nth, action=cut_after)
        stage.proxy.on("get_children", nth=2 * nth, action=nothing_there, reply=True)
    assert lock.acquire(PATIENCE)
    assert len(stage.sent("create2")) == losses + 1
    assert len(stage.sent("sync")) == losses
    assert_no_blind_repeat(stage.proxy.frames())
    node = node_of(stage, lock)
    assert len(node) == len(node_before)
    stat = stage.observer.exists(node)
    assert stat is not None
    assert stat.czxid == lock.fence
    lock.release()
    acquire_as_third_party(stage, SequentialLock, fresh_path)


@waiting_kinds
def test_hazard_A6_B2_B11_the_server_goes_and_comes_while_all_wait(kind: Kind) -> None:
    with testing.Server(timeouts=(0.1, 60.0)) as server, EmbeddedStage(server) as stage:
        locks = [stage.lock(kind, "/lock"), stage.rival(kind, "/lock")]
        with holding(stage.rival(kind, "/lock")):
            waiters = [Running(partial(lock.acquire, 4 * PATIENCE)) for lock in locks]
            wait_until_waiting(stage)
            if kind is SequentialLock:
                stage.wait_queued("/lock", 3)
            nodes = stage.nodes("/lock")
            for count in range(1, 6):
                server.stop()
                server.start()
                wait_until_waiting(stage, nth=count, op="set_watches")
            assert stage.nodes("/lock") == nodes
        soon("one is granted the lock", lambda: any(lock.held for lock in locks), PATIENCE)
        holder, other = sorted(locks, key=lambda lock: not lock.held)
        assert_exclusive(holder, other)
        holder.release()
        assert all(waiter.result() for waiter in waiters)
        assert_exclusive(other, holder)
        other.release()


@waiting_kinds
def test_hazard_B13_the_event_comes_in_one_piece_with_the_reply(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    gate, lock, rival = Gate(), stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    stage.proxy.on("get_data", action=hold(gate), reply=True)
    with holding(rival):
        waiter = Running(lock.acquire)
        gate.wait_reached()
    # Behind the delete's answer the event stands in line behind the reply that is held.
    stage.proxy.wait_for(lambda frames: any(f.xid == NOTIFICATION_XID for f in frames))
    gate.release()
    assert waiter.result(GRACE)
    lock.release()


# --- order and numbers ----------------------------------------------------------------------------


def test_a_counter_that_has_used_up_its_versions_says_so(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """Its own client knows the version, another one reads it; both would try without an end."""
    ours, others = Counter(stage.observer, fresh_path), Counter(stage.client(), fresh_path)
    ours.add(1)
    node = stage.embedded.tree.nodes[fresh_path]
    node.version = LAST_VERSION - 1
    assert others.add(1) == 2
    for counter in (ours, others):
        with pytest.raises(SequenceExhaustedError, match="used up its versions"):
            counter.add(1, PATIENCE)
    node.version = -LAST_VERSION - 1  # by a client of another kind
    with pytest.raises(SequenceExhaustedError):
        ours.add(1, PATIENCE)
    assert ours.get() == 2


JUNK = ["hello", "x-12", "__lock__", "\u0660" * 10, "lock--000000001"]


@pytest.mark.parametrize("name", ["_c_3f25-lock-", "3f25__lock__", "x-72057594037927936-", "n"])
def test_hazard_A45_B17_B29_whose_node_stands_ahead_is_waited_for(
    stage: EmbeddedStage, fresh_path: str, name: str
) -> None:
    """Contenders of other libraries count, and a node that outlives its session, whatever of it.

    Children that are no contenders do not, nor does the lock touch them.
    """
    make_path(stage.observer, fresh_path)
    for junk in JUNK:
        stage.observer.create(f"{fresh_path}/{junk}")
    node = stage.observer.create(f"{fresh_path}/{name}", ephemeral=True, sequential=True)
    if name == "n":  # of a session that there is not any more
        tree = stage.embedded.tree
        tree._of_session[0x123456789] = {node: tree._of_session[tree.nodes[node].owner].pop(node)}
        tree.nodes[node].owner = 0x123456789
    lock = stage.lock(SequentialLock, fresh_path)
    assert not lock.try_acquire()
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    assert not lock.held
    stage.observer.delete(node)
    assert waiter.result(GRACE)
    lock.release()
    assert {*stage.observer.get_children(fresh_path)} == {*JUNK}


@all_kinds
def test_hazard_B9_B18_B19_C9_D8_an_object_serves_again_whatever_has_been(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Also behind a lost create, a failed try, a refused call; each node is ephemeral."""
    make_path(stage.observer, fresh_path if kind is SequentialLock else f"{fresh_path}-")
    lock, rival, fences = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), list[int]()
    for cycle in range(30):
        with pytest.raises((RuntimeError, LockLostError)):
            lock.release()
        if cycle % 10 == 1:
            stage.proxy.on("create2", action=cut_after)
        elif cycle % 10 == 2:
            with holding(rival):
                assert not lock.try_acquire()
                assert not lock.acquire(0.01)
        assert lock.acquire(PATIENCE)
        fences.append(lock.fence)
        for again in (lock.acquire, lock.try_acquire):
            with pytest.raises(RuntimeError):
                again()
        assert lock.held
        node = node_of(stage, lock)
        stat = stage.observer.exists(node)
        assert stat is not None
        assert stat.ephemeral_owner
        if cycle % 10 == 5:
            stage.observer.delete(node)
            assert lock.lost.wait(PATIENCE)
        else:
            lock.release()
            assert stage.nodes(fresh_path) == []
    assert_strictly_rising(fences)


# --- time limits and what is left -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [NonBlockingLock, BlockingLock], ids=lambda kind: kind.__name__)
def test_hazard_B32_two_objects_do_not_fight_after_an_expiry(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    client = stage.client()
    first, second = kind(client, fresh_path), kind(client, fresh_path)
    assert first.acquire(GRACE)
    assert not second.try_acquire()
    stage.proxy.reset()
    stage.end(client)
    assert first.lost.wait(PATIENCE)
    for lock in (first, second):
        with pytest.raises(SessionExpiredError):
            lock.try_acquire()
    assert len(stage.sent("create2")) <= 2, "one by each, before the client had heard of it"
    assert len(stage.proxy.frames()) <= 20


# --- one node -------------------------------------------------------------------------------------


@single_kinds
def test_hazard_C2_the_same_content_of_an_earlier_session(
    stage: EmbeddedStage, kind: Kind, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither taken over, nor given up for good: who waits has the lock when that session ends."""
    earlier, client = stage.client(direct=True), stage.client()
    monkeypatch.setattr(client._driver, "unique", lambda: "unique")
    content = f"{client.session_id & 2**64 - 1:016x}-unique".encode()
    earlier.create(fresh_path, content, ephemeral=True)
    stage.proxy.on("create2", action=cut_before)  # so that the next answer is doubted
    lock = kind(client, fresh_path)
    assert not lock.try_acquire()
    waiter = Running(lambda: acquire_soon(lock, PATIENCE))
    stage.wait_sent("create2", 3)
    assert not lock.held
    assert stage.embedded.expire(earlier.session_id)
    waiter.result()
    assert lock.held
    stat = stage.observer.exists(fresh_path)
    assert stat is not None
    assert stat.ephemeral_owner == client.session_id
    lock.release()


@single_kinds
@pytest.mark.parametrize("successor", ["a lock", "by hand"])
def test_hazard_C10_a_release_whose_node_somebody_has_deleted(
    stage: EmbeddedStage, kind: Kind, fresh_path: str, successor: str
) -> None:
    """The event is on its way still: only the server knows whose node it is."""
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.wait_for(lambda frames: bool(answers(frames, "get_children2")), PATIENCE)
    stage.proxy.on("notification", action=hold(gate))
    stage.observer.delete(fresh_path)
    if successor == "a lock":
        assert rival.acquire(GRACE)
    else:
        stage.observer.create(fresh_path, ephemeral=True)
    node = stage.observer.exists(fresh_path)
    gate.wait_reached()
    releasing = Running(lock.release)
    stage.wait_sent("delete")
    gate.release()
    with pytest.raises(LockLostError):
        releasing.result()
    assert stage.observer.exists(fresh_path) == node
    soon("no token stays", lambda: len(stage.nodes(fresh_path + GRANTS)) == rival.held, PATIENCE)
    with pytest.raises(RuntimeError):
        lock.guard([])


@single_kinds
def test_hazard_C10_a_grant_beside_the_token_of_an_earlier_one(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Not before that token is gone, by which a late release would hit the node."""
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert rival.acquire(GRACE)
    stage.observer.delete(fresh_path)
    stage.proxy.on("get_children", action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    with suppress(LockLostError):
        rival.release()
    gate.release()
    assert acquiring.result()
    assert lock.held
    assert lock.guard([Check(fresh_path)]) == [None]
    lock.release()


def test_hazard_C5_a_release_wakes_all_here_and_one_there(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """Waiters of the blocking lock try once more each; of the fair one, the next one just holds."""
    number = 5
    for kind, op, woken in ((BlockingLock, "create2", number), (SequentialLock, "get_children", 0)):
        path = f"{fresh_path}-{kind.__name__}"
        rival = stage.rival(kind, path)
        assert rival.acquire(GRACE)
        locks = [stage.lock(kind, path) for _ in range(number)]
        stage.proxy.reset()
        waiters = [Running(lock.acquire) for lock in locks]
        wait_until_waiting(stage, nth=number)
        before = len(stage.sent(op))
        rival.release()
        soon("one is granted the lock", lambda: any(lock.held for lock in locks), PATIENCE)  # noqa: B023
        if woken:
            stage.wait_sent(op, before + woken)
        stage.observer.sync()
        assert len(stage.sent(op)) == before + woken
        for _ in waiters:
            soon("the next one", lambda: any(lock.held for lock in locks), PATIENCE)  # noqa: B023
            next(lock for lock in locks if lock.held).release()
        assert all(waiter.result() for waiter in waiters)


# --- the family -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sequential", "lease"])
def test_hazard_B8_D7_E5_the_node_of_a_dead_session_is_not_ones_own(
    stage: EmbeddedStage, fresh_path: str, kind: str
) -> None:
    """A client is cut off while it holds, and the program begins anew."""
    first, lock_of = stage.client(), Side("").lock
    assert lock_of(kind, first, fresh_path).acquire(GRACE)
    abandoned = first.session_id
    stage.proxy.black_hole()
    first.close()
    again = lock_of(kind, stage.client(direct=True), fresh_path)
    assert not again.acquire(0.1)
    waiter = Running(lambda: again.acquire(PATIENCE))
    stage.wait_queued(
        f"{fresh_path}/locks" if kind == "lease" else fresh_path, 1 + (kind != "lease")
    )
    assert not again.held
    assert stage.embedded.expire(abandoned)
    assert waiter.result()
    stat = stage.observer.exists(again.node)
    assert stat is not None
    assert stat.czxid == again.fence
    again.release()


def test_hazard_D12_an_interrupted_leader_steps_down(stage: EmbeddedStage, fresh_path: str) -> None:
    """The interrupt comes out once, and the node is gone."""
    lead = Election(stage.client(), fresh_path).lead()
    with pytest.raises(KeyboardInterrupt), lead:
        raise KeyboardInterrupt
    assert not lead.held
    assert stage.nodes(fresh_path) == []
    assert lead.acquire(PATIENCE), "and the object is as new"
    lead.release()


def test_hazard_B16_B35_D13_a_path_is_deleted_during_acquisitions_too(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The path of a lock that nobody wants can be deleted; of one in use it cannot."""
    path, fences = f"{fresh_path}/lock", []
    lock = stage.lock(SequentialLock, path)
    for _ in range(3):
        with holding(lock):
            fences.append(lock.fence)
            with pytest.raises(NotEmptyError):
                stage.observer.delete(path)
        stage.observer.delete(path)
        stage.observer.delete(fresh_path)
    gate = Gate()
    stage.proxy.on("create2", nth=2, action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    stage.observer.delete(path)
    gate.release()
    assert acquiring.result()
    assert_strictly_rising([*fences, lock.fence])
    lock.release()
