"""`zkwire lock` when the lock is lost, or it is killed or stopped itself: the command ends first.

The server's time stands still where a test says so: what happens there can follow from nothing but
the client's own lease.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.lock_command import SECONDS, Teller, command, processes_marked
from tests.support.server_control import poll
from tests.support.terminal import Terminal
from zkwire import Client
from zkwire.cli.lock.running import Running
from zkwire.cli.main import main
from zkwire.testing import FaultProxy, Server, VirtualClock
from zkwire.testing.proxy import black_hole

# The one that leads the group tells of TERM and goes on; what it has started does nothing.
STUBBORN = (
    "exec 3>$TELL; trap 'echo TERM >&3' TERM; echo ready >&3; while :; do sleep 99 & wait; done"
)
READS = "echo ready >$TELL; read go; exit 6"
SHORT, LONG = "--session-timeout 4 lock /p", "--session-timeout 40 lock -k 1 /p"
Held = tuple["subprocess.Popen[str]", Iterator[str]]


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path / "tell")


@pytest.fixture
def still() -> Iterator[Server]:
    """A server whose time stands still: no session expires."""
    with Server(now=VirtualClock()) as server:
        yield server


@contextmanager
def held(teller: Teller, hosts: str, options: str, *program: str) -> Iterator[Held]:
    """The process, and what its command tells from now on."""
    with teller.run(hosts, *options.split(), *(program or ("sh", "-c", STUBBORN))) as process:
        events = teller.events()
        assert next(events) == "ready"
        yield process, events


def nodes(server: Server) -> list[str]:
    with Client(server.hosts) as client:
        return client.get_children("/p")


def lose(server: Server) -> None:
    """Delete the node of the lock."""
    with Client(server.hosts) as client:
        (name,) = client.get_children("/p")
        client.delete(f"/p/{name}")


def test_hazard_E4_a_black_hole_ends_the_group_in_time(still: Server, teller: Teller) -> None:
    """consul lock ended it 90 s after another node had been given the lock (consul#9788)."""
    with FaultProxy(still.hosts) as proxy:
        with held(teller, proxy.hosts, SHORT) as (process, events):
            proxy.rule(lambda _: black_hole)
            assert list(events) == ["TERM"]  # and then its end: KILL, for all of the group
            (node,) = nodes(still)  # still there, so no other contender holds the lock
            assert process.wait(SECONDS) == 122
            assert process.stderr is not None
            assert "no answer has prolonged the session's lease in time" in process.stderr.read()
        assert nodes(still) == [node]


@pytest.mark.parametrize("policy", ["term", "kill"])
@pytest.mark.parametrize("cause", ["deleted", "expired"])
def test_what_the_server_tells_counts_at_once(
    policy: str, cause: str, server: Server, teller: Teller
) -> None:
    options = f"--session-timeout 40 lock --on-lost {policy} -k 1 /p"
    with held(teller, server.hosts, options) as (process, events):
        if cause == "deleted":
            lose(server)
        else:
            (session,) = server.sessions
            server.expire(session.session_id)
        assert list(events) == (["TERM"] if policy == "term" else [])
    assert process.returncode == 122


@pytest.mark.parametrize("end", ["lost", "killed"])
def test_a_group_that_the_command_makes_ends_as_well(
    end: str, server: Server, teller: Teller
) -> None:
    """As timeout(1) and setsid(1) make one."""
    own = "import os, sys; os.setpgid(0, 0); os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    program = [sys.executable, "-c", own, f"trap 'echo WINCH >&3' WINCH; {STUBBORN}"]
    with held(teller, server.hosts, "lock -k 1 /p", *program) as (process, events):
        process.send_signal(signal.SIGWINCH)
        assert next(events) == "WINCH"  # by now the watchdog knows of the group
        if end == "killed":
            process.kill()
        else:
            lose(server)
        assert list(events) == ["TERM"]


def test_a_warning_leaves_the_command_alone(server: Server, teller: Teller) -> None:
    options = "lock --on-lost warn /p"
    with held(teller, server.hosts, options, "sh", "-c", READS) as (process, _):
        lose(server)
        assert process.stderr is not None
        assert "was deleted; the command goes on" in process.stderr.readline()
        process.communicate("go\n", SECONDS)
    assert process.returncode == 122


def test_a_stopped_wrapper_cannot_keep_the_command(still: Server, teller: Teller) -> None:
    with held(teller, still.hosts, SHORT) as (process, events):
        process.send_signal(signal.SIGSTOP)
        assert list(events) == ["TERM"]
        assert len(nodes(still)) == 1
        process.send_signal(signal.SIGCONT)
        process.wait(SECONDS)
    assert process.returncode == 122


def test_a_killed_wrapper_leaves_no_command(still: Server, teller: Teller) -> None:
    with held(teller, still.hosts, SHORT) as (process, events):
        process.kill()
        assert list(events) == ["TERM"]
    assert len(nodes(still)) == 1


def test_a_failure_of_its_own_ends_the_command(
    server: Server, teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in teller.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Running, "_forward", lambda _: 1 // 0)
    words = ["lock", "-k", "100ms", "/p", "sleep", "99"]
    assert main(["--server", server.hosts, *words]) == 125
    assert processes_marked(teller.mark) == []
    assert nodes(server) == []


SLOW = "exec 3>$TELL; trap 'echo TERM >&3; read x; exit' TERM; echo ready >&3; sleep 99 & wait"


@pytest.mark.parametrize("rest", [SLOW, STUBBORN], ids=["slow", "stubborn"])
def test_hazard_E1_the_rest_of_a_group_gets_its_time(
    rest: str, server: Server, teller: Teller
) -> None:
    """The leader ends at TERM; what it has started ends somewhat later, or is killed."""
    teller.environment["S"] = rest
    with held(teller, server.hosts, LONG, "sh", "-c", 'sh -c "$S" & wait') as (process, events):
        lose(server)
        assert next(events) == "TERM"
        assert rest == STUBBORN or list(events) == []
    assert process.returncode == 122


# --- in a terminal, under a shell with job control ------------------------------------------------


INTERRUPT, SUSPEND = "\x03", "\x1a"
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")


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
