"""docs/connection-loss-reference.md says what happens: every line of its tables is run
with the client for threads and with the client for asyncio, and compared.

`python3 -m tests.connection_loss --write` puts the document right, if it is the document that is
wrong. What an experiment's advice does not achieve fails in the experiment itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeAlias

import pytest

import zkwire
from tests.connection_loss import data, document, every, points
from tests.connection_loss.case import repeat
from tests.connection_loss.clients import TITLES
from tests.connection_loss.every import OPERATIONS, Runs
from tests.support.lock_helpers import LONG, PATIENCE
from tests.support.server_control import Backend, ZooKeeperServer, skip_older
from zkwire.operations import Operations
from zkwire.testing.proxy import FaultProxy, Gate, hold

TEXT = document.PATH.read_text()
GUIDE = document.PATH.with_name("connection-loss.md").read_text()
SECTIONS = document.sections(TEXT)
Observed: TypeAlias = Mapping[str, Runs]

clients = pytest.mark.parametrize("client", TITLES)
BY_ENSEMBLE = {op.title for op in OPERATIONS if op.by_ensemble}


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


def is_moved(line: str) -> bool:
    """Whether the line is about servers that are behind."""
    return "server that is behind |" in line or "| that server " in line or "can be reached" in line


# --- the tables -----------------------------------------------------------------------------------


def documented(section: str, title: str) -> list[str]:
    """The document's lines about it."""
    if section == "watches":
        lines = document.lines(SECTIONS["watches"])
        return [line for line in lines if line.startswith(f"| {title} |")]
    text = SECTIONS[section]
    return list(document.by_title(text)[title] if title else document.lines(text))


def assert_documented(runs: Runs, section: str, *, behind: bool) -> None:
    """The document says what was observed, no more and no less."""
    assert runs[section]
    for title, rows in runs[section].items():
        lines = documented(section, title)
        if not (behind and (section == "members" or title in BY_ENSEMBLE)):
            lines = [line for line in lines if is_moved(line) is behind]
        assert [document.line(row) for row in rows if any(row[1:])] == lines, title


@clients
@pytest.mark.parametrize("section", [section for section in every.HEADS if section != "members"])
def test_the_tables(on_one: Observed, client: str, section: str) -> None:
    assert_documented(on_one[client], section, behind=False)


@pytest.mark.apache
@clients
class TestServerBehind:
    """The same, ended by a move to a follower that has not heard of it yet.

    An operation that a server alone refuses has all its other lines from an ensemble; and a
    reconfiguration is asked of one that is behind, and of the one that it removes.
    """

    @pytest.mark.parametrize("section", ["operations", "recipes", "watches", "sessions", "members"])
    def test_the_tables(self, behind: Observed, client: str, section: str) -> None:
        assert_documented(behind[client], section, behind=True)

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
    in_operations = document.by_title(SECTIONS["operations"])
    assert all(points.BEHIND in str(lines) for lines in in_operations.values())


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


@pytest.mark.real
def test_code_runs(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    with zkwire.Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        for block in blocks:
            exec(block.replace("127.0.0.1:2181", zookeeper.hosts + fresh_path), {})
        assert client.get_data(f"{fresh_path}/balance").data == b"100"


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
