"""Each test stands in one folder that says what it needs, and check.py runs each folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import check
from tests.check import long_steps

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = {"unit", "testbed", "shell", "simulation", "real"}
NEIGHBOURS = {"interop/curator": "all", "browser": "long"}
"""Each has a step of its own, in this check under CI: it needs a program that others do without."""


def folders_of(step: str) -> set[str]:
    """The folders of which a step runs the tests."""
    words = {word.removeprefix("tests/") for word in check.steps()[step].command}
    return words & (FOLDERS | NEIGHBOURS.keys())


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


def test_the_fast_check_needs_no_server() -> None:
    fast = set[str]().union(
        *(folders_of(name) for name in check.choose(["fast"], list(check.steps())))
    )
    assert fast == {"unit", "testbed"}


@pytest.mark.parametrize("folder", sorted(NEIGHBOURS))
def test_the_step_of_a_neighbour_fails_without_it(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    step = folder.rpartition("/")[2]
    assert step in check.choose([NEIGHBOURS[folder]], list(check.steps()))
    assert folders_of(step) == {folder}
    assert check.steps()[step].variables["CI"] == "true"


@pytest.mark.parametrize("name", long_steps.COVERING)
def test_what_is_to_cover_the_core_is_there(name: str) -> None:
    assert list(TESTS.rglob(f"test_{name}.py"))
