"""Runs the commands of the shell, each as if it stood alone, but in one session.

Decides what a line means, what a failure of a command shows, and which client commands get.  It
must not know whether there is a terminal.
"""

from __future__ import annotations

import re
import textwrap
from argparse import REMAINDER, Namespace
from collections.abc import Callable
from functools import partial

import zkwire
from zkwire.cli import command as commands
from zkwire.cli.command import TABLE, Arg, Command, Parser, UsageError, arg, flag
from zkwire.cli.context import Context
from zkwire.cli.output import CHANGES, DONE, Output, status_of
from zkwire.cli.shell.words import NAMES, commands_of, translate
from zkwire.errors import ClientClosedError, NoNodeError, NotSentError, SessionExpiredError
from zkwire.wire.model import EventType, State

NO_SESSION = (ClientClosedError, NotSentError, SessionExpiredError)
RECONNECT = "; `reconnect` starts a new session"


class Interpreter:
    """The commands of one shell.

    ``note(text)`` shows what comes by itself, from any thread; a terminal replaces it.
    ``line``: the number of the script's line that is being run, for errors; 0: none is told.
    """

    def __init__(self, context: Context) -> None:
        context.in_shell = True
        self.context = context
        self.note: Callable[[str], object] = context.output.note
        self.at_terminal = False
        self.ended = False
        self.history: list[str] = []
        self.line = 0
        self.events = Events(lambda text: self.note(text))  # noqa: PLW0108 - a terminal replaces it
        self.own = OwnCommands(self)
        # Those of all commands: the shell's own are no matter of the commands in it.
        self._common = {name: getattr(context.options, name) for name in commands.defaults()}

    # --- the client -------------------------------------------------------------------------------

    @property
    def connected(self) -> zkwire.Client | None:
        """The client, if there is one yet."""
        client: zkwire.Client | None = self.context.__dict__.get("client")
        return client

    def connect(self, server: str | None = None) -> None:
        """Begin a new session, and end the former one once there is a new one."""
        context, former = self.context, self.connected
        client = context.connect(server or context.server)
        context.server = server or context.server
        context.__dict__["client"] = client
        if self.at_terminal:
            client.add_state_listener(partial(self.events.state, client))
        self.events.follow(client)
        if former is not None:
            former.close()

    def close(self) -> None:
        """End the session."""
        self.events.follow(None)
        self.context.close()

    # --- the commands -----------------------------------------------------------------------------

    def find(self, name: str) -> Command:
        """The command of this name; UsageError if the shell has none."""
        own = self.own.table.get(name)
        if own is not None:
            return own[1]
        if name in TABLE:
            command = commands.find(name)
            if command.in_shell:
                return command
            raise UsageError(f"{name!r} is not a command of the shell: use `zkwire {name}`")
        raise commands.no_command(name, (*TABLE, *self.own.table, *NAMES), "help")

    def parser(self, name: str) -> Parser:
        """The parser for the words behind a command's name."""
        does, _ = self.own.table.get(name, ("", None))
        return commands.parser_of(name, self.find(name), prog="", does=does)

    def run_line(self, line: str, *, keep_going: bool = False) -> int:
        """Run the commands of a line up to the first that fails; its exit status."""
        try:
            commands = commands_of(line)
        except ValueError as error:
            return self._failed(error)
        first = DONE
        for words in commands:
            status = self.run(words)
            first = first or status
            if self.ended or (status and not keep_going):
                break
        return first

    def run(self, words: list[str]) -> int:
        """Run one command; its exit status.  BrokenPipeError ends the shell."""
        context, output = self.context, self.context.output
        try:
            words = self._watched(translate(words))
            name, *rest = words
            asked = self.parser(name).parse_args(rest, Namespace(**self._common))
            context.output = Output(json=asked.json, quiet=asked.quiet, colour=asked.color)
            command = self.find(name)
            if self.connected is None and name not in self.own.table and command.connects:
                self.connect()  # so that the shell sees the states of the session
            return command.run(context, asked) or DONE
        except BrokenPipeError:
            raise
        except Exception as error:
            if context.options.debug:
                raise
            return self._failed(error)
        except KeyboardInterrupt as error:
            if not self.at_terminal:
                raise
            return status_of(error)
        except SystemExit:  # argparse has shown a help
            return DONE
        finally:
            context.output.flush()
            context.output = output

    def _watched(self, words: list[str]) -> list[str]:
        """Set the watch of ``-w``, and return the words without it."""
        name, *rest = words
        if "-w" not in rest or name not in self.events.READS:
            return words
        rest.remove("-w")
        asked = self.parser(name).parse_args(rest)
        if self.connected is None:
            self.connect()
        self.events.watch(name, self.context.client, self.context.path(asked.path))
        return [name, *rest]

    def _failed(self, error: Exception) -> int:
        hint = RECONNECT if self.at_terminal and isinstance(error, NO_SESSION) else ""
        self.context.output.error(error, hint, self.line)
        return status_of(error)


# --- own commands ---------------------------------------------------------------------------------
# The commands that the shell alone has: they are about the shell, its session or its watches.

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


def _optional(name: str) -> Arg:
    """One argument that may be left out."""
    return arg("word", nargs="?", metavar=name)


class OwnCommands:
    """``table``: what each does, and the command."""

    def __init__(self, shell: Interpreter) -> None:
        self._shell = shell
        self._former = "/"
        self.table: dict[str, tuple[str, Command]] = {}
        hosts = _optional("HOSTS")
        for name, does, run, *args in (
            ("cd", "go to a node: relative paths begin there", self._cd, _optional("PATH")),
            ("pwd", "where relative paths begin", self._pwd),
            ("connect", "a new session, with another server", self._connect, hosts),
            ("reconnect", "a new session, with the same servers", self._connect, hosts),
            ("close", "end the session, and stay in the shell", self._close),
            ("addauth", "add credentials; the secret is asked for, or in a file (-f)",
             self._addauth, *ADDAUTH),
            ("addWatch", "show each change of a node, and of all below, as it comes",
             self._add_watch, *ADD_WATCH),
            ("removewatches", "show no more changes of a node", self._remove_watches, *REMOVE),
            ("printwatches", "show changes: on or off", self._print, _optional("on|off")),
            ("history", "the last lines, without those that have secrets", self._history),
            ("help", "all commands, or the flags of one", self._help, _optional("COMMAND")),
            ("quit", "end the shell", self._quit),
        ):  # fmt: skip
            self.table[name] = does, Command(run, *args)

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
        context.output.result({"path": context.directory}, [context.directory])

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
        self._session()
        context.client.remove_watches(context.path(asked.path), zkwire.WatchType[asked.kind])

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

    def _help(self, context: Context, asked: Namespace) -> None:
        line = context.output.text
        if asked.word is not None:
            name, *rest = NAMES.get(asked.word, (asked.word,))
            if asked.word in NAMES:
                line(f"{asked.word} is zkCli's name for: {' '.join([name, *rest])}\n")
            line(self._shell.parser(name).format_help().rstrip())
            return
        for name, (_, does) in TABLE.items():
            if name not in self.table and commands.find(name).in_shell:
                line(f"  {name:13}  {does}")
        line("\nonly in the shell:")
        for name, (does, _) in self.table.items():
            line(f"  {name:13}  {does}")
        names = f"zkCli's names: {', '.join(NAMES)}; also -w of ls, get and stat."
        line("\n" + textwrap.fill(names, WIDTH))
        line("`help COMMAND` shows flags. `;` is between commands, `#` before a comment.")

    def _quit(self, *_: object) -> None:
        self._shell.ended = True


# fmt: off
ADDAUTH = (arg("scheme", metavar="SCHEME"), arg("words", nargs=REMAINDER, metavar="-f FILE"))
ADD_WATCH = (
    arg("-m", dest="mode", choices=MODES, default=MODES[1],
        help="the node and its list of children, or all below it (the default)"),
    arg("path", metavar="PATH"),
)
REMOVE = (
    arg("path", metavar="PATH"),
    commands.one_of(
        *(arg(letter, dest="kind", action="store_const", const=name, default="ANY",
              help=f"only those of the kind {name.lower()}") for letter, name in WATCHES.items()),
        arg("-a", dest="kind", action="store_const", const="ANY", default="ANY",
            help="all of them (the default)")),
    flag("-l", "has no effect: the watch is removed here in any case", dest="local"),
)
# fmt: on


# --- events ---------------------------------------------------------------------------------------
# What the shell tells of sessions and of watches, whenever it comes.

STATES = {
    State.DISCONNECTED: "the connection is lost; looking for a server",
    State.CONNECTED: "connected again, in the same session",
    State.CONNECTED_READ_ONLY: "connected again, to a server that can only be read",
    State.EXPIRED: "expired: its ephemeral nodes and watches are gone; "
    "`reconnect` starts a new one",
    State.AUTH_FAILED: "ended: the server has refused the credentials",
}
KINDS: dict[int, str] = {
    **CHANGES,
    EventType.REREAD: "gap",
    EventType.DATA_WATCH_REMOVED: "removed: data watch",
    EventType.CHILD_WATCH_REMOVED: "removed: child watch",
    EventType.PERSISTENT_WATCH_REMOVED: "removed: persistent watch",
}


class Events:
    """Calls ``note`` with a line for each event.  ``shown``: whether those of watches are."""

    READS = frozenset({"ls", "get", "stat"})

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._told: State = State.CONNECTED
        self._current: zkwire.Client | None = None
        self.shown = True

    def follow(self, client: zkwire.Client | None) -> None:
        """From now on the states of this client are told, which is connected."""
        self._current, self._told = client, State.CONNECTED

    def state(self, client: zkwire.Client, state: State) -> None:
        """A state of the client; attempts to connect are not told."""
        if client is self._current and state in STATES and state is not self._told:
            self._told = state
            self._note(f"session: {STATES[state]}")

    def event(self, event: zkwire.Event) -> None:
        """An event of a watch; the end of the session is told as a state."""
        if self.shown and event.type != EventType.NONE:
            kind = KINDS.get(event.type, str(event.type))
            self._note(f"watch: {kind} {event.path}")

    def watch(self, command: str, client: zkwire.Client, path: str) -> None:
        """Set the watch that zkCli's ``-w`` sets for this command.  Raises what the read raises."""
        reads = {"ls": client.get_children, "get": client.get_data, "stat": client.exists}
        reads[command](path, watch=self.event)
