"""kazoo's own Lock on zkwire, and zkwire's with kazoo's names: four processes each, on one path.

    python3 -m tests.interop.kazoo_programs.locks [SECONDS]

For a minute sessions are killed, connections are cut and processes killed.  An arbiter asks the
server at each grant who has a node (see `tests.interop.neighbours.arbiter`): there must be no
overlap, and both libraries must have had the lock.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack

from tests.interop.neighbours.arbiter import Arbiter
from tests.interop.neighbours.contest import Crew, Sessions, finish
from tests.support.installed_servers import find_installed
from zkwire import Client

LIBRARIES = ("zkwire.kazoo-plain", "zkwire-kazoo")
PROCESSES = 4
SECONDS = 60.0
PATH = "/lock"
LEAST = 100
"""Grants of each library, or else the run proves nothing."""


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    rng = random.Random(0)
    with find_installed().standalone() as server, ExitStack() as stack:
        observer = stack.enter_context(Client(server.hosts, session_timeout=40.0))
        observer.ensure_path(PATH)
        arbiter = stack.enter_context(Arbiter(observer, PATH))
        sessions = Sessions(arbiter, server.hosts)
        crews = [
            stack.enter_context(
                Crew(library, "mutex", 1, server=server.hosts, path=PATH, port=arbiter.port)
            )
            for library in LIBRARIES
            for _ in range(PROCESSES)
        ]
        cuts = kills = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.2, 0.8))
            what = rng.random()
            if what < 0.5:
                sessions.end_some(rng)
            elif what < 0.7:
                sessions.end_next_holder()
            elif what < 0.95:
                rng.choice(crews).cut()
                cuts += 1
            else:
                rng.choice(crews).restart()
                kills += 1
        left = finish(arbiter, crews)
    seen = arbiter.seen
    print(f"grants {dict(seen.grants)}, overlaps {len(seen.wrong)}, of an ended session")
    print(f"{dict(seen.stale)}; {sessions.ended} sessions ended, {cuts} cuts, {kills} kills")
    print("\n".join([*seen.wrong, *(f"did not end: {name}" for name in left)]))
    enough = all(seen.grants[library] >= LEAST for library in LIBRARIES)
    return 0 if enough and not seen.wrong and not left else 1


if __name__ == "__main__":
    sys.exit(main())
