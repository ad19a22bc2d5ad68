"""readline, where there is one: the history in a file, and completion by the tabulator."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from zkwire.cli.files import whole
from zkwire.cli.shell.completing import completions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from zkwire.cli.shell.interpreter import Interpreter

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

    def end(self) -> None:
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
