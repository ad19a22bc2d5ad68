"""Processes that count on one node, while connections are cut and servers killed.

    python3 -m tests.interop.counter                  ten runs, zkwire and kazoo in turns
    python3 -m tests.interop.counter --runs 1 --increments 200

Eight processes add 2,000 times 1 each, through relays before an ensemble of three. A run is exact
if the number is what the calls say that succeeded, and no call was left in doubt. kazoo, whose runs
are figures alone, does not tell doubt from failure.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from argparse import Namespace
from collections import Counter as Counts
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.interop.trial import Crew, Moments, Worker, main, say
from tests.support.cutting import CuttingRelay
from tests.support.installed_servers import find_installed
from tests.support.server_control import Ensemble
from zkwire import Client, Counter, ZooKeeperError

SESSION_SECONDS = 40.0
CALL_SECONDS = 120.0


def with_zkwire(hosts: str, path: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """What adds one, and what ends the client."""
    client = Client(hosts, session_timeout=SESSION_SECONDS)
    counter = Counter(client, path)
    return lambda: counter.add(1, CALL_SECONDS), client.close


def with_kazoo(hosts: str, path: str) -> tuple[Callable[[], object], Callable[[], object]]:
    from kazoo.client import KazooClient

    client = KazooClient(hosts, timeout=SESSION_SECONDS)
    client.start(CALL_SECONDS)
    counter: Any = client.Counter(path)
    return lambda: counter.__add__(1), client.stop


WAYS = {"zkwire": with_zkwire, "kazoo": with_kazoo}


def work(way: str, hosts: str, path: str, increments: str) -> None:
    """Add; say how many calls succeeded, were left in doubt, failed for sure."""
    logging.disable()
    add, close = WAYS[way](hosts, path)
    ended = Counts[str]()
    while ended["added"] < int(increments):
        try:
            add()
            ended["added"] += 1
        except Exception as error:
            if way == "zkwire" and not isinstance(error, ZooKeeperError):
                raise
            ended["doubt" if getattr(error, "maybe_applied", False) else "failed"] += 1
    close()
    say(ended["added"], ended["doubt"], ended["failed"])


def trouble(ensemble: Ensemble, relays: list[CuttingRelay], crew: Crew, rng: random.Random) -> str:
    """Cut and restart until all have counted; what was done."""
    cuts, restart = 0, Moments(rng, 3.0, 8.0)
    while any(worker.running for worker in crew.now):
        time.sleep(rng.uniform(0.05, 0.5))
        rng.choice(relays).cut(rng, rng.choice((1, 1, 2, 8)))
        cuts += 1
        if restart.come():
            server = rng.choice(ensemble.servers)
            server.kill()
            server.start(wait=False)
            ensemble.wait_serving()
    return f"{cuts} cuts, {restart.count} restarts"


def count(way: str, ensemble: Ensemble, seed: int, options: Namespace) -> bool:
    """One run; whether it was exact."""
    path, begun = f"/counter-{way}-{seed}", time.monotonic()
    with ExitStack() as stack:
        relays = [stack.enter_context(CuttingRelay(server.port)) for server in ensemble.servers]
        hosts = ",".join(relay.hosts for relay in relays)
        make = lambda: Worker(way, hosts, path, options.increments)  # noqa: E731
        crew = stack.enter_context(Crew(options.processes, make))
        done = trouble(ensemble, relays, crew, random.Random(seed))
        crew.end()
    ensemble.wait_serving()
    added, doubt, failed = (sum(int(w.lines[-1][place]) for w in crew.all) for place in range(3))
    with Client(ensemble.hosts) as client:
        client.sync(path)
        number, left = int(client.get_data(path).data), len(client.get_children(path))
    exact = number == added and doubt == 0
    print(
        f"{way:7} seed {seed}: {number:+} for {added} calls ({number - added:+}), {doubt} in doubt,"
        f" {failed} failed, {left} left; {done}, {time.monotonic() - begun:.0f} s: "
        f"{'exact' if exact else 'WRONG'}",
        flush=True,
    )
    return exact


def run(options: Namespace, _: random.Random) -> list[str]:
    """zkwire and kazoo in turns."""
    wrong = []
    runs = {"zkwire": options.runs, "kazoo": options.kazoo_runs}
    exact = Counts[str]()
    with find_installed().ensemble() as ensemble:
        for number in range(max(runs.values())):
            for way in [way for way in WAYS if number < runs[way]]:
                right = count(way, ensemble, options.seed + number, options)
                exact[way] += right
                if way == "zkwire" and not right:
                    wrong.append(f"zkwire, seed {options.seed + number}")
    print("exact:", ", ".join(f"{way} {exact[way]} of {runs[way]}" for way in WAYS))
    return wrong


if __name__ == "__main__":
    sys.exit(main(run, work, runs=10, kazoo_runs=10, processes=8, increments=2000))
