"""Runs the commands of the shell, each as if it stood alone, but in one session.

Decides what a line means, what a failure of a command shows, and which client commands get.  It
must not know whether there is a terminal.
"""

from __future__ import annotations

import argparse
from functools import partial

from zkwire.cli.arguments import OUTPUT, defaults
from zkwire.cli.command import TABLE, Command, UsageError, find, no_command
from zkwire.cli.exits import DONE, status_of
from zkwire.cli.output import Output
from zkwire.cli.parser import Parser, parser_of
from zkwire.cli.shell.aliases import NAMES, translate
from zkwire.cli.shell.events import Events
from zkwire.cli.shell.own_commands import OwnCommands
from zkwire.cli.shell.words import commands_of
from zkwire.errors import ClientClosedError, NotSentError, SessionExpiredError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire import Client
    from zkwire.cli.context import Context

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
        self.events = Events(self._note)
        self.own = OwnCommands(self)
        self._common = _common_options(context.options)

    def _note(self, text: str) -> None:
        self.note(text)

    # --- the client -------------------------------------------------------------------------------

    @property
    def connected(self) -> Client | None:
        """The client, if there is one yet."""
        client: Client | None = self.context.__dict__.get("client")
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
            command = find(name)
            if command.in_shell:
                return command
            raise UsageError(f"{name!r} is no command of the shell: use `zkwire {name}`")
        raise no_command(name, (*TABLE, *self.own.table, *NAMES), "help")

    def parser(self, name: str) -> Parser:
        """The parser for the words behind a command's name."""
        does = self.own.table[name][0] if name in self.own.table else None
        parser = parser_of(name, self.find(name), prog="", does=does)
        parser.add_again(OUTPUT)
        return parser

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
            asked = self.parser(name).parse_args(rest, argparse.Namespace(**self._common))
            context.output = Output(json=asked.json, quiet=asked.quiet, colour=asked.color)
            if self.connected is None and name not in self.own.table:
                self._connect_for(name)
            return self.find(name).run(context, asked) or DONE
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

    def _connect_for(self, name: str) -> None:
        """Connect for a command that will want it, so that the shell sees its states."""
        if self.find(name).connects:
            self.connect()

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


def _common_options(options: argparse.Namespace) -> dict[str, object]:
    """Those of all commands: the shell's own are no matter of the commands in it."""
    return {name: getattr(options, name) for name in defaults()}
