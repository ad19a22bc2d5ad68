"""The manual page zkwire.1, made from the commands, their arguments and docs/command-scripts.md.

The wheel installs it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from zkwire import __version__
from zkwire.cli.command import CONNECTION, OUTPUT, TABLE, Command, Parser, find, parser_of

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "data" / "share" / "man" / "man1" / "zkwire.1"
_COMMENT = r".\" Written by python3 -m tests.support.pages"
_WIDE = argparse.HelpFormatter("", width=1000)


def text(words: str) -> str:
    """Words as roff takes them: no line is a request, and no `-` becomes another character."""
    escaped = words.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


def section(title: str, *lines: str) -> Iterator[str]:
    yield f".SH {title}"
    yield from lines


def tagged(tag: str, does: str) -> Iterator[str]:
    """A paragraph with a tag in bold letters."""
    yield ".TP"
    yield f".B {text(tag)}"
    yield text(does)


def argument_of(action: argparse.Action) -> Iterator[str]:
    """An argument or an option of a command."""
    value = name_of(action)
    if action.option_strings:
        value = _WIDE._format_args(action, value)
    tag = " ".join(filter(None, [", ".join(action.option_strings), value]))
    yield from tagged(tag, action.help or "")


def name_of(action: argparse.Action) -> str:
    """How its value is named."""
    if action.choices and not action.metavar:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def usage_of(name: str, parser: argparse.ArgumentParser, *, runs_program: bool) -> str:
    """How the command is written."""
    if parser.usage:
        return parser.usage
    words = [action for action in arguments_of(parser) if not action.option_strings]
    shown = [_WIDE._format_args(action, name_of(action)) for action in words]
    program = ["[-- PROGRAM [ARG ...]]"] if runs_program else []
    return " ".join([f"zkwire {name} [OPTIONS]", *shown, *program])


def arguments_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What its help shows, without the help itself."""
    shown = [a for a in parser._actions if a.help != argparse.SUPPRESS and a.dest != "help"]
    return sorted(shown, key=lambda action: bool(action.option_strings))


def command_of(name: str, command: Command) -> Iterator[str]:
    """The part about one command."""
    parser = parser_of(name, command)
    yield f".SS {text(usage_of(name, parser, runs_program=command.runs_program))}"
    yield from (".in 2", ".EX", *map(text, command.examples), ".EE", ".in", ".PP")
    does = TABLE[name][1]
    yield text(does[:1].upper() + does[1:] + ".")
    for paragraph in filter(None, command.details.split("\n\n")):
        yield ".PP"
        yield text(paragraph)
    for action in arguments_of(parser):
        yield from argument_of(action)


def statuses() -> Iterator[str]:
    """The exit statuses, from the table of the page about the command."""
    page = (ROOT / "docs" / "command-scripts.md").read_text()
    table = page.split("\n## Exit statuses\n")[1].split("\n## ")[0]
    for number, means in re.findall(r"^\| ([\d, +n]+) \| (.*) \|$", table, re.MULTILINE):
        yield from tagged(number, re.sub(r"\*\*|`", "", means))


def page() -> str:
    """The whole manual page."""
    lines = [_COMMENT, f'.TH ZKWIRE 1 "" "zkwire {__version__}" "User Commands"']
    lines += section("NAME", r"zkwire \- work with a ZooKeeper from a terminal or a script")
    lines += section("SYNOPSIS", ".B zkwire", "[OPTIONS] COMMAND ...")
    lines += section(
        "DESCRIPTION",
        "Results are on standard output, notes and errors of one line on standard error.",
        text("A command is a session of its own; those of `zkwire shell` share one."),
        text("Durations are 5, 5s, 500ms, 2m or 1h."),
    )
    lines += section("COMMANDS")
    for name, (_, does) in TABLE.items():
        lines += tagged(name, does)
    lines += section("OPTIONS", text("They stand before COMMAND, or in their long form behind it."))
    for option in (*CONNECTION, *OUTPUT):
        action = Parser(add_help=False).add_argument(*option.names, **option.kind)
        lines += argument_of(action)
    lines += tagged("--version", "show the version")
    lines += section("EACH COMMAND")
    for name in TABLE:
        lines += command_of(name, find(name))
    lines += section("EXIT STATUS", *statuses())
    lines += section("ENVIRONMENT")
    lines += tagged("ZKWIRE_SERVER", "the servers, where --server says nothing")
    lines += tagged("ZKWIRE_AUTH", "SCHEME:SECRET, credentials where --auth says nothing")
    lines += tagged("NO_COLOR", "if it is set, there are no colours")
    lines += section("SEE ALSO", ".BR flock (1),", ".BR timeout (1),", ".BR tcpdump (8)")
    return "\n".join(lines) + "\n"
