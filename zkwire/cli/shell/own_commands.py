"""The commands that the shell alone has: they are about the shell, its session or its watches."""

from __future__ import annotations

import re
import textwrap
from argparse import REMAINDER

from zkwire import __version__
from zkwire.cli.command import TABLE, Command, UsageError, find
from zkwire.cli.shell.aliases import NAMES
from zkwire.cli.shell.words import commands_of
from zkwire.errors import NoNodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import Protocol

    from zkwire import Client
    from zkwire.cli.command import Run
    from zkwire.cli.context import Context
    from zkwire.cli.parser import Parser
    from zkwire.cli.shell.events import Events

    class Shell(Protocol):
        """What these commands need of the shell."""

        at_terminal: bool
        ended: bool
        history: list[str]
        events: Events

        @property
        def connected(self) -> Client | None: ...
        def connect(self, server: str | None = None) -> None: ...
        def parser(self, name: str) -> Parser: ...
        def run_line(self, line: str) -> int: ...


SHOWN = 20
"""Lines of ``history``."""
WIDTH = 78
# An option --auth, credentials, and an entry of an access list whose id may be a secret.
_SECRET = re.compile(
    r"--?auth | digest\b | (.*,)? (?!world:|auth::|ip:|sasl:|x509:) \w+ : .* : [cdrwa]+ (,.*)? $",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
MODES = ("PERSISTENT", "PERSISTENT_RECURSIVE")
WATCHES = {"-c": "CHILDREN", "-d": "DATA", "-p": "PERSISTENT", "-r": "PERSISTENT_RECURSIVE"}


def has_secret(line: str) -> bool:
    """Whether a line may have a secret: such a line is kept nowhere."""
    try:
        commands = commands_of(line)
    except ValueError:  # there is no end to a quote, so each word may begin a command
        commands = [[word] for word in re.split(r"[\s;'\"\\]+", line) if word]
    return any(
        words[0].lower().endswith("auth") or any(map(_SECRET.match, words)) for words in commands
    )


def _no_arguments(_: ArgumentParser) -> None:
    pass


def _optional(name: str) -> Callable[[ArgumentParser], None]:
    """One argument that may be left out."""

    def add(parser: ArgumentParser) -> None:
        parser.add_argument("word", nargs="?", metavar=name)

    return add


class OwnCommands:
    """``table``: what each does, and the command."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._former = "/"
        self.table: dict[str, tuple[str, Command]] = {}
        add = self._add
        add("cd", "go to a node: relative paths begin there", self._cd, _optional("PATH"))
        add("pwd", "where relative paths begin", self._pwd)
        add("connect", "a new session, with another server", self._connect, _optional("HOSTS"))
        add("reconnect", "a new session, with the same servers", self._connect, _optional("HOSTS"))
        add("close", "end the session, and stay in the shell", self._close)
        does = "add credentials; the secret is asked for, or in a file (-f)"
        add("addauth", does, self._addauth, _addauth_arguments)
        does = "show each change of a node, and of all below, as it comes"
        add("addWatch", does, self._add_watch, _add_watch_arguments)
        does = "show no more changes of a node"
        add("removewatches", does, self._remove_watches, _remove_watches_arguments)
        add("printwatches", "show changes at all: on or off", self._print, _optional("on|off"))
        add("history", "the last lines, without those that have secrets", self._history)
        add("redo", "run a line of the history again", self._redo, _optional("NUMBER"))
        add("version", "the version of zkwire", self._version)
        add("help", "all commands, or the flags of one", self._help, _optional("COMMAND"))
        add("quit", "end the shell", self._quit)

    def _add(
        self,
        name: str,
        does: str,
        run: Run,
        arguments: Callable[[ArgumentParser], None] = _no_arguments,
    ) -> None:
        self.table[name] = does, Command(run, arguments, examples=())

    def _session(self) -> None:
        """Begin a session if there is none yet."""
        if self._shell.connected is None:
            self._shell.connect()

    # --- places -----------------------------------------------------------------------------------

    def _cd(self, context: Context, asked: Namespace) -> None:
        word = self._former if asked.word == "-" else asked.word or "/"
        path = context.path(word)
        self._session()
        if context.client.exists(path) is None:
            raise NoNodeError(op="cd", path=path)
        self._former, context.directory = context.directory, path

    @staticmethod
    def _pwd(context: Context, _: Namespace) -> None:
        if context.output.json:
            context.output.record({"path": context.directory})
        else:
            context.output.line(context.directory)

    # --- the session ------------------------------------------------------------------------------

    def _connect(self, _: Context, asked: Namespace) -> None:
        self._shell.connect(asked.word)

    def _close(self, *_: object) -> None:
        client = self._shell.connected
        if client is not None:
            client.close()

    def _addauth(self, context: Context, asked: Namespace) -> None:
        words = asked.words
        if words[:1] == ["-f"] and len(words) == 2:
            with open(words[1], "rb") as file:
                secret = file.read().rstrip(b"\r\n")
        elif len(words) == 1 and words != ["-f"]:
            secret = words[0].encode()
        elif words or not self._shell.at_terminal:  # and none of the words is shown
            raise UsageError("addauth takes a scheme, and the secret or -f FILE")
        else:
            from getpass import getpass

            secret = getpass(f"{asked.scheme} secret (as in user:password): ").encode()
        self._session()
        context.client.add_auth(asked.scheme, secret)
        context.auth.append((asked.scheme, secret))

    # --- watches ----------------------------------------------------------------------------------

    def _add_watch(self, context: Context, asked: Namespace) -> None:
        self._session()
        context.client.add_watch(
            context.path(asked.path), self._shell.events.event, recursive=asked.mode == MODES[1]
        )

    def _remove_watches(self, context: Context, asked: Namespace) -> None:
        from zkwire import WatchType

        self._session()
        context.client.remove_watches(context.path(asked.path), WatchType[asked.kind])

    def _print(self, context: Context, asked: Namespace) -> None:
        if asked.word not in {None, "on", "off"}:
            raise UsageError("printwatches takes on or off")
        if asked.word is None:
            context.output.line("on" if self._shell.events.shown else "off")
        else:
            self._shell.events.shown = asked.word == "on"

    # --- the shell --------------------------------------------------------------------------------

    def _history(self, context: Context, _: Namespace) -> None:
        lines = self._shell.history
        for number in range(max(0, len(lines) - SHOWN), len(lines)):
            context.output.line(f"{number + 1:4}  {lines[number]}")

    def _redo(self, context: Context, asked: Namespace) -> int:
        lines = self._shell.history
        word = asked.word or str(len(lines))
        if not word.isascii() or not word.isdigit() or not 0 < int(word) <= len(lines):
            raise UsageError("redo takes the number of a line of `history`")
        line = lines[int(word) - 1]
        if any(name == "redo" for name, *_ in commands_of(line)):
            raise UsageError(f"redo is in this line itself: {line}")
        context.output.note(line)
        return self._shell.run_line(line)

    @staticmethod
    def _version(context: Context, _: Namespace) -> None:
        context.output.line(f"zkwire {__version__}")

    def _help(self, context: Context, asked: Namespace) -> None:
        line = context.output.text
        if asked.word is not None:
            name, *rest = NAMES.get(asked.word, (asked.word,))
            if asked.word in NAMES:
                line(f"{asked.word} is zkCli's name for: {' '.join([name, *rest])}\n")
            line(self._shell.parser(name).format_help().rstrip())
            return
        for name, (_, does) in TABLE.items():
            if name not in self.table and find(name).in_shell:
                line(f"  {name:13}  {does}")
        line("\nin the shell alone:")
        for name, (does, _) in self.table.items():
            line(f"  {name:13}  {does}")
        names = f"zkCli's names: {', '.join(NAMES)}; also -w of ls, get and stat."
        line("\n" + textwrap.fill(names, WIDTH))
        line("`help COMMAND` shows flags. `;` is between commands, `#` before a comment.")

    def _quit(self, *_: object) -> None:
        self._shell.ended = True


def _addauth_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scheme", metavar="SCHEME")
    parser.add_argument("words", nargs=REMAINDER, metavar="-f FILE")


def _add_watch_arguments(parser: ArgumentParser) -> None:
    does = "the node and its list of children, or all below it (the default)"
    parser.add_argument("-m", dest="mode", choices=MODES, default=MODES[1], help=does)
    parser.add_argument("path", metavar="PATH")


def _remove_watches_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    kind = parser.add_mutually_exclusive_group()
    for flag, name in WATCHES.items():
        does = f"only those of the kind {name.lower()}"
        kind.add_argument(flag, dest="kind", action="store_const", const=name, help=does)
    does = "all of them (the default)"
    kind.add_argument("-a", dest="kind", action="store_const", const="ANY", help=does)
    parser.set_defaults(kind="ANY")
    does = "here, even if no server can be told; that is so without it, too"
    parser.add_argument("-l", dest="local", action="store_true", help=does)
