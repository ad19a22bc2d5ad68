"""Have zkwire, kazoo and Curator share paths; compare the documents' tables, or write them.

In the end processes of all three, three contenders in each, contend for one mutex, while sessions,
connections and processes end.  Wrong is there a wrong grant, a library that has had fewer than 100,
and a process that does not end.
"""

from __future__ import annotations

import argparse
import logging
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from tests.interop import pages
from tests.interop.curator.process import running
from tests.interop.neighbours import table
from tests.interop.neighbours.pairs import ALL, PAIRS, Crew, contend_for, started
from tests.interop.neighbours.scenarios import CURATOR, KAZOO, SCENARIOS, Scene, outcome
from tests.interop.neighbours.sides import CuratorSide, Side, kazoo_side
from tests.support.installed_servers import find_installed
from tests.support.server_control import ZooKeeperServer
from zkwire import Client

LEAST = 100
"""Grants of each library in the contest of all, or else it proves nothing."""


def locks(server: ZooKeeperServer, seconds: float) -> dict[str, dict[str, int]]:
    """The outcomes of all pairs."""
    found = {}
    for number, pair in enumerate(PAIRS):
        seen = contend_for(server, f"/neighbours-{number}", pair, seconds)
        found[pair.title] = table.counts(seen)
        print(f"{pair.title}: {found[pair.title]}", flush=True)
    return found


def recipes(server: ZooKeeperServer) -> dict[str, dict[str, dict[str, str]]]:
    """The outcomes of all scenarios."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    with Client(server.hosts) as observer, running(server.hosts) as curator:
        sides: dict[str, Callable[[], AbstractContextManager[Side]]] = {
            KAZOO: lambda: kazoo_side(server.hosts),
            CURATOR: lambda: nullcontext(CuratorSide(curator)),
        }
        for page, scenarios in SCENARIOS.items():
            found[page] = {}
            for title, (scenario, libraries) in scenarios.items():
                found[page][title] = {}
                for library in libraries:
                    with sides[library]() as theirs, ExitStack() as stack:
                        path = f"/{page}-{len(found[page])}-{library.split()[0]}"
                        scene = Scene(server.hosts, path, observer, stack)
                        found[page][title][library] = outcome(scenario, scene, theirs)
                print(f"{title}: {found[page][title]}", flush=True)
    return found


def contest(server: ZooKeeperServer, seconds: float, rng: random.Random) -> list[str]:
    """All libraries for one mutex; what was wrong."""
    done = Counter[str]()
    with started(server, "/neighbours", ALL, 3) as (arbiter, sessions, crews):
        ways: dict[str, tuple[int, Callable[[Crew], object]]] = {
            "holder's session ended": (8, lambda _: sessions.end_next_holder()),
            "session ended": (4, lambda _: sessions.end_some(rng)),
            "connections cut": (8, Crew.cut),
            "killed": (2, Crew.restart),
            "stopped": (1, Crew.stop_for_long),
        }
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(rng.uniform(0.2, 1.5))
            (what,) = rng.choices(list(ways), [often for often, _ in ways.values()])
            ways[what][1](rng.choice(crews))
            done[what] += 1
    seen = arbiter.seen
    print(f"{ALL.title}: {seen}, {sessions.ended} sessions ended; {dict(done)}")
    few = [crew.library for crew in crews if seen.grants[crew.library] < LEAST]
    return seen.wrong + [f"{name} has had {seen.grants[name]}" for name in few]


def main() -> int:
    """The exit status: 1 if anything is not as the documents say, or wrong in the last contest."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.interop.neighbours", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="put the tables into the documents")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each pair of locks")
    parser.add_argument("--contest", type=float, default=600.0, help="seconds of all for one mutex")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    logging.disable()  # of kazoo, which says much of each session's end
    with find_installed().standalone() as server:
        found: table.Outcomes = {
            "recipes": recipes(server), "locks": locks(server, options.seconds),
        }  # fmt: skip
        wrong = contest(server, options.contest, random.Random(options.seed))
    if options.write and not wrong:
        return pages.settle({**table.pages(found), table.DATA: pages.as_json(found)}, write=True)
    stored = table.stored()
    wrong += [
        title
        for title, counts in found["locks"].items()
        if (counts["wrong"] > 0) != (stored["locks"][title]["wrong"] > 0)
    ]
    if found["recipes"] != stored["recipes"]:
        wrong.append(f"{found['recipes']}")
    print("\n".join(wrong) or "as the documents say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
