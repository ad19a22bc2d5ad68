"""Members of a partitioner that are killed and join: ``python3 -m tests.interop.partitioner``.

Each member is a process of its own, with a supervisor.  It says when it begins and when it stops
work on an item, and the fence of that; of one that is killed the work ends with the process.  What
must hold: no moment at which an item had two owners, in the order of fences; all items owned again,
evenly, within two session timeouts of each kill and each join; every process that may still say so
has left nothing on the server.
"""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, pairwise
from random import Random
from statistics import mean
from typing import NamedTuple

from tests.interop.trial import Crew, Worker, main, say
from tests.support.real_servers import find_backend
from zkwire import Client, NoNodeError, Partitioner, Supervisor

PATH = "/shared-out"
TIMEOUT = 6.0
PATIENCE = 60.0
POLL = 0.01


def items(number: int) -> list[str]:
    return [f"item-{n}" for n in range(number)]


def work(hosts: str, name: str, number: str) -> None:
    """Be a member until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    working: dict[str, int] = {}

    def stop(gone: list[str]) -> None:
        now = time.monotonic()
        for item in gone:
            say("stop", item, working.pop(item), now)

    with (
        Supervisor(hosts, session_timeout=TIMEOUT) as supervisor,
        Partitioner(supervisor, PATH, items(int(number)), name=name) as partitioner,
    ):
        try:
            for share in partitioner:
                for item in share.keys() - working.keys():
                    working[item] = share[item]
                    say("begin", item, share[item], time.monotonic())
                share.wait()
                stop([item for item in working if item in share.leaving])
        finally:
            stop(list(working))


class Work(NamedTuple):
    """An item in a member's hands; ``to`` is infinite as long as it is."""

    item: str
    fence: int
    owner: int
    since: float
    to: float


def work_of(member: Worker, number: int) -> list[Work]:
    """What a member has said; what it works on ends at the latest with its process."""
    done: dict[tuple[str, str], Work] = {}
    end = member.killed or float("inf")
    for said, item, fence, moment in list(member.lines):
        if said == "begin":
            done[item, fence] = Work(item, int(fence), number, float(moment), end)
        else:
            done[item, fence] = done[item, fence]._replace(to=float(moment))
    return list(done.values())


def owned(members: list[Worker]) -> list[list[str]]:
    return [
        [work.item for work in work_of(member, 0) if work.to == float("inf")] for member in members
    ]


def overlaps(work: list[Work]) -> Iterator[str]:
    """Each item that was in the hands of a member before those of the one before let go of it."""
    by_fence = sorted(work, key=lambda one: (one.item, one.fence))
    for before, one in pairwise(by_fence):
        if before.item == one.item and (one.since < before.to or one.fence == before.fence):
            yield f"two owners at a moment: {before} and {one}"


def until_even(crew: Crew, number: int, since: float) -> float:
    """Seconds until each item has one owner, and no member more than one item above another."""
    while True:
        now = owned(crew.now)
        sizes = [len(mine) for mine in now]
        whole = sorted(item for mine in now for item in mine) == sorted(items(number))
        if whole and max(sizes) - min(sizes) <= 1:
            return time.monotonic() - since
        if time.monotonic() > since + PATIENCE:
            raise TimeoutError(now)
        time.sleep(POLL)


def joined(crew: Crew, number: int) -> float:
    """One more joins; seconds until all is even again, from the first item that moves."""
    before = owned(crew.now)
    crew.add()
    while owned(crew.now) == [*before, []]:
        time.sleep(POLL)
    return until_even(crew, number, time.monotonic())


def left_on(hosts: str, number: int) -> int:
    """How many nodes are left when all members have left."""
    left = 0
    with Client(hosts) as client:
        for above in ("members", *(f"items/{item}" for item in items(number))):
            with suppress(NoNodeError):
                left += len(client.get_children(f"{PATH}/{above}"))
    return left


def run(options: Namespace, rng: Random) -> list[str]:
    """Kill and join so many times."""
    began, names = time.monotonic(), count()
    kills, joins = list[float](), list[float]()
    with find_backend().standalone() as server:
        make = lambda: Worker(server.hosts, f"member-{next(names)}", options.items)  # noqa: E731
        with Crew(options.members, make) as crew:
            until_even(crew, options.items, began)
            for number in range(options.rounds):
                one = rng.choice(crew.now)
                crew.now.remove(one)
                one.kill()
                kills.append(until_even(crew, options.items, one.killed))
                joins.append(joined(crew, options.items))
                print(f"{number + 1}: {kills[-1]:.2f} s, {joins[-1]:.2f} s", flush=True)
            for member in crew.now:
                member.process.terminate()
            crew.end()
        left = left_on(server.hosts, options.items)
    pieces = [piece for n, one in enumerate(crew.all) for piece in work_of(one, n)]
    wrong = list(overlaps(pieces))
    wrong += [f"{left} nodes are left"] * bool(left)
    wrong += [f"not even for {s:.2f} s" for s in kills + joins if s > 2 * TIMEOUT]
    print(
        f"{options.items} items, {options.members} members, {options.rounds} killed and as many "
        f"joined: {len(pieces)} tenures, all owned again within {max(kills):.2f} s of a kill "
        f"({mean(kills):.2f} s on average) and {max(joins):.2f} s of a join; two session timeouts "
        f"are {2 * TIMEOUT:.0f} s; {left} nodes left; {time.monotonic() - began:.0f} s"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main(run, work, rounds=50, items=50, members=5))
