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
from contextlib import ExitStack
from random import Random

from tests.interop import trial
from tests.interop.neighbours.arbiter import Arbiter, Judgement
from tests.interop.neighbours.contenders import SESSION_SECONDS
from tests.interop.neighbours.contest import Crew, Sessions, finish
from tests.support.installed_servers import find_installed
from zkwire import Client

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
        errors = [
            f"{error.split()[1]} {count}"
            for error, count in sorted(seen.troubles.items())
            if error.split()[0] == library
        ]
        figures = (seen.grants[library], seen.stale[library], seen.late[library])
        lines.append(
            f"{library:20}" + "".join(f"{n:8,}" for n in figures) + "  " + ", ".join(errors)
        )
    return "\n".join(lines)


def run(options: Namespace, rng: Random) -> list[str]:
    """One run; what was wrong."""
    names = options.crews.split(",")
    libraries = list(dict.fromkeys(names))
    with ExitStack() as stack:
        server = stack.enter_context(find_installed().standalone())
        observer = stack.enter_context(Client(server.hosts, session_timeout=40.0))
        observer.ensure_path(PATH)
        arbiter = stack.enter_context(Arbiter(observer, PATH))
        crews = [
            stack.enter_context(
                Crew(name, "mutex", COUNT, server=server.hosts, path=PATH, port=arbiter.port)
            )
            for name in names
        ]
        sessions, done = Sessions(arbiter, server.hosts), Counter[str]()
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
        left = finish(arbiter, crews)
    seen = arbiter.seen
    print(told(seen, libraries))
    print(f"{sum(seen.grants.values()):,} grants, {sessions.ended} sessions ended; {dict(done)}")
    wrong = [f"{count} times {what}" for what, count in Counter(seen.wrong).most_common()]
    wrong += [f"{name} has had {seen.grants[name]}" for name in libraries
              if seen.grants[name] < LEAST]  # fmt: skip
    return wrong + [f"did not end: {name}" for name in left]


if __name__ == "__main__":
    sys.exit(trial.main(run, seconds=600.0, crews="zkwire,zkwire-asyncio,kazoo,curator"))
