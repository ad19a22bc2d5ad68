"""Which records are shown; what is forwarded is none of its business."""

from __future__ import annotations

from fnmatch import fnmatchcase

from zkwire.cli.spy.meaning import operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    Record = dict[str, Any]

HAPPENINGS = frozenset({"open", "close", "fault", "gap"})


class Filter:
    """``pings``, ``op``, ``path``, ``session`` and ``errors_only`` as the command has them.

    ValueError for an operation or a session that cannot be.  A reply is shown for its own path or
    for that of its request.  Faults and gaps are always shown.
    """

    def __init__(self, asked: Namespace) -> None:
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
        if op in ("fault", "gap"):
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


def failed(record: Record) -> bool:
    """Whether the record tells of an error: a refusal, a session that is gone, bad bytes."""
    refused = record["op"] == "connect" and record.get("granted") is False
    return bool(record.get("err")) or refused or "problem" in record


def paths_of(record: Record) -> list[str]:
    """All paths of a record."""
    parts = record.get("ops") or ()
    found = [record.get("path"), record.get("created"), *(part.get("path") for part in parts)]
    return [path for path in found if path is not None]
