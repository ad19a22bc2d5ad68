"""`zkwire lock` in a terminal, under a shell with job control: its keys do what they always do."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lock_command import ROOT, SECONDS, Teller, command, processes_marked
from tests.support.server_control import poll
from zkwire import Client
from zkwire.testing import Server

INTERRUPT, SUSPEND = b"\x03", b"\x1a"


BASH = "import pty; pty.spawn(['bash', '--norc', '--noprofile', '--noediting', '-i'])"


class Terminal:
    """An interactive bash in a terminal of its own."""

    def __init__(self, teller: Teller) -> None:
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", BASH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**teller.environment, "PS1": "ready> ", "TERM": "dumb"},
            cwd=ROOT,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._keys, self._screen = self.process.stdin, self.process.stdout
        os.set_blocking(self._screen.fileno(), False)
        self.expect("ready> ")

    def type(self, keys: bytes) -> None:
        self._keys.write(keys)

    def run(self, line: str) -> None:
        self.type(line.encode() + b"\n")

    def expect(self, text: str) -> None:
        """Wait until this is shown, behind what was expected before."""

        def seen() -> bool | None:
            self.shown += (self._screen.read() or b"").decode("utf-8", "replace")
            return text in self.shown or None

        try:
            poll(text, seen, SECONDS)
        except TimeoutError:
            pytest.fail(f"{text!r} does not follow: {self.shown!r}")
        self.shown = self.shown.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self._keys.close()
        self._screen.close()
        self.process.wait()


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path / "tell")


@pytest.fixture
def terminal(teller: Teller) -> Iterator[Terminal]:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    terminal = Terminal(teller)
    yield terminal
    terminal.close()
    poll("no process", lambda: not processes_marked(teller.mark) or None, SECONDS)


def test_job_control(server: Server, teller: Teller, terminal: Terminal) -> None:
    script = "exec 3>$TELL; echo ready >&3; while read word; do echo got $word; done"
    words = command(server.hosts, "--session-timeout", "40", "lock", "/p", "sh", "-c", script)
    terminal.run(shlex.join(words))
    events = teller.events()
    assert next(events) == "ready"
    with Client(server.hosts) as client:
        terminal.run("first")  # the command reads the terminal
        terminal.expect("got first")
        terminal.type(SUSPEND)
        terminal.expect("the lock is lost unless it goes on within")
        terminal.expect("ready> ")  # the shell has the terminal again
        assert len(client.get_children("/p")) == 1
        terminal.run("fg")
        terminal.expect("fg")
        terminal.run("second")
        terminal.expect("got second")
        terminal.type(INTERRUPT)
        terminal.expect("ready> ")
        terminal.run("echo status $?")
        terminal.expect("status 130")
        assert client.get_children("/p") == []
    assert list(events) == []


def test_an_interrupt_while_it_waits(server: Server, terminal: Terminal) -> None:
    with Client(server.hosts) as client:
        client.ensure_path("/p")
        client.create("/p/x-lock-", ephemeral=True, sequential=True)
        terminal.run(shlex.join(command(server.hosts, "lock", "/p", "true")))
        poll("queued", lambda: len(client.get_children("/p")) == 2 or None, SECONDS)
        terminal.type(INTERRUPT)
        terminal.expect("ready> ")
        terminal.run("echo status $?")
        terminal.expect("status 130")
        assert len(client.get_children("/p")) == 1
