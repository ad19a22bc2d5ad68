"""What a command of ``zkwire`` is, the table of all of them, and the parser of its words.

The table says which module has a command, so the help of all commands loads none of them, and a
command loads no other.  The module has it in its own ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from textwrap import dedent, fill
from typing import Any, NoReturn

from zkwire import __version__

# What a command of ``zkwire`` is, and the table of all of them.
#
# The table says which module has a command, so the help of all commands loads none of them, and a
# command loads no other.  The module has it in its own ``COMMANDS``.

Run = Callable[[Any, Namespace], "int | None"]  # it is given a Context


class UsageError(ValueError):
    """The words of a command cannot be understood; the message says where the right ones are."""


def no_arguments(_: ArgumentParser) -> None:
    """For a command that takes none but those of all commands."""


class Command:
    """One command.

    ``arguments`` adds its arguments to a parser.  ``run`` does it: it gets the context and the
    parsed arguments, and returns the exit status (None: 0); errors it leaves to the caller.  Its
    docstring is the help: whole lines as ``examples``, and behind an empty line ``details`` of at
    most 80 columns.  ``in_shell``: whether the shell has it as well.  ``connects``: whether it
    takes the options of a client.  ``runs_program``: the words behind ``--`` are a program and no
    arguments; the parsed arguments have them as ``program``, empty if there is none.
    """

    def __init__(
        self,
        run: Run,
        arguments: Callable[[ArgumentParser], None] = no_arguments,
        *,
        in_shell: bool = True,
        connects: bool = True,
        runs_program: bool = False,
    ) -> None:
        self.run = run
        self.arguments = arguments
        self.in_shell = in_shell
        self.connects = connects
        self.runs_program = runs_program
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
    "decode": ("spy.decode", "explain bytes of the protocol, field by field"),
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


def wrong_word(message: str) -> Exception:
    """The error for a word that is no value of its argument, whose name the parser puts before."""
    return ArgumentTypeError(message)


def duration(text: str) -> float:
    """Seconds, from ``5``, ``5s``, ``500ms``, ``2m`` or ``1h``."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0.0 <= seconds <= LONGEST:
        raise wrong_word(f"{text!r} is no duration, such as 5, 500ms, 5s or 2m")
    return seconds


def version(text: str) -> int:
    """A version of a node, from 0 on."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise wrong_word(f"{text!r} is no version, a number from 0 on")
    return number


def limit(text: str) -> int:
    """A number of bytes that a client takes for ``send_limit``."""
    if not (text.isascii() and text.isdecimal() and 1024 <= int(text) < 1 << 31):
        raise wrong_word(f"{text!r} is no number of bytes, from 1024 on")
    return int(text)


class Option:
    """An option that each command has; ``kind`` are the other arguments of ``add_argument``."""

    def __init__(
        self, letter: str, name: str, does: str, default: object = None, **kind: Any
    ) -> None:
        self.names = [letter, name] if letter else [name]
        self.dest = kind.get("dest") or name.removeprefix("--").replace("-", "_")
        self.default = default
        self.kind: dict[str, Any] = {**kind, "help": does}


def _flag(letter: str, name: str, does: str) -> Option:
    return Option(letter, name, does, False, action="store_true")


SERVER = f"HOST:PORT[,...][/CHROOT] (else ZKWIRE_SERVER, or {DEFAULT_SERVER})"
AUTH = "credentials: the file has the secret (or SCHEME:SECRET in ZKWIRE_AUTH)"
TLS = (
    _flag("", "--tls", "connect with TLS"),
    Option("", "--cafile", "the CA certificates of the servers (PEM)", metavar="FILE"),
    Option("", "--cert", "the client's certificate (PEM)", metavar="FILE"),
    Option("", "--key", "the private key of --cert", metavar="FILE"),
)
CONNECTION = (
    Option("-s", "--server", SERVER, metavar="HOSTS"),
    Option("", "--connect-timeout", "how long to look for a server (10)", 10.0,
            type=duration, metavar="SECS"),
    Option("", "--session-timeout", "the timeout of the session (10)", 10.0,
            type=duration, metavar="SECS"),
    Option("", "--send-limit", "the longest request (1048575, see jute.maxbuffer)",
            type=limit, metavar="BYTES"),
    Option("", "--auth", AUTH, metavar="SCHEME:FILE"),
    *TLS,
    _flag("", "--read-only", "a server without its ensemble will do"),
    Option("", "--trace", "show each frame on the wire on standard error",
            action="store_const", const="-"),
    Option("", "--trace-file", "add each frame to this file", dest="trace", metavar="FILE"),
)  # fmt: skip
OUTPUT = (
    _flag("", "--json", "write JSON, an object for each result"),
    _flag("-q", "--quiet", "no notes on standard error"),
    Option("", "--color", "when to use colours", "auto", choices=("auto", "always", "never")),
    _flag("", "--debug", "show where in the program an error comes from"),
)


def defaults() -> dict[str, object]:
    """What the options of all commands are where none is given."""
    values = {option.dest: option.default for option in (*CONNECTION, *OUTPUT)}
    return {**values, "auth": os.environ.get("ZKWIRE_AUTH")}


def add_options(parser: ArgumentParser, title: str, options: tuple[Option, ...]) -> None:
    """Add these options to a parser, for what stands before the command."""
    group = parser.add_argument_group(title)
    for option in options:
        group.add_argument(*option.names, **option.kind)


# --- parser ---------------------------------------------------------------------------------------
# The parser of a command's words, and ``zkwire help``.

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


def _help(context: Any, asked: Namespace) -> None:
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
