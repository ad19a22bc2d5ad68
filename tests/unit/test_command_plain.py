"""What `zkwire.cli.plain` reads is what argparse reads, for all commands and lines of any words."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkwire.cli import main, plain
from zkwire.cli.arguments import CONNECTION, OUTPUT, add_again, defaults
from zkwire.cli.command import TABLE, UsageError, find
from zkwire.cli.parser import Parser, parser_of
from zkwire.cli.plain import PlainLine

WORDS = [
    *("", "-", "--", "-1", "--unknown", "-lR", "--ver", "two words", "-two words", ".", "/a"),
    *("0", "1", "5s", "none", "auto", "world:anyone:r", "host:1", "--server", "--server=h:1"),
]
# Their last words are a program's, so argparse reads them.
NEVER_PLAIN = {"lock"}


def both(name: str, words: list[str]) -> tuple[Parser, PlainLine]:
    """The two readers of a command's words; of those before a command for an empty name."""
    line: Any = PlainLine()
    if not name:
        main._add_arguments(line)
        return main._parser(), line
    command = find(name)
    parser = parser_of(name, command)
    command.arguments(line)
    for each in (parser, line):
        add_again(each, (*CONNECTION, *OUTPUT) if command.connects else OUTPUT, words)
    return parser, line


def by_argparse(parser: Parser, words: list[str]) -> dict[str, Any] | None:
    """What argparse reads; None if it refuses the line."""
    try:
        return vars(parser.parse_args(words, argparse.Namespace(**defaults())))
    except UsageError:
        return None


def by_plain(line: PlainLine, words: list[str]) -> dict[str, Any] | None:
    """What the plain reader reads; None if it leaves the line to argparse."""
    space = SimpleNamespace(**defaults())
    read = line.read([*words], space)
    assert read or vars(space) == defaults()
    return vars(space) if read else None


def words_of(name: str) -> st.SearchStrategy[str]:
    """Words for lines of this command: half of them likely ones, the others of all kinds."""
    parser, _ = both(name, [])
    options = [o for o in parser._option_string_actions if o not in ("-h", "--help", "--version")]
    choices = [str(c) for action in parser._actions for c in action.choices or ()]
    odd = [*options, *(f"{option}=1" for option in options), *WORDS]
    return st.sampled_from([*choices, "/a", "5"]) | st.sampled_from(odd)


@pytest.mark.parametrize("name", ["", *TABLE])
def test_a_line_is_read_as_argparse_reads_it(name: str) -> None:
    read = 0

    @settings(derandomize=True, deadline=None, max_examples=200, database=None)
    @given(st.lists(words_of(name), max_size=5))
    def compare(words: list[str]) -> None:
        nonlocal read
        parser, line = both(name, words)
        found = by_plain(line, words)
        if found is not None:
            read += 1
            assert found == by_argparse(parser, words)

    compare()
    assert (read > 0) == (name not in NEVER_PLAIN)


def test_argparse_has_this_constant() -> None:
    assert plain.PARSER == argparse.PARSER


@pytest.mark.parametrize(
    "line",
    [
        "ls", "ls /a", "ls -l /a --count", "tree -L 3 /a", "get /a --raw", "create /a text -e -s",
        "set /a text -v 3", "set /a --data-file -", "rm -r /a /b", "exists /a", "stat /a", "count",
        "watch /a --children", "wait /a --gone --timeout=5s", "acl set /a world:anyone:r",
        "acl get /a",
        "ls /a --json --server=h:1 --connect-timeout 5s", "dump /a", "load file --force",
    ],
)  # fmt: skip
def test_what_is_typed_every_day_is_plain(line: str) -> None:
    name, *words = line.split()
    parser, reader = both(name, words)
    found = by_plain(reader, words)
    assert found is not None
    assert found == by_argparse(parser, words)
