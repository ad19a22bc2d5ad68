"""What a command of ``zkwire`` is, and the table of all of them.

The table says which module has a command, so the help of all commands loads none of them, and a
command loads no other.  The module has it in its own ``COMMANDS``.
"""

from __future__ import annotations

import argparse
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from zkwire.cli.context import Context

    Run = Callable[[Context, argparse.Namespace], int | None]

TAKES_THE_REST = (argparse.REMAINDER, argparse.PARSER)


class UsageError(ValueError):
    """The words of a command cannot be understood; the message says where the right ones are."""


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
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        vars(space).update(vars(parsed))
        return space

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has found."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        """The examples, and behind them what argparse knows."""
        if not self.examples:
            return super().format_help()
        return "\n  ".join(["examples:", *self.examples]) + "\n\n" + super().format_help()


class Command:
    """One command.

    ``arguments`` adds its arguments to a parser.  ``run`` does it: it gets the context and the
    parsed arguments, and returns the exit status (None: 0); errors it leaves to the caller.
    ``examples`` are whole lines, shown first in the help.  ``details`` are paragraphs for the help,
    of at most 80 columns.  ``in_shell``: whether the shell has it as well.  ``connects``: whether
    it takes the options of a client.  ``runs_program``: the words behind ``--`` are a program
    and no arguments; the parsed arguments have them as ``program``, empty if there is none.
    """

    def __init__(
        self,
        run: Run,
        arguments: Callable[[argparse.ArgumentParser], None],
        *,
        examples: tuple[str, ...],
        details: str = "",
        in_shell: bool = True,
        connects: bool = True,
        runs_program: bool = False,
    ) -> None:
        self.run = run
        self.arguments = arguments
        self.examples = examples
        self.details = details
        self.in_shell = in_shell
        self.connects = connects
        self.runs_program = runs_program


# The name of each command, the module below zkwire.cli that has it, and what it does.
TABLE: dict[str, tuple[str, str]] = {
    "ls": ("nodes.listing", "list the children of a node"),
    "tree": ("nodes.listing", "draw the nodes below a node"),
    "get": ("nodes.reading", "print the data of a node"),
    "exists": ("nodes.reading", "say by the exit status whether a node exists"),
    "stat": ("nodes.reading", "print the stat of a node"),
    "create": ("nodes.writing", "create a node"),
    "set": ("nodes.writing", "replace the data of a node"),
    "rm": ("nodes.writing", "delete nodes"),
    "txn": ("nodes.txn", "execute operations, all of them or none"),
    "acl": ("nodes.acl", "read or replace the access list of a node"),
    "quota": ("nodes.quota", "read, set or delete the limits of a node"),
    "count": ("nodes.listing", "print how many nodes are below a node"),
    "sync": ("nodes.reading", "let the server catch up with the ensemble"),
    "ephemerals": ("nodes.ensemble", "list the ephemeral nodes of this session"),
    "whoami": ("nodes.ensemble", "print the identities that the server sees"),
    "config": ("nodes.ensemble", "print the configuration of the ensemble"),
    "reconfig": ("nodes.ensemble", "add servers to the ensemble, or remove them"),
    "watch": ("nodes.watch", "show each change of a node, as it comes"),
    "wait": ("nodes.wait", "wait until a node exists, is gone, or has certain data"),
    "lock": ("lock.command", "run a command while a lock is held"),
    "spy": ("spy.spy", "show what a client and a server say to each other, and break it"),
    "decode": ("spy.decode", "explain bytes of the protocol, field by field"),
    "lesson": ("lessons.command", "learn sessions, watches and locks by running them"),
    "demo": ("demo.demo", "show what the locks do when things go wrong"),
    "copy": ("transfer.load", "copy a tree to another path or ensemble"),
    "dump": ("transfer.dump", "write a tree as JSON Lines"),
    "load": ("transfer.load", "read a tree that dump has written"),
    "doctor": ("servers.doctor", "see whether each server can be used, and why not"),
    "who": ("servers.owning", "show which session owns an ephemeral node, and what else"),
    "server": ("server", "run an in-memory ZooKeeper server, for tests and demos"),
    "shell": ("shell.shell", "look at nodes and change them, one command on each line"),
    "completion": ("shell.completion", "write a completion file for bash, zsh or fish"),
}
# Processes of the demo, and what completion files run; no help shows them.
HIDDEN = {"writer": "demo.demo", "holder": "demo.demo", "complete-path": "shell.completion"}


def find(name: str) -> Command:
    """The command of this name; UsageError if there is none."""
    module = HIDDEN.get(name) or TABLE.get(name, ("", ""))[0]
    if not module:
        raise UsageError(f"there is no command {name!r}; `zkwire --help` lists them")
    command: Command = import_module(f"zkwire.cli.{module}").COMMANDS[name]
    return command


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
        epilog='"zkwire --help" shows the options of all commands: --server, --auth, --json, ...',
        examples=command.examples,
        allow_abbrev=False,
    )
    command.arguments(parser)
    return parser
