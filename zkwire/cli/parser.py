"""The parser of a command's words, and ``zkwire help``."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from textwrap import fill
from typing import Any, NoReturn

from zkwire import __version__
from zkwire.cli.arguments import CONNECTION, OUTPUT, add_options
from zkwire.cli.command import TABLE, Command, UsageError, find, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.arguments import Option
    from zkwire.cli.context import Context


# The parser of a command's words, by argparse, whose complaints it puts into plain words.

TAKES_THE_REST = (argparse.REMAINDER, argparse.PARSER)
MAY_BE_NONE = (argparse.ZERO_OR_MORE, argparse.REMAINDER)
# What argparse says, and what is said here; the first that matches counts.
PLAIN_WORDS = (
    (r"the following arguments are required: (.*, .*)", r"\1 are missing"),
    (r"the following arguments are required: (.*)", r"\1 is missing"),
    (r"argument (.*): expected .*", r"\1 takes a value"),
    (r"argument (.*): ignored explicit argument .*", r"\1 takes no value"),
    (r"argument (.*): not allowed with argument (.*)", r"\1 and \2 exclude each other"),
    (r"argument (.*): invalid \w+ value: (.*)", r"\1: \2 is no number"),
    (r"argument (.*)", r"\1"),
)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Lines for 80 columns; argparse makes one for each argument, and would load shutil for it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=78)


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError where argparse ends the process, and shows examples first.

    Options may stand between the other words, too: ``create /a -s data``.
    """

    def __init__(self, *, examples: tuple[str, ...] = (), **options: object) -> None:
        options.setdefault("formatter_class", _Formatter)
        super().__init__(**options)  # type: ignore[arg-type]
        self.examples = examples

    def add_argument(self, *names: str, hidden: bool = False, **kind: Any) -> argparse.Action:
        """Add an argument; no help shows one that is ``hidden``."""
        if hidden:
            kind["help"] = argparse.SUPPRESS
        action = super().add_argument(*names, **kind)
        if action.nargs in MAY_BE_NONE:  # argparse would say that they are required
            action.required = False
        return action

    def add_again(self, options: tuple[Option, ...]) -> None:
        """Add these options of all commands, in their long form, to a command's parser."""
        for option in options:
            self.add_argument(option.names[-1], hidden=True, **option.kind)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse these words; what takes all the rest of them ends the options."""
        space = namespace or argparse.Namespace()
        parsed, rest = self.parse_known_args(args, argparse.Namespace(**vars(space)))
        ends = any(action.nargs in TAKES_THE_REST for action in self._get_positional_actions())
        if rest and not ends:  # slower, so only where an option stands between other words
            parsed, rest = self.parse_known_intermixed_args(args, space)
        if rest:
            self.error(self._needless(rest))
        vars(space).update(vars(parsed))
        return space

    def _needless(self, words: list[str]) -> str:
        """What is wrong with words that no argument takes."""
        flag = next((word for word in words if word.startswith("-")), None)
        if flag is None:
            return f"{words[0]!r} is one word too many"
        meant = nearest(flag.partition("=")[0], self._option_string_actions)
        return f"there is no flag {flag}{f'; did you mean {meant}?' if meant else ''}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = ", ".join(action.choices)
            raise argparse.ArgumentError(action, f"{value!r} is none of {known}")

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has found."""
        for theirs, plain in PLAIN_WORDS:
            if found := re.fullmatch(theirs, message, re.DOTALL):
                message = found.expand(plain)
                break
        raise UsageError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        """The examples, and behind them what argparse knows."""
        if not self.examples:
            return super().format_help()
        return "\n  ".join(["examples:", *self.examples]) + "\n\n" + super().format_help()


def parser_of(
    name: str, command: Command, *, prog: str = "zkwire ", does: str | None = None
) -> Parser:
    """The parser for the words behind the name of a command.

    ``does`` is for one that is not in the table.
    """
    does = does or TABLE.get(name, ("", ""))[1]
    parser = Parser(
        prog=f"{prog}{name}",
        description="\n\n".join(filter(None, [does[:1].upper() + does[1:] + ".", command.details])),
        epilog='"zkwire help" shows the options of all commands: --server, --auth, --json, ...',
        examples=command.examples,
        allow_abbrev=False,
    )
    command.arguments(parser)
    return parser


# --- help -----------------------------------------------------------------------------------------
# ``zkwire help``, and what ``zkwire`` shows without a command.

WIDTH = 78
OVERVIEW = """zkwire, a ZooKeeper client in pure Python.

usage: zkwire [OPTIONS] COMMAND ...

commands:
{names}

  zkwire -s zk1:2181 ls /      the children of the root
  zkwire -s zk1:2181 shell     look around: commands, one on each line
  zkwire doctor -s zk1:2181    see whether a server can be used, and why not
  zkwire demo                  what the locks do when things go wrong, no server

zkwire help            what each command does, and the options of all commands
zkwire help COMMAND    examples and flags of a command"""


def overview() -> str:
    """What there is, on one screen."""
    names = fill(" ".join(TABLE), WIDTH, initial_indent="  ", subsequent_indent="  ")
    return OVERVIEW.format(names=names)


def parser_of_all() -> Parser:
    """The parser for what stands before the command; its help lists all commands."""
    parser = Parser(
        prog="zkwire",
        usage="zkwire [OPTIONS] COMMAND ...",
        description="\n".join(
            ["zkwire, a ZooKeeper client in pure Python.", "", "commands:"]
            + [f"  {name:10}  {does}" for name, (_, does) in TABLE.items()]
        ),
        epilog='"zkwire help COMMAND" shows examples and options of a command.',
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zkwire {__version__}")
    add_options(parser, "the connection", CONNECTION)
    add_options(parser, "the output", OUTPUT)
    parser.add_argument("words", nargs="A...", metavar="COMMAND", hidden=True)
    return parser


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="one of them")


def _help(context: Context, asked: Namespace) -> None:
    """
    zkwire help         # all commands, and the options of all
    zkwire help create  # examples and flags of one, as create --help
    """
    name = asked.command
    parser = parser_of(name, find(name)) if name else parser_of_all()
    context.output.text(parser.format_help().rstrip())


COMMANDS = {
    "help": Command(_help, _arguments, in_shell=False, connects=False),
}
