"""What a server refuses a service in the background: it goes on, says so, and is right again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, both, done, using
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from tests.support.supervisor_helpers import Terms, kill
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
    """A supervisor with one service, and what the service has told."""

    def __init__(self, side: Side, supervisor: Any) -> None:
        self.side, self.supervisor = side, supervisor
        self.told: list[object] = []
        self.terms = Terms(side)
        self.service: Any = None

    def serve(self, kind: str, *arguments: Any, **named: Any) -> Any:
        named["on_problem"] = self.told.append
        return getattr(self.side, kind)(self.supervisor, *arguments, **named)

    async def node(self) -> Any:
        return self.serve("PersistentNode", "/r/s")

    async def member(self) -> Any:
        return await done(self.serve("Group", "/r").join(b"", "s", PATIENCE))

    async def cache(self) -> Any:
        return self.serve("Cache", "/r", on_event=print)

    async def partitioner(self) -> Any:
        return self.serve("Partitioner", "/r", ["x"], name="me")

    async def leadership(self) -> Any:
        return self.supervisor.lead("/r/s", self.terms.lead, on_problem=self.told.append)

    async def present(self) -> bool:
        return bool(self.service.present)

    async def fresh(self) -> bool:
        return await done(self.service.wait_fresh(PATIENCE)) and "/r/s" in self.service

    async def shares(self) -> bool:
        return list(await done(self.service.next(PATIENCE))) == ["x"]

    async def leads(self) -> bool:
        return self.terms.leading == 1


class Kind(NamedTuple):
    """A service on ``/r/s``, whether it is right, and what it is called in the log."""

    begin: Callable[[Play], Awaitable[Any]]
    right: Callable[[Play], Awaitable[bool]]
    called: str
    acl: list[ACL] = CLOSED
    refused_path: str = "/r"


NODE = "the PersistentNode of /r/s"
SHARES = "the Partitioner's node of /r/members/me"
KINDS = {
    "node": Kind(Play.node, Play.present, NODE),
    "member": Kind(Play.member, Play.present, NODE),
    "cache": Kind(Play.cache, Play.fresh, "the Cache of /r", HIDDEN),
    "partitioner": Kind(Play.partitioner, Play.shares, SHARES, CLOSED, "/r/members"),
    "leadership": Kind(Play.leadership, Play.leads, "the candidacy at /r/s", CLOSED, "/r/s"),
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
        service = play.service = await kind.begin(play)
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
    with Group(closed, "/r") as group:
        with pytest.raises(NoAuthError):
            group.join(b"", "m")
        poll("no member", lambda: len(closed._driver.services) == 1 or None, PATIENCE)
        assert group.problem is None
        closed.set_acl("/r", OPEN_ACL_UNSAFE)
        assert group.join(b"", "m", PATIENCE).present
    assert node.wait_present(PATIENCE)
    assert closed.get_data("/r/s").data == b"1", "what set_data was refused is not tried again"
    node.close()


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


@both
async def test_an_election_whose_text_cannot_be_sent_is_not_run_for(
    side: Side, server: Server
) -> None:
    async with using(side.Supervisor(server.hosts)) as supervisor:
        with pytest.raises(ValueError, match="has 1048"):
            supervisor.lead("/e", Terms(side).lead, TOO_LARGE.decode())


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
