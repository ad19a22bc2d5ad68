"""``zkwire completion``: files for bash, zsh and fish, written from the table of commands.

For paths these files run ``zkwire complete-path``, which asks the server that the line names and
ends within a few seconds, whatever the server does.
"""

from __future__ import annotations

from argparse import SUPPRESS
from importlib import import_module

from zkwire.cli.arguments import CONNECTION, OUTPUT, add_options
from zkwire.cli.command import TABLE, Command, find
from zkwire.cli.lessons.lesson import TABLE as LESSONS
from zkwire.cli.parser import Parser, parser_of
from zkwire.cli.shell.completing import SECONDS, children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire.cli.context import Context

SHELLS = ("bash", "zsh", "fish")


class Flag:
    """A flag: its names, whether a value follows it, and what it does."""

    def __init__(self, names: list[str], takes_value: bool, does: str) -> None:
        self.names = names
        self.takes_value = takes_value
        self.does = does


class Facts:
    """What there is to complete.

    ``commands``: what each does.  ``flags``: of each.  ``common``: the flags of all commands.
    ``with_paths``: the commands that take paths of nodes; others take files.  ``words``: of
    commands whose first word is one of a few, these words.
    """

    def __init__(self) -> None:
        common = Parser(add_help=False)
        add_options(common, "all", (*CONNECTION, *OUTPUT))
        self.common: list[Flag] = _flags_of(common)
        self.commands: dict[str, str] = {name: does for name, (_, does) in TABLE.items()}
        self.flags: dict[str, list[Flag]] = {}
        self.with_paths: list[str] = []
        self.words: dict[str, list[str]] = {"help": [*TABLE], "lesson": [*LESSONS]}
        for name in TABLE:
            parser = parser_of(name, find(name))
            self.flags[name] = _flags_of(parser)
            others = [action for action in parser._actions if not action.option_strings]
            if others and others[0].choices:
                self.words[name] = list(others[0].choices)
            if any("PATH" in str(action.metavar) for action in others):
                self.with_paths.append(name)


def _flags_of(parser: ArgumentParser) -> list[Flag]:
    return [
        Flag(list(action.option_strings), action.nargs != 0, (action.help or "") % vars(action))
        for action in parser._actions
        if action.option_strings and action.help is not SUPPRESS
    ]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="whose completion to write")


def _completion(context: Context, asked: Namespace) -> None:
    write = import_module(f"zkwire.cli.shell.for_{asked.shell}").script
    context.output.text(write(Facts()).rstrip("\n"))


def _path_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("start", nargs="?", default="/", metavar="PATH")


def _complete_path(context: Context, asked: Namespace) -> None:
    context.options.connect_timeout = min(context.options.connect_timeout, SECONDS)
    above, slash, start = asked.start.rpartition("/")
    for name in children(context.client, context.path(above + slash or "/"), start):
        context.output.line(f"{above}{slash}{name}")


COMMANDS = {
    "completion": Command(
        _completion,
        _arguments,
        examples=(
            "source <(zkwire completion bash)    # in ~/.bashrc",
            "zkwire completion zsh > ~/.zfunc/_zkwire",
            "zkwire completion fish > ~/.config/fish/completions/zkwire.fish",
        ),
        details="It completes commands, flags, and paths of nodes, of the server that the\n"
        "line or ZKWIRE_SERVER names.",
        in_shell=False,
        connects=False,
    ),
    "complete-path": Command(_complete_path, _path_arguments, examples=(), in_shell=False),
}
