"""The statistics that a server keeps of what is below a quota (``DataTree`` and ``StatsTrack``).

A path has a quota if there is a node ``/zookeeper/quota<path>/zookeeper_limits``.  The statistics
are the data of the neighbour ``zookeeper_stats``, which changes within the transactions that change
what is counted, without an event, a version or a zxid of its own.  Of quotas within each other only
the innermost counts.

Decides what is counted and how it is written; must not know transactions.  Limits are not enforced:
a real server does so only with ``enforceQuota``.  One on the root would end a real server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

QUOTAS: Final = "/zookeeper/quota"
_LIMITS: Final = "/zookeeper_limits"
_STATISTICS: Final = "/zookeeper_stats"
_SEPARATOR: Final = re.compile("[,;]")
_UNKNOWN: Final = -1


class HasData(Protocol):
    """A node, as far as it is counted."""

    data: bytes | None


Node = TypeVar("Node", bound=HasData)


def statistics_for(nodes: Mapping[str, Node], path: str) -> Node | None:
    """The node that a change at ``path`` is counted in, if there is one."""
    while len(path) > 1:
        if f"{QUOTAS}{path}{_LIMITS}" in nodes:
            return nodes.get(f"{QUOTAS}{path}{_STATISTICS}")
        path = path.rpartition("/")[0]
    return None


def counted(path: str) -> str | None:
    """The path whose statistics a node at ``path`` has; None if it has none."""
    if path.startswith(QUOTAS + "/") and path.endswith(_STATISTICS):
        return path[len(QUOTAS) : -len(_STATISTICS)] or "/"
    return None


def statistics(nodes: Mapping[str, HasData], path: str) -> bytes:
    """What there is at and below ``path``."""
    below = "/" if path == "/" else path + "/"
    sizes = [
        len(node.data or b"")
        for name, node in nodes.items()
        if name == path or name.startswith(below)
    ]
    return f"count={len(sizes)},bytes={sum(sizes)}".encode()


def moved(data: bytes | None, count: int, size: int) -> bytes | None:
    """Statistics behind a change; what cannot be read stays as it is."""
    found = {"count": _UNKNOWN, "bytes": _UNKNOWN}
    try:
        for part in filter(None, _SEPARATOR.split((data or b"").decode())):
            name, _, number = part.partition("=")
            found[name] = int(number.rstrip("="))
    except ValueError:
        return data
    found["count"] += count
    found["bytes"] += size
    first = f"count={found.pop('count')},bytes={found.pop('bytes')}"
    limits = [f"{name}={found[name]}" for name in sorted(found)]
    return ";".join([first + "=" * bool(limits), *limits]).encode()
