"""The table in docs/command.md of what zkwire and zkCli do is whole, and its lines can be run."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.interop.side_by_side_zkcli import BEGIN, END, HEAD, PAGE, keystrokes
from tests.interop.zkcli_tasks import TASKS, Task
from zkwire.cli.command import UsageError, find, parser_of

TABLE = PAGE.read_text().split(BEGIN)[1].split(END)[0]
ROWS = [line.strip("|").split("|") for line in TABLE.removeprefix(HEAD).splitlines() if "|" in line]


def test_there_are_forty_different_tasks() -> None:
    assert len(TASKS) == len({task.what for task in TASKS}) == 40


def test_the_table_has_a_row_for_each() -> None:
    assert TABLE.startswith(HEAD)
    assert len(ROWS) == len(TASKS)
    for cells, task in zip(ROWS, TASKS, strict=True):
        what, ours, theirs, nodes, status, keys, times = (cell.strip() for cell in cells)
        assert (what, ours, theirs) == (task.what, f"`{task.zkwire}`", f"`{task.zkcli}`")
        assert nodes == "the same"
        assert keys == f"{len('zkwire ' + task.zkwire)} / {keystrokes(task)}"
        assert re.fullmatch(r"\d+ / \d+", status)
        assert re.fullmatch(r"\d+ / \d+", times)


@pytest.mark.parametrize("task", TASKS, ids=[task.what for task in TASKS])
def test_each_line_is_one_that_zkwire_understands(task: Task) -> None:
    name, *words = shlex.split(task.zkwire)
    if task.what == "mistype a command":
        with pytest.raises(UsageError):
            find(name)
    else:
        parser_of(name, find(name)).parse_args(words)
