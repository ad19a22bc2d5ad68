"""What a command says keeps nothing from happening, whatever becomes of standard error.

Its reader has ended, its disk is full, or it is a full pipe or a terminal that nobody reads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import process
from tests.support.server_control import poll
from zkwire import Client
from zkwire.testing import Server

SECONDS = 60.0
KINDS = ("ended", "disk", "pipe", "terminal")


@contextmanager
def output(kind: str) -> Iterator[int]:
    """What a process can have as an output of this kind, as the number of a file."""
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
    with process(*words, env={"PYTHONUNBUFFERED": ""}, **streams) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def tree(server: Server) -> Iterator[Server]:
    """A server with /KIND/a for each kind; /KIND/e is ephemeral, which `dump` has a note about."""
    with Client(server.hosts) as client:
        for kind in KINDS:
            client.create(f"/{kind}")
            client.create(f"/{kind}/a")
            client.create(f"/{kind}/e", ephemeral=True)
        yield server


MADE = {"load": {"loaded"}, "copy": {"copied"}, "shell": {"last"}}
COMMANDS = [
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
]
SCRIPT = "create -e /K/new; set /K/missing x; create /K/last"


@pytest.mark.parametrize(("words", "status"), COMMANDS)
def test_a_message_that_cannot_be_written_changes_nothing(
    words: str, status: int, tree: Server, tmp_path: Path
) -> None:
    (tmp_path / "source.jsonl").write_text(
        '{"v": 1, "kind": "zkwire dump", "root": "/x"}\n'
        '{"path": "/", "data": {"text": "x"}, "acl": ["world:anyone:cdrwa"]}\n{"end": true}\n'
    )
    traced = [] if words.startswith(("lesson", "server")) else ["--trace"]
    with ExitStack() as stack:
        ran = []
        for kind in KINDS:
            line = words.replace("K", kind).format(tmp_path).replace("SERVER", tree.hosts)
            typed = [*line.split(), *([SCRIPT.replace("K", kind)] if "-c" in line else [])]
            streams = {"stdout": subprocess.DEVNULL, "stderr": stack.enter_context(output(kind))}
            ran.append(stack.enter_context(running("-s", tree.hosts, *traced, *typed, **streams)))
        assert [process.wait(SECONDS) for process in ran] == [status] * len(KINDS)
    with Client(tree.hosts) as client:
        for kind in KINDS:
            left = {"e", *(() if words.startswith("rm") else "a")}
            left |= MADE.get(words.split(maxsplit=1)[0], set())
            assert set(client.get_children(f"/{kind}")) == left
    if words.startswith("dump"):
        assert all((tmp_path / f"{kind}.jsonl").read_text().endswith("true}\n") for kind in KINDS)


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


def wait_until_full(process: subprocess.Popen[str]) -> None:
    """Wait until the process waits for the reader of a pipe."""
    channel = Path(f"/proc/{process.pid}/wchan")
    poll("a write to a full pipe", lambda: "pipe_w" in channel.read_text() or None, SECONDS)


def test_a_lock_that_cannot_be_shown_is_released(server: Server) -> None:
    with Client(server.hosts) as client, output("pipe") as full:
        with running("-s", server.hosts, "lock", "/p", stdout=full) as process:
            wait_until_full(process)
            assert len(client.get_children("/p")) == 1
            process.terminate()
            assert process.wait(SECONDS) == 143
        assert client.get_children("/p") == []


@pytest.mark.parametrize("words", [["ls"], ["shell", "-c", "ls; create /next"]])
def test_an_interrupt_waits_for_no_reader(words: list[str], server: Server) -> None:
    with Client(server.hosts) as client, output("pipe") as full:
        with running("-s", server.hosts, *words, stdout=full) as process:
            wait_until_full(process)
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 130
        assert client.exists("/next") is None


PROGRAM = """
import pathlib, signal, sys
from zkwire import Client
signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path(sys.argv[2]).touch()))
with Client(sys.argv[1]):
    signal.pause()
"""


def test_spy_with_a_full_output_sends_a_signal_on(server: Server, tmp_path: Path) -> None:
    told = tmp_path / "told"
    words = ["spy", server.hosts, "--", sys.executable, "-c", PROGRAM, "{}", str(told)]
    with output("pipe") as full, running(*words, stdout=full) as process:
        wait_until_full(process)
        process.terminate()
        poll("the signal", lambda: told.exists() or None, SECONDS)
