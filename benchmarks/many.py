"""Many clients in one process: ``python3 -m benchmarks.many [--clients N] [--update-readme]``.

Each kind of client is measured in a process of its own, on one real server: how long it takes until
all are connected, what each adds to the memory, the threads, and the CPU time of a second in which
nothing happens but pings.  Besides: what a get costs a program with threads whose clients share one
thread for input and output, which is the price of that thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from benchmarks.figures import this_machine, write_between
from benchmarks.measure import resident
from benchmarks.processes import ROOT
from benchmarks.servers import real_server, set_up, version_of
from zkwire import AsyncClient, Client

BEGIN = "<!-- written by `python3 -m benchmarks.many --update-readme` -->\n"
END = "<!-- end of the many clients -->\n"
SESSION_SECONDS = 10.0
CONNECT_SECONDS = 120.0
IDLE_SECONDS = 10.0
GETS = 2000
PATH = "/bench/d100/00"
FILES_EACH = 10
"""At most so many open files has a client: a socket and what wakes its threads."""

Figures = dict[str, float]


class Measured:
    """What many clients cost: from here to when they are there, and a while in which they ping."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = resident()
        self._started, self._cpu = time.perf_counter(), time.process_time()

    def connected(self) -> Figures:
        """All of them are."""
        cpu = time.process_time() - self._cpu
        return {
            "start_seconds": time.perf_counter() - self._started,
            "start_cpu": cpu,
            "kib": (resident() - self._memory) / self._count / 1024,
            "threads": threading.active_count(),
        }

    def idle(self, wait: Callable[[], object]) -> Figures:
        """Milliseconds of CPU time in a second, for all."""
        cpu, started = time.process_time(), time.perf_counter()
        wait()
        seconds = time.perf_counter() - started
        return {"idle_ms": 1000 * (time.process_time() - cpu) / seconds}


def _gets(get: Callable[[], object]) -> Figures:
    """A get, one at a time."""
    for _ in range(GETS // 10):
        get()
    cpu, started = time.process_time(), time.perf_counter()
    for _ in range(GETS):
        get()
    each = 1e6 / GETS
    return {
        "get_cpu": each * (time.process_time() - cpu),
        "get_wall": each * (time.perf_counter() - started),
    }


# --- the kinds ------------------------------------------------------------------------------------


def threads(hosts: str, count: int) -> Figures:
    """`Client`: two threads each."""
    with ExitStack() as stack:
        measured = Measured(count)
        clients = [
            stack.enter_context(Client(hosts, session_timeout=SESSION_SECONDS))
            for _ in range(count)
        ]
        for client in clients:
            client.connect(CONNECT_SECONDS)
        found = measured.connected() | measured.idle(lambda: time.sleep(IDLE_SECONDS))
        return found | _gets(lambda: clients[0].get_data(PATH))


def one_loop(hosts: str, count: int) -> Figures:
    """`AsyncClient`: one loop for all, in the only thread."""

    async def work() -> Figures:
        measured = Measured(count)
        clients = [AsyncClient(hosts, session_timeout=SESSION_SECONDS) for _ in range(count)]
        await asyncio.gather(*(client.connect(CONNECT_SECONDS) for client in clients))
        found = measured.connected()
        cpu, started = time.process_time(), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        seconds = time.perf_counter() - started
        found["idle_ms"] = 1000 * (time.process_time() - cpu) / seconds
        cpu, started = time.process_time(), time.perf_counter()
        for _ in range(GETS):
            await clients[0].get_data(PATH)
        found["get_cpu"] = 1e6 * (time.process_time() - cpu) / GETS
        found["get_wall"] = 1e6 * (time.perf_counter() - started) / GETS
        await asyncio.gather(*(client.close() for client in clients))
        return found

    return asyncio.run(work())


def shared_loop(hosts: str, count: int) -> Figures:
    """One thread with a loop for all, called from another thread: a trial of a shared thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(CONNECT_SECONDS)

    async def together(works: list[Any]) -> None:
        await asyncio.gather(*works)

    async def get() -> object:
        return await clients[0].get_data(PATH)

    try:
        measured = Measured(count)
        clients = [AsyncClient(hosts, session_timeout=SESSION_SECONDS) for _ in range(count)]
        call(together([client.connect(CONNECT_SECONDS) for client in clients]))
        found = measured.connected() | measured.idle(lambda: time.sleep(IDLE_SECONDS))
        found |= _gets(lambda: call(get()))
        call(together([client.close() for client in clients]))
        return found
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def kazoo(hosts: str, count: int) -> Figures:
    """kazoo's client: two threads each."""
    from kazoo.client import KazooClient

    measured = Measured(count)
    clients = [KazooClient(hosts, timeout=SESSION_SECONDS) for _ in range(count)]
    try:
        for client in clients:
            client.start(CONNECT_SECONDS)
        found = measured.connected() | measured.idle(lambda: time.sleep(IDLE_SECONDS))
        return found | _gets(lambda: clients[0].get(PATH))
    finally:
        for client in clients:
            client.stop()
            client.close()


KINDS: dict[str, Callable[[str, int], Figures]] = {
    "`Client`, threads": threads,
    "`AsyncClient`, one loop": one_loop,
    "one loop in a thread of its own, called from another": shared_loop,
    "kazoo": kazoo,
}

# --- the parent -----------------------------------------------------------------------------------


def figures(kind: str, hosts: str, count: int) -> Figures:
    """Those of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.many", "--kind", kind, "--hosts", hosts]
    done = subprocess.run(
        [*command, "--clients", str(count)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{kind}: {done.stderr[-2000:]}")
    found: Figures = json.loads(done.stdout)
    return found


def table(count: int) -> str:
    """One row for each kind."""
    with real_server() as address:
        set_up(address, [100], [])
        hosts, version = f"{address[0]}:{address[1]}", version_of(address)
        rows = {kind: figures(kind, hosts, count) for kind in KINDS}
    machine = "; ".join(f"{what} {value}" for what, value in this_machine().items())
    lines = [
        f"{machine}; ZooKeeper {version}.",
        f"{count:,} clients, session timeout {SESSION_SECONDS:g} s.",
        "",
        "| clients | connected after s | CPU s | KiB each | threads | idle, CPU ms in a second "
        "| get, CPU µs | wall µs |",
        "| --- |" + " ---: |" * 7,
    ]
    for kind, found in rows.items():
        cells = [f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in found.values()]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--update-readme", action="store_true")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, FILES_EACH * asked.clients + 1000), most))
    if asked.kind:
        print(json.dumps(KINDS[asked.kind](asked.hosts, asked.clients)))
        return
    text = table(asked.clients)
    print(text)
    if asked.update_readme:
        write_between(BEGIN, END, text)


if __name__ == "__main__":
    main()
