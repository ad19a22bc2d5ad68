"""Curator, kazoo and zkwire contend for one lock, while sessions, connections and processes end.

    python3 -m tests.interop.neighbours.contend                         ten minutes
    python3 -m tests.interop.neighbours.contend --seconds 60 --seed 7
    python3 -m tests.interop.neighbours.contend --kazoo kazoo-patterns  overlaps: kazoo and Curator

Four processes of three contenders each, on a real server: zkwire with threads and with asyncio,
kazoo with the node names of the others (see docs/locks.md), Curator. An arbiter counts the holders
and asks the server for the nodes of each, see `tests.interop.neighbours.arbiter`. Exit
status 1 if a grant was wrong, a library had none, or a process did not end.
"""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tests.interop.curator.process import NoCuratorError, find_curator
from tests.interop.neighbours.arbiter import Arbiter, Judgement
from tests.interop.neighbours.contenders import SESSION_SECONDS
from tests.interop.neighbours.contest import Crew, Sessions, finish
from tests.support.installed_servers import find_installed
from zkwire import Client

PATH = "/locks/neighbours"
COUNT = 3
BETWEEN_SECONDS = (0.2, 1.5)  # two faults
TELL_SECONDS = 60.0


class Faults:
    """One after the other, at random."""

    def __init__(self, crews: Sequence[Crew], sessions: Sessions, seed: int) -> None:
        self.done = Counter[str]()
        self._crews, self._sessions = crews, sessions
        self._rng = random.Random(seed)
        self._ways: dict[str, tuple[int, Callable[[Crew], object]]] = {
            "holder's session ended": (8, lambda _: sessions.end_next_holder()),
            "session ended": (4, lambda _: sessions.end_some(self._rng)),
            "connections cut": (8, Crew.cut),
            "process killed": (2, Crew.restart),
            "process stopped": (1, stop_for_a_while),
        }

    def step(self) -> None:
        """The next one, behind a pause."""
        time.sleep(self._rng.uniform(*BETWEEN_SECONDS))
        weights = [weight for weight, _ in self._ways.values()]
        (name,) = self._rng.choices(list(self._ways), weights)
        self._ways[name][1](self._rng.choice(self._crews))
        self.done[name] += 1


def stop_for_a_while(crew: Crew) -> None:
    """As a machine that stands still for longer than its sessions live."""
    crew.process.send_signal(signal.SIGSTOP)
    time.sleep(1.5 * SESSION_SECONDS)
    crew.process.send_signal(signal.SIGCONT)


def told(seen: Judgement, libraries: Sequence[str]) -> str:
    """The figures, a line for each library."""
    lines = [f"{'':16}{'grants':>8}{'stale':>8}{'late':>8}  errors"]
    for library in libraries:
        errors = [
            f"{error.split()[1]} {count}"
            for error, count in sorted(seen.troubles.items())
            if error.split()[0] == library
        ]
        figures = (seen.grants[library], seen.stale[library], seen.late[library])
        lines.append(
            f"{library:16}" + "".join(f"{n:8,}" for n in figures) + "  " + ", ".join(errors)
        )
    lines.append(f"{sum(seen.grants.values()):,} grants, {len(seen.wrong)} wrong")
    lines += [f"  {count} times {what}" for what, count in Counter(seen.wrong).most_common(9)]
    return "\n".join(lines)


def run(seconds: float, seed: int, libraries: Sequence[str]) -> bool:
    """One run; whether it was as it should be."""
    with ExitStack() as stack:
        server = stack.enter_context(find_installed().standalone())
        observer = stack.enter_context(Client(server.hosts, session_timeout=40.0))
        observer.ensure_path(PATH)
        arbiter = stack.enter_context(Arbiter(observer, PATH))
        crews = [
            stack.enter_context(
                Crew(name, "mutex", COUNT, server=server.hosts, path=PATH, port=arbiter.port)
            )
            for name in libraries
        ]
        sessions = Sessions(arbiter, server.hosts)
        faults = Faults(crews, sessions, seed)
        begun = tell_at = time.monotonic()
        while time.monotonic() - begun < seconds:
            faults.step()
            if time.monotonic() - tell_at > TELL_SECONDS:
                tell_at = time.monotonic()
                print(told(arbiter.seen, libraries), flush=True)
        left = finish(arbiter, crews)
    print(told(arbiter.seen, libraries))
    print(", ".join(f"{count} times {name}" for name, count in faults.done.items()))
    print(f"{sessions.ended} sessions ended; seed {seed}; did not end: {', '.join(left) or 'none'}")
    served = all(arbiter.seen.grants[name] for name in libraries)
    return served and not left and not arbiter.seen.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--kazoo", default="kazoo", choices=["kazoo", "kazoo-patterns"])
    options = parser.parse_args()
    try:
        find_curator()
    except NoCuratorError as error:
        parser.error(str(error))
    libraries = ("zkwire", "zkwire-asyncio", options.kazoo, "curator")
    print(f"seed {options.seed}", flush=True)
    return 0 if run(options.seconds, options.seed, libraries) else 1


if __name__ == "__main__":
    sys.exit(main())
