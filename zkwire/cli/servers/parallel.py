"""Does the same for every server at the same time, and waits no longer than until a moment."""

from __future__ import annotations

import re
import threading
import time

from zkwire.net.dial import LookUp, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from zkwire.session.hosts import Address

    T = TypeVar("T")

LATE = "cannot resolve the name in time"


def resolved(
    servers: list[tuple[str, int]], until: float
) -> list[tuple[tuple[str, int], list[Address] | str]]:
    """The addresses of each server, or in words why there are none; each server once."""
    news = threading.Condition()

    def wake() -> None:
        with news:
            news.notify_all()

    lookups = [
        (server, LookUp(server, resolve, wake, time.monotonic)) for server in dict.fromkeys(servers)
    ]
    for _, lookup in lookups:
        lookup.ask()
    with news:
        news.wait_for(
            lambda: all(lookup.found is not None for _, lookup in lookups),
            max(0.0, until - time.monotonic()),
        )
    return [(server, _in_words(lookup.found)) for server, lookup in lookups]


def _in_words(found: list[Address] | str | None) -> list[Address] | str:
    if isinstance(found, list):
        return found
    return re.sub(r"\[Errno -?\d+\] ", "", found or LATE)


def all_at_once(works: Sequence[Callable[[], T]], until: float) -> list[T | None]:
    """The result of each; None for one that has none by then.  None of them may raise."""
    results: list[T | None] = [None] * len(works)

    def run(number: int, work: Callable[[], T]) -> None:
        results[number] = work()

    threads = [
        threading.Thread(target=run, args=numbered, name="zkwire-ask", daemon=True)
        for numbered in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return results
