"""A failing command: nothing on standard output, one line on the other, its status.

And what cannot be said, since standard error has ended, is full, or is not read, changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ZKWIRE, ended, process, refuses, run
from tests.support.server_control import poll
from zkwire import Client, NoAuthError
from zkwire.cli.main import main
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import black_hole, cut_after

SECONDS = 60.0
UNBUFFERED = {"PYTHONUNBUFFERED": ""}  # without a buffer argparse hears of a full disk
CALLS = {
    "create": "create /new",
    "create2": "set --create /missing x",
    "set_data": "set /there x",
    "delete": "rm /there",
    "set_acl": "acl set /there world:anyone:r",
    "multi": "txn 'check /there' 'rm /there'",
    "get_children2": "ls /",
    "get_data": "get /there",
    "exists": "stat /there",
    "get_acl": "acl get /there",
    "get_all_children_number": "count /",
    "who_am_i": "whoami",
}
NOWHERE = "127.0.0.1:1", "--connect-timeout", "10ms"


@pytest.mark.parametrize(("op", "command"), CALLS.items())
def test_a_connection_that_ends_behind_the_request_leaves_the_outcome_unknown(
    server: Server, op: str, command: str
) -> None:
    with Client(server.hosts) as client:
        client.create("/there")
    with FaultProxy(server.hosts) as proxy:
        proxy.on(op, action=cut_after)
        ran = run(proxy.hosts, "--json", *shlex.split(command))
        assert proxy.unfired == []
    assert (ran.status, ran.out) == (4, b"")
    error = json.loads(ran.err)
    assert (error["v"], error["outcome"], error["exit"]) == (1, "unknown", 4)


@pytest.mark.parametrize(
    "command", [*CALLS.values(), "tree", "exists /", "sync", "rm -r /a", "quota get /a",
                "ephemerals", "config", "reconfig --remove 3", "watch /", "wait /"],
)  # fmt: skip
def test_without_a_server_nothing_is_sent(command: str) -> None:
    ran = run(*NOWHERE, *shlex.split(command))
    assert (ran.status, ran.out, ran.err.count("\n")) == (3, b"", 1)
    assert ran.err.startswith("zkwire: Unreachable: ")


def test_without_a_server_it_says_why() -> None:
    said = "no server could be reached within 1.0 s (127.0.0.1:1: Connection refused)"
    assert run("127.0.0.1:1", "--connect-timeout", "1s", "ls").err.endswith(f": {said}\n")


def test_a_server_that_never_answers_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        assert run(hosts, "--connect-timeout", "100ms", "ls").status == 3


def test_a_traceback_is_for_debug_alone(server: Server) -> None:
    ran = ended("--debug", "-s", server.hosts, "get", "/missing")
    assert ran.stdout == ""
    assert ran.stderr.startswith("Traceback")
    assert "NoNodeError" in ran.stderr


@pytest.mark.parametrize(("words", "says"), [
    ("-s  ls /", ""),  # an empty variable of a script, which means no other server
    ("acl get", "the following arguments are required: PATH (see zkwire acl --help)"),
    ("lsd /", "there is no command 'lsd'; did you mean `ls`?"),
    ("getAcl /", "there is no command 'getAcl'; did you mean `acl get`?"),
    ("nothing-like-it", "there is no command 'nothing-like-it'; `zkwire help` lists them"),
    ("help delete", "there is no command 'delete'; did you mean `rm`?"),
    ("ls --cuont=1 /", "there is no flag --cuont=1; did you mean --count? ("),
    ("ls -Z /", "there is no flag -Z (see zkwire ls --help)"),
    ("--sever x ls", "is no flag --sever; did you mean --server? (see zkwire --help)"),
    ("ls --session-timeot 5", "; did you mean --session-timeout?"),
    ("watch -r --children /", "argument --children: not allowed with argument -r/--rec"),
    ("tree -L x /", "-L: 'x' is not a valid number from 1 on ("),
    ("ls --color red", "argument --color: invalid choice: 'red' ("),
    ("set -v x /a", "argument -v: 'x' is not a valid version, a number from 0 on ("),
    ("set /there", "set takes PATH DATA, or PATH --data-file FILE"),
    ("ls / x\ny", "'x\\ny' is one word too many ("),
    ("who 0x", "'0x' is not a session id, 0x and 1 to 16 hexadecimal digits"),
    ("lesson handshakes", "there is no lesson 'handshakes'; there are handshake, "),
    ("lesson handshake --naive", "the lesson handshake has no --naive; it has --want, "),
    ("lesson --all --svg x.svg", "--svg draws one lesson: name it"),
    ("lesson --svg x.svg", "--svg draws one lesson: name it"),
    ("lesson watch-gap --writes many", "argument --writes: invalid int value: 'many'"),
    ("lesson handshake --json", "lessons have no JSON"),
    ("ls --json --key x.pem", '"--key is the key of a --cert", "outcome": "failed", "exit": 2'),
])  # fmt: skip
def test_a_mistake_is_answered_with_what_to_write(words: str, says: str) -> None:
    ran = run("127.0.0.1:1", *words.split(" "))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert says in ran.err


@pytest.mark.parametrize("words", [
    "get", "get --raw --hex /a", "get /a /b", "create /a --ttl 0", "create /a --ttl -5",
    "create /a --ttl forever", "create /a -t 40000000h", "create /a -e -c", "create /a -p -s -c",
    "create /p/a\x01 -p", "create /a --acl nonsense", "create /a --acl world:anyone:xyz",
    "create /a x --data-file -", "set /a", "set /a x --create -v 1", "set -v -1 /a x", "rm",
    "rm /", "rm -r -v 1 /a", "rm -v 1 /a /b", "rm /a /b\x01", "tree -L 0", "fly /a",
    "acl get /a world:anyone:r", "acl set /a", "acl set -R -v 1 /a world:anyone:r",
    "acl set -R -s /a world:anyone:r", "acl drop /a", "txn", "txn fly", "txn set",
    "txn create'/a", "quota set /a", "quota get /a -n 3", "quota set / -n 3",
    "quota set /zookeeper/config -n 3", "quota set /a -n -3", "quota set /a -n many", "reconfig",
    "reconfig --add a --file b", "reconfig --remove 3 -v later", "watch -n 0 /",
    "wait /a --data (", "lock /p -n true", "lock -c true /p true", "lock -k 5 /p true",
    "lock -k 4s --margin 3 /p true", "lock -k 4s --lease-margin 2 /p true",
    "lock --lease-margin 2.1 /p true", "lock -s --holders 2 /p true", "lock --list /p true",
    "lock / true", "lock -E 256 /p true",
])  # fmt: skip
def test_bad_words_are_status_2_and_send_nothing(words: str) -> None:
    """There is no server: what would be sent would be status 3."""
    ran = run("127.0.0.1:1", "--connect-timeout", "0", *words.split(" "))
    assert (ran.status, ran.out) == (2, b"")
    assert re.fullmatch("zkwire: .+\n", ran.err)


# --- outputs and files that fail ------------------------------------------------------------------


@pytest.mark.parametrize("words", ["create /new --data-file -", "txn", "load -"])
def test_a_standard_input_that_is_closed_is_said(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(words.split()) == 1
    assert capsys.readouterr() == ("", "zkwire: standard input is closed\n")


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
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert "No such file or directory" in ran.err


# --- messages that cannot be written --------------------------------------------------------------

KINDS = ("ended", "disk", "pipe", "terminal")


@contextmanager
def output(kind: str) -> Iterator[int]:
    """An output whose reader has ended, a full disk, a full pipe, a terminal that is not read."""
    if kind == "disk":
        reader, writer = os.open(os.devnull, os.O_RDONLY), os.open("/dev/full", os.O_WRONLY)
    else:
        reader, writer = os.openpty() if kind == "terminal" else os.pipe()
    if kind == "ended":
        os.close(reader)
    elif kind in ("pipe", "terminal"):
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(writer)
        if kind != "ended":
            os.close(reader)


@contextmanager
def running(*words: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, which is gone at the end."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": None, "stderr": None, **streams}
    with process(*words, env=UNBUFFERED, **streams) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize(("kind", "words", "status", "said"), [
    ("ended", "ls", 141, ""),
    ("disk", "ls", 1, "zkwire: [Errno 28] No space left on device\n"),
    ("disk", "ls --help", 1, "zkwire: [Errno 28] No space left on device\n"),
])  # fmt: skip
def test_an_output_that_fails_ends_the_command(
    kind: str, words: str, status: int, said: str, server: Server
) -> None:
    with output(kind) as out:
        ran = ended("-s", server.hosts, *words.split(), env=UNBUFFERED, stdout=out)
    assert (ran.returncode, ran.stderr) == (status, said)


MADE = {"load": {"loaded"}, "copy": {"copied"}, "shell": {"last"}}
SCRIPT = "create -e /K/new; set /K/missing x; create /K/last"


@pytest.mark.parametrize(("words", "status"), [
    ("create -e /K/new", 0),
    ("set /K/missing x", 1),
    ("ls", 0),
    ("rm -r /K/a", 0),
    ("dump /K {}/K.jsonl", 0),
    ("load {}/source.jsonl /K/loaded", 0),
    ("copy /K/a /K/copied", 0),
    ("wait /K", 0),
    ("watch --initial --timeout 10ms /K", 0),
    ("shell -k -c", 1),
    ("spy SERVER -- true", 0),
    ("lesson none", 2),
    ("server --listen nowhere", 2),
    ("who /K/e", 0),
    ("nonsense", 2),
])  # fmt: skip
def test_a_message_that_cannot_be_written_changes_nothing(
    words: str, status: int, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "source.jsonl").write_text(
        '{"v": 1, "kind": "zkwire dump", "root": "/x"}\n'
        '{"path": "/", "data": {"text": "x"}, "acl": ["world:anyone:cdrwa"]}\n{"end": true}\n'
    )
    traced = [] if words.startswith(("lesson", "server")) else ["--trace"]
    with Client(server.hosts) as client, ExitStack() as stack:
        ran = []
        for kind in KINDS:
            client.ensure_path(f"/{kind}/a")
            client.create(f"/{kind}/e", ephemeral=True)  # `dump` has a note about it
            line = words.replace("K", kind).format(tmp_path).replace("SERVER", server.hosts)
            typed = [*line.split(), *([SCRIPT.replace("K", kind)] if "-c" in line else [])]
            streams = {"stdout": subprocess.DEVNULL, "stderr": stack.enter_context(output(kind))}
            ran.append(stack.enter_context(running("-s", server.hosts, *traced, *typed, **streams)))
        assert [process.wait(SECONDS) for process in ran] == [status] * len(KINDS)
        for kind in KINDS:
            left = {"e", *(() if words.startswith("rm") else "a")}
            left |= MADE.get(words.split(maxsplit=1)[0], set())
            assert set(client.get_children(f"/{kind}")) == left
            if words.startswith("dump"):
                assert (tmp_path / f"{kind}.jsonl").read_text().endswith("true}\n")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", ["--on-lost=term", "--on-lost=kill", "--foreground"])
def test_a_loss_that_cannot_be_told_ends_the_command(
    kind: str, option: str, server: Server
) -> None:
    """The command tells of its end by the end of its output, which nothing else has."""
    words = ["-s", server.hosts, "lock", option, "/p", "sh", "-c", "echo; exec sleep 99"]
    with (
        output(kind) as errors,
        Client(server.hosts) as client,
        running(*words, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        (name,) = client.get_children("/p")
        client.delete(f"/p/{name}")
        assert process.wait(SECONDS) == 122
        assert process.stdout.read() == ""


PROGRAM = """
import pathlib, signal, sys
from zkwire import Client
signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path(sys.argv[2]).touch()))
with Client(sys.argv[1]):
    signal.pause()
"""


@pytest.mark.parametrize(
    ("command", "number", "status"),
    [
        ("lock /p", signal.SIGTERM, 143),  # a lock that cannot be shown is released
        ("ls", signal.SIGINT, 130),
        ("shell -c", signal.SIGINT, 130),
        ("spy", signal.SIGTERM, None),  # sends it on
    ],
)
def test_a_signal_waits_for_no_reader(
    command: str, number: int, status: int | None, server: Server, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    more = {"shell -c": ["ls; create /next"]}
    more["spy"] = [server.hosts, "--", sys.executable, "-c", PROGRAM, "{}", str(told)]
    words = ["-s", server.hosts, *command.split(), *more.get(command, [])]
    with (
        Client(server.hosts) as client,
        output("pipe") as full,
        running(*words, stdout=full) as process,
    ):
        channel = Path(f"/proc/{process.pid}/wchan")
        poll("a write to a full pipe", lambda: "pipe_w" in channel.read_text() or None, SECONDS)
        held = client.get_children("/p") if command == "lock /p" else ["one"]
        process.send_signal(number)
        if status is None:
            poll("the signal", lambda: told.exists() or None, SECONDS)
        else:
            assert process.wait(SECONDS) == status
        assert len(held) == 1
        assert client.exists("/next") is None
        assert command != "lock /p" or client.get_children("/p") == []


# --- refusals, and files of nonsense --------------------------------------------------------------


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
    ("acl set -R /a world:anyone:cdrwa", "set_acl", 2, "that had the new list by then: 1"),
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


LONG = '{"v": 1, "kind": "zkwire dump", "root": "/%s/"}' % ("x" * 1_100_000)


@pytest.mark.parametrize("text", ["null", LONG], ids=["null", "long"])
def test_file_of_nonsense_is_one_line_and_status_2(
    server: Server, tmp_path: Path, text: str
) -> None:
    """Of all other nonsense: tests/unit/test_command_dumps.py."""
    (tmp_path / "file").write_text(text)
    said = refuses(server, f"load {tmp_path}/file", 2)
    assert ("line 1: " in said, len(said) < 2000) == (True, True)


@pytest.mark.parametrize("words", [["load", "FILE"], ["shell", "-c", "load FILE"]])
def test_defect_is_one_line_and_status_125(
    server: Server, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("zkwire.cli.transfer.commands.DumpFile", {}.__getitem__)
    ran = run(server.hosts, *(word.replace("FILE", __file__) for word in words))
    assert (ran.status, ran.err.count("\n")) == (125, 1), ran.err
    assert "a defect of zkwire, " in ran.err


# --- files that are written, by the policy of docs/command.md -------------------------------------


LOOK = f"-- {sys.executable} -m zkwire -s {{}} ls"
SPY = "-q spy SERVER -f none"
# The words, the mode of a new file, and whether it is whole only at the end of the command.
WRITERS = {
    "dump": ("dump --force /a FILE", 0o600, True),
    "get": ("get -o FILE /a", 0o600, True),
    "drawing": (f"{SPY} -o FILE.svg {LOOK}", 0o600, True),
    "recording": (f"{SPY} -o FILE.jsonl {LOOK}", 0o600, False),
    "text": (f"{SPY} -o FILE.txt {LOOK}", 0o600, False),
    "lesson": ("lesson handshake --fast --svg FILE", 0o644, True),
}


@pytest.fixture
def masked(tree: Server) -> Iterator[Server]:
    before = os.umask(0o022)
    with Client(tree.hosts) as client:
        client.set_data("/a", b"x" * 10)
    yield tree
    os.umask(before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_dump_leaves_the_former_file_alone(
    number: int, masked: Server, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"former")
    with FaultProxy(masked.hosts) as proxy:
        proxy.on("get_data", action=black_hole)
        with process("-s", proxy.hosts, "dump", "--force", "/a", str(file)) as dump:
            poll("the part", lambda: len(os.listdir(tmp_path)) == 2 or None, 60)
            dump.send_signal(number)
            assert dump.wait(60) == 128 + number
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"former", ["file"])


@pytest.mark.parametrize(("words", "mode", "whole"), WRITERS.values(), ids=WRITERS)
def test_a_file_keeps_its_mode_and_its_links(
    words: str, mode: int, whole: bool, masked: Server, tmp_path: Path
) -> None:
    ending = "".join(re.findall(r"FILE(\S*)", words))
    new, former, link = (tmp_path / f"{name}{ending}" for name in ("new", "former", "link"))
    former.write_bytes(b"former")
    former.chmod(0o640)
    link.symlink_to(former.name)
    inode = former.stat().st_ino
    for file in (new, link):
        line = re.sub(r"FILE\S*", str(file), words.replace("SERVER", masked.hosts))
        ran = run(masked.hosts, *line.split())
        assert (ran.status, ran.err) == (0, "")
    assert [file.stat().st_mode & 0o777 for file in (new, former)] == [mode, 0o640]
    assert os.readlink(link) == former.name
    assert (former.stat().st_ino != inode) == whole
    assert new.read_bytes()
    assert not former.read_bytes().startswith(b"former")
    assert {*tmp_path.iterdir()} == {new, former, link}
