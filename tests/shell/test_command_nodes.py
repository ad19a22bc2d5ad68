"""The commands that read, change and watch nodes: what each prints, and what it does."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connection_loss.case import repeat
from tests.support.command import RunningCommand, plays, prints, process, recording, refuses, run
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire import CREATOR_ALL_ACL, Client, Delete, digest_auth
from zkwire.testing import Ensemble, Server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client beside the command's own, for what a test looks at."""
    with Client(server.hosts) as client:
        yield client


LIFE = """
    create /a one                                -> /a
    create -s /a/n- x                            -> /a/n-0000000000
    create /a/ -s 'between options'              -> /a/0000000001
    create -p -c /b/c/d                          -> /b/c/d
    -s HOSTS/chroot create -p /a                 -> /a
    ls /a                                        -> 0000000001 | n-0000000000
    ls --count /a                                -> 2
    count /b                                     -> 2
    get /a/0000000001                            -> between options
    set /a two                                   -> 1
    set -v 1 /a three                            -> 2
    set --create /new x                          -> 0
    set --create /new y                          -> 1
    rm -r --dry-run /b                           -> /b/c/d | /b/c | /b
    rm --dry-run /new                            -> /new
    rm -v 1 /new                                 ->
    rm -r /a /b /chroot                          ->
    rm -f /new                                   ->
    sync                                         ->
    ls                                           -> zookeeper
    exists /zookeeper                            ->
"""
ACL = """
    create -p /a/b/c                             -> /a/b/c
    acl get /a                                   -> world:anyone:cdrwa
    acl set /a ip:127.0.0.1:cdrwa,world:anyone:cdrwa         -> 1
    acl set -v 1 /a ip:10.0.0.0/8:r world:anyone:cdrwa       -> 2
    acl get /a                                   -> ip:10.0.0.0/8:r | world:anyone:cdrwa
    acl set -v 1 /a world:anyone:cdrwa           => 1 BadVersion
    acl set -R /a ip:10.0.0.1:cdrwa              -> 3
    ls /a                                        => 1 NoAuth
    get /a/b/c                                   => 1 NoAuth
"""
LIMITS = "/zookeeper/quota/q/jobs/zookeeper_limits"
QUOTA = """
    create -p /q/jobs/a 12345                    -> /q/jobs/a
    quota set /q/jobs -n 10 -B 5000              ->
    get LIMITS                   -> count=10,bytes=-1=;byteHardLimit=5000;countHardLimit=-1
    quota get /q/jobs -> \
nodes = 2, limit 10, hard limit none | bytes = 5, limit none, hard limit 5000
    quota set /q/jobs -n none -b 7 -B none       ->
    get LIMITS                   -> count=-1,bytes=7=;byteHardLimit=-1;countHardLimit=-1
    quota set /q -n 1                            => 1 /q/jobs below it has a quota
    quota set /q/jobs/a -n 1                     => 1 /q/jobs above it
    set LIMITS count=1_0                         -> 2
    quota get /q/jobs                            => 2 no quota can be read in b'count=1_0'
    quota del /q/jobs                            ->
    ls -R /zookeeper/quota                       ->
    quota del /q/jobs                            => 1 NoNode: /q/jobs has no quota
    quota set /none -n 1                         => 1 NoNode
"""
TRANSACTION = """
    create /config old                           -> /config
    create /old                                  -> /old
    txn 'check /config 0' "set /config 'new value'" 'create -s /n- x' 'rm -v 0 /old' -> \
check /config | set /config 1 | create /n-0000000002 | rm /old
    get /config                                  -> new value
    txn 'create /new' 'rm /missing'              => 1 delete /missing
    exists /config                               ->
"""
SESSION = """
    whoami                                       -> ip:127.0.0.1
    ephemerals                                   ->
    config                                       ->
    reconfig --remove 3                          => 1
    create -e /short -> /short | /short is ephemeral: it is deleted as soon as this command ends
    -q create -e /short                          -> /short
    ls                                           -> zookeeper
"""


def test_a_life_of_nodes(server: Server) -> None:
    plays(server, LIFE, HOSTS=server.hosts)


@pytest.mark.parametrize("text", [ACL, QUOTA, TRANSACTION, SESSION])
def test_each_command_prints_what_it_has_done(server: Server, text: str) -> None:
    plays(server, text, LIMITS=LIMITS)


@pytest.mark.parametrize(
    "words",
    ["ls /a", "ls -l /a", "ls -R /a", "tree /a", "rm -r --dry-run /a", "who --search SESSION"],
)
def test_a_name_with_line_ends_is_printed_on_one_line(
    words: str, server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zkwire makes no such node, but a server that lets others do so shows it."""
    name = "a\n\u2028\r\x1b[2Jb"
    monkeypatch.setattr("zkwire.wire.paths._accepted", {f"/a/{name}"})
    client.create("/a")
    client.create(f"/a/{name}", ephemeral=True)
    ran = run(server.hosts, *words.replace("SESSION", hex(client.session_id)).split())
    text = ran.out.decode()
    assert text.count("a\\n\\u2028\\r\\x1b[2Jb") == 1
    assert text.replace("\n", "").isprintable()
    assert all(line.strip() != "b" for line in ran.lines)


def test_the_forms_of_data(server: Server, client: Client, tmp_path: Path) -> None:
    client.create("/x", b"\x00ABC\xff")
    client.create("/y", bytes(range(0x1F, 0x22)) + b"}~\x7f")
    for path, row in (("/x", "00 41 42 43 ff   .ABC."), ("/y", "1f 20 21 7d 7e 7f   . !}~.")):
        (line,) = prints(server, f"get --hex {path}")
        digits, _, text = row.partition("   ")
        assert line == f"00000000  {digits:49} |{text}|"
    assert prints(server, "get --base64 /x") == ["AEFCQ/8="]
    assert run(server.hosts, "get", "/x").out == b"\x00ABC\xff"
    assert run(server.hosts, "get", "--json", "/x").record["data"] == {"base64": "AEFCQ/8="}
    assert prints(server, "get -s /x")[0] == r"\x00ABC\xff"
    assert prints(server, f"get -o {tmp_path}/file /x") == []
    assert (tmp_path / "file").read_bytes() == b"\x00ABC\xff"
    assert prints(server, f"set /x --data-file {tmp_path}/file") == ["1"]


@pytest.mark.parametrize("data", [b"", b"\n", b"null", b"\xff\x00" * 500_000], ids=len)
def test_what_goes_in_by_a_pipe_comes_out_by_a_pipe(server: Server, data: bytes) -> None:
    prints(server, "create /x --data-file -", stdin=data)
    assert run(server.hosts, "get", "--raw", "/x").out == data
    assert run(server.hosts, "get", "/x").out == data


REFUSED = """
    get /no                                => 1 NoNode: get_data /no: There is no such node.
    stat /no                               => 1 NoNode: stat /no: There is no such node.
    ls /no                                 => 1 NoNode:
    tree /no                               => 1 NoNode:
    create /no/child                       => 1 NoNode:
    create /full                           => 1 NodeExists:
    set /no x                              => 1 NoNode:
    set -v 7 /full x                       => 1 BadVersion:
    rm /no                                 => 1 NoNode:
    rm -r /no                              => 1 NoNode:
    rm /full                               => 1 NotEmpty:
    rm -v 7 /full                          => 1 BadVersion:
    rm --dry-run /no                       => 1 NoNode:
    rm --dry-run /full                     => 1 NotEmpty:
    rm --dry-run -v 7 /full/child          => 1 BadVersion:
"""


def test_what_the_server_refuses_is_status_1(server: Server) -> None:
    prints(server, "create /full/child -p")
    plays(server, REFUSED)


def test_the_configuration_of_an_ensemble(tmp_path: Path) -> None:
    (tmp_path / "super").write_text("super:secret\n")
    with Ensemble(3, reconfig=True, super_password="secret") as ensemble:
        may = f"--auth digest:{tmp_path / 'super'}"
        # The server's answer is a set.
        assert sorted(prints(ensemble, f"{may} whoami")) == [
            "digest:super",
            "ip:127.0.0.1",
            "super:",
        ]
        *members, version = prints(ensemble, "config")
        assert len(members) == 3
        assert prints(ensemble, "config -c") == [ensemble.hosts]
        assert refuses(ensemble, "reconfig --remove 3").startswith("NoAuth")
        old = version.removeprefix("version=")
        assert prints(ensemble, f"{may} reconfig --remove 3 -v {old}")[:-1] == members[:2]
        refuses(ensemble, f"{may} reconfig --remove 3 -v {old}")
        (tmp_path / "all").write_text("\n".join(["# all", *members, version]))
        assert prints(ensemble, f"{may} reconfig --file {tmp_path / 'all'}")[:-1] == members
        shown = run(ensemble.hosts, "config", "--json").record
        assert (shown["members"], len(shown["clients"])) == (members, 3)
        assert int(shown["version"], 16) > int(old, 16)


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


@pytest.mark.parametrize(("words", "status"), [
    ("watch / --timeout 100ms", 0),
    ("watch -r / -n 1 --timeout 100ms", 124),
    ("wait /none --timeout 100ms --connect-timeout 1h", 124),
    ("wait /none --timeout 0", 124),
    ("wait /zookeeper --timeout 0", 0),
    ("wait /zookeeper --gone --timeout 0", 124),
    ("wait /secret --timeout 30s", 1),
    ("watch /secret --timeout 30s", 1),
    ("watch // --timeout 100ms", 0),
])  # fmt: skip
def test_the_exit_status(server: Server, words: str, status: int) -> None:
    with Client(server.hosts, auth=[digest_auth("a", "b")]) as client:
        client.create("/secret", acl=CREATOR_ALL_ACL)
    ran = run(server.hosts, *words.split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, b"", status == 1)


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
