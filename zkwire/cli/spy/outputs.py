"""What is shown of a run, and where: a filter, and formats.

Text and jsonl are written as records come; a drawing is made at the end, of the first ``MOST``
records, and says how many are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from argparse import Namespace
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from typing import Any

from zkwire.cli.command import UsageError
from zkwire.cli.files import recording, whole
from zkwire.cli.output import Output, printable
from zkwire.cli.spy.message import operations
from zkwire.cli.spy.records import (
    WIDEST,
    Record,
    as_svg,
    failed,
    in_ascii,
    line,
    paths_of,
    table,
)  # fmt: skip

HAPPENINGS = frozenset({"open", "close", "fault"})
FORMATS = ("text", "jsonl", "svg", "none")
ENDINGS = {"txt": "text", "log": "text", "jsonl": "jsonl", "svg": "svg"}
MOST = 300


class Filter:
    """Which records are shown; what is forwarded is none of its business.

    ``pings``, ``op``, ``path``, ``session`` and ``errors_only`` are as the command has them.
    ValueError for an operation or a session that cannot be.  A reply is shown for its own path or
    for that of its request.  Faults are always shown.
    """

    def __init__(self, asked: Namespace) -> None:
        names = [name for word in asked.op for name in word.split(",")]
        kinds = [(name,) if name in HAPPENINGS else operations(name) for name in names]
        self._ops = {op for kind in kinds for op in kind}
        self._hidden = {"ping"} - self._ops if not asked.pings else set[str]()
        self._path = asked.path
        self._session = f"{int(asked.session, 16):#x}" if asked.session else None
        self._errors = bool(asked.errors_only)

    def shows(self, record: Record) -> bool:
        """Whether this record is shown."""
        op = record["op"]
        if op == "fault":
            return True
        if op in self._hidden or (self._ops and op not in self._ops):
            return False
        if self._session is not None and record.get("session") != self._session:
            return False
        if self._errors and not failed(record):
            return False
        return self._path is None or any(fnmatchcase(p, self._path) for p in paths_of(record))


# --- formats --------------------------------------------------------------------------------------


class Pair(argparse.Action):
    """``-f`` begins a pair of format and file, and ``-o`` completes it, or is one by its ending."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Namespace, values: Any, *_: object
    ) -> None:
        """Take one of the two."""
        pairs: list[list[str | None]] = [*(getattr(namespace, self.dest) or [])]
        if self.metavar != "FILE":
            pairs.append([values, None])
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = [pairs[-1][0], values]
        elif (ending := values.rpartition(".")[2]) in ENDINGS:
            pairs.append([ENDINGS[ending], values])
        else:
            parser.error(f"-o {values}: say which format, such as -f text -o {values}")
        setattr(namespace, self.dest, pairs)


class Outputs:
    """All outputs of a run; UsageError if two go to standard output, OSError for a bad file."""

    def __init__(self, pairs: list[list[str | None]], output: Output, *, tables: bool) -> None:
        pairs = [pair for pair in pairs if pair[0] != "none"]
        if sum(file is None for _, file in pairs) > 1:
            raise UsageError("two formats for standard output; -o FILE behind one of them")
        self._writers: list[_Text | _Lines | _Drawing] = []
        self._note = output.note
        self.count: int = 0
        with ExitStack() as files:
            for name, path in pairs:
                opened = whole if name == "svg" else recording
                file: Any = None if path is None else files.enter_context(opened(path))
                if name == "text":
                    self._writers.append(_Text(output, file, tables=tables))
                else:
                    writer = _Drawing(output, file) if name == "svg" else _Lines(file)
                    self._writers.append(writer)
            self._files = files.pop_all()

    def show(self, record: Record) -> None:
        """Write a record, or keep it; a recording that cannot be written ends, the run goes on."""
        self.count += 1
        for writer in [*self._writers]:
            try:
                writer.show(record)
            except OSError as error:
                if isinstance(writer, _Drawing) or writer.file in (None, sys.stdout):
                    raise
                self._writers.remove(writer)
                with suppress(OSError):  # what it has kept
                    writer.file.close()
                self._note(f"the recording ends here: {error.strerror or error}")

    def abandon(self, error: BaseException) -> None:
        """Close the files, without drawings."""
        self._files.__exit__(type(error), error, error.__traceback__)

    def finish(self) -> None:
        """Make the drawings, close the files."""
        with self._files:
            for writer in self._writers:
                if isinstance(writer, _Drawing):
                    writer.finish()


class _Text:
    """Lines for people."""

    def __init__(self, output: Output, file: Any, *, tables: bool) -> None:
        self._output, self.file, self._tables = output, file, tables
        self._width, self._plain = terminal(file)

    def show(self, record: Record) -> None:
        op, colour = record["op"], ""
        if op in ("fault", "close") or record.get("err") or "problem" in record or "lost" in record:
            colour = "red"
        elif op == "ping":
            colour = "dim"
        self._write(line(record, self._width), colour)
        for row in table(record, self._width) if self._tables else ():
            self._write(row, "dim")

    def _write(self, text: str, colour: str) -> None:
        text = in_ascii(text) if self._plain else text
        if self.file is not None:
            self.file.write(printable(text) + "\n")
            self.file.flush()
        else:
            self._output.line(text, colour=colour, flush=True)


class _Lines:
    """JSON Lines."""

    def __init__(self, file: Any) -> None:
        self.file = file or sys.stdout

    def show(self, record: Record) -> None:
        if self.file is not None:  # None: the process was started without it
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()


class _Drawing:
    """An SVG, made at the end."""

    def __init__(self, output: Output, file: Any) -> None:
        self._output, self.file = output, file
        self._records: list[Record] = []
        self._left = 0

    def show(self, record: Record) -> None:
        if len(self._records) < MOST:
            self._records.append(record)
        else:
            self._left += 1

    def finish(self) -> None:
        drawn = as_svg(self._records, self._left).encode()
        (self._output.bytes if self.file is None else self.file.write)(drawn)


def terminal(file: object) -> tuple[int, bool]:
    """How wide lines may be, and whether only ASCII can be shown."""
    if file is not None:
        return WIDEST, False
    plain = not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    if sys.stdout is None or not sys.stdout.isatty():
        return WIDEST, plain
    return max(40, min(WIDEST, shutil.get_terminal_size((80, 24)).columns)), plain
