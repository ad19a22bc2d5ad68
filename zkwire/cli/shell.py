"""``zkwire shell``: it looks at nodes and changes them, with one command in each line.

The commands and flags are a part of those of ZooKeeper's own shell (zkCli).  Text from a server is
shown so that it cannot control the terminal.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import closing, contextmanager, suppress

from zkwire import (
    Client,
    EventType,
    NotSentError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.cli.arguments import server_of
from zkwire.cli.command import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import NoReturn, TextIO

    from zkwire import Event, Stat, TraceFrame
    from zkwire.cli.context import Context

PROMPT = "zk> "
ANY_VERSION = -1
OF_NO_SESSION = (NotSentError, SessionExpiredError)
IN_HEX = frozenset({"czxid", "mzxid", "pzxid", "ephemeral_owner"})


def shell(server: str, words: list[str], *, trace: bool = False) -> int:
    """Run the command in ``words``, or those of standard input; returns the exit status.

    The status is 0 if every command has succeeded, and always 0 at a terminal.  A single command
    waits for the event of its watch, and writes its error to standard error.
    """
    terminal = sys.stdin.isatty() and not words
    if terminal:
        say(f"connecting to {server}")
    failed = False

    def connect() -> Client:
        client = Client(server, trace=_show_frame if trace else None).__enter__()
        if terminal:
            client.add_state_listener(_States())
        return client

    commands = Commands(connect, alone=bool(words), terminal=terminal)
    with closing(commands), suppress(QuitError):
        if words:
            return 0 if commands.run(words) else 1
        for line in _typed() if terminal else sys.stdin:
            failed |= not commands.run_line(line)
    return 1 if failed and not terminal else 0


def _typed() -> Iterator[str]:
    """The lines that the user types."""
    with suppress(ImportError):  # with this module, which not every Python has, input() has history
        __import__("readline")
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()


class QuitError(Exception):
    """The command `quit` was given."""


class Commands:
    """The shell's commands.

    If a command is ``alone``, it waits for its watch, and its error goes to standard error.
    At a ``terminal``, Ctrl-C ends the command and not the shell.
    """

    def __init__(self, connect: Callable[[], Client], *, alone: bool, terminal: bool) -> None:
        self._connect = connect
        self._client = connect()
        self._alone = alone
        self._terminal = terminal
        self._grammar = _grammar()

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def run_line(self, line: str) -> bool:
        """Run one line; whether it has succeeded.  An empty line or a comment does nothing."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            say(f"{error}: {line.strip()}")
            return False
        return not words or self.run(words)

    def run(self, words: list[str]) -> bool:
        """Run one command; whether it has succeeded."""
        try:
            asked = self._grammar.parse_args(words)
            run: Callable[[argparse.Namespace], None] = getattr(self, f"_{asked.command}")
            run(asked)
        except (ZooKeeperError, ValueError) as error:
            say(f"{type(error).__name__}: {error}", sys.stderr if self._alone else None)
            if isinstance(error, OF_NO_SESSION) and not self._alone:
                say("`reconnect` starts a new session")
            return False
        except KeyboardInterrupt:
            if not self._terminal:
                raise
            say("interrupted")
            return False
        except SystemExit:
            pass  # argparse has shown the help of a command
        return True

    # --- the commands -----------------------------------------------------------------------------

    def _ls(self, asked: argparse.Namespace) -> None:
        with self._watching(asked) as watch:
            names, stat = self._client.get_children_with_stat(asked.path, watch=watch)
            for name in sorted(names):
                say(name)
            _show_stat(stat if asked.stat else None)

    def _get(self, asked: argparse.Namespace) -> None:
        with self._watching(asked) as watch:
            data, stat = self._client.get_data(asked.path, watch=watch)
            say(data.decode("utf-8", "backslashreplace"))
            _show_stat(stat if asked.stat else None)

    def _stat(self, asked: argparse.Namespace) -> None:
        with self._watching(asked) as watch:
            stat = self._client.exists(asked.path, watch=watch)
            if stat is None:
                say(f"there is no {asked.path}")
            _show_stat(stat)

    def _create(self, asked: argparse.Namespace) -> None:
        path = self._client.create(
            asked.path,
            asked.data.encode(),
            ephemeral=asked.ephemeral,
            sequential=asked.sequential,
            container=asked.container,
        )
        say(f"created {path}")

    def _set(self, asked: argparse.Namespace) -> None:
        stat = self._client.set_data(asked.path, asked.data.encode(), asked.version)
        say(f"version {stat.version}")

    def _delete(self, asked: argparse.Namespace) -> None:
        self._client.delete(asked.path, asked.version)

    def _deleteall(self, asked: argparse.Namespace) -> None:
        self._client.delete_tree(asked.path)

    def _sync(self, asked: argparse.Namespace) -> None:
        self._client.sync(asked.path)

    def _reconnect(self, _: argparse.Namespace) -> None:
        former, self._client = self._client, self._connect()
        former.close()

    def _help(self, _: argparse.Namespace) -> None:
        self._grammar.print_help()

    def _quit(self, _: argparse.Namespace) -> None:
        raise QuitError

    @contextmanager
    def _watching(self, asked: argparse.Namespace) -> Generator[Watch | None]:
        """The watch of a command with -w; a single command waits for its event at the end."""
        if not asked.watch:
            yield None
        elif not self._alone:
            yield Watch(_show_event)
        else:
            watch = Watch()
            yield watch
            event = watch.wait()
            assert event is not None  # there is no time limit
            _show_event(event)


class _Grammar(argparse.ArgumentParser):
    """A parser that raises an error instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}\n{self.format_usage().strip()}")


def _grammar() -> argparse.ArgumentParser:
    grammar = _Grammar(add_help=False, usage="COMMAND ... (COMMAND -h shows its flags)")
    commands = grammar.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )

    def command(name: str, does: str, *words: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, prog=name, help=does, description=does)
        for word in words:
            parser.add_argument(word)
        return parser

    def flag(parser: argparse.ArgumentParser, letter: str, name: str, does: str) -> None:
        parser.add_argument(f"-{letter}", dest=name, action="store_true", help=does)

    def version(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-v",
            dest="version",
            type=int,
            default=ANY_VERSION,
            help="only if the node has this version",
        )

    for name, does in (("ls", "list the children of a node"), ("get", "show the data of a node")):
        reader = command(name, does, "path")
        flag(reader, "s", "stat", "also show the stat")
        flag(reader, "w", "watch", "show the next change, too")
    stat = command("stat", "show the stat of a node", "path")
    flag(stat, "w", "watch", "show the next change, too")
    create = command("create", "create a node", "path")
    create.add_argument("data", nargs="?", default="")
    flag(create, "e", "ephemeral", "the server deletes the node when this shell ends")
    flag(create, "s", "sequential", "the server appends a number of ten digits to the name")
    flag(create, "c", "container", "the server deletes the node some time after its last child")
    version(command("set", "write the data of a node", "path", "data"))
    version(command("delete", "delete a node", "path"))
    command("deleteall", "delete a node and all nodes below it", "path")
    command("sync", "wait until this server has the latest writes", "path")
    command("reconnect", "start a new session; watches and ephemeral nodes are lost")
    command("help", "show this list")
    command("quit", "end the shell")
    return grammar


# --- output ---------------------------------------------------------------------------------------


def say(text: str, to: TextIO | None = None) -> None:
    """Print text from any source; a character that is not printable is shown as its number."""
    plain = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    stream = to or sys.stdout
    stream.write("".join(plain) + "\n")  # with print() two threads could mix their lines
    stream.flush()


class _States:
    """Shows each change between connected and disconnected, but no attempts to connect."""

    def __init__(self) -> None:
        self._told = State.CONNECTED

    def __call__(self, state: State) -> None:
        if state is not self._told and state not in {State.CONNECTING, State.HANDSHAKE}:
            self._told = state
            say(f"STATE {state.value}")


def _show_stat(stat: Stat | None) -> None:
    if stat is not None:
        for field in stat.__fields__:
            value = getattr(stat, field)
            say(f"{field} = {value:#x}" if field in IN_HEX else f"{field} = {value}")


def _show_event(event: Event) -> None:
    if event.type is not EventType.NONE:  # the end of the session, which is shown as a state
        say(f"WATCH {getattr(event.type, 'name', event.type)} {event.path}")


def _show_frame(frame: TraceFrame) -> None:
    xid = "" if frame.op == "connect" else f"xid {frame.xid}"  # a connect has no header
    parts = ["->" if frame.sent else "<-", frame.op, xid, frame.path or ""]
    if frame.zxid is not None and frame.zxid > 0:
        parts.append(f"zxid {frame.zxid:#x}")
    if frame.error:
        parts.append(f"error {frame.error}")
    say(" ".join([*filter(None, parts), f"({frame.size} bytes)"]))


# --- the command ----------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parts",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one command to run, such as: get -w /a",
    )


def _shell(_: Context, asked: argparse.Namespace) -> int:
    words = asked.parts[1:] if asked.parts[:1] == ["--"] else asked.parts
    return shell(server_of(asked), words, trace=bool(asked.trace))


COMMANDS = {
    "shell": Command(_shell, _arguments, examples=("zkwire shell", "zkwire shell < commands.txt")),
}
