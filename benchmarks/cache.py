"""A cache of a large tree beside kazoo's and Curator's.

    python3 -m benchmarks.cache [--nodes N] [--rounds N] [--restart] [--update-readme]

Each candidate fills its cache in a process of its own, in turn, on one real server.  With
`--restart` the server is then killed and started again while the process of zkwire's stands still
and a thousand nodes change: what does the cache tell, and how much has it read for that?
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import this_machine, write_between
from benchmarks.jobs import Job
from benchmarks.processes import WorkerProcess
from benchmarks.programs import MissingError, curator
from benchmarks.servers import SETTINGS, version_of
from benchmarks.wire import Bare, multi, request
from tests.support.installed_servers import find_installed
from tests.support.server_control import ZooKeeperServer
from zkwire import Cache, Client

ROOT = "/tree"
PARENTS = 100
CHANGES = 1000
PATIENCE = 600.0


def resident() -> int:
    """The memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def say(**figures: Any) -> None:
    """Tell the parent."""
    print(json.dumps(figures), flush=True)


class Measured:
    """The time and memory from here to :meth:`tell`."""

    def __init__(self) -> None:
        self._memory = resident()
        self._start = time.perf_counter(), time.process_time()

    def tell(self, nodes: int) -> None:
        """Tell the figures."""
        seconds = time.perf_counter() - self._start[0]
        cpu = time.process_time() - self._start[1]
        say(nodes=nodes, seconds=seconds, cpu=cpu, memory=resident() - self._memory)


# --- the candidates -------------------------------------------------------------------------------


def zkwire(hosts: str) -> None:
    """The cache; then, when the parent says so, what it tells behind the restart."""
    with Client(hosts, session_timeout=60.0) as client:
        client.exists("/")
        measured = Measured()
        with Cache(client, ROOT) as cache:
            if not cache.wait_ready(PATIENCE):
                raise TimeoutError("not ready")
            measured.tell(len(cache))
            sys.stdin.readline()
            events = cache.events()
            for _ in range(len(cache)):
                events.next(PATIENCE)
            reading = cache._algorithm._reading
            say(waits=True)
            sys.stdin.readline()  # stopped meanwhile
            requests, start = reading.requests, time.perf_counter()
            kinds, paths, seconds = Counter[str](), set[str](), 0.0
            while (event := events.next(10.0)) is not None:
                seconds = time.perf_counter() - start
                kinds[event.kind] += 1
                paths.add(event.path)
            say(kinds=kinds, paths=sorted(paths), seconds=seconds,
                requests=reading.requests - requests)  # fmt: skip


def kazoo(hosts: str) -> None:
    """Its AsyncCache, until it says that it is initialised."""
    from kazoo.client import KazooClient
    from kazoo.recipe.cache import AsyncCache, TreeEvent

    client = KazooClient(hosts, timeout=60.0)
    client.start()
    ready = threading.Event()

    def listen(event: Any) -> None:
        if event.event_type == TreeEvent.INITIALIZED:
            ready.set()

    measured = Measured()
    cache = AsyncCache(client, ROOT)
    cache.listen(listen)
    cache.start()
    if not ready.wait(PATIENCE):
        raise TimeoutError("not ready")
    measured.tell(sum(1 for _ in _all(cache, ROOT)))
    sys.stdin.readline()
    os._exit(0)


def _all(cache: Any, path: str) -> Iterator[str]:
    yield path
    for name in cache.get_children(path) or ():
        yield from _all(cache, f"{path}/{name}")


CANDIDATES = {"zkwire": zkwire, "kazoo": kazoo}
NAMES = {
    "zkwire": "zkwire's `Cache`",
    "kazoo": "kazoo's `AsyncCache`",
    "Curator": "Curator's `CuratorCache`",
}
BEGIN = "<!-- written by `python3 -m benchmarks.cache --update-readme` -->\n"
END = "<!-- end of the caches -->\n"


# --- the parent -----------------------------------------------------------------------------------


class Worker:
    """A candidate in a process of its own."""

    def __init__(self, name: str, hosts: str) -> None:
        command = [sys.executable, "-m", "benchmarks.cache", "--candidate", name, "--hosts", hosts]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def figures(self) -> dict[str, Any]:
        """What it tells next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the candidate has ended with {self.process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def go_on(self) -> None:
        """Let it do what comes next."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def leaf(number: int) -> str:
    """The path of a leaf."""
    return f"{ROOT}/parent-{number % PARENTS:03d}/member-{number // PARENTS:08d}"


def fill(server: ZooKeeperServer, nodes: int) -> None:
    """Make the tree."""
    bare = Bare((server.host, server.port))
    bare.do_all([request("create", ROOT)])
    bare.do_all([request("create", leaf(n).rpartition("/")[0]) for n in range(PARENTS)])
    leaves = [leaf(n) for n in range(nodes - PARENTS - 1)]
    for start in range(0, len(leaves), 1000):
        bare.ask(multi("create", leaves[start : start + 1000]))
    bare.close()


def change(server: ZooKeeperServer, nodes: int) -> dict[str, str]:
    """Change a thousand nodes; how, by path."""
    made: dict[str, str] = {}
    step = max(1, nodes // CHANGES // 2)
    with Client(f"{server.host}:{server.port}") as client:
        replies: list[Any] = []
        for n in range(CHANGES):
            path = leaf(n * step)
            if n % 10 < 5:
                replies.append(client.pipeline.set_data(path, b"changed"))
            elif n % 10 < 8:
                replies.append(client.pipeline.delete(path))
            else:
                path += "-new"
                replies.append(client.pipeline.create(path, b"new"))
            made[path] = "changed" if n % 10 < 5 else "removed" if n % 10 < 8 else "added"
        for reply in replies:
            reply.result(PATIENCE)
    return made


def restart(server: ZooKeeperServer, nodes: int) -> None:
    """Kill the server and change nodes while the cache stands still; print what it tells."""
    worker = Worker("zkwire", f"{server.host}:{server.port}")
    try:
        worker.figures()
        worker.go_on()
        worker.figures()
        os.kill(worker.process.pid, signal.SIGSTOP)
        server.kill()
        server.start()
        made = change(server, nodes)
        worker.go_on()
        os.kill(worker.process.pid, signal.SIGCONT)
        told = worker.figures()
    finally:
        worker.end()
    exact = told["kinds"] == Counter(made.values()) and told["paths"] == sorted(made)
    print(
        f"restart with {len(made)} changes: {told['kinds']}, exactly the differences: {exact}; "
        f"{told['requests']} requests in {told['seconds']:.2f} s"
    )


def of_curator(server: ZooKeeperServer, command: list[str], nodes: int) -> dict[str, Any]:
    """What its CuratorCache needs, in a new process with its compiler still cold, as kazoo's is."""
    with WorkerProcess(
        [*command, f"{server.host}:{server.port}"], (server.host, server.port)
    ) as worker:
        outcome = worker.run(Job("real", "cache", nodes))
    if outcome.error:
        raise RuntimeError(f"Curator: {outcome.error}")
    return {
        "nodes": outcome.ops,
        "seconds": outcome.seconds,
        "cpu": outcome.cpu_seconds,
        "memory": 1024 * (outcome.added or 0),
    }


def figures_of(
    name: str, server: ZooKeeperServer, command: list[str], nodes: int
) -> dict[str, Any]:
    """Those of a process of its own."""
    if name == "Curator":
        return of_curator(server, command, nodes)
    worker = Worker(name, f"{server.host}:{server.port}")
    try:
        return worker.figures()
    finally:
        worker.end()


def table(rounds: dict[str, list[dict[str, Any]]], preface: list[str]) -> str:
    """Medians, and how many times as long the others need in each round."""
    lines = [
        *preface,
        "",
        "| cache | nodes | ready in s | CPU s | memory, MB | time, times zkwire's |",
        "| --- |" + " ---: |" * 5,
    ]
    for name, figures in rounds.items():
        middle = {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        ratio = statistics.median(
            other["seconds"] / ours["seconds"]
            for ours, other in zip(rounds["zkwire"], figures, strict=True)
        )
        cells = [
            f"{middle['nodes']:,.0f}",
            *(f"{middle[each]:.1f}" for each in ("seconds", "cpu")),
            f"{middle['memory'] / 1e6:.0f}",
            f"{ratio:.1f}",
        ]
        lines.append(f"| {NAMES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--restart", action="store_true", help="and a restart of the server")
    parser.add_argument("--update-readme", action="store_true")
    parser.add_argument("--candidate", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.candidate:
        CANDIDATES[wanted.candidate](wanted.hosts)
        return
    with (
        tempfile.TemporaryDirectory(prefix="zkwire-bench-") as directory,
        find_installed().standalone(SETTINGS) as server,
    ):
        names, command, missing = [*CANDIDATES], list[str](), list[str]()
        try:
            command = curator(Path(directory), "Recipes")
            names.append("Curator")
        except MissingError as error:
            missing.append(f"Not measured: Curator: {error}.")
        fill(server, wanted.nodes)
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(wanted.rounds):
            for name, figures in rounds.items():
                figures.append(figures_of(name, server, command, wanted.nodes))
        machine = "; ".join(f"{what} {value}" for what, value in this_machine().items())
        preface = [f"{machine}; ZooKeeper {version_of((server.host, server.port))}.", *missing]
        text = table(rounds, [*preface, f"Medians of {wanted.rounds} rounds."])
        print(text)
        if wanted.update_readme:
            write_between(BEGIN, END, text)
        if wanted.restart:
            restart(server, wanted.nodes)


if __name__ == "__main__":
    main()
