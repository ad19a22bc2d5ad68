"""`zkwire watch` and `zkwire wait`, which outlive connections and sessions."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from tests.connection_loss.case import repeat
from tests.support.command import process, run
from tests.support.command_lines import RunningCommand, recording
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire import CREATOR_ALL_ACL, Client, Delete, digest_auth
from zkwire.testing import Server

MISSED = "changes before this line may have been missed"


def cut_all(server: Server, client: Client) -> None:
    """The server closes every connection; the client of the test is back on its next one."""
    server.cut_all()
    repeat(client.sync, "/")


def expire_others(server: Server, client: Client) -> None:
    """The server ends every session but that of the client."""
    for session in server.sessions:
        if session.session_id != client.session_id:
            assert server.expire(session.session_id)


def test_watch_shows_each_newest_state(server: Server) -> None:
    command_line, *lines = recording("watch")
    words = command_line.removeprefix("$ zkwire ").split()
    with Client(server.hosts) as client, RunningCommand(server, *words) as command:
        deeds: list[Callable[[], object]] = [
            lambda: None,
            lambda: client.create("/config", b"limit=10"),
            lambda: cut_all(server, client),
            lambda: client.set_data("/config", b"limit=20"),
            lambda: expire_others(server, client),
            lambda: client.set_data("/config", b"limit=30"),
            lambda: client.delete("/config"),
        ]
        for do, line in zip(deeds, lines, strict=True):
            do()
            assert command.line() == line
        assert command.status() == 0


def test_a_recursive_watch_says_where_changes_may_be_missing(server: Server) -> None:
    def record() -> dict[str, object]:
        fields: dict[str, object] = json.loads(command.line())
        assert (fields.pop("v"), len(str(fields.pop("time")))) == (1, 24)
        assert isinstance(fields.pop("t"), float)
        fields.pop("zxid", None)
        return fields

    words = ["watch", "-r", "/a", "--initial", "--json", "-n", "3"]
    with Client(server.hosts) as client:
        client.ensure_path("/a/b")
        with RunningCommand(server, *words) as command:
            assert [record() for _ in range(2)] == [
                {"event": "exists", "path": "/a"},
                {"event": "exists", "path": "/a/b"},
            ]
            client.set_data("/a/b", b"x")
            assert record() == {"event": "changed", "path": "/a/b"}
            for what, end in (("reconnected", cut_all), ("resynced", expire_others)):
                end(server, client)
                assert record() == {"event": what}
                assert record() == {"event": "gap", "path": "/a"}
            client.create("/a/b/c")
            assert record() == {"event": "created", "path": "/a/b/c"}
            client.delete("/a/b/c")
            assert record() == {"event": "deleted", "path": "/a/b/c"}
            assert command.status() == 0


def test_a_watch_of_children_tells_of_names_alone(server: Server) -> None:
    with Client(server.hosts) as client:
        client.ensure_path("/a/old")
        words = ["watch", "--children", "--initial", "-n", "3", "/a"]
        with RunningCommand(server, *words) as command:
            assert [command.line(), command.line()] == ["exists /a", "exists /a/old"]
            client.set_data("/a/old", b"x")
            client.create("/a/new")
            assert command.line() == "added /a/new"
            client.multi([Delete("/a/new"), Delete("/a/old")])
            missed = f"gap /a: {MISSED}"  # the state between was never there to be read
            assert command.rest() == [missed, "removed /a/new", "removed /a/old"]


def test_a_persistent_watch_tells_of_data_and_of_the_list_of_children(server: Server) -> None:
    words = ["watch", "--persistent", "--initial", "-n", "3", "/a"]
    with Client(server.hosts) as client, RunningCommand(server, *words) as command:
        assert command.line() == "missing /a"
        client.create("/a")
        client.create("/a/b")
        client.set_data("/a", b"x")
        assert command.rest() == ["created /a", "children /a", "changed /a"]


@pytest.mark.parametrize(("words", "status"), [
    ("watch / --timeout 100ms", 0),
    ("watch -r / -n 1 --timeout 100ms", 124),
    ("watch -n 0 /", 2),
    ("watch -r --children /", 2),
    ("wait /none --timeout 100ms --connect-timeout 1h", 124),
    ("wait /none --timeout 0", 124),
    ("wait /zookeeper --timeout 0", 0),
    ("wait /zookeeper --gone --timeout 0", 124),
    ("wait /none --data (", 2),
    ("wait /secret --timeout 30s", 1),
    ("watch /secret --timeout 30s", 1),
    ("watch // --timeout 100ms", 0),
])  # fmt: skip
def test_the_exit_status(server: Server, words: str, status: int) -> None:
    with Client(server.hosts, auth=[digest_auth("a", "b")]) as client:
        client.create("/secret", acl=CREATOR_ALL_ACL)
    ran = run(server.hosts, *words.split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, b"", status in {1, 2})


@pytest.mark.parametrize("command", ["watch", "wait"])
def test_without_a_server(command: str) -> None:
    ran = run("127.0.0.1:1", "--connect-timeout", "1s", command, "/")
    said = "Unreachable: no server could be reached within 1.0 s (127.0.0.1:1: Connection refused)"
    assert (ran.status, ran.err) == (3, f"zkwire: {said}\n")


def test_wait_ends_when_the_node_is_as_it_shall_be(server: Server) -> None:
    with Client(server.hosts) as client:
        steps: dict[str, list[Callable[[], object]]] = {
            "": [lambda: client.create("/a", b"v: 1")],
            "--data ^v:.2$": [lambda: client.set_data("/a", b"v: 2\n")],
            "--children 2": [lambda: client.create("/a/x"), lambda: client.create("/a/y")],
            "--children 0": [lambda: client.delete("/a/x"), lambda: client.delete("/a/y")],
            "--gone": [lambda: client.delete("/a")],
        }
        for words, deeds in steps.items():
            with RunningCommand(server, "wait", "/a", *words.split(), "--json") as command:
                poll("its session", lambda: len(server.sessions) == 2 or None, PATIENCE)
                expire_others(server, client)
                for do in deeds:
                    do()
                assert json.loads(command.line())["exists"] is (words != "--gone")
            assert command.status() == 0


@pytest.mark.parametrize(
    ("end", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (None, 141)],
    ids=["SIGINT", "SIGTERM", "a closed pipe"],
)
def test_the_end_of_a_watch_is_quiet(
    server: Server, end: signal.Signals | None, status: int
) -> None:
    with process("-s", server.hosts, "watch", "/", "--initial") as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        try:
            assert watch.stdout.readline() == "exists /: version 0\n"
            if end is None:  # and no change comes that would be written
                watch.stdout.close()
            else:
                watch.send_signal(end)
            assert watch.wait(PATIENCE) == status
            assert watch.stderr.read() == ""
        finally:
            watch.kill()
