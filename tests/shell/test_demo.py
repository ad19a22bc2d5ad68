"""The command line: the demo holds what it claims, and what cannot be run says why."""

import re
import signal

import pytest

from tests.support.command import ended, process
from zkwire import AsyncSequentialLock, Client
from zkwire import __version__ as zkwire_version
from zkwire.cli.main import main


def test_a_demo_needs_nothing_and_checks_everything() -> None:
    """For a terminal of 80 columns, without colour."""
    done = ended("demo")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "11 of 11 checks passed" in done.stdout


def test_a_demo_that_does_not_hold_what_it_claims_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def nothing(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(AsyncSequentialLock, "_find", nothing)
    assert main(["demo"]) == 1
    said = capsys.readouterr().out
    assert "not as expected: the lock has looked for its node" in said
    assert "11 of 11" not in said


def test_server_as_a_process() -> None:
    with process("server", "--listen", "127.0.0.1:0") as server:
        assert server.stdout is not None
        said = server.stdout.readline() + server.stdout.readline()
        assert "Never for production" in said
        found = re.search(r"127\.0\.0\.1:\d+", said)
        assert found, said
        with Client(found[0]) as client:
            assert client.create("/a", b"x") == "/a"
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
        assert (server.returncode, errors) == (0, "")


def test_what_is_not_run_is_said() -> None:
    assert ended("demo", "--nonsense").returncode == 2
    assert ended("--version").stdout == f"zkwire {zkwire_version}\n"
