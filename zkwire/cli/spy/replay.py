"""A recording or a capture of packets shown: ``spy --read FILE``."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain

from zkwire.cli.context import standard_input
from zkwire.cli.spy.meaning import HIDDEN
from zkwire.cli.spy.message import SECRET
from zkwire.cli.spy.packet_file import MAGIC
from zkwire.cli.spy.reading import records_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from zkwire.cli.spy.filters import Filter
    from zkwire.cli.spy.outputs import Outputs
    from zkwire.cli.spy.stats import Stats

_FIELDS = frozenset({"passwd", "auth", "token"})


def replay(
    asked: Namespace,
    shown: Filter,
    outputs: Outputs,
    stats: Stats | None,
    captured: Callable[[bytes, str], Iterable[dict[str, Any]]],
) -> int:
    """Show the records of a file, ``captured`` those of a capture; ValueError if it is neither."""
    try:
        with ExitStack() as stack:
            if asked.read == "-":
                file, source = standard_input().buffer, "standard input"
            else:
                file, source = stack.enter_context(open(asked.read, "rb")), asked.read
            begin = file.read(4)
            if begin in MAGIC:
                records = captured(begin + file.read(), source)
            else:
                first = begin + file.readline()
                lines = chain([first] if first else [], file)
                records = records_of((line.decode("utf-8", "replace") for line in lines), source)
            _replay(records, asked, shown, outputs, stats)
    finally:
        outputs.finish(stats)
    return 0


def _replay(
    records: Iterable[dict[str, Any]],
    asked: Namespace,
    shown: Filter,
    outputs: Outputs,
    stats: Stats | None,
) -> None:
    for record in records:
        if not shown.shows(record):
            continue
        if stats is not None:
            stats.add(record)
        outputs.show(_without_secrets(record, asked.show_secrets))
        if outputs.count == asked.count:
            return


def _without_secrets(record: dict[str, Any], show: bool) -> dict[str, Any]:
    """A recording made with ``--show-secrets`` shows them only if that is asked for again."""
    if show:
        return record
    hidden = record | ({"secret": HIDDEN} if "secret" in record else {})
    if "rows" in record:
        hidden["rows"] = list(_hidden(record["rows"], record["op"]))
    return hidden


def _hidden(rows: list[list[Any]], op: str) -> Iterator[list[Any]]:
    """The rows, with the values of secrets hidden as :mod:`zkwire.cli.spy.rows` marks them."""
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
