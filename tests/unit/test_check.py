"""check.py: it runs what it is asked for, and misses nothing that goes wrong; where tests stand."""

from __future__ import annotations

import ast
import re
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

import check
from tests.check import steps
from tests.check.environment import ROOT
from tests.check.long_steps import PROGRAMS
from tests.check.steps import Running, Step


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What steps print goes elsewhere than that of the check that runs this."""
    monkeypatch.setattr(steps, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(check, "TELL_SECONDS", 0.5)


def python(script: str, name: str = "one", limit: float = 60.0) -> Step:
    return Step(name, [sys.executable, "-c", script], limit)


def ended(step: Step) -> Running:
    running = Running(step)
    while not running.ended():
        time.sleep(0.01)
    return running


def test_a_step_passes_only_with_success_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "END_SECONDS", 0.5)
    assert ended(python("")).passed
    assert not ended(python("raise SystemExit(3)")).passed
    stubborn = "import signal; signal.signal(2, signal.SIG_IGN)"
    for before in ("pass", stubborn):  # it ends when asked, or is killed
        script = f"import time; {before}; print('so far', flush=True); time.sleep(60)"
        hanging = ended(python(script, limit=1.0))
        assert (hanging.passed, hanging.why) == (False, "not done within 1 s")
        assert hanging.seconds < 30
        assert "so far" in hanging.output()


def test_nothing_more_is_run_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    done = check.Check()
    done.run([[python("raise SystemExit(1)")], [python("print('8 passed in 0.1s')", "two")]])
    done.run([[python("", "three")]])
    assert [running.step.name for running in done.ended if running.passed] == ["two"]
    done.summary()
    shown = capsys.readouterr().out
    assert "not run           three" in shown
    assert "NOT all passed" in shown
    assert "tests: 8 passed, 0 failed, 0 skipped" in shown


def test_each_long_step_has_its_program() -> None:
    modules = [command.split()[0] for command in PROGRAMS.values()]
    assert [name for name in modules if find_spec(name) is None] == []


TESTS = ROOT / "tests"
FOLDERS = {"unit", "testbed", "shell", "simulation", "real"}
NEIGHBOURS = {"interop/curator", "browser"}
"""Each has a step of its own, in this check under CI: it needs a program that others do without."""


def folders_of(step: str) -> set[str]:
    """The folders of which a step runs the tests."""
    words = {word.removeprefix("tests/") for word in check.steps()[step].command}
    return words & (FOLDERS | NEIGHBOURS)


def test_each_file_of_tests_stands_in_one_folder() -> None:
    where = [file.relative_to(TESTS) for file in TESTS.rglob("test_*.py")]
    first = {file.parts[0] for file in where}
    assert first == {*FOLDERS, *(name.partition("/")[0] for name in NEIGHBOURS)}


def test_no_two_files_have_one_name() -> None:
    """Documents name a test by its file alone."""
    names = Counter(file.name for file in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_one_step_runs_all_of_a_folder_without_a_real_server(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what is about Apache ZooKeeper itself: that is `real`, which runs nothing else."""
    monkeypatch.delenv("CI", raising=False)  # under which Docker's smoke tests are run besides
    running = [name for name in check.choose([], list(check.steps())) if folder in folders_of(name)]
    real = ["real"] if folder in {"shell", "real"} else []
    assert len(running) == 1 + len(real)
    assert running[1:] == real
    command = check.steps()[running[0]].command
    chosen = command[command.index("-m", 3) + 1] if "-m" in command[3:] else ""
    assert chosen == ("not apache" if real else "")


PACKAGE = ROOT / "zkwire"

FILE = 700  # lines of any file, with its prose


def test_no_file_is_long() -> None:
    lengths = {
        str(file.relative_to(PACKAGE)): len(file.read_text().splitlines())
        for file in PACKAGE.rglob("*.py")
        if "Written by `tools/" not in file.read_text()
    }
    assert {name: length for name, length in lengths.items() if length > FILE} == {}


def test_an_example_in_a_docstring_is_indented() -> None:
    """What is not is a paragraph of prose in the pages of the API."""
    code = re.compile(r"^(async |with .*:$|for .*:$|if .*:$|await |\w+ = )", re.MULTILINE)
    found = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and code.search(ast.get_docstring(node) or "")
    ]
    assert found == []
