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
from contextlib import ExitStack
from functools import partial
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
COUNTS = {"get": 200, "get_async": 5000, "free Lock": 30}
HEAD = (
    "| CPU, µs | kazoo | kazoo on zkwire | zkwire's own API | of kazoo's |\n"
    "| --- | ---: | ---: | ---: | ---: |\n"
)
BOUNDS = {"get": 0.65, "get_async": 0.2, "free Lock": 0.85}
"""Of kazoo's CPU time."""


Calls = dict[str, Callable[[str], Any]]


def clients(stack: ExitStack, hosts: str) -> dict[str, Calls]:
    """Of each client what it calls for each operation; of a reply, what waits for it."""
    found: dict[str, Calls] = {}
    for name, kind in (("kazoo", PlainClient), ("zkwire.kazoo", KazooClient)):
        client: Any = kind(hosts)
        stack.callback(client.close)
        stack.callback(client.stop)
        client.start()
        client.ensure_path("/node")
        calls = client.get, client.get_async, client.Lock
        found[name] = {**dict(zip(BOUNDS, calls, strict=True)), "end": methodcaller("get")}
    own = stack.enter_context(Client(hosts))
    own.set_data("/node", b"x" * 100)
    calls = own.get_data, own.pipeline.get_data, partial(SequentialLock, own)
    found["zkwire"] = {**dict(zip(BOUNDS, calls, strict=True)), "end": methodcaller("result")}
    return found


def cpu(operation: str, calls: Calls) -> float:
    """Microseconds of CPU for one."""
    call, end, count = calls[operation], calls["end"], COUNTS[operation]
    gc.collect()
    begun = time.process_time()
    if operation == "get":
        for _ in range(count):
            call("/node")
    elif operation == "get_async":
        for reply in [call("/node") for _ in range(count)]:
            end(reply)
    else:
        for _ in range(count):
            with call("/lock"):
                pass
    return (time.process_time() - begun) / count * 1e6


def measured(hosts: str) -> dict[str, dict[str, float]]:
    """For each operation, the median of each client."""
    with ExitStack() as stack:
        calls = clients(stack, hosts)
        rounds = [
            {operation: {who: cpu(operation, calls[who]) for who in calls} for operation in BOUNDS}
            for _ in range(ROUNDS + 1)
        ][1:]  # the first warms up
    return {
        operation: {who: median(one[operation][who] for one in rounds) for who in calls}
        for operation in BOUNDS
    }


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
