"""Which locks are tried on one path, and one contest of each: do they exclude each other?"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Self

from tests.check.environment import ROOT
from tests.interop.curator.process import find_curator
from tests.interop.neighbours.arbiter import HOLD_SECONDS, Arbiter, Holder, Judgement
from tests.interop.neighbours.contenders import LEASES, SESSION_SECONDS
from tests.support.installed_servers import _leash
from tests.support.lock_helpers import end_session
from tests.support.server_control import ZooKeeperServer
from zkwire import Client
from zkwire.testing.proxy import FaultProxy

LIMIT_SECONDS = 120.0
GRANTS = 40
"""Of each library in a test, if none is wrong."""
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
    "zkwire-asyncio mutex": "`AsyncSequentialLock`",
    "zkwire.kazoo-plain mutex": "kazoo's `Lock` on zkwire",
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
    Pair("mutex", ("zkwire-kazoo mutex", "zkwire.kazoo-plain mutex")),
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
ALL = Pair("mutex", ("zkwire mutex", "zkwire-asyncio mutex", "kazoo mutex", "curator mutex"))


# --- the processes, and what is done to them ------------------------------------------------------

END_SECONDS = 120.0
SURPRISED_SECONDS = 0.05
"""How long a holder goes on whose session has been ended: until others hold."""


class Crew:
    """A process of one library, with so many contenders, behind a proxy of its own."""

    def __init__(self, words: str, count: int, *, server: str, path: str, port: int) -> None:
        self.library, recipe = words.split()
        self.proxy = FaultProxy(server)
        self._words = (self.proxy.hosts, path, str(port), recipe, str(count))
        self.process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.proxy.close()

    def _start(self) -> subprocess.Popen[bytes]:
        program = (
            find_curator("Contend")
            if self.library == "curator"
            else [sys.executable, "-m", "tests.interop.neighbours.contenders", self.library]
        )
        return subprocess.Popen(
            [*_leash(), *program, *self._words],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """SIGKILL, and one like it."""
        self.kill()
        self.process = self._start()

    def cut(self) -> None:
        """End all of its connections; what is on its way is lost."""
        self.proxy.reset()
        self.proxy.reset_all()

    def stop_for_long(self) -> None:
        """As on a machine that stands still for longer than its sessions live."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * SESSION_SECONDS)
        self.process.send_signal(signal.SIGCONT)

    def ended(self, until: float) -> bool:
        """Whether it has ended by itself by then."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(max(1.0, until - time.monotonic())) == 0
        return False


class Sessions:
    """Ends contenders' sessions, by a second connection with their ids and passwords."""

    def __init__(self, arbiter: Arbiter, server: str) -> None:
        self.ended = 0
        self._server, self._arbiter = server, arbiter
        self._known: dict[int, Holder] = {}
        self._doomed = False
        arbiter.on_grant = self._granted

    def end_next_holder(self) -> None:
        """That of the next holder, as soon as it holds, returning then."""
        with self._arbiter.changed:
            self._doomed = True
            self._arbiter.changed.wait_for(lambda: not self._doomed, END_SECONDS)

    def end_some(self, rng: random.Random) -> None:
        """That of one that has held, and waits or holds now."""
        with self._arbiter.changed:
            if self._known:
                self._end(self._known.pop(rng.choice(sorted(self._known))))

    def _granted(self, holder: Holder) -> float:
        self._known[holder.session_id] = holder
        if not self._doomed:
            return HOLD_SECONDS
        self._doomed = False
        self._known.pop(holder.session_id)
        self._end(holder)
        return SURPRISED_SECONDS

    def _end(self, holder: Holder) -> None:
        # The client may come back at once, and the connection that it takes away says nothing.
        with suppress(LookupError, EOFError, OSError):
            end_session(self._server, holder.session_id, holder.password)
            self.ended += 1


# --- a contest ------------------------------------------------------------------------------------


def contend(server: ZooKeeperServer, path: str, pair: Pair, grants: int) -> Judgement:
    """Until each library has had so many grants, or one was wrong.

    The session of a holder ends in between.  TimeoutError if it takes too long.
    """
    with started(server, path, pair) as (arbiter, sessions, _):
        enough(arbiter, pair, grants // 2)
        if not arbiter.seen.wrong:
            sessions.end_next_holder()
        enough(arbiter, pair, grants)
    return arbiter.seen


def contend_for(server: ZooKeeperServer, path: str, pair: Pair, seconds: float) -> Judgement:
    """For so many seconds from the moment on at which each library has had a grant."""
    with started(server, path, pair) as (arbiter, sessions, _):
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
def started(
    server: ZooKeeperServer, path: str, pair: Pair, count: int = COUNT
) -> Iterator[tuple[Arbiter, Sessions, list[Crew]]]:
    """So many contenders of each library; TimeoutError if they do not end after the block."""
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
        where = {"server": server.hosts, "path": path}
        crews = [
            stack.enter_context(Crew(words, count, **where, port=arbiter.port))
            for words in pair.crews
        ]
        yield arbiter, sessions, crews
        arbiter.over = True
        until = time.monotonic() + END_SECONDS
        if left := [crew.library for crew in crews if not crew.ended(until)]:
            raise TimeoutError(f"{pair.crews}: did not end: {left}")
        observer.delete_tree(path)
        observer.delete_tree(f"{path}-__lock__")  # of kazoo's semaphore
