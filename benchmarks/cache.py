"""A cache of a large tree beside kazoo's: ``python3 -m benchmarks.cache [--nodes N] [--write]``.

Each candidate fills its cache in a process of its own, in turn, on one real server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.pages import ROOT, preface, resident, table, write
from benchmarks.servers import real_server, version_of
from benchmarks.wire import Address, Bare, multi, request
from zkwire import Cache, Client

COMMAND = "benchmarks.cache --write"
TREE = "/tree"
PARENTS = 100
TOGETHER = 1000
PATIENCE = 600.0

Figures = dict[str, float]


class Measured:
    """The time and memory from here to :meth:`figures`."""

    def __init__(self) -> None:
        self._memory = resident()
        self._start = time.perf_counter(), time.process_time()

    def figures(self) -> Figures:
        return {
            "seconds": time.perf_counter() - self._start[0],
            "cpu": time.process_time() - self._start[1],
            "memory": (resident() - self._memory) / 1e6,
        }


def zkwire(hosts: str) -> Figures:
    """Its Cache."""
    with Client(hosts, session_timeout=60.0) as client:
        client.exists("/")
        measured = Measured()
        with Cache(client, TREE) as cache:
            if not cache.wait_ready(PATIENCE):
                raise TimeoutError("not ready")
            return measured.figures() | {"nodes": len(cache)}


def kazoo(hosts: str) -> Figures:
    """Its TreeCache, until it says that it is initialised."""
    from kazoo.client import KazooClient
    from kazoo.recipe.cache import TreeCache, TreeEvent

    client = KazooClient(hosts, timeout=60.0)
    client.start()
    ready = threading.Event()

    def listen(event: Any) -> None:
        if event.event_type == TreeEvent.INITIALIZED:
            ready.set()

    measured = Measured()
    cache = TreeCache(client, TREE)
    cache.listen(listen)
    cache.start()
    if not ready.wait(PATIENCE):
        raise TimeoutError("not ready")
    return measured.figures() | {"nodes": sum(1 for _ in _all(cache, TREE))}


def _all(cache: Any, path: str) -> Iterator[str]:
    yield path
    for name in cache.get_children(path) or ():
        yield from _all(cache, f"{path}/{name}")


CANDIDATES: dict[str, Callable[[str], Figures]] = {"zkwire": zkwire, "kazoo": kazoo}
NAMES = {"zkwire": "zkwire's `Cache`", "kazoo": "kazoo's `TreeCache`"}


def fill(address: Address, nodes: int) -> None:
    """Make the tree."""
    bare = Bare(address)
    parents = [f"{TREE}/parent-{number:03d}" for number in range(PARENTS)]
    bare.do_all([request("create", path) for path in (TREE, *parents)])
    leaves = [f"{parents[n % PARENTS]}/member-{n:08d}" for n in range(nodes - PARENTS - 1)]
    for start in range(0, len(leaves), TOGETHER):
        bare.ask(multi("create", leaves[start : start + TOGETHER]))
    bare.close()


def figures_of(name: str, address: Address) -> Figures:
    """Those of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.cache", "--candidate", name]
    said = subprocess.run(
        [*command, "--hosts", f"{address[0]}:{address[1]}"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    found: Figures = json.loads(said)
    return found


def rows(rounds: dict[str, list[Figures]]) -> list[list[str]]:
    """Medians, and how many times as long the other needs in each round."""
    lines: list[list[str]] = []
    for name, figures in rounds.items():
        middle = {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        pairs = list(zip(rounds["zkwire"], figures, strict=True))
        times = [
            statistics.median(b[what] / a[what] for a, b in pairs) for what in ("seconds", "cpu")
        ]
        cells = [f"{middle[each]:.1f}" for each in ("seconds", "cpu")]
        cells += [f"{middle['memory']:.0f}", *(f"{each:.1f}" for each in times)]
        lines.append([NAMES[name], f"{middle['nodes']:,.0f}", *cells])
    return lines


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--candidate", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.candidate:
        print(json.dumps(CANDIDATES[wanted.candidate](wanted.hosts)), flush=True)
        os._exit(0)  # the other's threads may go on
    with real_server() as address:
        fill(address, wanted.nodes)
        rounds: dict[str, list[Figures]] = {name: [] for name in CANDIDATES}
        for _ in range(wanted.rounds):
            for name, figures in rounds.items():
                figures.append(figures_of(name, address))
        about = preface(version_of(address), f"Rounds: {wanted.rounds}.")
    heads = ["cache", "nodes", "ready in s", "CPU s", "MB", "time, / zkwire's", "CPU, / zkwire's"]
    text = f"{about}\n\n{table(heads, rows(rounds))}"
    print(text)
    if wanted.write:
        write(COMMAND, text)


if __name__ == "__main__":
    main()
