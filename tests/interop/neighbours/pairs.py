"""Which locks are tried on one path, and one contest of each: do they exclude each other?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.interop.neighbours.arbiter import Arbiter, Judgement
from tests.interop.neighbours.contenders import LEASES
from tests.interop.neighbours.contest import Crew, Sessions, finish
from tests.support.server_control import ZooKeeperServer
from zkwire import Client

LIMIT_SECONDS = 120.0
COUNT = 2
"""Contenders of each library; of a read-write lock a writer and a reader."""

NAMES = {
    "zkwire mutex": "`SequentialLock`",
    "zkwire election": "`Election`",
    "zkwire read-write": "`ReadWriteLock`",
    "zkwire semaphore": "`Semaphore`",
    "kazoo mutex": "kazoo's `Lock` with these names",
    "kazoo-patterns mutex": "kazoo's `Lock` with the pattern",
    "kazoo-plain mutex": "kazoo's `Lock`",
    "kazoo read-write": "kazoo's `ReadLock`, `WriteLock` with these names",
    "kazoo-patterns read-write": "kazoo's `ReadLock`, `WriteLock` with the patterns",
    "kazoo-plain election": "kazoo's `Election`",
    "kazoo-plain read-write": "kazoo's `ReadLock`, `WriteLock`",
    "kazoo-plain semaphore": "kazoo's `Semaphore`",
    "zkwire-kazoo mutex": '`SequentialLock` with `names="kazoo"`',
    "zkwire-kazoo election": '`Election` with `names="kazoo"`',
    "zkwire-kazoo read-write": '`ReadWriteLock` with `names="kazoo"`',
    "zkwire-kazoo semaphore": '`Semaphore` with `names="kazoo"`',
    "curator mutex": "Curator's `InterProcessMutex`",
    "curator read-write": "Curator's `InterProcessReadWriteLock`",
    "curator semaphore": "Curator's `InterProcessSemaphoreV2`",
    "curator latch": "Curator's `LeaderLatch`",
    "curator selector": "Curator's `LeaderSelector`",
}


class Pair(NamedTuple):
    """A lock, and two or three libraries with their recipes on one path."""

    lock: str
    crews: tuple[str, ...]

    @property
    def title(self) -> str:
        return ", ".join(NAMES[crew] for crew in self.crews)

    @property
    def with_curator(self) -> bool:
        return any(crew.startswith("curator") for crew in self.crews)

    @property
    def with_kazoos_names(self) -> bool:
        return any(crew.startswith("zkwire-kazoo") for crew in self.crews)


PAIRS = (
    Pair("mutex", ("zkwire-kazoo mutex", "kazoo-plain mutex")),
    Pair("mutex", ("zkwire-kazoo mutex", "zkwire mutex")),
    Pair("mutex", ("zkwire mutex", "kazoo-patterns mutex")),
    Pair("mutex", ("zkwire mutex", "kazoo mutex")),
    Pair("mutex", ("zkwire mutex", "kazoo-plain mutex")),
    Pair("mutex", ("zkwire mutex", "curator mutex")),
    Pair("mutex", ("kazoo-patterns mutex", "curator mutex")),
    Pair("mutex", ("zkwire mutex", "kazoo mutex", "curator mutex")),
    Pair("read-write", ("zkwire-kazoo read-write", "kazoo-plain read-write")),
    Pair("read-write", ("zkwire read-write", "kazoo-patterns read-write")),
    Pair("read-write", ("zkwire read-write", "curator read-write")),
    Pair("read-write", ("kazoo-patterns read-write", "curator read-write")),
    Pair("read-write", ("zkwire read-write", "kazoo read-write", "curator read-write")),
    Pair("semaphore", ("zkwire-kazoo semaphore", "kazoo-plain semaphore")),
    Pair("semaphore", ("zkwire semaphore", "curator semaphore")),
    Pair("election", ("zkwire-kazoo election", "kazoo-plain election")),
    Pair("election", ("zkwire election", "kazoo-plain election")),
    Pair("election", ("zkwire election", "curator latch")),
    Pair("election", ("zkwire election", "curator selector")),
)


def contend(server: ZooKeeperServer, path: str, pair: Pair, grants: int) -> Judgement:
    """Until each library has had so many grants, or one was wrong.

    The session of a holder ends in between.  TimeoutError if it takes too long.
    """
    with started(server, path, pair) as (arbiter, sessions):
        enough(arbiter, pair, grants // 2)
        if not arbiter.seen.wrong:
            sessions.end_next_holder()
        enough(arbiter, pair, grants)
    return arbiter.seen


def contend_for(server: ZooKeeperServer, path: str, pair: Pair, seconds: float) -> Judgement:
    """For so many seconds from the moment on at which each library has had a grant."""
    with started(server, path, pair) as (arbiter, sessions):
        enough(arbiter, pair, 1, wrong=False)
        sessions.end_next_holder()
        time.sleep(seconds)
    return arbiter.seen


def enough(arbiter: Arbiter, pair: Pair, grants: int, *, wrong: bool = True) -> None:
    """Wait for so many grants of each library, or else for one that is ``wrong``."""
    libraries = [crew.split()[0] for crew in pair.crews]

    def reached() -> bool:
        seen = arbiter.seen
        return bool(wrong and seen.wrong) or all(seen.grants[name] >= grants for name in libraries)

    with arbiter.changed:
        if not arbiter.changed.wait_for(reached, LIMIT_SECONDS):
            raise TimeoutError(f"{pair.title}: {arbiter.seen}")


@contextmanager
def started(server: ZooKeeperServer, path: str, pair: Pair) -> Iterator[tuple[Arbiter, Sessions]]:
    """The contenders, which end with the block."""
    with ExitStack() as stack:
        observer = stack.enter_context(Client(server.hosts, session_timeout=40.0))
        observer.ensure_path(path)
        leases = pair.lock == "semaphore"
        if leases:
            observer.set_data(path, b"%d" % LEASES)
        kazoos = leases and pair.with_kazoos_names
        folder = f"{path}/leases" if leases and not kazoos else path
        arbiter = stack.enter_context(Arbiter(observer, folder, LEASES, numbered=not kazoos))
        sessions = Sessions(arbiter, server.hosts)
        crews = []
        for words in pair.crews:
            library, recipe = words.split()
            crew = Crew(library, recipe, COUNT, server=server.hosts, path=path, port=arbiter.port)
            crews.append(stack.enter_context(crew))
        yield arbiter, sessions
        if left := finish(arbiter, crews):
            raise TimeoutError(f"{pair.title}: did not end: {left}")
        observer.delete_tree(path)
        observer.delete_tree(f"{path}-__lock__")  # of kazoo's semaphore
