"""docs/core.md is true: its I/O layer runs, its tables name what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.support.snippets import ROOT, blocks
from zkwire import Client, OutcomeUnknownError, SessionExpiredError
from zkwire.operations import Operations
from zkwire.session import HostList, Request, Session, State, Watch
from zkwire.session import __all__ as session_exports
from zkwire.session.states import TRANSITIONS
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Frame, cut_after

TEXT = (ROOT / "docs" / "core.md").read_text()
SHELL, USE = blocks("core")
MOST_LINES = 60
TIMEOUT = 1.0

# Members of a Session that the page does not promise: for the I/O layers of this package.
NOT_PROMISED = {
    "act_at", "callbacks", "chroot", "connection", "control_frames", "dead_at", "hold", "hosts",
    "in_flight", "last_zxid", "lease_holders", "peer", "push", "queue", "refused", "resumed",
    "send_alone", "send_limit", "server", "trace", "unhold", "watch_count",
}  # fmt: skip


def table(title: str) -> list[list[str]]:
    """The cells of the first table below a title, without its head."""
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    """What stands in a cell as code, without arguments."""
    return re.findall(r"`(\w+)", cell)


# --- the I/O layer --------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(tick=TIMEOUT / 10, timeouts=(TIMEOUT, TIMEOUT)) as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.hosts) as proxy:
        yield proxy


@pytest.fixture
def shell(proxy: FaultProxy) -> Iterator[Any]:
    made: dict[str, Any] = {}
    exec(SHELL, made)
    shell = made["Driver"](proxy.hosts, timeout=TIMEOUT)
    yield shell
    shell.close()
    assert shell.sock is None


def sent(frames: list[Frame]) -> list[str]:
    return [frame.op for frame in frames if frame.direction == "c2s"]


def test_the_shell_is_short_uses_the_core_alone_and_works(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SHELL.splitlines()) <= MOST_LINES
    own = re.findall(r"^from (zkwire\S*) import|^import (zkwire)", SHELL, re.MULTILINE)
    assert {module for module, _ in own} == {"zkwire.operations", "zkwire.session"}
    exec("".join(blocks("core", server.hosts)), {})
    assert capsys.readouterr().out == "b'1'\nEventType.NODE_DATA_CHANGED\n"
    assert "/core" not in server.tree.nodes
    assert list(server.sessions) == []


def test_a_cut_connection(shell: Any, server: Server, proxy: FaultProxy) -> None:
    """The request in flight ends, the session goes on, and a watch is set again."""
    shell.create("/watched")
    watch = Watch()
    shell.get_data("/watched", watch=watch)
    session_id = shell.session.session_id
    proxy.on("create", action=cut_after)
    with pytest.raises(OutcomeUnknownError):
        shell.create("/lost", ephemeral=True)
    with Client(server.hosts) as other:
        other.set_data("/watched", b"changed")
    assert shell.wait(watch, timeout=15.0)
    assert watch.take().path == "/watched"  # type: ignore[union-attr]
    assert shell.exists("/lost").ephemeral_owner == session_id == shell.session.session_id
    assert sent(proxy.frames()).count("connect") == 2


def test_the_end_of_a_session(shell: Any, server: Server) -> None:
    shell.create("/own", ephemeral=True)
    server.expire(shell.session.session_id)
    with suppress(OutcomeUnknownError):  # the server has closed the connection as well
        shell.exists("/own")
    with pytest.raises(SessionExpiredError):
        shell.exists("/own")
    assert shell.session.state is State.EXPIRED
    assert shell.sock is None


# --- the tables -----------------------------------------------------------------------------------


def test_the_names_of_the_tables_are_those_that_there_are() -> None:
    found: dict[str, object] = {}
    exec("\n".join(re.findall(r"^\| `(from .+? import .+?)` \|", TEXT, re.MULTILINE)), found)
    assert set(found) - {"__builtins__"} == {"Operations", *session_exports}
    session = Session(HostList([("a", 1)], Random(1)), timeout=1.0)
    session.start(0.0)
    members = {name for name in dir(session) if not name.startswith("_")}
    rows = table("Inputs")[1:] + table("Outputs")
    told = {name for first, *_ in rows for name in names(first)}
    assert told | {"observers"} == members - NOT_PROMISED
    assert members >= NOT_PROMISED
    rows = table("Requests and watches")
    hooks = [name for first, *_ in rows[:6] for name in names(first)]
    assert hooks == ["_submit", "_own", "_chroot", "_acl", "_send_limit", "_kind"]
    waited = ["ready", "_add_waker", "_drop_waker"]
    of_requests, of_watches = (re.findall(rf"`{x}\.(\w+)", TEXT) for x in ("Request", "Watch"))
    assert {"value", "error"} <= {*of_requests}
    for kind, promised in (
        (Operations, hooks),
        (Request, [*waited, *of_requests]),
        (Watch, [*waited, *of_watches]),
        (Watch(), ["_owner"]),
    ):
        assert [name for name in promised if not hasattr(kind, name)] == []


def test_the_states() -> None:
    """The table has each transition, but for `closed` from a state that has a connection."""
    told = set[tuple[str, str]]()
    here: list[str] = []
    for state, _, following in table("A connection's life"):
        here = re.findall(r"`([A-Z_]+)`", state) or here
        told |= {(old, new) for old in here for new in re.findall(r"`([A-Z_]+)`", following)}
    assert told == {(old.name, new.name) for old, by in TRANSITIONS.items() for new in by.values()}
