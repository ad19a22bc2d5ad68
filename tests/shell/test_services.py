"""Services in the background: refused, and what only zkwire's own server can be made to do."""

from __future__ import annotations

import logging
import os
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.conftest import SEED
from tests.refusals import document
from tests.refusals.lives import CELLS
from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, both, done, using
from tests.support.examples import STRIDE
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from tests.support.supervisor_helpers import Terms, kill
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    AsyncClient,
    AsyncPartitioner,
    AsyncPersistentNode,
    Client,
    Counter,
    Group,
    Id,
    NoAuthError,
    NotEmptyError,
    OncePer,
    OperationTimeoutError,
    Partitioner,
    Perms,
    PersistentNode,
    QuotaExceededError,
    ReentrantLock,
    SequenceExhaustedError,
)
from zkwire.recipes.counter import LAST_VERSION
from zkwire.testing import Server
from zkwire.testing.kit import Life, Refusal, sweep_refusals

# --- refused in a new session ---------------------------------------------------------------------


ANYONE = Id("world", "anyone")
CLOSED = [ACL(Perms.READ | Perms.ADMIN, ANYONE)]
HIDDEN = [ACL(Perms.ALL & ~Perms.READ, ANYONE)]
TOO_LARGE = b"x" * (1 << 20)


class Play:
    """A supervisor with one service, and what the service has told."""

    def __init__(self, side: Side, supervisor: Any) -> None:
        self.side, self.supervisor = side, supervisor
        self.told: list[object] = []
        self.terms = Terms(side)
        self.service: Any = None

    def serve(self, kind: str, *arguments: Any, **named: Any) -> Any:
        named["on_problem"] = self.told.append
        return getattr(self.side, kind)(self.supervisor, *arguments, **named)

    async def fresh(self) -> bool:
        return await done(self.service.wait_fresh(PATIENCE)) and "/r/s" in self.service

    async def shares(self) -> bool:
        return list(await done(self.service.next(PATIENCE))) == ["x"]


class Kind(NamedTuple):
    """A service on ``/r/s``, whether it is right, and what it is called in the log."""

    begin: Callable[[Play], Any]
    right: Callable[[Play], Any]
    called: str
    acl: list[ACL] = CLOSED
    refused_path: str = "/r"


NODE = "the PersistentNode of /r/s"
SHARES = "the Partitioner's node of /r/members/me"
PRESENT: Callable[[Play], Any] = lambda play: play.service.present  # noqa: E731
KINDS = {
    "node": Kind(lambda play: play.serve("PersistentNode", "/r/s"), PRESENT, NODE),
    "member": Kind(lambda play: play.serve("Group", "/r").join(b"", "s", PATIENCE), PRESENT, NODE),
    "cache": Kind(
        lambda play: play.serve("Cache", "/r", on_event=print),
        *(Play.fresh, "the Cache of /r", HIDDEN),
    ),
    "partitioner": Kind(
        lambda play: play.serve("Partitioner", "/r", ["x"], name="me"),
        *(Play.shares, SHARES, CLOSED, "/r/members"),
    ),
    "leadership": Kind(
        lambda play: play.supervisor.lead("/r/s", play.terms.lead, on_problem=play.told.append),
        *(lambda play: play.terms.leading == 1, "the candidacy at /r/s", CLOSED, "/r/s"),
    ),
}


@pytest.fixture
def observer(server: Server) -> Iterator[Client]:
    with Client(server.hosts) as client:
        yield client


@pytest.mark.parametrize("name", KINDS)
@both
async def test_hazard_F1_F2_a_service_refused_in_a_new_session_is_right_later(
    side: Side, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = KINDS[name]
    caplog.set_level(logging.WARNING, "zkwire")
    async with (
        using(side.Client(server.hosts)) as observer,
        using(side.Supervisor(server.hosts)) as supervisor,
    ):
        play = Play(side, supervisor)
        await done(observer.ensure_path("/r/s" if name in ("cache", "leadership") else "/r"))
        service = play.service = await done(kind.begin(play))
        await eventually("it is right", lambda: kind.right(play))
        assert service.problem is None
        await done(observer.set_acl(kind.refused_path, kind.acl))
        if name == "cache":
            await done(observer.set_data("/r", b"to be read again"))
        for _ in range(2):
            session, (number, _client) = (
                supervisor._algorithm._newest,
                supervisor._algorithm._present,
            )
            kill(server, session.session_id)
            await eventually("the next", lambda: supervisor._algorithm._present[0] > number)  # noqa: B023
            await eventually("a problem", lambda: service.problem)
        assert isinstance(service.problem, NoAuthError)
        await done(observer.set_acl(kind.refused_path, OPEN_ACL_UNSAFE))
        await eventually("it is right", lambda: kind.right(play))
        await eventually("all is told", lambda: len(play.told) == 2)
        assert service.problem is None
        assert isinstance(play.told[0], NoAuthError)
        assert play.told[1] is None
    (line,) = [text for text in caplog.messages if "is refused" in text]
    assert line.startswith(f"{kind.called} is refused, and tried again: NoAuthError: ")


# --- what callers are told ------------------------------------------------------------------------


@pytest.mark.parametrize("ephemeral", [True, False])
def test_what_this_client_cannot_send_begins_nothing(observer: Client, ephemeral: bool) -> None:
    with pytest.raises(ValueError, match="has 1048"):
        PersistentNode(observer, "/r", TOO_LARGE, ephemeral=ephemeral)
    with Group(observer, "/g") as group, pytest.raises(ValueError, match="has 1048"):
        group.join(TOO_LARGE)
    assert not observer._driver.services
    with PersistentNode(observer, "/r", b"1", ephemeral=ephemeral) as node:
        assert node.wait_present(PATIENCE)
        with pytest.raises(ValueError, match="has 1048"):
            node.set_data(TOO_LARGE)
        node.set_data(b"2", PATIENCE)
        assert node.problem is None


def test_data_that_are_refused_are_no_problem(server: Server, observer: Client) -> None:
    with PersistentNode(observer, "/r", b"1") as node:
        assert node.wait_present(PATIENCE)
        server.refuse_next("set_data", QuotaExceededError.code)
        with pytest.raises(QuotaExceededError):
            node.set_data(b"2", PATIENCE)
        assert observer.get_data("/r").data == b"1"
        assert node.problem is None
        node.set_data(b"3", PATIENCE)


async def test_a_refusal_is_not_told_while_a_share_is_about_to_come(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may look at any moment: here, right before the share is handed out."""
    hand_out, told = AsyncPartitioner._hand_out, list[bool]()

    def look_first(partitioner: AsyncPartitioner) -> None:
        refused = partitioner._is_refused
        hand_out(partitioner)
        if partitioner._next is not None:
            told.append(refused)

    monkeypatch.setattr(AsyncPartitioner, "_hand_out", look_first)
    server.refuse_next("create2", NoAuthError.code)
    async with (
        AsyncClient(server.hosts) as client,
        AsyncPartitioner(client, "/r", ["x", "y"]) as partitioner,
    ):
        assert len(await partitioner.next(PATIENCE) or ()) == 1
        assert len(await partitioner.next(PATIENCE) or ()) == 2
    assert not any(told)


def test_a_standing_node_with_children_is_deleted_when_they_are_gone(observer: Client) -> None:
    node = PersistentNode(observer, "/r", ephemeral=False)
    assert node.wait_present(PATIENCE)
    observer.create("/r/child")
    with pytest.raises(NotEmptyError):
        node.close()
    observer.delete("/r/child")
    node.close()
    assert observer.exists("/r") is None


# --- kept nodes and groups ------------------------------------------------------------------------

SECONDS = 10.0
NO_NODE, BUSY, READ_ONLY = -101, -127, -119


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_a_read_only_server_is_waited_out(server: Server, observer: Client, operation: str) -> None:
    server.refuse_next(operation, READ_ONLY)
    node = PersistentNode(observer, "/node")
    if operation == "create":
        tracemalloc.start()
        for _ in range(3):
            with pytest.raises(OperationTimeoutError):
                node.set_data(bytes(1 << 19), 0.0)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20  # of the last one
        tracemalloc.stop()
    else:
        assert node.wait_present(SECONDS)
        with pytest.raises(OperationTimeoutError):
            node.close(0.05)
    poll("it is refused", lambda: not server.unfired or None, SECONDS)
    server.stop()  # which is another state
    server.start()
    assert operation == "delete" or node.wait_present(SECONDS)
    node.close(SECONDS)
    poll("it is gone", lambda: "/node" not in server.tree.nodes or None, SECONDS)


def test_a_call_with_a_time_limit_that_is_none_has_no_effect(
    server: Server, observer: Client
) -> None:
    node, group = PersistentNode(observer, "/node", b"1"), Group(observer, "/group")
    partitioner, job = Partitioner(observer, "/shared", ["a"]), OncePer(observer, "/job", 60.0)
    lock = ReentrantLock(observer, "/lock")
    member = group.join(timeout=SECONDS)
    share = partitioner.next(SECONDS)
    assert node.wait_present(SECONDS)
    assert job.claim()
    assert lock.acquire()
    assert lock.acquire()
    ends: list[Callable[[float], object]] = [
        *(node.close, member.close, group.leave, group.close, partitioner.close),
        *(job.give_back, lock.release, partial(node.set_data, b"2")),
    ]
    for end in ends:
        with pytest.raises(ValueError, match="timeout must not be negative"):
            end(-1.0)
    observer.sync()
    assert node.present
    assert node._algorithm._wishes == []
    assert server.tree.nodes["/node"].data == b"1"
    assert member.present
    assert share is not None
    assert not share.changed
    job.give_back()
    lock.release()
    assert lock.held
    with pytest.raises(ValueError, match="timeout must not be negative"):
        lock.acquire(-1.0)


def test_members_in_time(server: Server, observer: Client) -> None:
    group = Group(observer, "/group")
    assert group.members(SECONDS) == []
    server.stop()
    with pytest.raises(OperationTimeoutError):
        group.members(0.05)
    assert not group._algorithm._requests  # an outage does not collect them
    assert not group.wait_for(1, 0.05)
    server.start()
    assert group.members(SECONDS) == []
    group.close()


def test_a_counter_that_has_used_up_its_versions_says_so(server: Server, observer: Client) -> None:
    """Its own counter knows the version, another one reads it; both would try without an end."""
    ours, others = Counter(observer, "/a"), Counter(observer, "/a")
    ours.add(1)
    node = server.tree.nodes["/a"]
    node.version = LAST_VERSION - 1
    assert others.add(1) == 2
    for counter in (ours, others):
        with pytest.raises(SequenceExhaustedError, match="used up its versions"):
            counter.add(1, PATIENCE)
    node.version = -LAST_VERSION - 1  # by a client of another kind
    with pytest.raises(SequenceExhaustedError):
        ours.add(1, PATIENCE)
    assert ours.get() == 2


# --- asyncio --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OperationTimeoutError("not in time"), NoAuthError()])
async def test_a_task_is_told_of_a_close_that_fails(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One that has taken too long does not hide the error of the body; any other error does."""

    async def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(AsyncPersistentNode, "close", failing)
    async with AsyncClient(server.hosts) as client:
        with pytest.raises(KeyError if isinstance(error, OperationTimeoutError) else NoAuthError):
            async with AsyncPersistentNode(client, "/node"):
                raise KeyError
        with pytest.raises(type(error)):
            async with AsyncPersistentNode(client, "/other"):
                pass


APART = 1 if os.environ.get("ZKWIRE_REFUSALS") == "all" else 4 * STRIDE
PAGE = document.read(document.PATH.read_text())


def some(every: list[Refusal]) -> list[Refusal]:
    return every[SEED % APART :: APART]


@pytest.mark.own_server
@pytest.mark.parametrize(
    ("title", "life", "kind"), CELLS, ids=[f"{title}-{kind.__name__}" for title, _, kind in CELLS]
)
def test_a_recipe_refused_once_is_right_or_raises(title: str, life: Life, kind: type[Any]) -> None:
    rows: document.Rows = {}
    document.add(rows, sweep_refusals(life, kind, chosen=some))
    assert document.untold(PAGE[document.recipe_of(title)], rows) == []
