"""The shell at a terminal: the prompt, what is typed, and what comes while it is typed.

A line that comes while another is typed is put above that one: the terminal inserts it, and the
cursor stays in its place, so what edits the line need not know of it.
"""

from __future__ import annotations

import os
import sys
import threading
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import zkwire
from zkwire import __version__
from zkwire.cli.command import TABLE, Command, arg, flag
from zkwire.cli.context import Context
from zkwire.cli.files import whole
from zkwire.cli.output import DONE, host_port, one_line, printable, tell
from zkwire.cli.shell.interpreter import Interpreter, has_secret
from zkwire.cli.shell.words import NAMES, mark_left, quoted, translate, unfinished, whole_lines

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
        self._readline: Readline | None = None
        with suppress(ImportError):  # not every Python has it
            self._readline = Readline(import_module("readline"), interpreter)
        interpreter.at_terminal = True
        interpreter.note = self.note

    def run(self) -> int:
        """Run what is typed, until the end of it."""
        shell, note = self._shell, self._shell.context.output.note
        note(f"zkwire {__version__}, connecting to {shell.context.server}")
        shell.connect()
        note("help lists the commands, Ctrl-D ends the shell")
        with self._readline or nullcontext():
            while not shell.ended:
                try:
                    line = self._read()
                except (EOFError, KeyboardInterrupt) as error:
                    print()
                    if isinstance(error, EOFError):
                        break
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
        if not line.strip() or has_secret(line):
            return
        history = self._shell.history
        history.append(line)
        if self._readline is not None:
            self._readline.keep(line)

    def note(self, text: str) -> None:
        """Show a line, from any thread, at once."""
        output, terminal = self._shell.context.output, sys.stderr
        with self._output:
            plain = os.environ.get("TERM") in {None, "dumb"}
            if output.quiet or not self._typing or plain or not terminal.isatty():
                output.note(text)
                return
            room = (os.get_terminal_size(terminal.fileno()).columns or WIDTH) - 1
            line = printable(text).replace("\n", " ").replace("\t", " ")
            tell(ABOVE.format(line if len(line) <= room else line[: room - 3] + "..."))


def prompt_of(shell: Interpreter) -> str:
    """The server, the state and the path: ``127.0.0.1:2181 CONNECTED /path> ``."""
    client, path = shell.connected, one_line(shell.context.directory)
    if len(path) > PATH_WIDTH:
        path = "..." + path[3 - PATH_WIDTH :]
    if client is None:
        return f"- {path}> "
    server = client._session.server
    name = "-" if server is None else host_port(*server)
    return f"{name} {client.state.name.replace('_', '-')} {path}> "


# --- typing aids ----------------------------------------------------------------------------------
# readline, where there is one: the history in a file, and completion by the Tab key.

LINES_KEPT = 1000


def history_file() -> Path | None:
    """Where XDG has what a program remembers of its runs; None for a user without a home."""
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return Path(state) / "zkwire" / "history"


class Readline:
    """Within a ``with`` what is typed can be edited, recalled and completed."""

    def __init__(self, readline: ModuleType, interpreter: Interpreter) -> None:
        self._readline = readline
        self._interpreter = interpreter
        self._file = history_file()
        self._found: list[str] = []

    def __enter__(self) -> None:
        """Read the history; a file that cannot be read is none."""
        readline = self._readline
        readline.set_auto_history(False)
        if self._file is not None:
            with suppress(OSError, UnicodeError):
                for line in self._file.read_text("utf-8", "surrogateescape").split("\n")[:-1]:
                    readline.add_history(line)
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n;")
        editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")

    def keep(self, line: str) -> None:
        """Add a line to the history."""
        self._readline.add_history(line)

    def __exit__(self, *_: object) -> None:
        """Write the history, for its owner alone; where that is impossible there is none."""
        readline = self._readline
        readline.set_completer(None)
        if self._file is None:
            return
        last = readline.get_current_history_length() + 1
        lines = [readline.get_history_item(n) for n in range(max(1, last - LINES_KEPT), last)]
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole(str(self._file)) as file:
                file.write("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))

    def _complete(self, text: str, number: int) -> str | None:
        """readline's question for the completion of this number."""
        if number == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._found = completions(self._interpreter, line)
        return self._found[number] if number < len(self._found) else None


# --- completing -----------------------------------------------------------------------------------
# What the word that is being typed may become: a command, a flag, or a path.
#
# Children are asked for with a time limit, and only so many are shown.  It never raises.

SECONDS = 1.0
MOST = 200


def completions(shell: Interpreter, line: str) -> list[str]:
    """What the last word of the line may become, as it is typed."""
    try:
        words, last = unfinished(line)
        if not words or words == ["help"]:
            names = sorted({*TABLE, *shell.own.table, *NAMES})
            return [f"{name} " for name in names if name.startswith(last)]
        if last.startswith("-"):
            name = translate(words)[0]
            return [f"{flag} " for flag in flags(shell.parser(name)) if flag.startswith(last)]
        client = shell.connected
        if client is None or not client.state.usable:
            return []
        above, slash, start = last.rpartition("/")
        names = children(client, shell.context.path(above + slash or "."), start)
        return [quoted(above + slash + name) for name in names]
    except Exception:  # the line stays as it is
        return []


def children(client: zkwire.Client, path: str, start: str) -> list[str]:
    """The names of the node's children that begin so, and that a line can show."""
    names: list[str] = client.pipeline.get_children(path).result(SECONDS)
    return sorted(n for n in names if n.startswith(start) and n.isprintable())[:MOST]


def flags(parser: ArgumentParser) -> list[str]:
    """The flags that a help shows: the long form where there is one."""
    shown = [each for each in parser._actions if each.option_strings and each.help is not SUPPRESS]
    return [action.option_strings[-1] for action in shown]


# --- shell ----------------------------------------------------------------------------------------
# ``zkwire shell``: commands on nodes, one after another, in one session.
#
# From a file, a pipe or ``-c`` it stops at the first command that fails, with its exit status.  At
# a terminal it goes on, and Ctrl-C ends a command and not the shell.


def _shell(context: Context, asked: Namespace) -> int:
    """
    zkwire shell -s zk1:2181            # at a terminal: help shows what there is
    zkwire shell -c 'cd /app; ls; get config'
    zkwire shell < commands.txt         # stops at the first that fails

    The commands are those of zkwire itself, and the names that zkCli has for
    them (delete, deleteall, getAcl, addWatch, ...) mean the same. In a script
    the exit status is that of the first command that has failed.
    """

    interpreter = Interpreter(context)
    try:
        streams = (sys.stdin, sys.stdout, sys.stderr)
        if asked.script is None and None not in streams and sys.stdin.isatty():
            return Terminal(interpreter).run()
        if asked.script is not None and "\n" not in asked.script:  # an error in it needs no number
            return interpreter.run_line(asked.script, keep_going=asked.keep_going)
        lines = _typed() if asked.script is None else asked.script.split("\n")
        return _script(interpreter, lines, keep_going=asked.keep_going)
    finally:
        interpreter.close()


def _typed() -> Iterator[str]:
    """The lines of standard input, one by one: a command may read some of them."""
    while sys.stdin is not None and (line := sys.stdin.readline()):
        yield line.removesuffix("\n")


def _script(interpreter: Interpreter, lines: Iterable[str], *, keep_going: bool) -> int:
    first = DONE
    for interpreter.line, line in whole_lines(lines):
        status = interpreter.run_line(line, keep_going=keep_going)
        first = first or status
        if interpreter.ended or (status and not keep_going):
            break
    return first


# fmt: off
COMMANDS = {
    "shell": Command(_shell,
        arg("-c", dest="script", metavar="COMMANDS",
            help="run these commands instead of those of standard input"),
        flag("-k", "--keep-going",
             "go on after a command that fails; exit with the status of the first"),
        in_shell=False),
}
