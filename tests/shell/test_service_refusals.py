"""What a server refuses a service in the background: it goes on, says so, and is right again."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import zkwire
from tests.support.aio_stage import LoopThread
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from tests.support.supervisor_helpers import kill
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    Client,
    Group,
    Id,
    NoAuthError,
    NodeExistsError,
    NotEmptyError,
    Partitioner,
    Perms,
    PersistentNode,
    QuotaExceededError,
)
from zkwire.testing import Server

ANYONE = Id("world", "anyone")
CLOSED = [ACL(Perms.READ | Perms.ADMIN, ANYONE)]
HIDDEN = [ACL(Perms.ALL & ~Perms.READ, ANYONE)]
TOO_LARGE = b"x" * (1 << 20)


class Play:
    """A supervisor of threads or of asyncio with one service, and what the service has told."""

    def __init__(self, hosts: str, loop: LoopThread | None) -> None:
        self.loop = loop
        self.told: list[object] = []
        self.seen = threading.Event()
        self.supervisor = self.make("Supervisor", hosts)

    def make(self, kind: str, *arguments: Any, **named: Any) -> Any:
        made = getattr(zkwire, kind if self.loop is None else f"Async{kind}")
        return self._in_loop(lambda: made(*arguments, **named))

    def serve(self, kind: str, *arguments: Any, **named: Any) -> Any:
        return self.make(kind, self.supervisor, *arguments, on_problem=self.told.append, **named)

    def do(self, thing: Any, name: str, *arguments: Any, **named: Any) -> Any:
        result = self._in_loop(lambda: getattr(thing, name)(*arguments, **named))
        return self.loop.run(result) if self.loop and inspect.iscoroutine(result) else result

    def lead(self) -> Any:
        async def on(lock: Any) -> None:
            self.seen.set()
            await lock.lost

        def work(lock: Any) -> None:
            self.seen.set()
            lock.lost.wait()

        function = work if self.loop is None else on
        return self.do(self.supervisor, "lead", "/r/s", function, on_problem=self.told.append)

    def _in_loop(self, function: Callable[[], Any]) -> Any:
        return function() if self.loop is None else self.loop.call(function)


class Kind(NamedTuple):
    """A service on ``/r/s``, what it is called in the log, and whether it is right."""

    begin: Callable[[Play], Any]
    called: str
    acl: list[ACL]
    right: Callable[[Play, Any], bool]
    refused_path: str = "/r"


def membership(play: Play) -> Any:
    return play.do(play.serve("Group", "/r"), "join", b"", "s", PATIENCE)


def fresh(play: Play, cache: Any) -> bool:
    return play.do(cache, "wait_fresh", PATIENCE) and "/r/s" in cache


def shares(play: Play, partitioner: Any) -> bool:
    share = play.do(partitioner, "next", PATIENCE)
    return list(share) == ["x"]


def present(play: Play, node: Any) -> bool:
    return bool(node.present)


def leads(play: Play, _: Any) -> bool:
    return play.seen.is_set()


NODE, LEADS = "the PersistentNode of /r/s", "the candidacy at /r/s"
KINDS = {
    "node": Kind(lambda p: p.serve("PersistentNode", "/r/s"), NODE, CLOSED, present),
    "member": Kind(membership, NODE, CLOSED, present),
    "cache": Kind(
        lambda p: p.serve("Cache", "/r", on_event=print), "the Cache of /r", HIDDEN, fresh
    ),
    "partitioner": Kind(
        lambda p: p.serve("Partitioner", "/r", ["x"], name="me"),
        "the Partitioner's node of /r/members/me",
        CLOSED,
        shares,
        "/r/members",
    ),
    "leadership": Kind(Play.lead, LEADS, CLOSED, leads, "/r/s"),
}


@pytest.fixture
def observer(server: Server) -> Iterator[Client]:
    with Client(server.hosts) as client:
        yield client


@pytest.fixture(params=["threads", "asyncio"])
def play(request: pytest.FixtureRequest, server: Server) -> Iterator[Play]:
    loop = LoopThread() if request.param == "asyncio" else None
    play = Play(server.hosts, loop)
    try:
        yield play
    finally:
        play.do(play.supervisor, "close")
        if loop is not None:
            loop.close()


def next_session(play: Play, server: Server) -> None:
    """The server ends the session, and the next one is there."""
    old = play.do(play.supervisor, "client", PATIENCE).session_id
    play.seen.clear()
    kill(server, old)
    poll(
        "another session",
        lambda: play.do(play.supervisor, "client", PATIENCE).session_id != old or None,
        PATIENCE,
    )


@pytest.mark.parametrize("name", KINDS)
def test_hazard_F1_F2_a_service_refused_in_a_new_session_is_right_later(
    server: Server, observer: Client, play: Play, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = KINDS[name]
    observer.ensure_path("/r/s" if name in ("cache", "leadership") else "/r")
    service = kind.begin(play)
    poll("it is right", lambda: kind.right(play, service) or None, PATIENCE)
    assert service.problem is None
    observer.set_acl(kind.refused_path, kind.acl)
    if name == "cache":
        observer.set_data("/r", b"to be read again")
    with caplog.at_level(logging.WARNING, "zkwire"):
        for _ in range(2):
            next_session(play, server)
            poll("a problem", lambda: service.problem, PATIENCE)
        assert isinstance(service.problem, NoAuthError)
        observer.set_acl(kind.refused_path, OPEN_ACL_UNSAFE)
        poll("it is right", lambda: kind.right(play, service) or None, PATIENCE)
        poll("all is told", lambda: len(play.told) == 2 or None, PATIENCE)
    assert service.problem is None
    assert isinstance(play.told[0], NoAuthError)
    assert play.told[1] is None
    (line,) = [r.getMessage() for r in caplog.records if "is refused" in r.getMessage()]
    assert line.startswith(f"{kind.called} is refused, and tried again: NoAuthError: ")


# --- what callers are told ------------------------------------------------------------------------


@pytest.fixture
def closed(observer: Client) -> Client:
    """A client that sees ``/r``, below which nothing can be created."""
    observer.create("/r", acl=CLOSED)
    return observer


def test_a_first_create_that_is_refused_may_succeed_later(closed: Client) -> None:
    node = PersistentNode(closed, "/r/s", b"1")
    for ask in (node.wait_present, lambda: node.set_data(b"2", PATIENCE)):
        with pytest.raises(NoAuthError):
            ask()
    closed.set_acl("/r", OPEN_ACL_UNSAFE)
    assert node.wait_present(PATIENCE)
    assert closed.get_data("/r/s").data == b"1", "what set_data was refused is not tried again"
    node.close()


def test_a_join_that_is_refused_leaves_nothing(closed: Client, server: Server) -> None:
    with Group(closed, "/r") as group:
        with pytest.raises(NoAuthError):
            group.join(b"", "s")
        poll("nothing is served", lambda: not closed._driver.services or None, PATIENCE)
        assert group.problem is None
        closed.set_acl("/r", OPEN_ACL_UNSAFE)
        assert group.join(b"", "s", PATIENCE).present


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


def test_an_election_whose_text_cannot_be_sent_is_not_run_for(play: Play) -> None:
    text = TOO_LARGE.decode()
    with pytest.raises(ValueError, match="has 1048"):
        play.do(play.supervisor, "lead", "/e", play.serve, text)


def test_data_that_are_refused_are_no_problem(server: Server, observer: Client) -> None:
    with PersistentNode(observer, "/r", b"1") as node:
        assert node.wait_present(PATIENCE)
        server.refuse_next("set_data", QuotaExceededError.code)
        with pytest.raises(QuotaExceededError):
            node.set_data(b"2", PATIENCE)
        assert observer.get_data("/r").data == b"1"
        assert node.problem is None
        node.set_data(b"3", PATIENCE)


def test_a_close_that_is_refused_raises_and_goes_on(server: Server, observer: Client) -> None:
    told: list[object] = []
    node = PersistentNode(observer, "/r", on_problem=told.append)
    assert node.wait_present(PATIENCE)
    for nth in (1, 2):  # the second answers the call
        server.refuse_next("delete", NoAuthError.code, nth=nth)
    with pytest.raises(NoAuthError):
        node.close()
    poll("it is gone", lambda: observer.exists("/r") is None or None, PATIENCE)
    node.close()
    poll("all is told", lambda: len(told) == 2 or None, PATIENCE)
    assert told[1] is None


def test_a_standing_node_with_children_is_deleted_when_they_are_gone(observer: Client) -> None:
    node = PersistentNode(observer, "/r", ephemeral=False)
    assert node.wait_present(PATIENCE)
    observer.create("/r/child")
    with pytest.raises(NotEmptyError):
        node.close()
    observer.delete("/r/child")
    node.close()
    assert observer.exists("/r") is None


def test_an_item_that_is_refused_leaves_the_others(observer: Client) -> None:
    observer.ensure_path("/p/items/closed")
    observer.set_acl("/p/items/closed", CLOSED)
    with Partitioner(observer, "/p", ["closed", "open"]) as partitioner:
        share = partitioner.next(PATIENCE)
        assert share is not None
        assert list(share) == ["open"]
        assert isinstance(partitioner.problem, NoAuthError)
        with pytest.raises(NoAuthError, match="items/closed"):
            partitioner.next(PATIENCE)
        observer.set_acl("/p/items/closed", OPEN_ACL_UNSAFE)
        both = poll("both", lambda: partitioner.next(PATIENCE), PATIENCE)
        assert sorted(both) == ["closed", "open"]
        assert share.lost == frozenset()
        assert partitioner.problem is None


def test_a_second_object_at_a_path_takes_over_from_the_first(observer: Client) -> None:
    with PersistentNode(observer, "/r", b"1") as first:
        assert first.wait_present(PATIENCE)
        second = PersistentNode(observer, "/r", b"2")
        with pytest.raises(NodeExistsError, match="another object of this client"):
            second.wait_present(PATIENCE)
    assert second.wait_present(PATIENCE)
    assert observer.get_data("/r").data == b"2"
    second.close()
