"""What a watch that waits takes of memory: a client may have a hundred thousand of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from zkwire.session.waitable import Watch
from zkwire.session.watch_table import WatchTable
from zkwire.wire.ops import WatchKind

MANY = 1000
OBJECT = 200  # bytes; seen: 120, and 1,096 where each has a deque and a set from the start
SET = 1000  # with its place in the table; seen: 680, and 1,440


def bytes_each(make: Callable[[], object]) -> float:
    """What is still there for each of many when they have been made."""
    tracemalloc.start()
    try:
        before, made = tracemalloc.get_traced_memory()[0], make()
        size = tracemalloc.get_traced_memory()[0] - before
        del made
        return size / MANY
    finally:
        tracemalloc.stop()


def test_a_watch_that_waits_is_small() -> None:
    paths = [f"/a{n}" for n in range(MANY)]
    table = WatchTable()

    def some_set() -> list[Watch]:
        return [table.add(WatchKind.DATA, path, Watch()) for path in paths]

    assert bytes_each(lambda: [Watch() for _ in paths]) <= OBJECT
    assert bytes_each(some_set) <= SET
