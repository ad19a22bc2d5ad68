"""Run the atlas; compare it with what is written, or write it.

Many trials run at a time: those of one client share a process of its, unless they end it.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress

from tests.interop.atlas import document
from tests.interop.atlas.cells import NOTHING, Point, Seen, cell
from tests.interop.atlas.clients import CLIENTS, Client
from tests.interop.atlas.document import SITUATIONS
from tests.interop.atlas.driver import LOGS, Driver
from tests.interop.atlas.stage import Stage, run
from tests.interop.other_clients.clients import FOLDER, NoClientError
from tests.support.installed_servers import InstalledBackend, every_release
from tests.support.server_control import Settings

SIDE_BY_SIDE = 40
"""So many trials at a time; most wait."""
TRIES = 3
"""Of a trial that is spoilt by the observer, or by the end of a process that others share."""


class Processes:
    """The shared process of each client, started anew when a trial has ended it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._drivers: dict[str, Driver] = {}

    def of(self, client: Client) -> Driver:
        with self._mutex:
            driver = self._drivers.get(client.name)
            if driver is None or driver.ended_at is not None:
                driver = self._drivers[client.name] = client.drive(LOGS)
            return driver

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.kill()


def once(stage: Stage, processes: Processes, client: Client, point: Point) -> Seen:
    """One trial, made again where it could not be made."""
    for number in range(1, TRIES + 1):
        try:
            if not point.alone and number < TRIES:
                return run(point.trial, stage, client, processes.of(client), shared=True)
            with client.drive(LOGS) as driver:
                seen = run(point.trial, stage, client, driver, shared=False)
                if driver.ended_at is not None and not point.alone:
                    return Seen(NOTHING, "the process ends")
                return seen
        except Exception as error:
            print(f"{client.name} {point.key}, try {number}: {error!r}", file=sys.stderr)
    raise RuntimeError(f"{client.name} {point.key}: no try has come to its end")


def everything(clients: Sequence[Client], points: Sequence[Point], stage: Stage) -> document.Cells:
    """The cells, by point and client."""
    work = [(c, p) for p in points for c in clients for _ in range(p.times)]
    random.Random(1).shuffle(work)
    found: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    processes, started, told = Processes(), time.monotonic(), 0.0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures = {pool.submit(once, stage, processes, c, p): (p.key, c.name) for c, p in work}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                with suppress(RuntimeError):  # it is printed
                    found[futures[future]].append(future.result())
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    print(f"{done} of {len(work)} trials, {told - started:.0f} s", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.close()
    cells: document.Cells = {point.key: {} for point in points}
    for (key, name), all_seen in found.items():
        cells[key][name] = cell(all_seen)
    return cells


def ready(clients: Sequence[Client]) -> list[Client]:
    """Those that can be had here; says why the others cannot."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    good = []
    for client in clients:
        try:
            client.drive(LOGS).kill()
            good.append(client)
        except (NoClientError, RuntimeError) as error:
            print(f"{client.name} cannot be had here, and stays as recorded: {error}")
    return good


def play(clients: Sequence[Client], points: Sequence[Point]) -> document.Cells:
    """Start the servers, and run all trials of these clients at these points."""
    backend = InstalledBackend("java", every_release()["3.8.0"])
    with ExitStack() as stack:
        server, empty = (stack.enter_context(backend.standalone(Settings())) for _ in range(2))
        ensemble = stack.enter_context(backend.ensemble(Settings()))
        flags = ("-Dreadonlymode.enabled=true",)
        left = stack.enter_context(backend.ensemble(Settings(java_flags=flags)))
        stage = Stage(server, ensemble, left.leave_read_only(), empty)
        stack.callback(stage.observer.close)
        return everything(clients, points, stage)


def main() -> int:
    """The exit status: 1 if more than two cells of a hundred say something else."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.interop.atlas")
    parser.add_argument("clients", nargs="*", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--write", action="store_true", help="put what is found into the page")
    parser.add_argument("--only", default="", help="points by the begin of a key, with commas")
    options = parser.parse_args()
    if unknown := set(options.clients) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    logging.disable()
    begun = tuple(options.only.split(","))
    points = [p for s in SITUATIONS for p in s.points if p.key.startswith(begun)]
    chosen = [c for c in CLIENTS if not options.clients or c.name in options.clients]
    started = time.monotonic()
    cells = play(ready(chosen), points)
    print(f"{sum(map(len, cells.values()))} cells in {time.monotonic() - started:.0f} s")
    return document.settle(cells, writing=options.write)


if __name__ == "__main__":
    sys.exit(main())
