"""The statistics of paths that have a quota (``DataTree`` and ``StatsTrack``).

A path has a quota if there is a node ``/zookeeper/quota<path>/zookeeper_limits``.  The statistics
are the data of the node ``zookeeper_stats`` beside it.  They change in the transaction that changes
the counted nodes, without an event, a version or a zxid of their own.  If one quota is inside
another, only the inner one counts.

Decides what is counted and how it is written; must not know transactions.  Limits are not enforced:
a real server enforces them only with ``enforceQuota``.  A quota on the root would crash a real
server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

QUOTAS: Final = "/zookeeper/quota"
_LIMITS: Final = "/zookeeper_limits"
_STATISTICS: Final = "/zookeeper_stats"
_SEPARATOR: Final = re.compile("[,;]")
_NUMBER: Final = re.compile(r"[+-]?\d+")  # what Java's parseLong takes
_UNKNOWN: Final = -1


class HasData(Protocol):
    """The part of a node that is counted."""

    data: bytes | None


Node = TypeVar("Node", bound=HasData)


def statistics_for(nodes: Mapping[str, Node], path: str) -> Node | None:
    """The node with the statistics that a change at ``path`` belongs to, if there is one."""
    while len(path) > 1:
        if f"{QUOTAS}{path}{_LIMITS}" in nodes:
            return nodes.get(f"{QUOTAS}{path}{_STATISTICS}")
        path = path.rpartition("/")[0]
    return None


def counted(path: str) -> str | None:
    """The path whose statistics are in the node at ``path``; None for any other node."""
    if path.startswith(QUOTAS + "/") and path.endswith(_STATISTICS):
        return path[len(QUOTAS) : -len(_STATISTICS)] or "/"
    return None


def statistics(nodes: Mapping[str, HasData], path: str) -> bytes:
    """The number of nodes at and below ``path``, and of their bytes, as statistics."""
    below = "/" if path == "/" else path + "/"
    sizes = [
        len(node.data or b"")
        for name, node in nodes.items()
        if name == path or name.startswith(below)
    ]
    return f"count={len(sizes)},bytes={sum(sizes)}".encode()


def adjusted(data: bytes | None, count: int, size: int) -> bytes | None:
    """The statistics after a change; text that cannot be parsed stays as it is."""
    found = {"count": _UNKNOWN, "bytes": _UNKNOWN}
    try:
        for part in filter(None, _SEPARATOR.split((data or b"").decode())):
            name, _, number = part.partition("=")
            if not _NUMBER.fullmatch(number := number.rstrip("=")):
                return data
            found[name] = int(number)
    except ValueError:
        return data
    found["count"] += count
    found["bytes"] += size
    first = f"count={found.pop('count')},bytes={found.pop('bytes')}"
    limits = [f"{name}={found[name]}" for name in sorted(found)]
    return ";".join([first + "=" * bool(limits), *limits]).encode()
