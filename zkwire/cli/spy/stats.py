"""How many requests (and watch events), how many bytes, how long until the answer, for each group.

Times are kept as counts in steps of one per cent, so a run may last for days; a percentile is exact
to that step.
"""

from __future__ import annotations

import math
from collections import Counter

from zkwire.cli.spy.filters import failed, paths_of
from zkwire.cli.spy.text import cut_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Record = dict[str, Any]

GROUPS = ("op", "path", "client")
PERCENTILES = (50, 95, 99)
MOST_LINES = 100
_STEP = math.log(1.01)
_LEAST = 0.001  # milliseconds


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
    """All groups; ``by`` is one of ``GROUPS``."""

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
