"""docs/connection-loss-reference.md says what happens: every line of its tables is run
with the client for threads and with the client for asyncio, and compared.

`python3 -m tests.connection_loss --write` puts the document right, if it is the document that is
wrong. What an experiment's advice does not achieve fails in the experiment itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias
from xml.etree import ElementTree

import pytest

import zkwire
from tests.connection_loss import (
    barriers,
    classic,
    data,
    document,
    every,
    leading,
    losses,
    points,
    recipes,
    services,
    watches,
)
from tests.connection_loss.case import Case, Scene, repeat
from tests.connection_loss.clients import BLOCKING, TITLES
from tests.connection_loss.deeds import Play
from tests.connection_loss.every import Runs
from tests.connection_loss.lagging import Packets
from tests.connection_loss.operations import OPERATIONS
from tests.support.lock_helpers import LONG, PATIENCE
from tests.support.server_control import Backend, ZooKeeperServer, skip_older
from zkwire.operations import Operations
from zkwire.recipes._node import TokenPool
from zkwire.testing.proxy import FaultProxy, Gate, hold

TEXT = document.PATH.read_text()
GUIDE = document.PATH.with_name("connection-loss.md").read_text()
SECTIONS = document.sections(TEXT)
IN_OPERATIONS = document.by_title(SECTIONS["operations"])
IN_RECIPES = document.by_title(SECTIONS["recipes"])
IN_SERVICES = document.by_title(SECTIONS["services"])
IN_CLASSIC = document.by_title(SECTIONS["classic"])
Observed: TypeAlias = Mapping[str, Runs]

clients = pytest.mark.parametrize("client", TITLES)
BY_ENSEMBLE = {op.title for op in OPERATIONS if op.by_ensemble}

all_titles = pytest.mark.parametrize("title", [op.title for op in OPERATIONS])
titles = pytest.mark.parametrize("title", [op.title for op in OPERATIONS if not op.by_ensemble])
lock_titles = pytest.mark.parametrize(
    "title", [f"{name} {kind.title}" for name in ("acquire", "release") for kind in recipes.KINDS]
)
watch_titles = pytest.mark.parametrize("title", [kind.title for kind in watches.KINDS])


@pytest.fixture(scope="module")
def on_one(zookeeper: ZooKeeperServer) -> Observed:
    """What was observed on one server."""
    skip_older(zookeeper, "3.5")  # the document names create2
    return every.on_one_server(zookeeper)


@pytest.fixture(scope="module")
def behind(backend: Backend, zookeeper: ZooKeeperServer) -> Observed:
    """What was observed in ensembles, with a follower that is behind; only an installed one is."""
    skip_older(zookeeper, "3.5")
    if backend.name != "installed":
        pytest.skip(f"the servers are {backend}: none of them can be made to lag")
    return every.in_ensembles(backend)


def same(observed: Iterable[Sequence[str]], documented: Iterable[str]) -> None:
    """The document says what was observed, no more and no less."""
    assert [document.line(row) for row in observed] == list(documented)


def moved(lines: Iterable[str]) -> list[str]:
    """The lines about servers that are behind."""
    return [line for line in lines if is_moved(line)]


def stayed(lines: Iterable[str]) -> list[str]:
    """The other lines."""
    return [line for line in lines if not is_moved(line)]


def is_moved(line: str) -> bool:
    return "server that is behind |" in line or "| that server " in line or "can be reached" in line


# --- the tables -----------------------------------------------------------------------------------


@clients
@titles
def test_operation(on_one: Observed, client: str, title: str) -> None:
    rows = [row for row in of_operation(on_one[client], title) if any(row[1:])]
    same(rows, stayed(IN_OPERATIONS[title]))


def of_operation(observed: Runs, title: str) -> Sequence[Sequence[str]]:
    """What was observed of an operation."""
    found = observed.operations.get(title)
    if found is None:
        pytest.skip(f"the servers do not know {title}")
    return found


@clients
@lock_titles
def test_lock(on_one: Observed, client: str, title: str) -> None:
    name, _, kind = title.partition(" ")
    same(on_one[client].recipes[name, kind], stayed(IN_RECIPES[title]))


@clients
@pytest.mark.parametrize("title", [deed.title for deed in services.DEEDS + leading.DEEDS])
def test_service(on_one: Observed, client: str, title: str) -> None:
    same(on_one[client].services[title], IN_SERVICES[title])


@clients
@pytest.mark.parametrize("title", [deed.title for deed in classic.DEEDS + barriers.DEEDS])
def test_classic_recipe(on_one: Observed, client: str, title: str) -> None:
    same(on_one[client].classic[title], IN_CLASSIC[title])


@clients
@watch_titles
def test_watch(on_one: Observed, client: str, title: str) -> None:
    rows = [row for row in on_one[client].watches if row[0] == title]
    same(rows, stayed(of_watch(title)))


def of_watch(title: str) -> list[str]:
    """The document's lines about a kind of watch."""
    return [line for line in document.lines(SECTIONS["watches"]) if line.startswith(f"| {title} |")]


@clients
def test_session(on_one: Observed, client: str) -> None:
    same(on_one[client].sessions, stayed(document.lines(SECTIONS["sessions"])))


@pytest.mark.apache
@clients
class TestServerBehind:
    """The same, ended by a move to a follower that has not heard of it yet.

    An operation that a server alone refuses has all its other lines from an ensemble.
    """

    @all_titles
    def test_operation(self, behind: Observed, client: str, title: str) -> None:
        lines = IN_OPERATIONS[title]
        rows = of_operation(behind[client], title)
        same(rows, lines if title in BY_ENSEMBLE else moved(lines))

    @pytest.mark.parametrize("kind", recipes.KINDS, ids=lambda kind: kind.title)
    def test_lock(self, behind: Observed, client: str, kind: recipes.Kind) -> None:
        rows = behind[client].recipes["acquire", kind.title]
        same(rows, moved(IN_RECIPES[f"acquire {kind.title}"]))

    @watch_titles
    def test_watch(self, behind: Observed, client: str, title: str) -> None:
        rows = [row for row in behind[client].watches if row[0] == title]
        same(rows, moved(of_watch(title)))

    def test_session(self, behind: Observed, client: str) -> None:
        same(behind[client].sessions, moved(document.lines(SECTIONS["sessions"])))

    def test_reconfig_asked_of_any_server(self, behind: Observed, client: str) -> None:
        """Of one that is behind, and of the one that it removes."""
        same(behind[client].members, document.lines(SECTIONS["members"]))

    def test_whole_document(
        self, zookeeper: ZooKeeperServer, on_one: Observed, behind: Observed, client: str
    ) -> None:
        """Also the order, the headings and the advice are what would be written."""
        if zookeeper.release < max(op.since for op in OPERATIONS):
            pytest.skip("the document is about more operations than these servers know")
        made = every.rendered(on_one[client], behind[client])
        assert document.replaced(TEXT, made) == TEXT
        assert data.PATH.read_text() == data.written(made)
        print(f"{every.cells(made)} lines of tables")


# --- the rest of the document ---------------------------------------------------------------------


def test_every_operation_is_there() -> None:
    described = {op.title.partition(",")[0] for op in OPERATIONS}
    public = {name for name in dir(Operations) if not name.startswith("_")}
    assert described == public
    assert all(points.BEHIND in str(lines) for lines in IN_OPERATIONS.values())


def test_data_say_what_the_tables_say() -> None:
    """Written by the same command, so also where no server can be made to lag."""
    assert data.PATH.read_text() == data.written(SECTIONS)


def test_every_field_of_the_data_is_explained() -> None:
    found = json.loads(data.PATH.read_text())
    explained = TEXT.partition("## As data")[2]
    for name in {*found, *found["rows"][0]}:
        assert f"`{name}`" in explained, name
    assert {row["failure"] for row in found["rows"]} == found["failures"].keys()


def test_every_error_exists() -> None:
    names = set(re.findall(r"`(\w+Error)`", GUIDE + TEXT))
    assert {"NotSentError", "OutcomeUnknownError", "SessionExpiredError"} <= names
    assert all(issubclass(getattr(zkwire, name), zkwire.ZooKeeperError) for name in names)


def test_picture_is_one() -> None:
    picture = ElementTree.parse(document.PATH.parent / "session-timeline.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    words = "".join(picture.itertext())
    assert all(word in words for word in ("A no longer holds the lock", "session 0"))


@pytest.mark.real
def test_code_runs(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    with zkwire.Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        for block in blocks:
            exec(block.replace("127.0.0.1:2181", zookeeper.hosts + fresh_path), {})
        assert client.get_data(f"{fresh_path}/balance").data == b"100"


# --- the experiments' own tools -------------------------------------------------------------------


def test_difference_is_noticed() -> None:
    section = document.table(("a", "b"), [("1", "2"), ("3", "4")])
    assert document.lines(section) == ["| 1 | 2 |", "| 3 | 4 |"]
    with pytest.raises(AssertionError):
        same([("1", "2"), ("3", "5")], document.lines(section))
    with pytest.raises(AssertionError):
        same([("1", "2")], document.lines(section))
    with pytest.raises(ValueError, match="no markers"):
        document.replaced("nothing", {"operations": section})


def test_packets_are_told_apart_in_any_pieces() -> None:
    ping = bytes.fromhex("00000005 0000000000000001 ffffffff ffffffff")
    proposal = bytes.fromhex("00000002 0000000000000002 00000003 616263 00000000")
    snapshot = bytes.fromhex("0000000f 0000000000000003 ffffffff ffffffff") + b"tree"
    end = b"\x00\x00\x00\x0aBenWasHere"
    stream = ping + snapshot + end + proposal
    for size in range(1, len(stream) + 1):
        packets = Packets()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        seen = [found for piece in pieces for found in packets.feed(piece)]
        assert [kind for kind, _ in seen] == [5, 15, 15, 2]
        assert b"".join(data for _, data in seen) == stream


def test_advice_that_fails_is_noticed(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    """A recovery that does a thing twice does not get into the document."""
    (op,) = [op for op in OPERATIONS if op.title == "create, sequential"]
    blind = replace(op, recover=op.repeat)
    with zkwire.Client(zookeeper.hosts) as observer:
        observer.create(fresh_path)
        with (
            Case(Scene(zookeeper, observer, fresh_path, BLOCKING)) as case,
            pytest.raises(AssertionError, match="leads to 'done twice'"),
        ):
            points.reply_lost(blind, case)


def test_recipe_that_forgets_a_lost_reply_is_noticed(
    zookeeper: ZooKeeperServer, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that takes each lost change for one that was not made, and makes it again."""

    async def not_made(*_: object) -> None:
        return None

    monkeypatch.setattr(TokenPool, "_look", not_made)
    (deed,) = [deed for deed in classic.DEEDS if deed.title == "`Counter.add`"]
    with zkwire.Client(zookeeper.hosts) as observer:
        observer.create(fresh_path)
        with Play(Scene(zookeeper, observer, fresh_path, BLOCKING), deed) as play:
            play.prepare()
            with pytest.raises(AssertionError, match="the number is 3"):
                losses.reply_lost(play)


def test_nothing_comes_late(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    """A request that is still on its way when the session goes on elsewhere is never executed."""
    gate = Gate()
    with (
        zkwire.Client(zookeeper.hosts) as observer,
        FaultProxy(zookeeper.hosts) as far,
        FaultProxy(far.hosts) as near,
        zkwire.Client(near.hosts, session_timeout=LONG) as client,
    ):
        observer.create(fresh_path)
        far.on("create", action=hold(gate))
        late = client.pipeline.create(f"{fresh_path}/late")
        gate.wait_reached(PATIENCE)
        near.cut_all()
        with pytest.raises(zkwire.OutcomeUnknownError):
            late.result(PATIENCE)
        repeat(client.sync)
        gate.release()
        far.wait_for(lambda _: far.connections == 1, PATIENCE)
        client.sync()
        assert observer.get_children(fresh_path) == []
