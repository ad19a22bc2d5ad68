"""Every cut at every request of a call, and every pair of cuts: found by enumeration.

What a test says is one life: what is called, and what must be true behind it. It is lived once
without a fault, to count its requests, and then once for each cut at each of them, before the
server gets the request or behind that; and for a third of the pairs of such cuts, the one that
`ZKWIRE_SEED` says, of which the second hits one of the next three requests or the greeting of the
next connection. With `ZKWIRE_PAIRS=all` each pair has its run, and the second cut hits each later
request, to the third behind what a life without a fault has sent.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tests.conftest import SEED
from tests.support.lock_helpers import Stage, requests
from tests.support.server_control import ZooKeeperServer
from zkwire import Client
from zkwire.testing.proxy import cut_after, cut_before

AT_ONCE = 12  # they spend their time waiting for each other's sockets
CUTS = {"before": cut_before, "after": cut_after}
NEAR = 3
ALL_PAIRS = os.environ.get("ZKWIRE_PAIRS") == "all"

T = TypeVar("T")
Point = tuple[int, str, tuple[int | None, str] | None]
Life = Callable[[Stage, Client, str], None]
"""Called with a stage, a client behind its proxy and a path of its own."""


def distances(at: int, count: int) -> range:
    """How many requests behind one of ``count`` the second cut comes."""
    return range(1, NEAR + (count - at if ALL_PAIRS else 1))


def some(pairs: list[T]) -> list[T]:
    """The third of them that this run makes, or all."""
    return pairs if ALL_PAIRS else pairs[SEED % 3 :: 3]


def points(count: int) -> list[Point]:
    """All single cuts and some pairs at so many requests; None: a second cut at the greeting."""
    singles = list(itertools.product(range(count), CUTS))
    pairs = [
        (at, first, second)
        for at, first in singles
        for second in itertools.product((None, *distances(at, count)), CUTS)
    ]
    return [*((at, cut, None) for at, cut in singles), *some(pairs)]


def live(server: ZooKeeperServer, observer: Client, path: str, life: Life, point: Point) -> int:
    """Live once with these cuts; how many requests that were."""
    at, first, second = point
    with Stage(server, observer) as stage:
        client = stage.client()
        if at >= 0:
            stage.proxy.on_frame(at, CUTS[first])
        if second is not None:
            distance, kind = second
            if distance is None:
                stage.proxy.on("connect", action=CUTS[kind])
            else:
                stage.proxy.on_frame(at + distance, CUTS[kind])
        life(stage, client, path)
        return len(requests(stage.proxy.frames()))


def sweep(server: ZooKeeperServer, observer: Client, path: str, life: Life) -> int:
    """Live with every cut and every pair; how many runs that were."""
    observer.ensure_path(path)
    all_points = points(live(server, observer, f"{path}/clean", life, (-1, "before", None)))

    def wrong(point: Point) -> str | None:
        name = "-".join(map(str, point)).translate({ord(c): "_" for c in "(', )"})
        try:
            live(server, observer, f"{path}/{name}", life, point)
        except Exception as error:
            return f"{point}: {type(error).__name__}: {error}"
        return None

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sweep") as pool:
        found = [line for line in pool.map(wrong, all_points) if line]
    assert not found, f"{len(found)} of {len(all_points)}:\n" + "\n".join(found)
    return len(all_points)
