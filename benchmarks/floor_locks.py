"""What a fair lock costs at least: its requests on bare sockets, with nothing decided.

A cycle is two round trips: create and list in one write, then delete.  A hand-off is a watch that
fires and one more listing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.jobs import Job, Outcome
from benchmarks.measure import from_marks, outcome
from benchmarks.wire import EPHEMERAL_SEQUENTIAL, Address, Bare, request, watching

PARENT = "/bench/locks"


def specials(address: Address) -> dict[str, Callable[[Job], Outcome]]:
    return {
        "lock": lambda job: free_lock(address, job),
        "handoff": lambda job: hand_off(address, job),
    }


def _created(reply: bytes) -> str:
    """The path in the answer to a create."""
    return reply[20:].decode()


def free_lock(address: Address, job: Job) -> Outcome:
    """Acquire and release, again and again."""
    server = Bare(address)
    enter = request("create", f"{PARENT}/floor-", flags=EPHEMERAL_SEQUENTIAL)
    enter += request("children", PARENT)
    cpu = time.process_time()
    marks = [time.perf_counter()]
    for _ in range(job.count):
        server.socket.sendall(enter)
        path = _created(server.read_frame())
        server.read_frame()
        server.ask(request("delete", path))
        marks.append(time.perf_counter())
    used = time.process_time() - cpu
    server.close()
    return from_marks(marks, used)


def hand_off(address: Address, job: Job) -> Outcome:
    """From before the holder's delete to when the waiter has its event and a new list."""
    holder, waiter = Bare(address), Bare(address)
    create = request("create", f"{PARENT}/floor-", flags=EPHEMERAL_SEQUENTIAL)
    children = request("children", PARENT)
    latencies, used = [], 0.0
    for _ in range(job.count):
        path = _created(holder.ask(create))
        waiter.ask(watching(path))
        delete = request("delete", path)
        cpu, started = time.process_time(), time.perf_counter()
        holder.socket.sendall(delete)
        waiter.read_frame()
        waiter.ask(children)
        latencies.append(time.perf_counter() - started)
        used += time.process_time() - cpu
        holder.read_frame()
    holder.close()
    waiter.close()
    return outcome(job.count, sum(latencies), used, latencies)
