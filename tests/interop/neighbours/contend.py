"""Libraries contend for one lock, while sessions, connections and processes end.

    python3 -m tests.interop.neighbours.contend                         ten minutes
    python3 -m tests.interop.neighbours.contend --seconds 60 --seed 7
    python3 -m tests.interop.neighbours.contend --crews zkwire,kazoo-patterns,curator   overlaps

Processes of three contenders each, on a real server: zkwire with threads and with asyncio, kazoo
with the node names of the others (see docs/locks.md), Curator, or those that are asked for. An
arbiter counts the holders and asks the server for the nodes of each, see
`tests.interop.neighbours.arbiter`. Wrong is a wrong grant, a library that has had fewer than 100,
and a process that does not end.
"""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from tests.interop import trial
from tests.interop.neighbours.arbiter import Judgement
from tests.interop.neighbours.contenders import SESSION_SECONDS
from tests.interop.neighbours.pairs import Crew, Pair, Sessions, started
from tests.support.installed_servers import find_installed

PATH = "/locks/neighbours"
COUNT = 3
LEAST = 100
"""Grants of each library, or else the run proves nothing."""
TELL_SECONDS = 60.0


def faults(sessions: Sessions, rng: Random) -> dict[Callable[[Crew], object], int]:
    """What may happen, and how often."""

    def holders_session_ended(_: Crew) -> None:
        sessions.end_next_holder()

    def session_ended(_: Crew) -> None:
        sessions.end_some(rng)

    return {holders_session_ended: 8, session_ended: 4, Crew.cut: 8, Crew.restart: 2, stopped: 1}


def stopped(crew: Crew) -> None:
    """As on a machine that stands still for longer than its sessions live."""
    crew.process.send_signal(signal.SIGSTOP)
    time.sleep(1.5 * SESSION_SECONDS)
    crew.process.send_signal(signal.SIGCONT)


def told(seen: Judgement, libraries: Sequence[str]) -> str:
    """The figures, a line for each library."""
    lines = [f"{'':20}{'grants':>8}{'stale':>8}{'late':>8}  errors"]
    for library in libraries:
        words = [(*error.split(), count) for error, count in sorted(seen.troubles.items())]
        errors = ", ".join(f"{error} {count}" for name, error, count in words if name == library)
        figures = f"{seen.grants[library]:8,}{seen.stale[library]:8,}{seen.late[library]:8,}"
        lines.append(f"{library:20}{figures}  {errors}")
    return "\n".join(lines)


def run(options: Namespace, rng: Random) -> list[str]:
    """One run; what was wrong."""
    names = options.crews.split(",")
    libraries = list(dict.fromkeys(names))
    pair = Pair("mutex", tuple(f"{name} mutex" for name in names))
    done = Counter[str]()
    with (
        find_installed().standalone() as server,
        started(server, PATH, pair, COUNT) as (arbiter, sessions, crews),
    ):
        ways = faults(sessions, rng)
        begun = tell_at = time.monotonic()
        while time.monotonic() - begun < options.seconds:
            time.sleep(rng.uniform(0.2, 1.5))
            (fault,) = rng.choices(list(ways), list(ways.values()))
            fault(rng.choice(crews))
            done[fault.__name__] += 1
            if time.monotonic() - tell_at > TELL_SECONDS:
                tell_at = time.monotonic()
                print(told(arbiter.seen, libraries), flush=True)
    seen = arbiter.seen
    print(told(seen, libraries))
    print(f"{sum(seen.grants.values()):,} grants, {sessions.ended} sessions ended; {dict(done)}")
    wrong = [f"{count} times {what}" for what, count in Counter(seen.wrong).most_common()]
    few = [name for name in libraries if seen.grants[name] < LEAST]
    return wrong + [f"{name} has had {seen.grants[name]}" for name in few]


if __name__ == "__main__":
    sys.exit(trial.main(run, seconds=600.0, crews="zkwire,zkwire-asyncio,kazoo,curator"))
