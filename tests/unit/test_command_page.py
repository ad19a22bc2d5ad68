"""The pages about the command name every exit status and every option of all commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.command_lines import TEXT
from zkwire.cli import output as exits
from zkwire.cli.command import CONNECTION, OUTPUT, TABLE, find, parser_of
from zkwire.cli.main import main


def table_under(heading: str) -> str:
    """The first column of the table in this section."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"^\| (.*?) \| ", section, re.MULTILINE))


def test_the_exit_statuses_are_those_of_the_command() -> None:
    listed = {int(number) for number in re.findall(r"\d+", table_under("Exit statuses"))}
    assert listed == {
        value
        for name, value in vars(exits).items()
        if type(value) is int and name not in {"VERSION", "MOST_CHARACTERS"}
    }


def test_the_options_are_those_of_the_command() -> None:
    listed = re.findall(r"--[a-z][a-z-]*", table_under("Options of all commands"))
    assert listed == [option.names[-1] for option in (*CONNECTION, *OUTPUT)]


@pytest.mark.parametrize("name", TABLE)
def test_a_help_begins_with_two_examples_and_fits_a_terminal(name: str) -> None:
    command = find(name)
    lines = parser_of(name, command).format_help().splitlines()
    assert lines[0] == "examples:"
    assert len(command.examples) >= 2
    assert [line for line in lines if len(line) > 80] == []


def test_without_words_it_shows_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == exits.USAGE
    out, err = capsys.readouterr()
    assert (out, max(map(len, err.splitlines())) <= 80) == ("", True)
    assert set(TABLE) <= set(err.split())


def test_help_is_that_of_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["help"], ["--help"], ["help", "create"], ["create", "--help"]):
        assert main(words) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[2] == shown[3] != shown[0]


def test_each_promise_has_its_test() -> None:
    """The table names tests that exist."""
    root = Path(__file__).resolve().parents[2]
    table = TEXT.split("<!-- begin: checks -->")[1]
    rows = re.findall(r"^\| (.*) \| (.*) \|$", table.split("<!-- end: checks -->")[0], re.MULTILINE)
    assert len(rows) > 20
    for promise, tests in rows[2:]:
        named = re.findall(r"`(tests/\S+?)::(\w+)`", tests)
        assert len(named) == tests.count("`") / 2 > 0, promise
        for file, name in named:
            functions = {
                node.name
                for node in ast.walk(ast.parse((root / file).read_text()))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name in functions, f"{promise}: {file} has no {name}"
