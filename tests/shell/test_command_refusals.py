"""A refusal is told as one, with what was done before; no file ends a command in a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import run
from zkwire import Client, NoAuthError
from zkwire.testing import Server

NO_AUTH = NoAuthError.code


@pytest.fixture
def tree(server: Server) -> Server:
    """A server with /a, of two leaves, and /b."""
    with Client(server.hosts) as client:
        for path in ("/a", "/a/x", "/a/y", "/b"):
            client.create(path)
    return server


@pytest.mark.parametrize(("command", "op", "nth", "says"), [
    ("rm -r /a", "delete", 1, "1 node of /a had been deleted by then"),
    ("rm -r /a", "delete", 3, "2 nodes of /a had been deleted by then"),
    ("rm -r /a", "get_children", 1, ""),
    ("rm -r /b", "delete", 1, ""),
    ("rm /b /a/x", "delete", 2, "deleted before: /b"),
    ("rm -r /b /a", "get_children", 3, "deleted before: /b"),
    ("rm -f /missing /b /a", "delete", 3, "deleted before: /b"),
    ("copy /a /c", "create", 2, "done before: created 1, changed 0, deleted 0"),
    ("acl set -R /a world:anyone:cdrwa", "set_acl", 2, "that have the list by then: 1"),
    ("create -p /new/between/below", "create", 4, ""),
])  # fmt: skip
def test_refused_in_the_middle_is_status_1_and_told(
    tree: Server, command: str, op: str, nth: int, says: str
) -> None:
    tree.refuse_next(op, NO_AUTH, nth=nth)
    ran = run(tree.hosts, "--json", *command.split())
    error = json.loads(ran.err.splitlines()[-1])
    assert (ran.status, ran.out, error["exit"]) == (1, b"", 1), ran.err
    assert (error["error"], error["outcome"]) == ("NoAuth", "refused")
    assert says in error["message"]
    assert bool(says) is any(word in error["message"] for word in ("by then", "before:"))


def test_refused_transaction_is_status_1(tree: Server) -> None:
    """It is one request, of which nothing is done: unlike `rm -r`, there is nothing to tell."""
    tree.refuse_next("multi", NO_AUTH)
    assert run(tree.hosts, "txn", "rm /b", "rm /a/x").status == 1


@pytest.mark.parametrize("path", ["/b", "/a"])
def test_delete_tree_refused_says_what_it_has_changed(tree: Server, path: str) -> None:
    with Client(tree.hosts) as client:
        tree.refuse_next("delete", NO_AUTH)
        with pytest.raises(NoAuthError) as caught:
            client.delete_tree(path)
    assert caught.value.maybe_applied is (path == "/a")  # the other leaf is gone
    notes = ["1 node of /a had been deleted by then"] if path == "/a" else []
    assert getattr(caught.value, "__notes__", []) == notes


HEAD = '{"v": 1, "kind": "zkwire dump", "root": %s}\n'
DEEP = "[" * 100_000
LONG = "/" + "x" * 1_100_000


def node(path: str = '"/"', acl: str = "[]", data: str = "null", more: str = "") -> str:
    return HEAD % '"/"' + f'{{"path": {path}, "acl": {acl}, "data": {data}{more}}}'


FILES = {
    "null": "null",
    "list": "[1]",
    "deep": DEEP,
    "root null": HEAD % "null",
    "root list": HEAD % "[]",
    "root deep": HEAD % DEEP,
    "no root": HEAD.replace(', "root": %s', ""),
    "long root": HEAD % f'"{LONG}/"',
    "line deep": HEAD % '"/"' + DEEP,
    "path null": node("null"),
    "path long": node(f'"{LONG}"'),
    "acl number": node(acl="5"),
    "acl of numbers": node(acl="[5]"),
    "data list": node(data="[[]]"),
    "stat null": node(more=', "stat": {"cversion": null}'),
    "stat list": node(more=', "stat": [1]'),
}


@pytest.mark.parametrize("name", FILES)
def test_file_of_nonsense_is_one_line_and_status_2(
    server: Server, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "file"
    file.write_text(FILES[name])
    ran = run(server.hosts, "load", str(file))
    assert (ran.status, ran.err.count("\n")) == (2, 1), ran.err[:2000]
    assert ran.err.startswith("zkwire: ")
    assert len(ran.err) < 2000


@pytest.mark.parametrize("words", [["load", "FILE"], ["shell", "-c", "load FILE"]])
def test_defect_is_one_line_and_status_125(
    server: Server, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("zkwire.cli.transfer.commands.DumpFile", {}.__getitem__)
    ran = run(server.hosts, *(word.replace("FILE", __file__) for word in words))
    assert (ran.status, ran.err.count("\n")) == (125, 1), ran.err
    assert "a defect of zkwire, " in ran.err
