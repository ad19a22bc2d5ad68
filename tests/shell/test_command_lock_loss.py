"""`zkwire lock` when the lock is lost, or it is killed or stopped itself: the command ends first.

The server's time stands still where a test says so: what happens there can follow from nothing but
the client's own lease.
"""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lock_command import SECONDS, Teller, processes_marked
from zkwire import Client
from zkwire.cli.lock.running import Running
from zkwire.cli.main import main
from zkwire.testing import FaultProxy, Server, VirtualClock
from zkwire.testing.proxy import black_hole

# The one that leads the group tells of TERM and goes on; what it has started does nothing.
STUBBORN = (
    "exec 3>$TELL; trap 'echo TERM >&3' TERM; echo ready >&3; while :; do sleep 99 & wait; done"
)
SHORT = ("--session-timeout", "4")


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path / "tell")


@pytest.fixture
def still() -> Iterator[Server]:
    """A server whose time stands still: no session expires."""
    with Server(now=VirtualClock()) as server:
        yield server


def nodes(server: Server) -> list[str]:
    with Client(server.hosts) as client:
        return client.get_children("/p")


def test_hazard_E4_a_black_hole_ends_the_group_in_time(still: Server, teller: Teller) -> None:
    """consul lock ended it 90 s after another node had been given the lock (consul#9788)."""
    with FaultProxy(still.hosts) as proxy:
        with teller.run(proxy.hosts, *SHORT, "lock", "/p", "sh", "-c", STUBBORN) as process:
            events = teller.events()
            assert next(events) == "ready"
            proxy.rule(lambda _: black_hole)
            assert list(events) == ["TERM"]  # and then its end: KILL, for all of the group
            (node,) = nodes(still)  # still there, so no other contender holds the lock
            assert process.wait(SECONDS) == 122
            assert process.stderr is not None
            assert "no answer has prolonged the session's lease in time" in process.stderr.read()
        assert nodes(still) == [node]


def test_a_reconnection_in_time_changes_nothing(still: Server, teller: Teller) -> None:
    script = "echo ready >$TELL; read go; exit 6"
    with FaultProxy(still.hosts) as proxy:
        with teller.run(proxy.hosts, "lock", "/p", "sh", "-c", script) as process:
            assert next(teller.events()) == "ready"
            still.cut_all()
            proxy.wait_for(lambda frames: sum(f.op == "connect" for f in frames) == 4, SECONDS)
            process.communicate("go\n", SECONDS)
        assert process.returncode == 6


@pytest.mark.parametrize("policy", ["term", "kill"])
@pytest.mark.parametrize("cause", ["deleted", "expired"])
def test_what_the_server_tells_counts_at_once(
    policy: str, cause: str, server: Server, teller: Teller
) -> None:
    words = ["--session-timeout", "40", "lock", "--on-lost", policy, "-k", "1", "/p"]
    with teller.run(server.hosts, *words, "sh", "-c", STUBBORN) as process:
        events = teller.events()
        assert next(events) == "ready"
        with Client(server.hosts) as client:
            (name,) = client.get_children("/p")
            if cause == "deleted":
                client.delete(f"/p/{name}")
            else:
                stat = client.exists(f"/p/{name}")
                assert stat is not None
                server.expire(stat.ephemeral_owner)
        assert list(events) == (["TERM"] if policy == "term" else [])
    assert process.returncode == 122


@pytest.mark.parametrize("end", ["lost", "killed"])
def test_a_group_that_the_command_makes_ends_as_well(
    end: str, server: Server, teller: Teller
) -> None:
    """As timeout(1) and setsid(1) make one."""
    own = "import os, sys; os.setpgid(0, 0); os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    words = [sys.executable, "-c", own, f"trap 'echo WINCH >&3' WINCH; {STUBBORN}"]
    with teller.run(server.hosts, "lock", "-k", "1", "/p", *words) as process:
        events = teller.events()
        assert next(events) == "ready"
        process.send_signal(signal.SIGWINCH)
        assert next(events) == "WINCH"  # by now the watchdog knows of the group
        if end == "killed":
            process.kill()
        else:
            (name,) = nodes(server)
            with Client(server.hosts) as client:
                client.delete(f"/p/{name}")
        assert list(events) == ["TERM"]


def test_a_warning_leaves_the_command_alone(server: Server, teller: Teller) -> None:
    words = ["lock", "--on-lost", "warn", "/p", "sh", "-c", "echo ready >$TELL; read go; exit 6"]
    with teller.run(server.hosts, *words) as process:
        assert next(teller.events()) == "ready"
        (name,) = nodes(server)
        with Client(server.hosts) as client:
            client.delete(f"/p/{name}")
        assert process.stderr is not None
        assert "was deleted; the command goes on" in process.stderr.readline()
        process.communicate("go\n", SECONDS)
    assert process.returncode == 122


def test_a_stopped_wrapper_cannot_keep_the_command(still: Server, teller: Teller) -> None:
    with teller.run(still.hosts, *SHORT, "lock", "/p", "sh", "-c", STUBBORN) as process:
        events = teller.events()
        assert next(events) == "ready"
        process.send_signal(signal.SIGSTOP)
        assert list(events) == ["TERM"]
        assert len(nodes(still)) == 1
        process.send_signal(signal.SIGCONT)
        process.wait(SECONDS)
    assert process.returncode == 122


def test_a_killed_wrapper_leaves_no_command(still: Server, teller: Teller) -> None:
    with teller.run(still.hosts, *SHORT, "lock", "/p", "sh", "-c", STUBBORN) as process:
        events = teller.events()
        assert next(events) == "ready"
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


def test_hazard_E1_the_rest_of_a_group_gets_its_time(server: Server, teller: Teller) -> None:
    """The leader ends at TERM, what it has started somewhat later."""
    slow = "exec 3>$TELL; trap 'echo TERM >&3; read x; exit' TERM; echo ready >&3; sleep 99 & wait"
    words = ["--session-timeout", "40", "lock", "-k", "1", "/p", "sh", "-c", 'sh -c "$S" & wait']
    teller.environment["S"] = slow
    with teller.run(server.hosts, *words) as process:
        events = teller.events()
        assert next(events) == "ready"
        (name,) = nodes(server)
        with Client(server.hosts) as client:
            client.delete(f"/p/{name}")
        assert list(events) == ["TERM"]
    assert process.returncode == 122


def test_the_rest_of_a_group_that_ignores_term_is_killed(server: Server, teller: Teller) -> None:
    words = ["--session-timeout", "40", "lock", "-k", "1", "/p", "sh", "-c", 'sh -c "$S" & wait']
    teller.environment["S"] = STUBBORN
    with teller.run(server.hosts, *words) as process:
        events = teller.events()
        assert next(events) == "ready"
        (name,) = nodes(server)
        with Client(server.hosts) as client:
            client.delete(f"/p/{name}")
        assert next(events) == "TERM"
    assert process.returncode == 122
