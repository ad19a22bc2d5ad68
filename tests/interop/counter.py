"""Processes that count on one node, while connections are cut and servers killed.

    python3 -m tests.interop.counter                  ten runs, zkwire and kazoo in turns
    python3 -m tests.interop.counter --runs 1 --increments 200

Eight processes add 2,000 times 1 each, through relays before an ensemble of three. A run is exact
if the number is what the calls say that succeeded, and no call was left in doubt.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.cutting import CuttingRelay
from tests.support.installed_servers import find_installed
from tests.support.server_control import Ensemble
from zkwire import Client, Counter, ZooKeeperError

ROOT = Path(__file__).resolve().parents[2]
SESSION_SECONDS = 40.0
CALL_SECONDS = 120.0
CUT_SECONDS = (0.05, 0.5)  # between two cuts
RESTART_SECONDS = (3.0, 8.0)  # between two restarts


def with_zkwire(hosts: str, path: str, increments: int) -> dict[str, int]:
    """Add with zkwire; how many calls succeeded, were left in doubt, failed for sure."""
    ended = {"added": 0, "doubt": 0, "failed": 0}
    with Client(hosts, session_timeout=SESSION_SECONDS) as client:
        counter = Counter(client, path)
        while ended["added"] < increments:
            try:
                counter.add(1, CALL_SECONDS)
                ended["added"] += 1
            except ZooKeeperError as error:
                ended["doubt" if error.maybe_applied else "failed"] += 1
    return ended


def with_kazoo(hosts: str, path: str, increments: int) -> dict[str, int]:
    """The same with kazoo, which does not tell doubt from failure."""
    from kazoo.client import KazooClient

    logging.disable()
    ended = {"added": 0, "doubt": 0, "failed": 0}
    client = KazooClient(hosts, timeout=SESSION_SECONDS)
    client.start(CALL_SECONDS)
    counter = client.Counter(path)
    while ended["added"] < increments:
        try:
            counter += 1
            ended["added"] += 1
        except Exception:
            ended["failed"] += 1
    client.stop()
    return ended


WAYS = {"zkwire": with_zkwire, "kazoo": with_kazoo}


class Faults:
    """Cuts and restarts, at random, one after the other."""

    def __init__(self, ensemble: Ensemble, relays: list[CuttingRelay], seed: int) -> None:
        self._ensemble = ensemble
        self._relays = relays
        self._rng = random.Random(seed)
        self.cuts = self.restarts = 0
        self._restart_at = time.monotonic() + self._rng.uniform(*RESTART_SECONDS)

    def step(self) -> None:
        """The next one, behind a pause."""
        time.sleep(self._rng.uniform(*CUT_SECONDS))
        self._rng.choice(self._relays).cut(self._rng, self._rng.choice((1, 1, 2, 8)))
        self.cuts += 1
        if time.monotonic() > self._restart_at:
            server = self._rng.choice(self._ensemble.servers)
            server.kill()
            server.start(wait=False)
            self.restarts += 1
            self._ensemble.wait_serving()
            self._restart_at = time.monotonic() + self._rng.uniform(*RESTART_SECONDS)


def run(way: str, ensemble: Ensemble, seed: int, processes: int, increments: int) -> bool:
    """One run; whether it was exact."""
    path = f"/counter-{way}-{seed}"
    with ExitStack() as stack:
        relays = [stack.enter_context(CuttingRelay(server.port)) for server in ensemble.servers]
        hosts = ",".join(relay.hosts for relay in relays)
        command = [sys.executable, "-m", "tests.interop.counter", "--worker", way, hosts, path]
        begun = time.monotonic()
        workers = [
            subprocess.Popen([*command, str(increments)], cwd=ROOT, stdout=subprocess.PIPE)
            for _ in range(processes)
        ]
        for worker in workers:
            stack.callback(worker.kill)
        faults = Faults(ensemble, relays, seed)
        while any(worker.poll() is None for worker in workers):
            faults.step()
        seconds = time.monotonic() - begun
        outputs = [worker.communicate()[0] for worker in workers]
    ensemble.wait_serving()
    ended = [json.loads(output) for output in outputs]
    added, doubt, failed = (sum(e[key] for e in ended) for key in ("added", "doubt", "failed"))
    with Client(ensemble.hosts) as client:
        client.sync(path)
        number, left = int(client.get_data(path).data), len(client.get_children(path))
    exact = number == added and doubt == 0
    print(
        f"{way:7} seed {seed}: {number:+} for {added} calls ({number - added:+}), {doubt} in doubt,"
        f" {failed} failed, {left} left; {faults.cuts} cuts, {faults.restarts} restarts,"
        f" {seconds:.0f} s: {'exact' if exact else 'WRONG'}",
        flush=True,
    )
    return exact


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kazoo-runs", type=int, help="as many as --runs, if not given")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--increments", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", nargs=4, metavar=("WAY", "HOSTS", "PATH", "INCREMENTS"))
    options = parser.parse_args()
    if options.worker:
        way, hosts, path, increments = options.worker
        print(json.dumps(WAYS[way](hosts, path, int(increments))))
        return 0
    kazoo_runs = options.runs if options.kazoo_runs is None else options.kazoo_runs
    exact = dict.fromkeys(WAYS, 0)
    with find_installed().ensemble() as ensemble:
        for number in range(max(options.runs, kazoo_runs)):
            for way, runs in (("zkwire", options.runs), ("kazoo", kazoo_runs)):
                if number < runs:
                    exact[way] += run(
                        way, ensemble, options.seed + number, options.processes, options.increments
                    )
    print(
        f"exact: zkwire {exact['zkwire']} of {options.runs}, kazoo {exact['kazoo']} of {kazoo_runs}"
    )
    return 0 if exact["zkwire"] == options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
