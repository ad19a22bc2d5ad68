"""The command line: the demo holds what it claims, and what cannot be run says why."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire import AsyncSequentialLock, Client
from zkwire import __version__ as zkwire_version
from zkwire import testing as zkwire_testing
from zkwire.cli.command import TABLE
from zkwire.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def zkwire(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``python -m zkwire`` into a pipe, and from one."""
    return subprocess.run(
        [sys.executable, "-m", "zkwire", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def assert_all_shown(done: subprocess.CompletedProcess[str]) -> None:
    """The demo has shown and checked everything, for a terminal of 80 columns, without colour."""
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "11 of 11 checks passed" in done.stdout


def test_demo_that_needs_nothing() -> None:
    assert_all_shown(zkwire("demo"))


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
    command = [sys.executable, "-m", "zkwire", "server", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        assert "Never for production" in said
        found = re.search(r"127\.0\.0\.1:\d+", said)
        assert found, said
        with Client(found[0]) as client:
            assert client.create("/a", b"x") == "/a"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")


def test_wrong_arguments_are_said() -> None:
    assert zkwire("demo", "--nonsense").returncode == 2
    alone = zkwire()
    assert (alone.returncode, alone.stdout) == (2, "")
    assert set(TABLE) <= set(alone.stderr.split())


def test_who_has_seen_enough_ends_it_silently() -> None:
    with zkwire_testing.Server() as server:
        command = [sys.executable, "-m", "zkwire", "--server", server.hosts, "ls", "/"]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(100) == 141
        process.stderr.close()


def test_version() -> None:
    assert zkwire("--version").stdout == f"zkwire {zkwire_version}\n"
