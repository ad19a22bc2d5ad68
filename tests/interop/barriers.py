"""Processes that enter and leave a double barrier, while some are killed and some give up.

    python3 -m tests.interop.barriers                500 rounds of 16 members
    python3 -m tests.interop.barriers --rounds 20

Each process tells when it calls and when it is answered. Wrong is: a member that enters before all
of its round have come, one that has left before all of its round have, a round with too few, a
member that waits although all others have moved on, and a node that stays.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from tests.support.installed_servers import find_installed
from zkwire import Client, DoubleBarrier, ZooKeeperError

ROOT = Path(__file__).resolve().parents[2]
PATH = "/together"
SESSION_SECONDS = 3.0
KILL_SECONDS = (2.0, 6.0)  # between two kills
STUCK_SECONDS = 60.0  # without a round
GIVE_UP = 0.01  # of all calls have a limit that is too short


def work(hosts: str, count: int, seed: int) -> None:
    """Enter and leave until the parent says stop; a line for each call that was answered."""
    rng = random.Random(seed)
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    while not stop.is_set():
        try:
            with Client(hosts, session_timeout=SESSION_SECONDS) as client:
                member = DoubleBarrier(client, PATH, count)
                while not stop.is_set():
                    take_part(member, rng)
        except ZooKeeperError as error:
            print("error", type(error).__name__, time.monotonic(), flush=True)


def take_part(member: DoubleBarrier, rng: random.Random) -> None:
    """One round, perhaps with a time limit that is too short."""
    limit = rng.uniform(0.0, 0.3) if rng.random() < GIVE_UP else None
    called = time.monotonic()
    entered = member.enter(10.0 if limit is None else limit)
    if not entered:
        print("refused", 0, called, time.monotonic(), flush=True)
        return
    round = member._algorithm._round
    print("in", round, called, time.monotonic(), flush=True)
    called = time.monotonic()
    limit = rng.uniform(0.0, 0.3) if rng.random() < GIVE_UP else None
    left = member.leave(limit)
    print("out" if left else "impatient", round, called, time.monotonic(), flush=True)


class Worker:
    """One process, and what it has told."""

    def __init__(self, hosts: str, count: int, seed: int) -> None:
        command = [sys.executable, "-m", "tests.interop.barriers", "--worker", hosts]
        self.process = subprocess.Popen(
            [*command, str(count), str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[list[str]] = []
        self.killed = 0.0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.split())  # the last one of a killed process may be cut short

    def kill(self) -> None:
        self.killed = time.monotonic()
        self.process.kill()
        self.process.wait()


def end_all(workers: list[Worker]) -> None:
    """Whatever they do."""
    for worker in workers:
        worker.process.kill()


Told = dict[int, dict[str, list[tuple[float, float]]]]


def told_by(workers: list[Worker]) -> Told:
    """The calls of each round, by how they ended: when each began and ended."""
    told: Told = defaultdict(lambda: defaultdict(list))
    for worker in workers:
        for words in list(worker.lines):
            if len(words) == 4:
                kind, round, begun, ended = words
                told[int(round)][kind].append((float(begun), float(ended)))
    return told


def wrong_in(told: Told, workers: list[Worker], count: int) -> list[str]:
    """What is wrong with the rounds."""
    wrong: list[str] = []
    ends = [end for _, end in told[0]["refused"]] + [w.killed for w in workers if w.killed]
    for round, ended in told.items():
        entered, left = ended["in"], ended["out"]
        if not round or not entered:
            continue
        if min(end for _, end in entered) < max(begin for begin, _ in entered):
            wrong.append(f"{round}: entered before all had come")
        leaving = [begin for begin, _ in [*left, *ended["impatient"]]]
        if left and min(end for _, end in left) < max(leaving):
            wrong.append(f"{round}: left before all had called")
        first = min(begin for begin, _ in entered) - SESSION_SECONDS
        last = max(end for _, end in entered) + 1.0
        gone = sum(first < end < last for end in ends)
        if len(entered) + gone < count:
            wrong.append(f"{round}: {len(entered)} entered, {gone} had gone")
    return wrong


def run(rounds: int, count: int, seed: int) -> int:
    """So many rounds; the number of things that were wrong."""
    rng = random.Random(seed)
    with find_installed().standalone() as server, ExitStack() as stack:
        workers = [Worker(server.hosts, count, rng.getrandbits(32)) for _ in range(count)]
        all_workers = list(workers)
        stack.callback(end_all, workers)
        begun = moved = time.monotonic()
        kill_at, done, wrong = begun + 5.0, 0, list[str]()
        while done < rounds and not wrong:
            time.sleep(0.05)
            now, before = time.monotonic(), done
            done = sum(bool(ended["out"]) for ended in told_by(all_workers).values())
            moved = now if done > before else moved
            if now > moved + STUCK_SECONDS:
                wrong.append(f"stuck behind {done} rounds")
            if now > kill_at:
                place = rng.randrange(count)
                workers[place].kill()
                workers[place] = Worker(server.hosts, count, rng.getrandbits(32))
                all_workers.append(workers[place])
                kill_at = now + rng.uniform(*KILL_SECONDS)
        for worker in workers:
            assert worker.process.stdin is not None
            worker.process.stdin.close()
        for worker in workers:
            worker.process.wait(STUCK_SECONDS)
        seconds = time.monotonic() - begun
        time.sleep(2 * SESSION_SECONDS)
        told = told_by(all_workers)
        wrong += wrong_in(told, all_workers, count)
        with Client(server.hosts) as client:
            left = client.get_children(PATH)
        kills = sum(worker.killed > 0 for worker in all_workers)
        refused = len(told[0]["refused"])
        impatient = sum(len(ended["impatient"]) for ended in told.values())
    print(
        f"{done} rounds of {count}, {kills} kills, {refused} timeouts of enter, {impatient} of"
        f" leave, {seconds:.0f} s: {len(wrong)} wrong, left: {left}",
        *wrong,
        sep="\n",
    )
    return len(wrong) + len([name for name in left if name != "ready"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", nargs=3, metavar=("HOSTS", "COUNT", "SEED"))
    options = parser.parse_args()
    if options.worker:
        hosts, count, seed = options.worker
        work(hosts, int(count), int(seed))
        return 0
    return run(options.rounds, options.members, options.seed)


if __name__ == "__main__":
    sys.exit(main())
