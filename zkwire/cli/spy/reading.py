"""Recordings: records from a file, as ``spy -f jsonl`` has written them, shown again.

A line that is no record is a ValueError with its number: nothing later has to look at types again.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from zkwire.cli.context import standard_input
from zkwire.cli.spy.message import HIDDEN, SECRET
from zkwire.cli.spy.outputs import Filter, Outputs, Stats
from zkwire.cli.spy.text import line, paths_of, table

Record = dict[str, Any]

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
        try:
            record: Any = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        wrong = _wrong(record)
        if wrong:
            raise ValueError(f"{source}, line {number}: {wrong}")
        if "stats" not in record:
            yield record


def _wrong(record: Any) -> str:
    """What is wrong with it; "" for a record."""
    if type(record) is not dict or record.get("v") != 1:
        return "this is no record of `zkwire spy -f jsonl`"
    if "stats" in record:
        return ""
    needs = "bytes" if "dir" in record else _NEEDS.get(str(record.get("op")), "dir")
    for name in ("n", "t", "conn", "op", needs):
        if name not in record:
            return f"a record without {name!r}"
    for name, value in record.items():
        right = type(value) in _KINDS.get(name, (type(value),))
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
