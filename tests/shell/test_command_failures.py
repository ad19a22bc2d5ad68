"""What a failing command says: nothing on standard output, one line on the other, its status."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from tests.support.command import ZKWIRE, ended, process, run
from zkwire import CREATOR_ALL_ACL, Client, digest_auth
from zkwire.cli.main import main
from zkwire.errors import SESSION_EXPIRED
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after, cut_before

CHANGES = {
    "create": "create /new",
    "create2": "set --create /missing x",
    "set_data": "set /there x",
    "delete": "rm /there",
    "set_acl": "acl set /there world:anyone:r",
    "multi": "txn check\\ /there rm\\ /there",
}
READS = {
    "get_children2": "ls /",
    "get_data": "get /there",
    "exists": "stat /there",
    "get_acl": "acl get /there",
    "get_all_children_number": "count /",
    "who_am_i": "whoami",
}


def words_of(command: str) -> list[str]:
    """The words, with spaces in one where a backslash stands."""
    return [word.replace("\0", " ") for word in command.replace("\\ ", "\0").split()]


@pytest.mark.parametrize(("op", "command"), [*CHANGES.items(), *READS.items()])
def test_a_connection_that_ends_behind_the_request_leaves_the_outcome_unknown(
    server: Server, op: str, command: str
) -> None:
    with Client(server.hosts) as client:
        client.create("/there")
    with FaultProxy(server.hosts) as proxy:
        proxy.on(op, action=cut_after)
        ran = run(proxy.hosts, "--json", *words_of(command))
        assert proxy.unfired == []
    assert (ran.status, ran.out) == (4, b"")
    error = json.loads(ran.err)
    assert (error["v"], error["outcome"], error["exit"]) == (1, "unknown", 4)


def test_a_connection_that_ends_before_the_request_arrives_looks_the_same(server: Server) -> None:
    """The client cannot tell it from one that ends behind the request: the bytes have left."""
    with FaultProxy(server.hosts) as proxy:
        proxy.on("create", action=cut_before)
        ran = run(proxy.hosts, "create", "/new")
    assert (ran.status, ran.out, ran.err.count("\n")) == (4, b"", 1)
    assert run(server.hosts, "exists", "/new").status == 1


def test_a_session_that_expires_is_status_5(server: Server) -> None:
    server.refuse_next("create", SESSION_EXPIRED)
    ran = run(server.hosts, "create", "/new")
    assert ran.out == b""
    assert (ran.status, ran.err.partition(": ")[2].partition(":")[0]) == (5, "SessionExpired")


@pytest.mark.parametrize(
    "command", [*CHANGES.values(), *READS.values(), "tree", "exists /", "sync", "rm -r /a",
                "quota get /a", "ephemerals", "config", "reconfig --remove 3"],
)  # fmt: skip
def test_without_a_server_nothing_is_sent(command: str) -> None:
    ran = run("127.0.0.1:1", "--connect-timeout", "10ms", *words_of(command))
    assert (ran.status, ran.out) == (3, b"")
    assert ran.err.startswith("zkwire: Unreachable: ")
    assert ran.err.count("\n") == 1


def test_a_server_that_never_answers_is_no_server() -> None:
    """The kernel takes the connection, and nothing comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        ran = run(hosts, "--connect-timeout", "100ms", "ls", "/")
    assert (ran.status, ran.out, ran.err.count("\n")) == (3, b"", 1)


@pytest.mark.parametrize("option", ["--debug", "--json"])
def test_options_of_a_program_are_the_programs(option: str) -> None:
    ran = run("127.0.0.1:1", "--connect-timeout", "10ms", "lock", "/a", "--", "true", option)
    assert (ran.status, ran.out) == (125, b"")
    assert ran.err.startswith("zkwire: Unreachable: ")


@pytest.mark.parametrize(
    ("server", "words", "status"),
    [
        ("", "ls /", 2),  # an empty variable of a script, which means no other server
        ("127.0.0.1:1", "ls / --auth digest:typed-in-haste", 1),  # shown to no log
    ],
)
def test_what_is_typed_by_mistake_is_refused(server: str, words: str, status: int) -> None:
    ran = run(server, *words.split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, b"", 1)
    assert "haste" not in ran.err


def test_a_traceback_is_for_debug_alone(server: Server) -> None:
    ran = ended("--debug", "-s", server.hosts, "get", "/missing")
    assert ran.stdout == ""
    assert ran.stderr.startswith("Traceback")
    assert "NoNodeError" in ran.stderr


def test_a_reader_that_has_ended_ends_the_command_in_silence(server: Server) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with process("-s", server.hosts, "ls", stdout=writer) as ran:
        os.close(writer)
        assert ran.stderr is not None
        assert (ran.stderr.read(), ran.wait(100)) == ("", 141)


def test_a_help_that_cannot_be_written_is_status_1() -> None:
    buffered = {"PYTHONUNBUFFERED": ""}  # without a buffer argparse hears of it
    with open("/dev/full", "w") as full:
        assert ended("ls", "--help", env=buffered, stdout=full).returncode == 1


def test_a_character_that_the_output_cannot_show_is_written_as_its_number(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(server.hosts) as client:
        client.create("/\u00e9")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ran = ended("-s", server.hosts, "ls")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "zookeeper\n\\xe9\n", "")


def test_an_output_that_is_full_is_said(server: Server) -> None:
    with open("/dev/full", "w") as full:
        ran = ended("-s", server.hosts, "ls", stdout=full)
    said = "zkwire: [Errno 28] No space left on device\n"
    assert (ran.returncode, ran.stderr) == (1, said)


@pytest.mark.parametrize("words", ["create /new --data-file -", "txn", "load -"])
def test_a_standard_input_that_is_closed_is_said(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(words.split()) == 1
    assert capsys.readouterr() == ("", "zkwire: standard input is closed\n")


@pytest.mark.parametrize(
    ("words", "status"), [("create -e /new", 0), ("get", 2), ("--trace ls", 0)]
)
def test_what_cannot_be_said_changes_no_status(server: Server, words: str, status: int) -> None:
    buffered = {"PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        ran = ended("-s", server.hosts, *words.split(), env=buffered, stderr=full)
    assert ran.returncode == status


@pytest.mark.parametrize("ending", ["jsonl", "txt"])
def test_a_recording_that_cannot_be_written_ends_and_says_so(
    server: Server, tmp_path: Path, ending: str
) -> None:
    """Once, however much is still to come; the program that is run hears nothing of it."""
    other, full = tmp_path / "run.jsonl", tmp_path / f"full.{ending}"
    full.symlink_to("/dev/full")
    files = ["-f", "none", "-o", str(full), "-o", str(other)]
    program = [*ZKWIRE, "--server", "{}", "ls", "/zookeeper"]
    ran = run(server.hosts, "spy", *files, server.hosts, "--", *program)
    said = [line for line in ran.err.splitlines() if not line.startswith("listening")]
    assert (ran.status, said) == (0, ["the recording ends here: No space left on device"])
    assert '"op": "close_session"' in other.read_text()


@pytest.mark.parametrize("words", [
    "get /there -o {}/x", "set /there --data-file {}", "load {}", "reconfig --file {}",
    "--auth digest:{} ls /", "--tls --cafile {} ls /",
    "server --listen 127.0.0.1:0 --certificate {}",
    "spy 127.0.0.1:1 -o {}/x.txt", "lesson handshake --svg {}/x",
])  # fmt: skip
def test_a_file_that_cannot_be_opened_is_status_1_before_anything_is_done(
    server: Server, tmp_path: Path, words: str
) -> None:
    with Client(server.hosts) as client:
        client.create("/there", b"x")
    ran = run(server.hosts, *words.format(tmp_path / "missing").split())
    assert (ran.status, ran.out) == (1, b"")
    assert "No such file or directory" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(("words", "says"), [
    ("acl get", "the following arguments are required: PATH (see zkwire acl --help)"),
    ("lsd /", "there is no command 'lsd'; did you mean `ls`?"),
    ("getAcl /", "there is no command 'getAcl'; did you mean `acl get`?"),
    ("nothing-like-it", "there is no command 'nothing-like-it'; `zkwire help` lists them"),
    ("help delete", "there is no command 'delete'; did you mean `rm`?"),
    ("ls --cuont=1 /", "there is no flag --cuont=1; did you mean --count? ("),
    ("ls -Z /", "there is no flag -Z (see zkwire ls --help)"),
    ("--sever x ls", "there is no flag --sever; did you mean --server? (see zkwire --help)"),
    ("ls --session-timeot 5", "; did you mean --session-timeout?"),
    ("watch -r --children /", "argument --children: not allowed with argument -r/--recursive ("),
    ("tree -L x /", "-L: 'x' is no number from 1 on ("),
    ("ls --color red", "argument --color: invalid choice: 'red' ("),
    ("set -v x /a", "argument -v: 'x' is no version, a number from 0 on ("),
    ("set /there", "set takes PATH DATA, or PATH --data-file FILE"),
    ("ls / x\ny", "'x\\ny' is one word too many ("),
    ("who 0x", "'0x' is no session id, 0x and 1 to 16 hexadecimal digits"),
])  # fmt: skip
def test_a_mistake_is_answered_with_what_to_write(words: str, says: str) -> None:
    ran = run("127.0.0.1:1", *words.split(" "))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert says in ran.err


@pytest.mark.parametrize(("words", "says"), [
    ("create /no/a", "the parent /no does not exist; `create -p` creates it"),
    ("-s {}/no create /a", "the chroot does not exist; `create -p` creates it"),
    ("get /mine", "perhaps --auth (in the shell: addauth) is missing."),
    ("get --json /mine", "perhaps --auth (in the shell: addauth) is missing."),
    ("--session-timeout 9000 ls", "--session-timeout must be 0.001 to 3600 seconds, not 9000"),
    ("lock --lease-margin 5 /a true", "--lease-margin must be at most a fifth of --session"),
    ("create --ttl 0 /a", "--ttl must be 0.001 to "),
])  # fmt: skip
def test_advice_is_in_the_words_of_the_command(server: Server, words: str, says: str) -> None:
    with Client(server.hosts, auth=[digest_auth("me", "secret")]) as client:
        client.create("/mine", acl=CREATOR_ALL_ACL)
    assert says in run(server.hosts, *words.format(server.hosts).split()).err


def test_a_mistake_changes_nothing_and_says_so_to_a_script() -> None:
    error = json.loads(run("127.0.0.1:1", "ls", "--json", "--key", "x.pem").err)
    assert error["message"] == "--key is the key of a --cert"
    assert (error["outcome"], error["exit"]) == ("failed", 2)


def test_the_help_has_the_words_of_each_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", "--help"]) == 0
    usage = capsys.readouterr().out.partition("usage: ")[2]
    assert usage.startswith("zkwire acl get [-s] PATH\n       zkwire acl set [-s] [-v N | -R] PATH")
