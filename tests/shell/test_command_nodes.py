"""The commands that list, read and change nodes: what each prints, and what it does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.command_lines import recording
from zkwire import Client
from zkwire.testing import Ensemble, Server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client beside the command's own, for what a test looks at."""
    with Client(server.hosts) as client:
        yield client


def prints(server: Server | Ensemble, *words: str, stdin: bytes = b"") -> list[str]:
    """What a command prints that succeeds without a note."""
    ran = run(server.hosts, *words, stdin=stdin)
    assert (ran.status, ran.err) == (0, "")
    return ran.lines


def refuses(server: Server | Ensemble, *words: str) -> tuple[int, str]:
    """The exit status and the line of a command that fails."""
    ran = run(server.hosts, *words)
    assert ran.out == b""
    assert ran.err.startswith("zkwire: ")
    assert ran.err.count("\n") == 1
    return ran.status, ran.err.removeprefix("zkwire: ").rstrip()


def test_a_life_of_nodes(server: Server) -> None:
    assert prints(server, "create", "/a", "one") == ["/a"]
    assert prints(server, "create", "-s", "/a/n-", "x") == ["/a/n-0000000000"]
    assert prints(server, "create", "/a/", "-s", "between options") == ["/a/0000000001"]
    assert prints(server, "create", "-p", "-c", "/b/c/d") == ["/b/c/d"]
    assert prints(server, "-s", f"{server.hosts}/chroot", "create", "-p", "/a") == ["/a"]
    assert prints(server, "ls", "/a") == ["0000000001", "n-0000000000"]
    assert prints(server, "ls", "--count", "/a") == ["2"]
    assert prints(server, "count", "/b") == ["2"]
    assert prints(server, "get", "/a/0000000001") == ["between options"]
    assert prints(server, "set", "/a", "two") == ["1"]
    assert prints(server, "set", "-v", "1", "/a", "three") == ["2"]
    assert prints(server, "set", "--create", "/new", "x") == ["0"]
    assert prints(server, "set", "--create", "/new", "y") == ["1"]
    assert prints(server, "rm", "-r", "--dry-run", "/b") == ["/b/c/d", "/b/c", "/b"]
    assert prints(server, "rm", "--dry-run", "/new") == ["/new"]
    assert prints(server, "rm", "-v", "1", "/new") == []
    assert prints(server, "rm", "-r", "/a", "/b", "/chroot") == []
    assert prints(server, "rm", "-f", "/new") == []
    assert prints(server, "sync") == []
    assert prints(server, "ls") == ["zookeeper"]


def test_a_tree(server: Server, client: Client) -> None:
    client.ensure_path("/t/a/deep")
    client.create("/t/b", b"12345", ephemeral=True)
    drawn = ["/t", "├── a", "│   └── deep", "└── b"]
    assert prints(server, "tree", "/t") == drawn
    assert prints(server, "tree", "-L", "1", "/t") == ["/t", "├── a", "└── b"]
    assert prints(server, "tree", "-l", "/t")[-1] == "└── b  (5 bytes, ephemeral)"
    assert prints(server, "ls", "-R", "/t") == ["/t/a", "/t/a/deep", "/t/b"]
    assert run(server.hosts, "tree", "--json", "/t").record == {
        "v": 1,
        "path": "/t",
        "children": [
            {"name": "a", "children": [{"name": "deep", "children": []}]},
            {"name": "b", "children": []},
        ],
    }


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


def test_a_deep_tree_is_no_deep_recursion(server: Server, client: Client) -> None:
    client.ensure_path("/d" * 600)
    assert len(prints(server, "tree", "/")) > 600
    assert run(server.hosts, "rm", "-r", "/d").status == 0


def test_a_long_list(server: Server, client: Client) -> None:
    client.create("/l")
    client.create("/l/owned", b"123", ephemeral=True)
    header, row = prints(server, "ls", "-l", "/l")
    assert header.split() == ["children", "bytes", "version", "modified", "name"]
    assert re.fullmatch(r"e +0 +3 +0  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  owned", row)
    assert len(row) <= 80
    listed = run(server.hosts, "ls", "-l", "-s", "--json", "/l").record
    assert listed["children"][0]["stat"]["data_length"] == 3
    assert listed["stat"]["num_children"] == 1
    ids = ("czxid", "mzxid", "pzxid", "ephemeral_owner")
    assert all(re.fullmatch("0x[0-9a-f]+", listed["stat"][name]) for name in ids)
    assert run(server.hosts, "stat", "--json", "/l").record["stat"] == listed["stat"]
    assert prints(server, "stat", "/l") == prints(server, "get", "-s", "/l")[1:]


def test_the_forms_of_data(server: Server, client: Client, tmp_path: Path) -> None:
    client.create("/x", b"\x00ABC\xff")
    table = "00000000  00 41 42 43 ff                                    |.ABC.|"
    assert prints(server, "get", "--hex", "/x") == [table]
    client.create("/y", bytes(range(0x1F, 0x22)) + b"}~\x7f")
    table = "00000000  1f 20 21 7d 7e 7f                                 |. !}~.|"
    assert prints(server, "get", "--hex", "/y") == [table]
    assert prints(server, "get", "--base64", "/x") == ["AEFCQ/8="]
    assert run(server.hosts, "get", "/x").out == b"\x00ABC\xff"
    assert run(server.hosts, "get", "--json", "/x").record["data"] == {"base64": "AEFCQ/8="}
    assert prints(server, "get", "-s", "/x")[0] == r"\x00ABC\xff"
    assert prints(server, "get", "-o", str(tmp_path / "file"), "/x") == []
    assert (tmp_path / "file").read_bytes() == b"\x00ABC\xff"
    prints(server, "set", "/x", "--data-file", str(tmp_path / "file"))
    assert client.get_data("/x").stat.version == 1


@pytest.mark.parametrize("data", [b"", b"\n", b"null", b"\xff\x00" * 500_000], ids=len)
def test_what_goes_in_by_a_pipe_comes_out_by_a_pipe(server: Server, data: bytes) -> None:
    prints(server, "create", "/x", "--data-file", "-", stdin=data)
    assert run(server.hosts, "get", "--raw", "/x").out == data
    assert run(server.hosts, "get", "/x").out == data


def test_exists_is_an_exit_status(server: Server) -> None:
    assert run(server.hosts, "exists", "/zookeeper") == (0, b"", "")
    assert run(server.hosts, "exists", "/missing") == (1, b"", "")
    assert run(server.hosts, "exists", "--json", "/missing").record["exists"] is False


def test_an_ephemeral_node_of_a_single_command_goes_and_that_is_said(server: Server) -> None:
    ran = run(server.hosts, "create", "-e", "/short")
    assert (ran.status, ran.out) == (0, b"/short\n")
    assert ran.err == "/short is ephemeral: it goes now, with the session of this command\n"
    assert run(server.hosts, "-q", "create", "-e", "/short").err == ""
    assert run(server.hosts, "exists", "/short").status == 1


def test_what_the_server_refuses_is_status_1(server: Server) -> None:
    prints(server, "create", "/full/child", "-p")
    assert refuses(server, "get", "/no") == (1, "NoNode: get_data /no: There is no such node.")
    assert refuses(server, "stat", "/no") == (1, "NoNode: stat /no: There is no such node.")
    for words, name in [
        ("ls /no", "NoNode"),
        ("tree /no", "NoNode"),
        ("create /no/child", "NoNode"),
        ("create /full", "NodeExists"),
        ("set /no x", "NoNode"),
        ("set -v 7 /full x", "BadVersion"),
        ("rm /no", "NoNode"),
        ("rm -r /no", "NoNode"),
        ("rm /full", "NotEmpty"),
        ("rm -v 7 /full", "BadVersion"),
        ("rm --dry-run /no", "NoNode"),
        ("rm --dry-run /full", "NotEmpty"),
        ("rm --dry-run -v 7 /full/child", "BadVersion"),
    ]:
        status, line = refuses(server, *words.split())
        assert (status, line.partition(":")[0]) == (1, name), words


@pytest.mark.parametrize("words", [
    "get", "get --raw --hex /a", "get /a /b", "create /a --ttl 0", "create /a --ttl -5",
    "create /a --ttl forever", "create /a -t 40000000h", "create /a -e -c", "create /a -p -s -c",
    "create /p/a\x01 -p", "create /a --acl nonsense", "create /a --acl world:anyone:xyz",
    "create /a x --data-file -", "set /a", "set /a x --create -v 1", "set -v -1 /a x", "rm",
    "rm /", "rm -r -v 1 /a", "rm -v 1 /a /b", "rm /a /b\x01", "tree -L 0", "fly /a",
])  # fmt: skip
def test_bad_words_are_status_2_and_send_nothing(words: str) -> None:
    """There is no server: what would be sent would be status 3."""
    ran = run("127.0.0.1:1", "--connect-timeout", "0", *words.split(" "))
    assert (ran.status, ran.out) == (2, b"")
    assert re.fullmatch("zkwire: .+\n", ran.err)


@pytest.mark.parametrize(
    ("words", "data", "status"), [("", 2 << 20, 2), ("--acl ip:nowhere:r", 0, 1)]
)
def test_a_node_that_cannot_be_made_leaves_no_parents(
    server: Server, words: str, data: int, status: int
) -> None:
    command = ["create", "-p", "/a/b", "--data-file", "-", *words.split()]
    ran = run(server.hosts, *command, stdin=bytes(data))
    assert (ran.status, ran.out) == (status, b"")
    assert prints(server, "ls", "/") == ["zookeeper"]


@pytest.mark.parametrize("name", ["nodes", "error"])
def test_the_page_shows_what_happens(server: Server, name: str) -> None:
    shown: list[str] = []
    page = recording(name)
    for line in page:
        if line.startswith("$ zkwire "):
            ran = run(server.hosts, *shlex.split(line)[2:])
            shown += [line, *ran.lines, *ran.err.splitlines()]
    assert shown == page
