"""CPU time of an operation with kazoo, with kazoo on zkwire, and with zkwire: interleaved rounds.

    python3 -m tests.interop.kazoo_programs.speed [--write]

One process has a client of each, and uses one at a time.  The figures are microseconds of this
process's CPU time for one operation, the median of the rounds; the server's are not in them.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from operator import methodcaller
from statistics import median
from typing import Any

from kazoo.client import KazooClient as PlainClient

from tests.interop import pages
from tests.interop.kazoo_programs.programs import PAGE
from tests.support.installed_servers import find_installed
from zkwire import Client, SequentialLock
from zkwire.kazoo import KazooClient

ROUNDS = 15
GETS, FLIGHT, LOCKS = 200, 5000, 30
HEAD = (
    "| CPU, µs | kazoo | kazoo on zkwire | zkwire's own API | of kazoo's |\n"
    "| --- | ---: | ---: | ---: | ---: |\n"
)
BOUNDS = {"get": 0.65, "get_async": 0.2, "free Lock": 0.85}
"""Of kazoo's CPU time."""


def works(
    get: Callable[[str], Any],
    ask: Callable[[str], Any],
    end: Callable[[Any], Any],
    lock: Callable[[str], Any],
) -> dict[str, Callable[[], int]]:
    """The operations with these calls of a client; each returns how many it has made."""

    def gets() -> int:
        for _ in range(GETS):
            get("/node")
        return GETS

    def flight() -> int:
        for reply in [ask("/node") for _ in range(FLIGHT)]:
            end(reply)
        return FLIGHT

    def locks() -> int:
        for _ in range(LOCKS):
            with lock("/lock"):
                pass
        return LOCKS

    return dict(zip(BOUNDS, (gets, flight, locks), strict=True))


def cpu(work: Callable[[], int]) -> float:
    """Microseconds of CPU for one."""
    gc.collect()
    begun = time.process_time()
    count = work()
    return (time.process_time() - begun) / count * 1e6


def measured(hosts: str) -> dict[str, dict[str, float]]:
    """For each operation, the median of each client."""
    plain: Any = PlainClient(hosts)
    engine: Any = KazooClient(hosts)
    with Client(hosts) as own:
        plain.start()
        engine.start()
        plain.create("/node", b"x" * 100)
        by_name = {
            who: works(client.get, client.get_async, methodcaller("get"), client.Lock)
            for who, client in (("kazoo", plain), ("zkwire.kazoo", engine))
        }
        by_name["zkwire"] = works(
            own.get_data, own.pipeline.get_data, methodcaller("result"),
            lambda path: SequentialLock(own, f"{path}-own"),
        )  # fmt: skip
        times: dict[str, dict[str, list[float]]] = {
            op: {who: [] for who in by_name} for op in BOUNDS
        }
        for round_number in range(ROUNDS + 1):
            for op, by_client in times.items():
                for who, work in by_name.items():
                    spent = cpu(work[op])
                    if round_number:  # the first warms up
                        by_client[who].append(spent)
        for client in (plain, engine):
            client.stop()
            client.close()
    return {op: {who: median(t) for who, t in by.items()} for op, by in times.items()}


def main() -> int:
    with find_installed().standalone() as server:
        found = measured(server.hosts)
    good, rows = True, ""
    for op, by_client in found.items():
        share = by_client["zkwire.kazoo"] / by_client["kazoo"]
        good = good and share <= BOUNDS[op]
        cells = " | ".join(f"{value:.0f}" for value in by_client.values())
        rows += f"| {op} | {cells} | {share:.2f} |\n"
        print(f"{op}: {share:.2f} of kazoo's CPU time, at most {BOUNDS[op]} is wanted")
    if "--write" in sys.argv:
        PAGE.write_text(pages.with_parts(PAGE.read_text(), {"speed": HEAD + rows}))
    else:
        print(HEAD + rows, end="")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
