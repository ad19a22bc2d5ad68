"""Members of a partitioner that are killed and join: ``python3 -m tests.interop.partitioner``.

Each member is a process of its own, with a supervisor.  It writes down when it begins and when it
stops work on an item, and the fence of that; of one that is killed the work ends with the process.
Printed is what must hold: no moment at which an item had two owners, in the order of fences; all
items owned again, evenly, within two session timeouts of each kill and each join; every process
that may still say so has left nothing on the server.  Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import NamedTuple

from tests.support.real_servers import find_backend
from zkwire import Client, NoNodeError, Partitioner, Supervisor

PATH = "/shared-out"
TIMEOUT = 6.0
PATIENCE = 60.0
POLL = 0.01


def items(number: int) -> list[str]:
    return [f"item-{n}" for n in range(number)]


# --- a member -------------------------------------------------------------------------------------


def member(hosts: str, name: str, number: int) -> None:
    """Work until SIGTERM, and say so on the standard output."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    working: dict[str, int] = {}

    def stop(gone: list[str]) -> None:
        now = time.monotonic()
        for item in gone:
            print("stop", item, working.pop(item), now, flush=True)

    with (
        Supervisor(hosts, session_timeout=TIMEOUT) as supervisor,
        Partitioner(supervisor, PATH, items(number), name=name) as partitioner,
    ):
        try:
            for share in partitioner:
                for item in share.keys() - working.keys():
                    working[item] = share[item]
                    print("begin", item, share[item], time.monotonic(), flush=True)
                share.wait()
                stop([item for item in working if item in share.leaving])
        finally:
            stop(list(working))


class Work(NamedTuple):
    """An item in a member's hands; ``to`` is infinite as long as it is."""

    item: str
    fence: int
    owner: str
    since: float
    to: float


class Process:
    """A member in a process of its own; ``work`` is what it has said."""

    def __init__(self, hosts: str, name: str, number: int) -> None:
        self.name = name
        self.work: dict[tuple[str, int], Work] = {}
        module = [sys.executable, "-m", "tests.interop.partitioner"]
        options = ["--member", name, "--hosts", hosts, "--items", str(number)]
        self.process = subprocess.Popen([*module, *options], stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, name=f"test-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):  # it was killed in the middle of a line
                said, item, fence, moment = line.split()
                key = item, int(fence)
                since = float(moment) if said == "begin" else self.work[key].since
                to = float("inf") if said == "begin" else float(moment)
                self.work[key] = Work(item, key[1], self.name, since, to)

    @property
    def owned(self) -> list[str]:
        return [work.item for work in tuple(self.work.values()) if work.to == float("inf")]

    def end(self, how: signal.Signals) -> None:
        """Have it end; what it works on ends at the latest then."""
        self.process.send_signal(how)
        self.process.wait(PATIENCE)
        now = time.monotonic()
        self._reader.join(PATIENCE)
        for key, work in self.work.items():
            self.work[key] = work._replace(to=min(work.to, now))


# --- the audit ------------------------------------------------------------------------------------


def overlaps(work: list[Work]) -> Iterator[str]:
    """Each item that was in the hands of a member before those of the one before let go of it."""
    by_fence = sorted(work, key=lambda one: (one.item, one.fence))
    for before, one in pairwise(by_fence):
        if before.item == one.item and (one.since < before.to or one.fence == before.fence):
            yield f"{before} and {one}"


def even(members: list[Process], number: int) -> bool:
    """Whether each item has one owner, and no member more than one item above another."""
    owned = [one.owned for one in members]
    sizes = [len(mine) for mine in owned]
    whole = sorted(item for mine in owned for item in mine) == sorted(items(number))
    return whole and max(sizes) - min(sizes) <= 1


class Trial:
    """Members, and what was measured of them."""

    def __init__(self, hosts: str, number: int) -> None:
        self.hosts, self.number = hosts, number
        self.members: list[Process] = []
        self.all: list[Process] = []

    def join(self) -> None:
        self.members.append(Process(self.hosts, f"member-{len(self.all)}", self.number))
        self.all.append(self.members[-1])

    def until_even(self, since: float) -> float:
        """How many seconds it has taken until all items were owned again."""
        while not even(self.members, self.number):
            if time.monotonic() > since + PATIENCE:
                raise TimeoutError({one.name: one.owned for one in self.members})
            time.sleep(POLL)
        return time.monotonic() - since

    def owned(self) -> set[tuple[str, str]]:
        return {(one.name, item) for one in self.members for item in one.owned}

    def joined(self) -> float:
        """A member joins; the time begins with the first item that moves."""
        before = self.owned()
        self.join()
        while self.owned() == before:
            time.sleep(POLL)
        return self.until_even(time.monotonic())

    def killed(self, one: Process) -> float:
        """A member is killed."""
        self.members.remove(one)
        since = time.monotonic()
        one.end(signal.SIGKILL)
        return self.until_even(since)

    def left(self) -> int:
        """How many nodes are left on the server when all members have left."""
        for one in self.members:
            one.end(signal.SIGTERM)
        with Client(self.hosts) as client:
            left = 0
            for above in ("members", *(f"items/{item}" for item in items(self.number))):
                with suppress(NoNodeError):
                    left += len(client.get_children(f"{PATH}/{above}"))
            client.delete_tree(PATH)
        return left


def judge(trial: Trial, rng: Random, rounds: int, members: int) -> bool:
    """Kill and join so many times; whether everything was right."""
    began = time.monotonic()
    for _ in range(members):
        trial.join()
    trial.until_even(began + PATIENCE)
    kills, joins = list[float](), list[float]()
    try:
        for number in range(rounds):
            kills.append(trial.killed(rng.choice(trial.members)))
            joins.append(trial.joined())
            print(f"{number + 1}: {kills[-1]:.2f} s, {joins[-1]:.2f} s", flush=True)
        left = trial.left()
    finally:
        for one in trial.members:
            one.process.kill()
            one.process.wait()
    work = [piece for one in trial.all for piece in one.work.values()]
    double = list(overlaps(work))
    print(*double, sep="\n")
    right = not (double or left) and max(kills + joins) <= 2 * TIMEOUT
    print(
        f"{'right' if right else 'WRONG'}: {trial.number} items, {members} members, {rounds} "
        f"killed and as many joined: {len(work)} tenures, {len(double)} with two owners at a "
        f"moment, all owned again within {max(kills):.2f} s of a kill ({sum(kills) / rounds:.2f} s "
        f"on average) and {max(joins):.2f} s of a join; two session timeouts are "
        f"{2 * TIMEOUT:.0f} s; {left} nodes left; {time.monotonic() - began:.0f} s"
    )
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--hosts", help="for a member: where the server is")
    parser.add_argument("--member", help="be a member of this name")
    options = parser.parse_args()
    if options.member:
        member(options.hosts, options.member, options.items)
        return 0
    print(f"seed {options.seed}", flush=True)
    rng = Random(options.seed)
    with find_backend().standalone() as server:
        trial = Trial(server.hosts, options.items)
        return 0 if judge(trial, rng, options.rounds, options.members) else 1


if __name__ == "__main__":
    sys.exit(main())
