"""`zkwire lock` in a terminal, under a shell with job control: its keys do what they always do."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lock_command import SECONDS, Teller, command, processes_marked
from tests.support.server_control import poll
from tests.support.terminal import Terminal
from zkwire import Client
from zkwire.testing import Server

INTERRUPT, SUSPEND = "\x03", "\x1a"
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path / "tell")


@pytest.fixture
def terminal(teller: Teller) -> Iterator[Terminal]:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    environment = {**teller.environment, "PS1": "ready> ", "TERM": "dumb"}
    with Terminal(*BASH, columns=0, **environment) as terminal:
        terminal.until("ready> ")
        yield terminal
    poll("no process", lambda: not processes_marked(teller.mark) or None, SECONDS)


def test_job_control(server: Server, teller: Teller, terminal: Terminal) -> None:
    script = "exec 3>$TELL; echo ready >&3; while read word; do echo got $word; done"
    words = command(server.hosts, "--session-timeout", "40", "lock", "/p", "sh", "-c", script)
    terminal.type(shlex.join(words) + "\n")
    events = teller.events()
    assert next(events) == "ready"
    with Client(server.hosts) as client:
        for keys, *shown in (
            ("first\n", "got first"),  # the command reads the terminal
            (SUSPEND, "the lock is lost unless it goes on within", "ready> "),
            ("fg\n", "fg"),
            ("second\n", "got second"),
            (INTERRUPT, "ready> "),
            ("echo status $?\n", "status 130"),
        ):
            terminal.type(keys)
            for text in shown:
                terminal.until(text)
            assert keys != SUSPEND or len(client.get_children("/p")) == 1
        assert client.get_children("/p") == []
    assert list(events) == []


def test_an_interrupt_while_it_waits(server: Server, terminal: Terminal) -> None:
    with Client(server.hosts) as client:
        client.ensure_path("/p")
        client.create("/p/x-lock-", ephemeral=True, sequential=True)
        terminal.type(shlex.join(command(server.hosts, "lock", "/p", "true")) + "\n")
        poll("queued", lambda: len(client.get_children("/p")) == 2 or None, SECONDS)
        terminal.type(INTERRUPT)
        terminal.until("ready> ")
        terminal.type("echo status $?" + "\n")
        terminal.until("status 130")
        assert len(client.get_children("/p")) == 1
