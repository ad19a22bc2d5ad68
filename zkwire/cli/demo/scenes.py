"""The demo's other scenes: what happens to a lock when things go wrong; `writers` is the first."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from contextlib import suppress

from zkwire import BlockingLock, Client, ClientClosedError, SequentialLock
from zkwire.testing.proxy import FaultProxy, faults
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.cli.demo.processes import Processes
    from zkwire.cli.demo.screen import Screen
    from zkwire.testing.proxy.frames import Frame

WAITERS = 8


def lost_create(screen: Screen, hosts: str, root: str) -> None:
    """The connection is cut after the server has created the node and before its answer."""
    screen.heading("2. A connection is lost in the middle of a create")
    screen.say(
        "The server creates the lock's node, but its answer never arrives. If the client simply "
        "created a second node, all clients would wait for the first one for ever: no client "
        "knows that it has it."
    )
    with FaultProxy(hosts) as proxy, Client(proxy.hosts) as client, Client(hosts) as observer:
        lock = SequentialLock(client, f"{root}/cut")
        lock.acquire()
        lock.release()
        session = client.session_id
        proxy.reset()
        proxy.on("create2", nth=1, action=faults.cut_after)
        acquired = lock.acquire(timeout=10.0)
        for frame in proxy.frames():
            if frame.direction == "c2s" and frame.kind != "ping":
                screen.show(f"connection {frame.connection}: {frame.op} {frame.path or ''}")
        asked = [f.op for f in proxy.frames() if f.direction == "c2s"]
        nodes = observer.get_children(f"{root}/cut")
        screen.check(
            "the lock looked for its node (sync, then the list of children) and did not create "
            "another",
            acquired and asked.count("create2") == 1 and "sync" in asked,
        )
        screen.check("there is one node, and the lock is held", len(nodes) == 1 and lock.held)
        screen.check("the session is still the same", client.session_id == session)
        lock.release()


def stopped_holder(screen: Screen, processes: Processes, hosts: str, root: str) -> None:
    """A holder is stopped for longer than its session timeout, then goes on and writes."""
    screen.heading("3. The holder of a lock is stopped for longer than its session lives")
    path = f"{root}/stopped"
    holder = processes.start("holder", hosts, path)
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        old, seconds = map(int, holder.stdout.readline().split())
        screen.say(f"A process holds the lock with the fence {old}. It is stopped (SIGSTOP).")
        os.kill(holder.pid, signal.SIGSTOP)
        screen.say(
            "A second client waits for the lock. The server ends the session of the stopped "
            f"process when it has been silent for {seconds} seconds, or a little later."
        )
        with Client(hosts) as client, SequentialLock(client, path) as lock:
            screen.say(
                "The session has expired. The second client holds the lock, with the fence "
                f"{lock.fence}. The first process goes on (SIGCONT)."
            )
            screen.check("the fence is higher than before", lock.fence > old)
            register = lock.fence
            os.kill(holder.pid, signal.SIGCONT)
            holder.stdin.write("write\n")
            holder.stdin.flush()
            held, fence = holder.stdout.readline().split()
            screen.check(
                "the first process knows at once that its lock is lost: held is False",
                held == "False",
            )
            screen.check(
                f"a store that has seen the fence {register} can refuse its late write with the "
                f"fence {fence}",
                int(fence) < register,
            )
    finally:
        processes.end()


def holder(hosts: str, path: str) -> int:
    """The process of :func:`stopped_holder`."""
    client = Client(hosts, session_timeout=2.0)
    lock = SequentialLock(client, path)
    lock.acquire()
    print(lock.fence, math.ceil(client.session_timeout), flush=True)
    sys.stdin.readline()
    print(lock.held, lock.fence, flush=True)
    client.close()
    return 0


def wake_ups(screen: Screen, hosts: str, root: str) -> None:
    """How many waiters a release wakes."""
    screen.heading("4. How many waiters a release wakes")
    for kind, expected in (
        (BlockingLock, WAITERS * (WAITERS + 1) // 2),
        (SequentialLock, WAITERS),
    ):
        events, order = _count(hosts, f"{root}/{kind.__name__}", kind)
        if kind is BlockingLock:
            screen.check(
                f"BlockingLock: {events} wake-ups for {WAITERS} waiters: a release wakes all of "
                "them (a herd)",
                WAITERS < events <= expected,
            )
        else:
            screen.check(
                f"SequentialLock: {events} wake-ups for {WAITERS} waiters, one for each release, "
                "in order of arrival",
                events == expected and order == sorted(order),
            )


def _count(
    hosts: str, path: str, kind: type[BlockingLock | SequentialLock]
) -> tuple[int, list[int]]:
    """The events that ``WAITERS`` waiters get until all have had the lock, and their order."""
    order: list[int] = []
    with Client(hosts) as first, FaultProxy(hosts) as proxy:
        lock = kind(first, path)
        lock.acquire()
        clients = [Client(proxy.hosts) for _ in range(WAITERS)]
        threads: list[threading.Thread] = []
        try:
            for number, client in enumerate(clients):
                thread = threading.Thread(
                    target=_wait_once, args=(kind(client, path), number, order)
                )
                thread.start()
                threads.append(thread)
                proxy.wait_for(_waiting(number + 1), timeout=10.0)
            lock.release()
            for thread in threads:
                thread.join()
        finally:
            for client in clients:
                client.close()
        return _woken(proxy.frames()), order


def _woken(frames: list[Frame]) -> int:
    """The number of events for waiters, without those that follow a client's own release."""
    released: set[int] = set()
    woken = 0
    for frame in frames:
        if _releases(frame):
            released.add(frame.connection)
        elif frame.kind == "notification" and frame.connection not in released:
            woken += 1
    return woken


def _releases(frame: Frame) -> bool:
    """Whether the frame releases a lock: a delete, or a multi that begins with a delete."""
    begins = frame.direction == "c2s" and frame.body[8:12] == ops.DELETE.opcode.to_bytes(4)
    return frame.op == "delete" or (frame.op == "multi" and begins)


def _wait_once(lock: BlockingLock | SequentialLock, number: int, order: list[int]) -> None:
    with suppress(ClientClosedError), lock:  # if the demo is interrupted, the client is closed
        order.append(number)


def _waiting(count: int) -> Callable[[list[Frame]], bool]:
    """A predicate: ``count`` waiters have set their watch."""

    def enough(frames: list[Frame]) -> bool:
        return sum(f.kind == "reply" and f.op == "get_data" for f in frames) >= count

    return enough
