"""Processes that enter and leave a double barrier, while some are killed and some give up.

    python3 -m tests.interop.barriers                500 rounds of 16 members
    python3 -m tests.interop.barriers --rounds 20

Wrong is: a member that enters before all of its round have come, one that has left before all of
its round have, a round with too few, no round for a minute, and a node that stays.
"""

from __future__ import annotations

import random
import sys
import time
from argparse import Namespace
from collections import defaultdict

from tests.interop.trial import Crew, Moments, Worker, main, say, stopped
from tests.support.installed_servers import find_installed
from zkwire import Client, DoubleBarrier, ZooKeeperError

PATH = "/together"
SESSION_SECONDS = 3.0
STUCK_SECONDS = 60.0  # without a round
GIVE_UP = 0.01  # of all calls have a limit that is too short


def work(hosts: str, count: str, seed: str) -> None:
    """Enter and leave until it is stopped; a line for each call: how it ended, round, times."""
    rng, stop = random.Random(seed), stopped()
    while not stop.is_set():
        try:
            with Client(hosts, session_timeout=SESSION_SECONDS) as client:
                member = DoubleBarrier(client, PATH, int(count))
                while not stop.is_set():
                    take_part(member, rng)
        except ZooKeeperError as error:
            say("error", type(error).__name__)


def take_part(member: DoubleBarrier, rng: random.Random) -> None:
    """One round, perhaps with a time limit that is too short."""
    called = time.monotonic()
    if not member.enter(rng.uniform(0.0, 0.3) if rng.random() < GIVE_UP else 10.0):
        say("refused", 0, called, time.monotonic())
        return
    round = member._algorithm._round
    say("in", round, called, time.monotonic())
    called = time.monotonic()
    left = member.leave(rng.uniform(0.0, 0.3) if rng.random() < GIVE_UP else None)
    say("out" if left else "impatient", round, called, time.monotonic())


Told = dict[int, dict[str, list[tuple[float, float]]]]


def told_by(workers: list[Worker]) -> Told:
    """The calls of each round, by how they ended: when each began and ended."""
    told: Told = defaultdict(lambda: defaultdict(list))
    for worker in workers:
        for kind, *words in list(worker.lines):
            if kind != "error":
                told[int(words[0])][kind].append((float(words[1]), float(words[2])))
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


def run(options: Namespace, rng: random.Random) -> list[str]:
    """So many rounds."""
    wrong: list[str] = []
    with find_installed().standalone() as server:
        make = lambda: Worker(server.hosts, options.members, rng.getrandbits(32))  # noqa: E731
        with Crew(options.members, make) as crew:
            begun = moved = time.monotonic()
            kill, done = Moments(rng, 2.0, 6.0), 0
            while done < options.rounds and not wrong:
                time.sleep(0.05)
                before = done
                done = sum(bool(ended["out"]) for ended in told_by(crew.all).values())
                moved = time.monotonic() if done > before else moved
                if time.monotonic() > moved + STUCK_SECONDS:
                    wrong.append(f"stuck after {done} rounds")
                if kill.come():
                    worker = rng.choice(crew.now)
                    worker.kill()
                    crew.replace(worker)
            crew.end()
            seconds = time.monotonic() - begun
        time.sleep(2 * SESSION_SECONDS)
        told = told_by(crew.all)
        with Client(server.hosts) as client:
            left = [name for name in client.get_children(PATH) if name != "ready"]
    wrong += wrong_in(told, crew.all, options.members) + [f"left: {name}" for name in left]
    impatient = sum(len(ended["impatient"]) for ended in told.values())
    print(
        f"{done} rounds of {options.members}, {crew.kills} kills, {len(told[0]['refused'])} "
        f"timeouts of enter, {impatient} of leave, {seconds:.0f} s"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main(run, work, rounds=500, members=16))
