"""What a fair lock costs at least: its requests on bare sockets, with nothing decided.

A cycle is two round trips: create and list in one write, then delete.  A hand-off is a watch that
fires: as the waiter has seen one node in front of its own, the event alone decides.  A waiter that
has seen several lists once more, which is the listing floor.  The lengths of all answers are known,
so each takes one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.candidate import Partial
from benchmarks.jobs import Job, Outcome
from benchmarks.locks import SETTLE_SECONDS
from benchmarks.measure import from_marks, outcome
from benchmarks.wire import EPHEMERAL_SEQUENTIAL, Address, Bare, request, watching

PARENT = "/bench/locks/floor"
NAME = "floor-"
PATH_BYTES = len(f"{PARENT}/{NAME}") + 10
CREATED = 20 + 4 + PATH_BYTES
LISTED = 20 + 4  # and 4 bytes and the name for each child
DELETED = 20
EVENT = 20 + 12 + PATH_BYTES
ENTER = request("create", f"{PARENT}/{NAME}", flags=EPHEMERAL_SEQUENTIAL)
LIST = request("children", PARENT)


def specials(address: Address) -> dict[str, Callable[[Job], Outcome]]:
    return {
        "lock": lambda job: free_lock(address, job),
        "handoff": lambda job: hand_off(address, job, again=False),
    }


class ListingFloor(Partial):
    """A hand-off with one more listing."""

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        return {"handoff": lambda job: hand_off(self.address, job, again=True)}


def _created(reply: bytes) -> str:
    """The path in the answer to a create."""
    return reply[24:CREATED].decode()


def _connected(address: Address) -> Bare:
    server = Bare(address)
    server.ask(request("create", PARENT))  # refused if it is there
    return server


def free_lock(address: Address, job: Job) -> Outcome:
    """Acquire and release, again and again."""
    server = _connected(address)
    send, receive, enter = server.socket.sendall, server.receive, ENTER + LIST
    entered = CREATED + LISTED + 4 + PATH_BYTES - len(f"{PARENT}/")
    cpu = time.process_time()
    marks = [time.perf_counter()]
    for _ in range(job.count):
        send(enter)
        path = _created(receive(entered))
        send(request("delete", path))
        receive(DELETED)
        marks.append(time.perf_counter())
    used = time.process_time() - cpu
    server.close()
    return from_marks(marks, used)


def hand_off(address: Address, job: Job, *, again: bool) -> Outcome:
    """From before the holder's delete to when the waiter has its event, and perhaps a new list.

    The pause before it is that of the clients' hand-offs: a server at rest wakes up more slowly.
    """
    holder, waiter = _connected(address), Bare(address)
    latencies, used = [], 0.0
    for _ in range(job.count):
        holder.socket.sendall(ENTER)
        path = _created(holder.receive(CREATED))
        waiter.ask(watching(path))
        delete = request("delete", path)
        time.sleep(SETTLE_SECONDS)
        cpu, started = time.process_time(), time.perf_counter()
        holder.socket.sendall(delete)
        waiter.receive(EVENT)
        if again:
            waiter.socket.sendall(LIST)
            waiter.receive(LISTED)
        latencies.append(time.perf_counter() - started)
        used += time.process_time() - cpu
        holder.receive(DELETED)
    holder.close()
    waiter.close()
    return outcome(job.count, sum(latencies), used, latencies)
