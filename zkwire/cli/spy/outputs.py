"""What is shown of a run, and where: a filter, formats, statistics.

Text and jsonl are written as records come; a drawing is made at the end, of the first ``MOST``
records, and says how many are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, TextIO

from zkwire.cli.command import UsageError
from zkwire.cli.context import standard_input
from zkwire.cli.files import recording, whole
from zkwire.cli.output import Output, printable
from zkwire.cli.spy.message import HIDDEN, SECRET, operations
from zkwire.cli.spy.records import WIDEST, as_svg, cut_path, failed, in_ascii, line, paths_of, table

Record = dict[str, Any]

HAPPENINGS = frozenset({"open", "close", "fault"})
FORMATS = ("text", "jsonl", "svg", "none")
ENDINGS = {"txt": "text", "log": "text", "jsonl": "jsonl", "svg": "svg"}
MOST = 300
GROUPS = ("op", "path", "client")
PERCENTILES = (50, 95, 99)
MOST_LINES = 100
_STEP = math.log(1.01)
_LEAST = 0.001  # milliseconds


class Filter:
    """Which records are shown; what is forwarded is none of its business.

    ``pings``, ``op``, ``path``, ``session`` and ``errors_only`` are as the command has them.
    ValueError for an operation or a session that cannot be.  A reply is shown for its own path or
    for that of its request.  Faults are always shown.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        self._pings = bool(asked.pings)
        self._ops = frozenset(
            found
            for word in asked.op
            for name in word.split(",")
            for found in ((name,) if name in HAPPENINGS else operations(name))
        )
        self._path = asked.path
        self._session = f"{int(asked.session, 16):#x}" if asked.session else None
        self._errors = bool(asked.errors_only)

    def shows(self, record: Record) -> bool:
        """Whether this record is shown."""
        op = record["op"]
        if op == "fault":
            return True
        if op == "ping" and not self._pings and "ping" not in self._ops:
            return False
        if self._ops and op not in self._ops:
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
        if sum(file is None for name, file in pairs if name != "none") > 1:
            raise UsageError("two formats for standard output; -o FILE behind one of them")
        self._output = output
        self._writers: list[_Text | _Lines | _Drawing] = []
        self.count: int = 0
        with ExitStack() as files:
            for name, path in pairs:
                if name == "svg":
                    drawing = None if path is None else files.enter_context(whole(path))
                    self._writers.append(_Drawing(output, drawing))
                elif name != "none":
                    file = None if path is None else files.enter_context(recording(path))
                    text = name == "text"
                    self._writers.append(
                        _Text(output, file, tables=tables) if text else _Lines(file)
                    )
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
                self._output.note(f"the recording ends here: {error.strerror or error}")

    def abandon(self, error: BaseException) -> None:
        """Close the files, without drawings."""
        self._files.__exit__(type(error), error, error.__traceback__)

    def finish(self, stats: Stats | None) -> None:
        """Make the drawings, write the statistics, close the files."""
        with self._files:
            for writer in self._writers:
                writer.finish(stats)
            if stats is not None and all(isinstance(each, _Drawing) for each in self._writers):
                drawn = any(each.file is None for each in self._writers)
                for row in stats.lines(terminal(None)[0]):
                    (self._output.note if drawn else self._output.line)(row)


class _Text:
    """Lines for people."""

    def __init__(self, output: Output, file: TextIO | None, *, tables: bool) -> None:
        self._output = output
        self.file = file
        self._width, self._plain = terminal(file)
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

    def finish(self, stats: Stats | None) -> None:
        for row in ["", *stats.lines(self._width)] if stats is not None else []:
            self._write(row, "")

    def _write(self, text: str, colour: str) -> None:
        text = in_ascii(text) if self._plain else text
        if self.file is not None:
            self.file.write(printable(text) + "\n")
            self.file.flush()
        else:
            self._output.line(text, colour=colour, flush=True)


class _Lines:
    """JSON Lines."""

    def __init__(self, file: TextIO | None) -> None:
        self.file: TextIO | None = file or sys.stdout

    def show(self, record: Record) -> None:
        if self.file is not None:  # None: the process was started without it
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()

    def finish(self, stats: Stats | None) -> None:
        for record in stats.records() if stats is not None else ():
            self.show(record)


class _Drawing:
    """An SVG, made at the end."""

    def __init__(self, output: Output, file: BinaryIO | None) -> None:
        self._output = output
        self.file = file
        self._records: list[Record] = []
        self._left = 0

    def show(self, record: Record) -> None:
        if len(self._records) < MOST:
            self._records.append(record)
        else:
            self._left += 1

    def finish(self, _: Stats | None) -> None:
        drawn = as_svg(self._records, self._left).encode()
        if self.file is None:
            self._output.bytes(drawn)
        else:
            self.file.write(drawn)


def terminal(file: TextIO | None) -> tuple[int, bool]:
    """How wide lines may be, and whether only ASCII can be shown."""
    if file is not None:
        return WIDEST, False
    plain = not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    if sys.stdout is None or not sys.stdout.isatty():
        return WIDEST, plain
    return max(40, min(WIDEST, shutil.get_terminal_size((80, 24)).columns)), plain


# --- statistics -----------------------------------------------------------------------------------


class Group:
    """What is counted for one group."""

    def __init__(self) -> None:
        self.count: int = 0
        self.errors: int = 0
        self.bytes: int = 0
        self._times: Counter[int] = Counter()

    def add(self, record: Record) -> None:
        """Count one record."""
        self.count += record["dir"] == "c2s" or record["op"] == "watch"
        self.errors += failed(record)
        self.bytes += record["bytes"]
        if "rtt_ms" in record:
            self._times[round(math.log(max(record["rtt_ms"], _LEAST)) / _STEP)] += 1

    def percentile(self, percent: int) -> float | None:
        """Milliseconds, within which so many per cent of the answers came; None without any."""
        left = math.ceil(self._times.total() * percent / 100)
        for step in sorted(self._times):
            left -= self._times[step]
            if left <= 0:
                return round(math.exp(step * _STEP), 3)
        return None


class Stats:
    """How many requests (and watch events), how many bytes, how long until the answer.

    ``by`` is one of ``GROUPS``.  Times are kept as counts in steps of one per cent, so a run may
    last for days; a percentile is exact to that step.
    """

    def __init__(self, by: str) -> None:
        self.by = by
        self.groups: dict[str, Group] = {}

    def add(self, record: Record) -> None:
        """Count a message."""
        if "dir" in record:
            self.groups.setdefault(self._name(record), Group()).add(record)

    def records(self) -> Iterator[Record]:
        """One object for each group, the largest count first."""
        for name, group in self._sorted():
            times = {f"p{percent}_ms": group.percentile(percent) for percent in PERCENTILES}
            counts = {"count": group.count, "errors": group.errors, "bytes": group.bytes}
            yield {"v": 1, "stats": self.by, "group": name, **counts, **times}

    def lines(self, width: int) -> Iterator[str]:
        """A table for people."""
        room = width - 53
        numbers = "".join(f"{name:>9}" for name in ("p50 ms", "p95 ms", "p99 ms"))
        yield f"{self.by:{room}} {'count':>8} {'errors':>6} {'bytes':>9}{numbers}"
        for index, (name, group) in enumerate(self._sorted()):
            if index == MOST_LINES:
                yield f"... and {len(self.groups) - MOST_LINES} more"
                return
            times = [group.percentile(percent) for percent in PERCENTILES]
            shown = "".join(f"{'-' if time is None else f'{time:.1f}':>9}" for time in times)
            counts = f"{group.count:8} {group.errors:6} {group.bytes:9}"
            yield f"{cut_path(name, room):{room}} {counts}{shown}"

    def _name(self, record: Record) -> str:
        if self.by == "path":
            return next(iter(paths_of(record)), "-")
        if self.by == "client":
            return str(record.get("session") or f"c{record['conn']}")
        return str(record["op"])

    def _sorted(self) -> list[tuple[str, Group]]:
        return sorted(self.groups.items(), key=lambda item: (-item[1].count, item[0]))


# --- reading --------------------------------------------------------------------------------------
# Recordings: records from a file, as ``spy -f jsonl`` has written them, shown again.
#
# A line that is no record is a ValueError with its number: nothing later has to look at types
# again.

_TEXT = (
    "session dir op path created error fault peer by zxid last_zxid type state scheme mode secret "
    "problem word"
)
_WHOLE = (
    "v n conn xid bytes err re version ttl opcode watches children ephemerals acl client_info "
    "timeout_ms"
)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_TEXT.split(), (str,)),
    **dict.fromkeys(_WHOLE.split(), (int,)),
    **dict.fromkeys(("granted", "resumes", "watch", "read_only", "lost"), (bool,)),
    **dict.fromkeys(("t", "rtt_ms"), (int, float)),
    **dict.fromkeys(("flags", "results", "ops", "rows"), (list,)),
    "data": (dict,),
}
_LARGEST = 1 << 63
# What an operation without a direction must have, and all that have one.
_NEEDS = {"open": "peer", "close": "by", "fault": "fault"}
_FIELDS = frozenset({"passwd", "auth", "token"})


def replay(asked: Namespace, shown: Filter, outputs: Outputs, stats: Stats | None) -> int:
    """Show the records of a file; ValueError if it is no recording."""
    try:
        with ExitStack() as stack:
            if asked.read == "-":
                file, source = standard_input().buffer, "standard input"
            else:
                file, source = stack.enter_context(open(asked.read, "rb")), asked.read
            lines = (line.decode("utf-8", "replace") for line in file)
            for record in filter(shown.shows, records_of(lines, source)):
                if stats is not None:
                    stats.add(record)
                outputs.show(record if asked.show_secrets else _without_secrets(record))
                if outputs.count == asked.count:
                    break
    finally:
        outputs.finish(stats)
    return 0


def records_of(lines: Iterable[str], source: str) -> Iterator[Record]:
    """The records of these lines; those of the statistics are left out."""
    for number, text in enumerate(lines, 1):
        record: Record = {}
        with suppress(ValueError, RecursionError):
            record = json.loads(text) if text.lstrip().startswith("{") else {}
        wrong = _wrong(record)
        if wrong:
            raise ValueError(f"{source}, line {number}: {wrong}")
        if "stats" not in record:
            yield record


def _wrong(record: Record) -> str:
    """What is wrong with it; "" for a record."""
    if record.get("v") != 1:
        return "this is no record of `zkwire spy -f jsonl`"
    if "stats" in record:
        return ""
    needs = "bytes" if "dir" in record else _NEEDS.get(str(record.get("op")), "dir")
    for name in ("n", "t", "conn", "op", needs):
        if name not in record:
            return f"a record without {name!r}"
    for name, value in record.items():
        right = name not in _KINDS or type(value) in _KINDS[name]
        if type(value) in (int, float):
            right = right and abs(value) < _LARGEST
        if not right or (name == "dir" and value not in ("c2s", "s2c")):
            return f"a record with a strange {name!r}"
    try:  # the values inside of others
        _ = line(record), [*table(record)], [path.isascii() for path in paths_of(record)]
        _ = _without_secrets(record)
    except (AttributeError, LookupError, TypeError, ValueError):
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
