"""``zkwire help``, and what ``zkwire`` shows without a command."""

from __future__ import annotations

from textwrap import fill

from zkwire import __version__
from zkwire.cli.arguments import CONNECTION, OUTPUT, add_options
from zkwire.cli.command import TABLE, Command, find
from zkwire.cli.parser import Parser, parser_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire.cli.context import Context

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
    name = asked.command
    parser = parser_of(name, find(name)) if name else parser_of_all()
    context.output.text(parser.format_help().rstrip())


COMMANDS = {
    "help": Command(
        _help,
        _arguments,
        examples=(
            "zkwire help         # all commands, and the options of all",
            "zkwire help create  # examples and flags of one, as create --help",
        ),
        in_shell=False,
        connects=False,
    ),
}
