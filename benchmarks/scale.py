"""What zkwire costs at ten and a hundred times the size: ``python3 -m benchmarks.scale [--write]``.

Each size of each part is measured in a process of its own, on one real server: CPU time, memory and
descriptors of the client's process, which other work on the machine disturbs little.  ``--quick``
takes a twentieth of each size; ``--write`` writes the table of docs/how-fast.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.pages import ROOT, number, preface, resident, table, write
from benchmarks.servers import real_server, version_of
from benchmarks.wire import Bare, multi, request
from zkwire import AsyncClient, Cache, Client, Queue, SequentialLock, Watch

COMMAND = "benchmarks.scale --write"
PAGE = ROOT / "docs" / "how-fast.md"
SESSION_SECONDS = 30.0
PATIENCE = 120.0
IDLE_SECONDS = 10.0
BUSY_SECONDS = 4.0
TAKEN = 1000
"""Items that are taken out of a queue, whatever its size."""
CLIENTS = 10
"""Clients on which the contenders of a lock are."""
TOGETHER = 1000
STACK_BYTES = 1 << 18

Figures = dict[str, float]


class Clock:
    """CPU time and memory from here on."""

    def __init__(self) -> None:
        self._cpu, self._memory = time.process_time(), resident()

    def cpu(self, count: float, unit: float = 1e6) -> float:
        """Of each of so many, in µs."""
        return unit * (time.process_time() - self._cpu) / count

    def kib(self, count: int) -> float:
        return (resident() - self._memory) / 1024 / count


def warm(hosts: str) -> None:
    """What the first client of a process loads, and each kind of thread, is there before."""
    with Client(hosts) as client:
        client.exists("/")

    async def work() -> None:
        async with AsyncClient(hosts) as other:
            await other.exists("/")

    asyncio.run(work())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def windows(count: int, start: Callable[[int], Any]) -> None:
    """So many requests, of which a thousand are in flight."""
    for begin in range(0, count, TOGETHER):
        replies = [start(number) for number in range(begin, min(count, begin + TOGETHER))]
        for reply in replies:
            reply.result(PATIENCE)


# --- the parts ------------------------------------------------------------------------------------


def clients(hosts: str, count: int) -> Figures:
    """Clients with threads: connected, idle, and asked as fast as goes."""
    with ExitStack() as stack:
        opened, before, clock = descriptors(), threading.active_count(), Clock()
        made = [Client(hosts, session_timeout=SESSION_SECONDS) for _ in range(count)]
        for client in made:
            stack.enter_context(client)
            client.connect(PATIENCE)
        found = {
            "connecting, µs each": clock.cpu(count),
            "KiB each": clock.kib(count),
            "descriptors each": (descriptors() - opened) / count,
            "threads each": (threading.active_count() - before) / count,
        }
        clock = Clock()
        time.sleep(IDLE_SECONDS)
        found["idle, ms in a second"] = clock.cpu(IDLE_SECONDS, 1e3)
        clock, gets, started = Clock(), 0, time.monotonic()
        while time.monotonic() < started + BUSY_SECONDS:
            for reply in [client.pipeline.exists("/") for client in made]:
                reply.result(PATIENCE)
            gets += count
        seconds = time.monotonic() - started
        return {**found, "requests in a second": gets / seconds, "request, µs": clock.cpu(gets)}


def async_clients(hosts: str, count: int) -> Figures:
    """The same with one loop."""

    async def work() -> Figures:
        opened, clock = descriptors(), Clock()
        made = [AsyncClient(hosts, session_timeout=SESSION_SECONDS) for _ in range(count)]
        await asyncio.gather(*(client.connect(PATIENCE) for client in made))
        found = {
            "connecting, µs each": clock.cpu(count),
            "KiB each": clock.kib(count),
            "descriptors each": (descriptors() - opened) / count,
            "threads each": (threading.active_count() - 1) / count,
        }
        clock = Clock()
        await asyncio.sleep(IDLE_SECONDS)
        found["idle, ms in a second"] = clock.cpu(IDLE_SECONDS, 1e3)
        clock, gets, started = Clock(), 0, time.monotonic()
        while time.monotonic() < started + BUSY_SECONDS:
            await asyncio.gather(*(client.exists("/") for client in made))
            gets += count
        seconds = time.monotonic() - started
        found |= {"requests in a second": gets / seconds, "request, µs": clock.cpu(gets)}
        await asyncio.gather(*(client.close() for client in made))
        return found

    return asyncio.run(work())


def cache(hosts: str, count: int) -> Figures:
    """A cache that is filled, then told of changes."""
    parent = f"/cache-{count}"
    with Client(hosts, session_timeout=SESSION_SECONDS) as client:
        windows(1, lambda _: client.pipeline.create(parent))
        tops = [f"{parent}/top-{number:03d}" for number in range(100)]
        windows(len(tops), lambda n: client.pipeline.create(tops[n]))
        paths = [f"{tops[n % 100]}/member-{n:08d}" for n in range(count)]
        windows(count, lambda n: client.pipeline.create(paths[n], b"x" * 20))
        clock = Clock()
        with Cache(client, parent) as filled:
            if not filled.wait_ready(PATIENCE):
                raise TimeoutError("not ready")
            found = {"filling, µs each": clock.cpu(count), "KiB each": clock.kib(count)}
            clock, changed = Clock(), paths[:: max(1, count // TAKEN)][:TAKEN]
            windows(len(changed), lambda n: client.pipeline.set_data(changed[n], b"y"))
            until(lambda: (seen := filled.get(changed[-1])) is not None and seen.data == b"y")
            return found | {"a change, µs": clock.cpu(len(changed))}


def watches(hosts: str, count: int) -> Figures:
    """Watches on absent nodes, which all fire."""
    parent = f"/watches-{count}"
    paths = [f"{parent}/t{number:06d}" for number in range(count)]
    host, _, port = hosts.partition(":")
    bare = Bare((host, int(port)))
    bare.ask(request("create", parent))
    frames = [multi("create", paths[n : n + TOGETHER]) for n in range(0, count, TOGETHER)]
    with Client(hosts, session_timeout=SESSION_SECONDS) as client:
        clock, made = Clock(), [Watch() for _ in paths]
        windows(count, lambda n: client.pipeline.exists(paths[n], watch=made[n]))
        found = {"setting, µs each": clock.cpu(count), "KiB each": clock.kib(count)}
        clock = Clock()
        for frame in frames:
            bare.ask(frame)
        for watch in made:
            if watch.wait(PATIENCE) is None:
                raise TimeoutError("an event has not come")
        found["an event, µs"] = clock.cpu(count)
    bare.close()
    return found


def queue(hosts: str, count: int) -> Figures:
    """Items put together; some taken while the rest stays."""
    with Client(hosts, session_timeout=SESSION_SECONDS) as client:
        items = Queue(client, f"/queue-{count}")
        clock = Clock()
        for begin in range(0, count, TOGETHER):
            items.put_many([b"item"] * min(TOGETHER, count - begin))
        found = {"putting, µs each": clock.cpu(count)}
        clock = Clock()
        items.get(PATIENCE)
        found["the first item, ms"] = clock.cpu(1, 1e3)
        clock, taken = Clock(), min(TAKEN, count - 1)
        for _ in range(taken):
            items.get(PATIENCE)
        return found | {"an item, µs": clock.cpu(taken)}


def lock(hosts: str, count: int) -> Figures:
    """Contenders that all stand in the queue, and then hand the lock on."""
    path = f"/lock-{count}"
    threading.stack_size(STACK_BYTES)
    with ExitStack() as stack:
        made = [
            stack.enter_context(Client(hosts, session_timeout=SESSION_SECONDS))
            for _ in range(CLIENTS)
        ]
        gate = SequentialLock(made[0], path)
        gate.acquire()
        locks = [SequentialLock(made[n % CLIENTS], path) for n in range(count)]
        threads = [threading.Thread(target=_once, args=(each,)) for each in locks]
        clock = Clock()
        for thread in threads:
            thread.start()
        until(lambda: (stat := made[0].exists(path)) is not None and stat.num_children > count)
        found = {"queueing, µs each": clock.cpu(count), "KiB each": clock.kib(count)}
        clock, started = Clock(), time.monotonic()
        gate.release()
        for thread in threads:
            thread.join()
        wall = 1e6 * (time.monotonic() - started) / count
        return {**found, "a hand-off, µs": clock.cpu(count), "by the clock, µs": wall}


def _once(lock: SequentialLock) -> None:
    lock.acquire()
    lock.release()


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError("not reached")
        time.sleep(0.05)


Part = tuple[Callable[[str, int], Figures], tuple[int, ...]]
PARTS: dict[str, Part] = {
    "clients with threads": (clients, (10, 100, 1000)),
    "clients for asyncio": (async_clients, (10, 100, 1000)),
    "nodes in a cache": (cache, (1000, 10_000, 100_000)),
    "watches": (watches, (1000, 10_000, 100_000)),
    "items in a queue": (queue, (400, 4000, 40_000)),
    "contenders for a lock": (lock, (30, 300, 3000)),
}

# --- the parent -----------------------------------------------------------------------------------


def figures(part: str, hosts: str, size: int) -> Figures:
    """Those of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--part", part, "--size", f"{size}"]
    done = subprocess.run(
        [*command, "--hosts", hosts], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{part}: {done.stderr[-2000:]}")
    found: Figures = json.loads(done.stdout)
    return found


def rows(part: str, hosts: str, sizes: Sequence[int]) -> list[list[str]]:
    """A row for each figure, a column for each size, and how much the last is above the first."""
    seen = [figures(part, hosts, size) for size in sizes]
    lines = [[f"**{part}**", *(f"**{size:,}**" for size in sizes), ""]]
    for name, first in seen[0].items():
        growth = f"{seen[-1][name] / first:.2g}" if first > 0 else ""
        lines.append([name, *(number(each[name]) for each in seen), growth])
    for line in lines:
        print(" | ".join(line), flush=True)
    return lines


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
    if asked.part:
        warm(asked.hosts)
        print(json.dumps(PARTS[asked.part][0](asked.hosts, asked.size)))
        return
    lines: list[list[str]] = []
    with real_server() as address:
        for part in asked.only or PARTS:
            sizes = [size // 20 or 1 if asked.quick else size for size in PARTS[part][1]]
            lines += rows(part, f"{address[0]}:{address[1]}", sizes)
        about = preface(version_of(address), "CPU time, and memory that is resident.")
    text = f"{about}\n\n{table(['', 'small', 'middle', 'large', 'large / small'], lines)}"
    if asked.write:
        write(COMMAND, text, PAGE)


if __name__ == "__main__":
    main()
