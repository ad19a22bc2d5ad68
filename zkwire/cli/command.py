"""What a command of ``zkwire`` is, the table of all of them, and the parser of its words.

The table says which module has a command, so the help of all commands loads none of them, and a
command loads no other.  The module has it in its own ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from textwrap import dedent
from typing import Any, NamedTuple, NoReturn

from zkwire import __version__

Run = Callable[[Any, Namespace], "int | None"]  # it is given a Context


class UsageError(ValueError):
    """The words of a command cannot be understood; the message says where the right ones are."""


class Arg(NamedTuple):
    """An argument, as ``add_argument`` takes it."""

    names: tuple[str, ...]
    kind: dict[str, Any]

    @property
    def dest(self) -> str:
        """What it is called among the parsed ones."""
        return str(self.kind.get("dest") or self.names[-1].lstrip("-").replace("-", "_"))


class Group(NamedTuple):
    """Arguments below a title; without one they exclude each other."""

    title: str
    args: tuple[Arg, ...]


def arg(*names: str, **kind: Any) -> Arg:
    """An argument."""
    return Arg(names, kind)


def flag(*words: str, **kind: Any) -> Arg:
    """A switch; the last word is what it does."""
    return Arg(words[:-1], {"action": "store_true", "default": False, "help": words[-1], **kind})


def one_of(*args: Arg) -> Group:
    """Arguments of which one can be given."""
    return Group("", args)


class Command:
    """One command.

    ``run`` does it: it gets the context and the parsed arguments, and returns the exit status
    (None: 0); errors it leaves to the caller.  Its docstring is the help: whole lines as
    ``examples``, and behind an empty line ``details`` of at most 80 columns.  ``in_shell``: whether
    the shell has it as well.  ``connects``: whether it takes the options of a client.
    ``runs_program``: the words behind ``--`` are a program and no arguments; the parsed arguments
    have them as ``program``, empty if there is none.
    """

    def __init__(
        self, run: Run, *args: Arg | Group, usage: str | None = None, in_shell: bool = True,
        connects: bool = True, runs_program: bool = False,
    ) -> None:  # fmt: skip
        self.run, self.args, self.usage = run, args, usage
        self.in_shell, self.connects, self.runs_program = in_shell, connects, runs_program
        examples, _, self.details = dedent(run.__doc__ or "").strip().partition("\n\n")
        self.examples = tuple(filter(None, examples.split("\n")))


# The name of each command, the module below zkwire.cli that has it, and what it does.
TABLE: dict[str, tuple[str, str]] = {
    "ls": ("nodes.reading", "list the children of a node"),
    "tree": ("nodes.reading", "draw the nodes below a node"),
    "get": ("nodes.reading", "print the data of a node"),
    "exists": ("nodes.reading", "say by the exit status whether a node exists"),
    "stat": ("nodes.reading", "print the stat of a node"),
    "create": ("nodes.writing", "create a node"),
    "set": ("nodes.writing", "replace the data of a node"),
    "rm": ("nodes.writing", "delete nodes"),
    "txn": ("nodes.writing", "execute operations, all of them or none"),
    "acl": ("nodes.writing", "read or replace the access list of a node"),
    "quota": ("nodes.ensemble", "read, set or delete the limits of a node"),
    "count": ("nodes.reading", "print how many nodes are below a node"),
    "sync": ("nodes.reading", "let the server catch up with the ensemble"),
    "ephemerals": ("nodes.ensemble", "list the ephemeral nodes of this session"),
    "whoami": ("nodes.ensemble", "print the identities that the server sees"),
    "config": ("nodes.ensemble", "print the configuration of the ensemble"),
    "reconfig": ("nodes.ensemble", "add servers to the ensemble, or remove them"),
    "watch": ("nodes.watching", "show each change of a node, as it comes"),
    "wait": ("nodes.watching", "wait until a node exists, is gone, or has certain data"),
    "lock": ("lock.command", "run a command while a lock is held"),
    "spy": ("spy.spy", "show what a client and a server say to each other, and break it"),
    "lesson": ("lessons.command", "learn sessions, watches and locks by running them"),
    "demo": ("demo", "show what the locks do when things go wrong"),
    "copy": ("transfer.commands", "copy a tree to another path or ensemble"),
    "dump": ("transfer.commands", "write a tree as JSON Lines"),
    "load": ("transfer.commands", "read a tree that dump has written"),
    "doctor": ("servers.doctor", "see whether each server can be used, and why not"),
    "who": ("servers.who", "show which session owns an ephemeral node, and what else"),
    "server": ("server", "run an in-memory ZooKeeper server, for tests and demos"),
    "shell": ("shell.terminal", "look at nodes and change them, one command on each line"),
    "completion": ("completion", "write a completion file for bash, zsh or fish"),
    "help": ("command", "show all commands, or the examples and flags of one"),
}
# What completion files run; no help shows it.
HIDDEN = {"complete": "completion"}


def no_command(name: str, names: Iterable[str], lists: str) -> UsageError:
    """The error for a name that is none of ``names``; ``lists`` is the command that lists them."""
    from zkwire.cli.shell.words import NAMES

    meant = " ".join(NAMES.get(name, ())) or nearest(name, names)
    advice = f"; did you mean `{meant}`?" if meant else f"; `{lists}` lists them"
    return UsageError(f"there is no command {name!r}{advice}")


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of these words that is perhaps meant; "" if none is like it."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), 1)), "")


def find(name: str) -> Command:
    """The command of this name; UsageError if there is none."""
    module = HIDDEN.get(name) or TABLE.get(name, ("", ""))[0]
    if not module:
        raise no_command(name, TABLE, "zkwire help")
    command: Command = __import__(f"zkwire.cli.{module}", fromlist=["_"]).COMMANDS[name]
    return command


# --- arguments ------------------------------------------------------------------------------------
# Kinds of arguments: durations, and the options that each command has.
#
# Such an option may stand before the command, and behind it in its long form: the command may use
# the letter for something else.

DEFAULT_SERVER = "127.0.0.1:2181"
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 100 * 365 * 86400.0  # three times that is more than Python waits for anything


def server_of(asked: Namespace) -> str:
    """The servers that ``--server`` names, or the environment, or the default."""
    if asked.server is not None:  # an empty one, from an empty variable, is refused by the client
        return str(asked.server)
    return os.environ.get("ZKWIRE_SERVER") or DEFAULT_SERVER


def duration(text: str) -> float:
    """Seconds, from ``5``, ``5s``, ``500ms``, ``2m`` or ``1h``."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0.0 <= seconds <= LONGEST:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 5, 500ms, 5s or 2m")
    return seconds


def integer(what: str, least: int = 0, most: int = (1 << 31) - 1) -> Callable[[str], int]:
    """The parser of a whole number between these; ``what`` names it in the error."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r} is not a valid {what}")
        return int(text)

    return parse


# fmt: off
TLS = (
    flag("--tls", "connect with TLS"),
    arg("--cafile", help="the CA certificates of the servers (PEM)", metavar="FILE"),
    arg("--cert", help="the client's certificate (PEM)", metavar="FILE"),
    arg("--key", help="the private key of --cert", metavar="FILE"),
)
CONNECTION = (
    arg("-s", "--server", metavar="HOSTS",
        help=f"HOST:PORT[,...][/CHROOT] (else ZKWIRE_SERVER, or {DEFAULT_SERVER})"),
    arg("--connect-timeout", help="how long to look for a server (10)", default=10.0,
        type=duration, metavar="SECS"),
    arg("--session-timeout", help="the timeout of the session (10)", default=10.0,
        type=duration, metavar="SECS"),
    arg("--send-limit", help="the longest request (1048575, see jute.maxbuffer)",
        type=integer("number of bytes, from 1024 on", 1024), metavar="BYTES"),
    arg("--auth", metavar="SCHEME:FILE",
        help="credentials: the file has the secret (or SCHEME:SECRET in ZKWIRE_AUTH)"),
    *TLS,
    flag("--read-only", "accept a server that has lost its ensemble"),
    flag("--trace", "show each frame on the wire on standard error"),
)
OUTPUT = (
    flag("--json", "write JSON, an object for each result"),
    flag("-q", "--quiet", "no notes on standard error"),
    arg("--color", help="when to use colours", default="auto", choices=("auto", "always", "never")),
    flag("--debug", "show where in the program an error comes from"),
)
# fmt: on


def defaults() -> dict[str, object]:
    """What the options of all commands are where none is given."""
    values = {each.dest: each.kind.get("default") for each in (*CONNECTION, *OUTPUT)}
    return {**values, "auth": os.environ.get("ZKWIRE_AUTH")}


# --- parser ---------------------------------------------------------------------------------------
# The parser of a command's words, by argparse, whose complaints it puts into plain words.

TAKES_THE_REST = (argparse.REMAINDER, argparse.PARSER)
MAY_BE_NONE = (argparse.ZERO_OR_MORE, argparse.REMAINDER)
# Lines for 80 columns; argparse makes one for each argument, and would load shutil for it.
FORMATTER = partial(argparse.RawDescriptionHelpFormatter, width=78)


class Parser(ArgumentParser):
    """A parser that raises UsageError where argparse ends the process, and shows examples first.

    Options may stand between the other words, too: ``create /a -s data``.
    """

    def __init__(self, *args: Arg | Group, examples: tuple[str, ...] = (), **options: Any) -> None:
        own: dict[str, Any] = {"formatter_class": FORMATTER, "allow_abbrev": False}
        super().__init__(**(own | options))
        self.examples = examples
        for each in args:
            if isinstance(each, Arg):
                self.add(each)
                continue
            if each.title:
                group: Any = self.add_argument_group(each.title)
            else:
                group = self.add_mutually_exclusive_group()
            for one in each.args:
                group.add_argument(*one.names, **one.kind)

    def add(self, each: Arg) -> None:
        """Add an argument."""
        action = self.add_argument(*each.names, **each.kind)
        if action.nargs in MAY_BE_NONE:  # argparse would say that they are required
            action.required = False

    def add_again(self, options: Sequence[Arg]) -> None:
        """Add these options of all commands, in their long form; no help shows them."""
        for each in options:
            kind: dict[str, Any] = {**each.kind, "help": argparse.SUPPRESS}
            self.add_argument(each.names[-1], **kind)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: Namespace | None = None
    ) -> Namespace:
        """Parse these words; what takes all the rest of them ends the options."""
        space = namespace or Namespace()
        parsed, rest = self.parse_known_args(args, Namespace(**vars(space)))
        ends = any(action.nargs in TAKES_THE_REST for action in self._get_positional_actions())
        if rest and not ends:  # slower, so only where an option stands between other words
            parsed, rest = self.parse_known_intermixed_args(args, space)
        if rest:
            self.error(self._needless(rest))
        vars(space).update(vars(parsed))
        return space

    def _needless(self, words: list[str]) -> str:
        """What is wrong with words that no argument takes."""
        option = next((word for word in words if word.startswith("-")), None)
        if option is None:
            return f"{words[0]!r} is one word too many"
        meant = nearest(option.partition("=")[0], self._option_string_actions)
        return f"there is no flag {option}{f'; did you mean {meant}?' if meant else ''}"

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has found."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        """The examples, and behind them what argparse knows."""
        if not self.examples:
            return super().format_help()
        return "\n  ".join(["examples:", *self.examples]) + "\n\n" + super().format_help()


def parser_of(name: str, command: Command, *, prog: str = "zkwire ", does: str = "") -> Parser:
    """The parser for the words behind the name of a command.

    ``does`` is for one that is not in the table.  In the shell (``prog`` is empty) the options of a
    client are not taken.
    """
    does = does or TABLE.get(name, ("", ""))[1]
    parser = Parser(
        *command.args,
        prog=f"{prog}{name}",
        usage=command.usage,
        description="\n\n".join(filter(None, [does[:1].upper() + does[1:] + ".", command.details])),
        epilog='"zkwire help" shows the options of all commands: --server, --auth, --json, ...',
        examples=command.examples,
    )
    parser.add_again((*CONNECTION, *OUTPUT) if command.connects and prog else OUTPUT)
    return parser


# --- help -----------------------------------------------------------------------------------------
# ``zkwire help``.


def parser_of_all() -> Parser:
    """The parser for what stands before the command; its help lists all commands."""
    lines = [f"  {name:10}  {does}" for name, (_, does) in TABLE.items()]
    return Parser(
        arg("--version", action="version", version=f"zkwire {__version__}"),
        Group("the connection", CONNECTION),
        Group("the output", OUTPUT),
        arg("words", nargs="A...", metavar="COMMAND", help=argparse.SUPPRESS),
        prog="zkwire",
        usage="zkwire [OPTIONS] COMMAND ...",
        examples=(
            "zkwire -s zk1:2181 ls /    # the children of the root",
            "zkwire -s zk1:2181 shell   # commands, one on each line",
            "zkwire doctor -s zk1:2181  # whether a server can be used, and why not",
        ),
        description="\n".join(["A ZooKeeper client in pure Python.", "", "commands:", *lines]),
        epilog='"zkwire help COMMAND" shows examples and options of a command.',
    )


def _help(context: Any, asked: Namespace) -> None:
    """
    zkwire help         # all commands, and the options of all
    zkwire help create  # examples and flags of one, as create --help
    """
    name = asked.command
    parser = parser_of(name, find(name)) if name else parser_of_all()
    context.output.text(parser.format_help().rstrip())


COMMANDS = {
    "help": Command(
        _help, arg("command", nargs="?", metavar="COMMAND", help="the command to explain"),
        in_shell=False, connects=False,
    ),
}  # fmt: skip
