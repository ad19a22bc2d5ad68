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
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from typing import Any

from zkwire.cli.command import UsageError
from zkwire.cli.context import standard_input
from zkwire.cli.files import recording, whole
from zkwire.cli.output import Output, printable
from zkwire.cli.spy.message import HIDDEN, SECRET, operations
from zkwire.cli.spy.records import (
    WIDEST,
    Record,
    as_svg,
    failed,
    in_ascii,
    line,
    paths_of,
    step_of,
    table,
)

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


# --- reading --------------------------------------------------------------------------------------
# Recordings: records from a file, as ``spy -f jsonl`` has written them, shown again.
#
# A line that is no record is a ValueError with its number: nothing later has to look at types
# again.

_LARGEST = 1 << 63
_FIELDS = frozenset({"passwd", "auth", "token"})


def replay(asked: Namespace, shown: Filter, outputs: Outputs) -> int:
    """Show the records of a file; ValueError if it is no recording."""
    try:
        with ExitStack() as stack:
            if asked.read == "-":
                file, source = standard_input().buffer, "standard input"
            else:
                file, source = stack.enter_context(open(asked.read, "rb")), asked.read
            lines = (line.decode("utf-8", "replace") for line in file)
            for record in filter(shown.shows, records_of(lines, source)):
                outputs.show(record if asked.show_secrets else _without_secrets(record))
                if outputs.count == asked.count:
                    break
    finally:
        outputs.finish()
    return 0


def records_of(lines: Iterable[str], source: str) -> Iterator[Record]:
    """The records of these lines."""
    for number, text in enumerate(lines, 1):
        record: Record = {}
        with suppress(ValueError, RecursionError):
            record = json.loads(text) if text.lstrip().startswith("{") else {}
        wrong = _wrong(record)
        if wrong:
            raise ValueError(f"{source}, line {number}: {wrong}")
        yield record


def _wrong(record: Record) -> str:
    """What is wrong with it: each form of it is made once; "" for a record."""
    if record.get("v") != 1:
        return "this is no record of `zkwire spy -f jsonl`"
    message = "dir" in record
    numbers = ["n", "t", "conn", *["bytes"] * message, *["rtt_ms"] * ("rtt_ms" in record)]
    try:
        if record.get("dir", "c2s") not in ("c2s", "s2c"):
            raise ValueError
        if not all(abs(record[name]) < _LARGEST for name in numbers):
            raise ValueError
        _ = line(record), [*table(record)], step_of(record, {record["conn"]: 0}, 1)
        _ = [path.isascii() for path in paths_of(record)], _without_secrets(record)
        _ = record["op"] in HAPPENINGS, record.get("session") in HAPPENINGS
    except KeyError as error:
        return f"a record without {error}"
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return "a record with a strange value"
    return ""


def _without_secrets(record: Record) -> Record:
    """A recording made with ``--show-secrets`` shows them only if that is asked for again."""
    hidden = record | ({"secret": HIDDEN} if "secret" in record else {})
    if "rows" in record:
        hidden["rows"] = list(_hidden(record["rows"], record["op"]))
    return hidden


def _hidden(rows: list[list[Any]], op: str) -> Iterator[list[Any]]:
    """The rows, with the values of secrets hidden as :class:`Rows` marks them."""
    digest = False
    for at, data, name, value, meaning in rows:
        last = "" if name.startswith("length of ") else name.rpartition(".")[2]
        if last == "scheme":
            digest = value == "digest"
        secret = last in _FIELDS or (last == "id" and digest)
        if secret or (last == "unknown" and op in SECRET):
            yield [at, HIDDEN, name, HIDDEN, meaning]
        else:
            yield [at, data, name, value, meaning]
