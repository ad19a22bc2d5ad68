"""`zkwire lock`: exit statuses, the kinds, what is printed, and the loss of the lock."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import ROOT, SECONDS, TEXT, ZKWIRE, Ran, Teller, processes_marked, run
from tests.support.server_control import poll
from tests.support.terminal import Terminal
from zkwire import Client, ReadWriteLock, Semaphore, SequentialLock
from zkwire.cli.lock.running import Running
from zkwire.cli.main import main
from zkwire.testing import FaultProxy, Server, VirtualClock
from zkwire.testing.proxy import black_hole


@pytest.fixture(autouse=True)
def no_terminal() -> Iterator[None]:
    """Standard input is nothing, as under cron."""
    saved, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    yield
    os.dup2(saved, 0)
    os.close(saved)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.hosts) as client:
        yield client


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path / "tell")


def locks(server: Server, words: str) -> Ran:
    return run(server.hosts, *shlex.split(words))


NAMED = "-- sh -c 'case $ZKWIRE_LOCK_PATH in */*{}*) exit 4; esac'"


@pytest.mark.parametrize(("words", "status"), [
    ("/p sh -c 'exit 7'", 7),
    ("/p -- sh -c 'kill -9 $$'", 137),
    ("/p no-such-command", 127),
    ("/p /", 126),
    ("--names kazoo /p " + NAMED.format("__lock__"), 4),
    ("--names kazoo -x /p " + NAMED.format("__lock__"), 4),
    ("--names kazoo -s /p " + NAMED.format("__rlock__"), 4),
])  # fmt: skip
def test_hazard_E6_the_commands_status_is_the_status(
    words: str, status: int, server: Server, client: Client
) -> None:
    assert locks(server, f"lock {words}").status == status
    assert client.get_children("/p") == []


def test_words_reach_the_command_as_they_are(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """consul lock joins them with spaces and gives them to a shell (consul#1063)."""
    words = ["printf", "[%s]", "a  b", "$HOME", "-n", "--", "--json"]
    assert main(["--server", server.hosts, "lock", "/p", *words]) == 0
    assert capfd.readouterr() == ("[a  b][$HOME][-n][--][--json]", "")


def test_what_is_held_is_not_free(server: Server, client: Client) -> None:
    with SequentialLock(client, "/p") as holder:
        taken = "zkwire: LockTaken: /p is held by another contender\n"
        late = "zkwire: LockTimeout: /p was not free within 0.05 s\n"
        assert locks(server, "lock -n /p true") == (124, b"", taken)
        assert locks(server, "-q lock -n -E 0 /p true").status == 0
        assert locks(server, "lock --wait 50ms -E 75 /p true") == (75, b"", late)
        assert [c.path for c in holder.contenders()] == [f"/p/{client.get_children('/p')[0]}"]


@pytest.mark.parametrize(("held", "words", "status"), [
    ("read", "-s", 0),
    ("read", "-x", 124),
    ("read", "", 124),
    ("write", "-s", 124),
    ("lock", "-s", 124),
    ("lock", "-x", 124),
    ("lease", "--holders=2", 0),
    ("lease", "--holders=3", 125),
])  # fmt: skip
def test_kinds(held: str, words: str, status: int, server: Server, client: Client) -> None:
    table = ReadWriteLock(client, "/p")
    kinds = {"read": table.read, "write": table.write, "lock": SequentialLock(client, "/p")}
    with kinds.get(held) or Semaphore(client, "/p", 2).lease():
        assert locks(server, f"lock -n {words} /p true").status == status


def test_a_lease_margin_that_was_not_granted_is_reduced() -> None:
    with Server(tick=0.2) as server:
        words = "--session-timeout 20 lock --lease-margin 4 /p true"
        assert locks(server, words).status == 0


def test_a_failure_before_the_command_runs_is_status_125() -> None:
    ran = run(
        "127.0.0.1:1", *["--connect-timeout", "10ms", "lock", "/p", "true", "--connect-timeout"]
    )
    assert (ran.status, "Unreachable" in ran.err) == (125, True)


def test_the_inner_lock_is_the_one_that_the_command_sees(
    server: Server, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    """With etcdctl lock it sees the outer one."""
    inner = [*ZKWIRE, "-s", server.hosts, "lock", "/inner", "sh", "-c", "env; exit 5"]
    assert main(["-s", server.hosts, "lock", "/outer", *inner]) == 5
    out, err = capfd.readouterr()
    found = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert err == ""
    assert found["ZKWIRE_LOCK_PATH"].startswith("/inner/")
    outer_made, inner_made = (client.get_data(path)[1].czxid for path in ("/outer", "/inner"))
    assert outer_made < inner_made < int(found["ZKWIRE_LOCK_TOKEN"])
    assert found["ZKWIRE_LOCK_SESSION"].startswith("0x")
    assert found["ZKWIRE_SERVER"] == server.hosts


def test_the_holder_and_the_queue_are_listed(
    server: Server, client: Client, teller: Teller
) -> None:
    words = ["lock", "-s", "--id", "nightly report", "/p", "sh", "-c", "echo 1 >$TELL; cat"]
    with teller.run(server.hosts, *words) as process:
        assert next(teller.events()) == "1"
        node = client.create("/p/x-__WRIT__", b"a foreign\n\ntext", ephemeral=True, sequential=True)
        first, second = locks(server, "--json lock --list /p").record["contenders"]
        assert (first["position"], first["held"], first["shared"]) == (0, True, True)
        assert (first["id"], first["pid"]) == ("nightly report", process.pid)
        assert first["host"] == os.uname().nodename
        assert (second["held"], second["pid"], second["id"]) == (False, None, "a foreign\n\ntext")
        assert second["path"] == node
        head, holder, waiter = locks(server, "lock --list /p").lines
        assert head.split() == ["#", "state", "session", "age", "process", "id"]
        assert holder.startswith("  0 reads 0x")
        assert holder.endswith(" nightly report")
        assert waiter.startswith("  1 waits 0x")
        assert waiter.endswith(r"a foreign\n\ntext")


def test_a_semaphores_leases_and_queue_are_listed(server: Server, client: Client) -> None:
    with Semaphore(client, "/p", 2, "one").lease(), Semaphore(client, "/p", 2, "two").lease():
        client.create("/p/locks/x-lock-", b"next", ephemeral=True, sequential=True)
        found = locks(server, "--json lock --list /p").record["contenders"]
    assert [(c["id"], c["held"]) for c in found] == [("one", True), ("two", True), ("next", False)]


@pytest.mark.parametrize("end", ["eof", "signal", "loss"])
def test_hazard_C7_without_a_command_it_holds_until_it_is_told_to_end(
    end: str, server: Server, client: Client, teller: Teller
) -> None:
    with teller.run(server.hosts, "--json", "lock", "/p") as process:
        assert process.stdout is not None
        shown = json.loads(process.stdout.readline())
        stat = client.exists(shown["path"])
        assert stat is not None
        assert shown["token"] == stat.czxid
        assert locks(server, "-q lock -n /p true").status == 124
        if end == "signal":
            process.send_signal(signal.SIGTERM)
        if end == "loss":
            client.delete(shown["path"])
            process.wait(SECONDS)
    assert process.returncode == (122 if end == "loss" else 0)
    assert client.get_children("/p") == []


def test_closed_streams_do_no_harm(server: Server, client: Client) -> None:
    shell = shlex.join([*ZKWIRE, "-s", server.hosts, "lock", "/p", "sh", "-c", "exit 6"])
    done = subprocess.run(["sh", "-c", f"{shell} <&- >&- 2>&-"], timeout=SECONDS, check=False)
    assert done.returncode == 6
    assert client.get_children("/p") == []


def test_a_waiter_that_ends_leaves_and_one_that_expires_queues_again(
    server: Server, client: Client, teller: Teller
) -> None:
    holder = SequentialLock(client, "/p")
    holder.acquire()

    def waiter() -> int | None:
        found = [c.session_id for c in holder.contenders()]
        return found[1] if len(found) == 2 else None

    with teller.run(server.hosts, "lock", "/p", "true") as process:
        poll("queued", waiter, SECONDS)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert len(client.get_children("/p")) == 1
    with teller.run(server.hosts, "lock", "/p", "true") as process:
        first = poll("queued", waiter, SECONDS)
        server.expire(first)
        poll("queued again", lambda: (waiter() or first) != first or None, SECONDS)
        holder.release()
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1])
def test_hazard_E2_signals_are_the_commands(
    number: signal.Signals, server: Server, client: Client, teller: Teller
) -> None:
    """SIGQUIT ended consul lock and left the command (consul#1210)."""
    trap = f"trap 'exit 5' {number.name[3:]}"
    script = f"{trap}; echo ready >$TELL; while :; do sleep 0.2 & wait; done"
    with teller.run(server.hosts, "lock", "/p", "sh", "-c", script) as process:
        assert next(teller.events()) == "ready"
        process.send_signal(number)
    assert process.returncode == 5
    assert client.get_children("/p") == []


def test_the_examples_of_the_page(server: Server, client: Client, tmp_path: Path) -> None:
    scripts = {
        "zkwire": f'exec {shlex.quote(sys.executable)} -m zkwire "$@"',
        "report.sh": "echo report $#",
        "deploy.sh": "echo deployed",
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    shown = TEXT.split("<!-- examples: lock -->\n```sh\n")[1].split("\n```")[0]
    given = {"PYTHONPATH": str(ROOT), "ZKWIRE_SERVER": server.hosts}
    given["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    with SequentialLock(client, "/locks/index"):
        done = subprocess.run(
            ["sh", "-c", shown], cwd=tmp_path, env=os.environ | given,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    assert done.stdout == "report 1\ndeployed\nstatus 124\n"
    assert done.stderr == "zkwire: LockTaken: /locks/index is held by another contender\n"


# The one that leads the group tells of TERM and goes on; what it has started does nothing.
STUBBORN = (
    "exec 3>$TELL; trap 'echo TERM >&3' TERM; echo ready >&3; while :; do sleep 99 & wait; done"
)
READS = "echo ready >$TELL; read go; exit 6"
SHORT, LONG = "--session-timeout 4 lock /p", "--session-timeout 40 lock -k 1 /p"
Held = tuple["subprocess.Popen[str]", Iterator[str]]


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
    return [path for path in server.tree.nodes if path.startswith("/p/")]


def lose(server: Server) -> None:
    """Delete the node of the lock."""
    with Client(server.hosts) as client:
        (node,) = nodes(server)
        client.delete(node)


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


@pytest.mark.parametrize(("end", "status"), [(signal.SIGSTOP, 122), (signal.SIGKILL, -9)])
def test_a_stopped_or_killed_wrapper_cannot_keep_the_command(
    end: signal.Signals, status: int, still: Server, teller: Teller
) -> None:
    with held(teller, still.hosts, SHORT) as (process, events):
        process.send_signal(end)
        assert list(events) == ["TERM"]
        assert len(nodes(still)) == 1
        process.send_signal(signal.SIGCONT)
    assert process.returncode == status


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
    words = [*ZKWIRE, "-s", server.hosts, "--session-timeout", "40", "lock", "/p", "sh", "-c"]
    terminal.type(shlex.join([*words, script]) + "\n")
    events = teller.events()
    assert next(events) == "ready"
    with Client(server.hosts) as client:
        for keys, *shown in (
            ("first\n", "got first"),  # the command reads the terminal
            (SUSPEND, "the lock is lost unless it continues within", "ready> "),
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


def test_hazard_E3_an_interrupt_while_it_waits(server: Server, terminal: Terminal) -> None:
    with Client(server.hosts) as client:
        client.ensure_path("/p")
        client.create("/p/x-lock-", ephemeral=True, sequential=True)
        terminal.type(shlex.join([*ZKWIRE, "-s", server.hosts, "lock", "/p", "true"]) + "\n")
        poll("queued", lambda: len(client.get_children("/p")) == 2 or None, SECONDS)
        terminal.type(INTERRUPT)
        terminal.until("ready> ")
        terminal.type("echo status $?" + "\n")
        terminal.until("status 130")
        assert len(client.get_children("/p")) == 1
