"""What the command says of itself is so: its pages, its help, and its advice."""

import os
import re
import shlex
import shutil
import subprocess
from contextlib import nullcontext
from itertools import product

import pytest

from tests.hazards.table import test_names
from tests.interop.side_by_side_zkcli import TASKS, Task
from tests.support import man_page
from tests.support.command import TEXT
from zkwire.cli import output as exits
from zkwire.cli.command import CONNECTION, OUTPUT, TABLE, UsageError, find, parser_of
from zkwire.cli.main import main
from zkwire.cli.output import in_flags
from zkwire.errors import REJECTIONS, SERVER_ERRORS, error_for
from zkwire.session import outcomes


def table_under(heading: str) -> str:
    """The first column of the table in this section."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"^\| (.*?) \| ", section, re.MULTILINE))


def test_the_exit_statuses_and_the_options_are_those_of_the_command() -> None:
    numbers = {name: value for name, value in vars(exits).items() if type(value) is int}
    del numbers["VERSION"], numbers["MOST_CHARACTERS"]
    assert {*map(int, re.findall(r"\d+", table_under("Exit statuses")))} == {*numbers.values()}
    listed = re.findall(r"--[a-z][a-z-]*", table_under("Options of all commands"))
    assert listed == [option.names[-1] for option in (*CONNECTION, *OUTPUT)]


@pytest.mark.parametrize("name", TABLE)
def test_a_help_begins_with_two_examples_and_fits_a_terminal(name: str) -> None:
    command = find(name)
    lines = parser_of(name, command).format_help().splitlines()
    assert lines[0] == "examples:"
    assert len(command.examples) >= 2
    assert max(map(len, lines)) <= 80


def test_the_help_lists_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for words in ("help", "--help", "help create", "create --help", "acl --help"):
        assert main(words.split()) == 0
        shown[words] = capsys.readouterr().out
    assert shown["help"] == shown["--help"]
    assert shown["help create"] == shown["create --help"] != shown["help"]
    usage = shown["acl --help"].partition("usage: ")[2]  # the words of each action
    assert usage.startswith("zkwire acl get [-s] PATH\n       zkwire acl set [-s] [-v N | -R] PATH")
    assert main([]) == exits.USAGE
    out, err = capsys.readouterr()
    assert (out, max(map(len, err.splitlines())) <= 80, set(TABLE) <= set(err.split())) == (
        ("", True, True)
    )


def test_each_promise_has_its_test() -> None:
    table = TEXT.split("<!-- begin: checks -->")[1].split("<!-- end: checks -->")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \|$", table, re.MULTILINE)[2:]
    assert len(rows) > 18
    for promise, tests in rows:
        named = re.findall(r"`tests/(\S+?::\w+)`", tests)
        assert len(named) == tests.count("`") / 2 > 0, promise
        assert {*named} <= test_names(), promise


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.what)
def test_each_line_of_the_table_of_tasks_can_be_run(task: Task) -> None:
    name, *words = shlex.split(task.zkwire)
    with pytest.raises(UsageError) if task.what == "mistype a command" else nullcontext():
        parser_of(name, find(name)).parse_args(words)


LIBRARY = re.compile(r"\w\(|=\.\.\.|=\[|=True|add_auth|\bClient\b")


def test_the_command_advises_flags_alone() -> None:
    told = [words for _, words in outcomes.TERMINAL.values()]
    told += [outcomes.NOT_RESUMED, outcomes.UNGREETED, outcomes.SILENT]
    for code in (*SERVER_ERRORS, *REJECTIONS, -112, -999):
        calls = product(("create", "get_data", "delete", "multi"), ("/", "/a", "/a/b"))
        told += [str(error_for(code, op, path)) for op, path in calls]
    assert [words for words in map(in_flags, told) if LIBRARY.search(words)] == []
    assert in_flags("create /ttl must: The node exists already.").startswith("create /ttl must: ")
    longer = "session_timeout must be 1, not 9; for a longer session, x: timedelta(seconds=9)"
    assert in_flags(longer) == "--session-timeout must be 1, not 9"


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man")
def test_man_shows_it_within_80_columns_without_a_warning() -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    shown = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-P", "cat", "-l", str(man_page.PATH)],
        env=environment, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    assert "  zkwire lock [OPTIONS] PATH [--] [COMMAND [ARG ...]]\n" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
