"""What happens to a lock when things go wrong, one scene each; see ``writers`` for the first."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from contextlib import suppress

from zkwire import BlockingLock, Client, ClientClosedError, SequentialLock
from zkwire.testing.proxy import faults
from zkwire.testing.proxy.proxy import FaultProxy
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.cli.processes import Processes
    from zkwire.cli.screen import Screen
    from zkwire.testing.proxy.frames import Frame

WAITERS = 8


def lost_create(screen: Screen, hosts: str, root: str) -> None:
    """The connection is cut after the server has made the node and before it could say so."""
    screen.heading("2. A connection is lost in the middle of a create")
    screen.say(
        "The server makes the lock's node, and the answer never arrives. A blind second try would "
        "leave a node that nobody knows of and everybody waits for."
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
        screen.claim("the lock looked for its node (sync, then the list of children) and "
                     "did not create another", acquired and asked.count("create2") == 1
                     and "sync" in asked)  # fmt: skip
        screen.claim("there is one node, and it is held", len(nodes) == 1 and lock.held)
        screen.claim("the session is still the same one", client.session_id == session)
        lock.release()


def stopped_holder(screen: Screen, processes: Processes, hosts: str, root: str) -> None:
    """A holder that is stopped past its session timeout wakes up and wants to write."""
    screen.heading("3. A holder is stopped for longer than its session lives")
    path = f"{root}/stopped"
    holder = processes.start("holder", hosts, path)
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        old, seconds = map(int, holder.stdout.readline().split())
        screen.say(f"A process holds the lock with the fence {old}. It is stopped (SIGSTOP).")
        os.kill(holder.pid, signal.SIGSTOP)
        screen.say(
            "Another wants the lock, and waits: the server ends a session that it has not heard "
            f"of for {seconds} seconds, or a little later."
        )
        with Client(hosts) as client, SequentialLock(client, path) as lock:
            screen.say(
                f"Its session has expired; another has the lock, with the fence {lock.fence}."
            )
            screen.claim("the fence has risen", lock.fence > old)
            register = lock.fence
            os.kill(holder.pid, signal.SIGCONT)
            holder.stdin.write("write\n")
            holder.stdin.flush()
            held, fence = holder.stdout.readline().split()
            screen.claim("the first, awake again, knows at once: held is False", held == "False")
            screen.claim(
                f"its late write with the fence {fence} is refused by what was written with "
                f"{register}",
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
    screen.heading("4. Who is woken by a release")
    for kind, expected in (
        (BlockingLock, WAITERS * (WAITERS + 1) // 2),
        (SequentialLock, WAITERS),
    ):
        events, order = _count(hosts, f"{root}/{kind.__name__}", kind)
        if kind is BlockingLock:
            text = f"BlockingLock: {events} wake-ups for {WAITERS} waiters: the herd"
            screen.claim(text, WAITERS < events <= expected)
        else:
            screen.claim(
                f"SequentialLock: {events} wake-ups for {WAITERS} waiters, one per release, in "
                "order of arrival",
                events == expected and order == sorted(order),
            )


def _count(
    hosts: str, path: str, kind: type[BlockingLock | SequentialLock]
) -> tuple[int, list[int]]:
    """Notifications that ``WAITERS`` waiters get until all have had the lock, and their order."""
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
    """Notifications to waiters: who has released is told of its own node's end, maybe."""
    released: set[int] = set()
    woken = 0
    for frame in frames:
        if _releases(frame):
            released.add(frame.connection)
        elif frame.kind == "notification" and frame.connection not in released:
            woken += 1
    return woken


def _releases(frame: Frame) -> bool:
    """A lock of one node is released by a multi that begins with a delete."""
    begins = frame.direction == "c2s" and frame.body[8:12] == ops.DELETE.opcode.to_bytes(4)
    return frame.op == "delete" or (frame.op == "multi" and begins)


def _wait_once(lock: BlockingLock | SequentialLock, number: int, order: list[int]) -> None:
    with suppress(ClientClosedError), lock:  # closed: the demo was interrupted
        order.append(number)


def _waiting(count: int) -> Callable[[list[Frame]], bool]:
    """Whether so many waiters have set their watch."""

    def enough(frames: list[Frame]) -> bool:
        return sum(f.kind == "reply" and f.op == "get_data" for f in frames) >= count

    return enough
