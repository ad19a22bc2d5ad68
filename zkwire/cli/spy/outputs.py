"""Where records go: formats, each to standard output or to a file.

Text and jsonl are written as records come; drawings are made at the end, of the first ``MOST``
records, and say how many are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import ExitStack

from zkwire.cli.command import UsageError
from zkwire.cli.files import recording, whole
from zkwire.cli.output import printable
from zkwire.cli.spy.text import WIDEST, in_ascii, line, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, BinaryIO, TextIO

    from zkwire.cli.output import Output
    from zkwire.cli.spy.stats import Stats

    Record = dict[str, Any]

FORMATS = ("text", "jsonl", "mermaid", "svg", "html", "none")
ENDINGS = {"txt": "text", "log": "text", "jsonl": "jsonl", "mmd": "mermaid", "svg": "svg",
           "html": "html"}  # fmt: skip
MOST = 300


class Pair(argparse.Action):
    """``-f`` begins a pair of format and file, and ``-o`` completes it, or is one by its ending."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take one of the two."""
        pairs: list[list[str | None]] = [*(getattr(namespace, self.dest) or [])]
        value = str(values)
        if self.metavar != "FILE":
            pairs.append([value, None])
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = [pairs[-1][0], value]
        elif (ending := value.rpartition(".")[2]) in ENDINGS:
            pairs.append([ENDINGS[ending], value])
        else:
            parser.error(f"-o {value}: say which format, such as -f text -o {value}")
        setattr(namespace, self.dest, pairs)


class Outputs:
    """All outputs of a run; UsageError if two go to standard output, OSError for a bad file."""

    def __init__(self, pairs: list[list[str | None]], output: Output, *, tables: bool) -> None:
        self.formats = {pair[0] for pair in pairs}
        if sum(file is None for name, file in pairs if name != "none") > 1:
            raise UsageError("two formats for standard output; -o FILE behind one of them")
        self._output = output
        self._tables = tables
        self._lines: list[Callable[[Record], None]] = []
        self._drawings: list[tuple[str, BinaryIO | None]] = []
        self._tellers: list[Callable[[Stats], None]] = []
        self._records: list[Record] = []
        self.count: int = 0
        with ExitStack() as files:
            for name, file in pairs:
                self._add(str(name), file, files)
            self._files = files.pop_all()

    def show(self, record: Record) -> None:
        """Write a record, or keep it."""
        self.count += 1
        for write in self._lines:
            write(record)
        if self._drawings and len(self._records) < MOST:
            self._records.append(record)

    def finish(self, stats: Stats | None) -> None:
        """Make the drawings, write the statistics, close the files."""
        with self._files:
            for name, file in self._drawings:
                text = draw(name, self._records, self.count - len(self._records))
                if file is None:
                    self._output.bytes(text.encode())
                else:
                    file.write(text.encode())
            if stats is not None:
                for tell in self._tellers or [self._tell]:
                    tell(stats)

    def abandon(self, error: BaseException) -> None:
        """Close the files, without drawings."""
        self._files.__exit__(type(error), error, error.__traceback__)

    def _add(self, name: str, path: str | None, files: ExitStack) -> None:
        if name == "none":
            return
        if name not in ("text", "jsonl"):
            drawing = None if path is None else files.enter_context(whole(path))
            self._drawings.append((name, drawing))
            return
        file = None if path is None else files.enter_context(recording(path))
        if name == "text":
            width, plain = terminal(file)
            text = _Text(self._output, file, width, plain, tables=self._tables)
            self._lines.append(text.show)
            self._tellers.append(text.tell)
        else:
            lines = _Lines(file)
            self._lines.append(lines.show)
            self._tellers.append(lines.tell)

    def _tell(self, stats: Stats) -> None:
        """The statistics, where no format has them: behind ``-f none``, else as a note."""
        drawn = any(file is None for _, file in self._drawings)
        for row in stats.lines(terminal(None)[0]):
            (self._output.note if drawn else self._output.line)(row)


class _Text:
    """Lines for people."""

    def __init__(
        self, output: Output, file: TextIO | None, width: int, plain: bool, *, tables: bool
    ) -> None:
        self._output = output
        self._file = file
        self._width = width
        self._plain = plain
        self._tables = tables

    def show(self, record: Record) -> None:
        op, colour = record["op"], ""
        if op in ("fault", "close") or record.get("err") or "problem" in record or "lost" in record:
            colour = "red"
        elif op == "ping":
            colour = "dim"
        self._write(line(record, self._width), colour)
        for row in table(record, self._width) if self._tables else ():
            self._write(row, "dim")

    def tell(self, stats: Stats) -> None:
        self._write("", "")
        for row in stats.lines(self._width):
            self._write(row, "")

    def _write(self, text: str, colour: str) -> None:
        text = in_ascii(text) if self._plain else text
        if self._file is not None:
            self._file.write(printable(text) + "\n")
            self._file.flush()
        else:
            self._output.line(text, colour=colour, flush=True)


class _Lines:
    """JSON Lines."""

    def __init__(self, file: TextIO | None) -> None:
        self._file: TextIO | None = file or sys.stdout

    def show(self, record: Record) -> None:
        if self._file is not None:  # None: the process was started without it
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def tell(self, stats: Stats) -> None:
        for record in stats.records():
            self.show(record)


def draw(name: str, records: list[Record], left: int = 0) -> str:
    """A drawing of records, of which ``left`` more are left out."""
    if name == "mermaid":
        from zkwire.cli.spy.mermaid import diagram

        return "\n".join(diagram(records, left)) + "\n"
    from zkwire.cli.spy.drawing import as_html, as_svg

    return (as_svg if name == "svg" else as_html)(records, left)


def terminal(file: TextIO | None) -> tuple[int, bool]:
    """How wide lines may be, and whether only ASCII can be shown."""
    if file is not None:
        return WIDEST, False
    plain = not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    if sys.stdout is None or not sys.stdout.isatty():
        return WIDEST, plain
    return max(40, min(WIDEST, shutil.get_terminal_size((80, 24)).columns)), plain
