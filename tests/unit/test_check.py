"""check.py itself: it runs what it is asked for, and it misses nothing that goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import check


@pytest.mark.parametrize(
    ("ci", "arguments", "parts", "for_pytest"),
    [
        ("", [], ["format", "lint", "types", "embedded", "test"], []),
        ("true", [], ["format", "lint", "types", "embedded", "test", "docker"], []),
        ("", ["all", "docker"], ["format", "lint", "types", "embedded", "test", "docker"], []),
        ("true", ["types", "lint"], ["lint", "types"], []),
        ("", ["test", "--", "-k", "one", "--", "x"], ["test"], ["-k", "one", "--", "x"]),
    ],
)
def test_parts(
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    arguments: list[str],
    parts: list[str],
    for_pytest: list[str],
) -> None:
    monkeypatch.setenv("CI", ci)
    assert check.parse(arguments) == (parts, for_pytest)


def test_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check.parse(["tests"])
    assert "no such part: tests" in capsys.readouterr().err


def test_a_command_passes_only_with_success_in_time() -> None:
    assert check.run([sys.executable, "-c", ""], 30)
    assert not check.run([sys.executable, "-c", "raise SystemExit(3)"], 30)
    forever = "import signal; signal.pause()"
    assert not check.run([sys.executable, "-c", forever], 0.5)


def test_a_quick_part_that_fails_ends_the_run_and_is_repeated_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = check.Checks(["format", "lint", "test"], [])
    for part, script in (
        ("format", "print('first', *range(12), 'last', sep='\\n'); raise SystemExit(1)"),
        ("lint", "print('FAILED a', 'between', 'b 1 failed', sep='\\n'); raise SystemExit(1)"),
    ):
        step = partial(checks.step, part, [sys.executable, "-c", script])
        monkeypatch.setattr(checks, part, step)
    monkeypatch.setattr(checks, "test", pytest.fail)
    checks.all_parts()
    shown = capsys.readouterr().out.splitlines()
    assert "first" in shown
    assert "between" in shown
    assert not checks.summary()
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert told[3:13] == [*map(str, range(3, 12)), "last"]
    assert [line.split() for line in told[13:]] == [
        ["FAILED", told[13].split()[1], "s", "lint"],
        ["FAILED", "a"],
        ["b", "1", "failed"],
        ["not", "run", "test"],
        ["NOT", "all", "passed"],
    ]


def test_types_are_checked_with_the_modules_of_the_tools(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where the first Python on the path has none of them."""
    bare = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path)]
    subprocess.run(bare, check=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(check, "PYTHON", sys.executable)
    monkeypatch.setattr(check, "TYPED_FOR_USERS", ("zkwire/testing/pytest_plugin.py",))
    checks = check.Checks([], [])
    checks.pyright()
    assert checks.passed


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_an_orphan_is_found_and_ended() -> None:
    script = """
import check, subprocess
check.adopt_orphans()
check.END_SECONDS = 0.5
subprocess.run(["sh", "-c", "setsid sleep 600 & exit"], check=True)
checks = check.Checks([], [])
checks.no_process_left()
assert not dict(check.descendants())
raise SystemExit(checks.summary())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=check.ROOT, capture_output=True, text=True, check=False
    )
    assert "sleep" in done.stdout
    assert done.returncode == 0, done.stderr


def test_what_runs_beside_a_step_counts_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    checks = check.Checks([], [])
    for code, limit in ((0, 30.0), (3, 30.0), (0, 0.0)):
        sleep = "; import time; time.sleep(60)" * (not limit)
        script = f"print({code} + 70, flush=True){sleep}; raise SystemExit({code})"
        with checks.beside("beside", [sys.executable, "-c", script], limit):
            capsys.readouterr()
        assert limit == 0 or f"beside:\n{code + 70}\n" in capsys.readouterr().out
    assert [step.passed for step in checks.steps] == [True, False, False]


def test_what_runs_beside_a_step_ends_when_that_is_interrupted() -> None:
    checks = check.Checks([], [])
    started = time.monotonic()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    checks.meanwhile.enter_context(checks.beside("beside", sleep, 60.0))
    checks.meanwhile.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert [step.passed for step in checks.steps] == [False]
    assert time.monotonic() - started < 30
