"""The shell at a terminal: the prompt, what is typed, and what comes while it is typed.

A line that comes while another is typed is put above that one: the terminal inserts it, and the
cursor stays in its place, so what edits the line need not know of it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from zkwire import __version__
from zkwire.cli.exits import DONE
from zkwire.cli.output import one_line, printable
from zkwire.cli.shell.completing import completions
from zkwire.cli.shell.interpreter import has_secret
from zkwire.cli.shell.words import mark_left

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire import Client
    from zkwire.cli.shell.interpreter import Interpreter


WIDTH = 80  # of a terminal that does not know its own
PATH_WIDTH = 30
# Make sure that there is a line below (it scrolls at the end of the screen), insert one here, write
# to it, and go back to the place in the line that has moved down: the sequences of the VT102.
ABOVE = "\x1bD\x1bM\x1b7\r\x1b[L{}\x1b8\x1b[B"


class Terminal:
    """One run of the shell at a terminal."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._shell = interpreter
        self._typing = False
        self._output = threading.RLock()  # no line begins in the middle of the prompt
        self._readline: Readline | None = readline_or_none(interpreter)
        interpreter.at_terminal = True
        interpreter.note = self.note

    def run(self) -> int:
        """Run what is typed, until the end of it."""
        shell, note = self._shell, self._shell.context.output.note
        note(f"zkwire {__version__}, connecting to {shell.context.server}")
        shell.connect()
        note("help lists the commands, Ctrl-D ends the shell")
        with self._aids():
            while not shell.ended:
                try:
                    line = self._read()
                except EOFError:
                    print()
                    break
                except KeyboardInterrupt:
                    print()
                    continue
                self._keep(line)
                with self._kept_unseen():
                    shell.run_line(line)
        return DONE

    def _read(self) -> str:
        """What is typed at the prompt: more lines where a quote has no end in the first."""
        text = self._line(prompt_of(self._shell))
        while mark_left(text):
            text += "\n" + self._line("> ")
        return text

    def _line(self, prompt: str) -> str:
        with self._output:
            self._typing = True
        try:
            return input(prompt)
        finally:
            self._typing = False

    @contextmanager
    def _kept_unseen(self) -> Generator[None]:
        """Keep what is typed now for the next prompt, also over a Ctrl-C; readline shows it there.

        The terminal itself would show it in the middle of results.
        """
        if self._readline is None:
            yield
            return
        import termios

        mode = termios.tcgetattr(0)
        unseen = [*mode]
        unseen[3] = mode[3] & ~termios.ECHO | termios.NOFLSH
        termios.tcsetattr(0, termios.TCSADRAIN, unseen)
        try:
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, mode)

    def _keep(self, line: str) -> None:
        """Remember the line, for `history` and the file."""
        if not line.strip() or has_secret(line) or line.split(maxsplit=1)[0] == "redo":
            return
        history = self._shell.history
        history.append(line)
        if self._readline is not None:
            self._readline.keep(line)

    @contextmanager
    def _aids(self) -> Generator[None]:
        if self._readline is None:
            yield
            return
        self._readline.begin()
        try:
            yield
        finally:
            self._readline.end()

    def note(self, text: str) -> None:
        """Show a line, from any thread, at once."""
        with self._output:
            self._note(text)

    def _note(self, text: str) -> None:
        output, terminal = self._shell.context.output, sys.stderr
        if output.quiet or terminal is None:
            return
        if not (self._typing and terminal.isatty()) or os.environ.get("TERM") in {None, "dumb"}:
            output.note(text)
            terminal.flush()
            return
        room = (os.get_terminal_size(terminal.fileno()).columns or WIDTH) - 1
        line = printable(text).replace("\n", " ").replace("\t", " ")
        terminal.write(ABOVE.format(line if len(line) <= room else line[: room - 3] + "..."))
        terminal.flush()


def prompt_of(shell: Interpreter) -> str:
    """The server, the state and the path: ``127.0.0.1:2181 CONNECTED /path> ``."""
    client = shell.connected
    path = one_line(shell.context.directory)
    if len(path) > PATH_WIDTH:
        path = "..." + path[3 - PATH_WIDTH :]
    if client is None:
        return f"- {path}> "
    return f"{_server(client)} {client.state.name.replace('_', '-')} {path}> "


def _server(client: Client) -> str:
    server = client._session.server
    if server is None:
        return "-"
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- typing aids ----------------------------------------------------------------------------------
# readline, where there is one: the history in a file, and completion by the tabulator.

LINES_KEPT = 1000


def history_file() -> Path | None:
    """Where XDG has what a program remembers of its runs; None for a user without a home."""
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return Path(state) / "zkwire" / "history"


def readline_or_none(interpreter: Interpreter) -> Readline | None:
    """The module, which not every Python has."""
    try:
        import readline
    except ImportError:
        return None
    return Readline(readline, interpreter)


class Readline:
    """Between :meth:`begin` and :meth:`end` what is typed can be edited, recalled and completed."""

    def __init__(self, readline: ModuleType, interpreter: Interpreter) -> None:
        self._readline = readline
        self._interpreter = interpreter
        self._file = history_file()
        self._found: list[str] = []

    def begin(self) -> None:
        """Read the history; a file that cannot be read is none."""
        readline = self._readline
        readline.set_auto_history(False)
        readline.set_history_length(LINES_KEPT)
        if self._file is not None:
            with suppress(OSError, UnicodeError):
                readline.read_history_file(self._file)
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n;")
        editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")

    def keep(self, line: str) -> None:
        """Add a line to the history."""
        self._readline.add_history(line)

    def end(self) -> None:
        """Write the history, for its owner alone; where that is impossible there is none."""
        self._readline.set_completer(None)
        if self._file is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600))
            self._readline.write_history_file(self._file)

    def _complete(self, text: str, number: int) -> str | None:
        """readline's question for the completion of this number."""
        if number == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._found = completions(self._interpreter, line)
        return self._found[number] if number < len(self._found) else None
