"""Sessions that are killed under supervisors: ``python3 -m tests.interop.supervisor``.

``[--kills N] [--seed N] [--real]``.  Two supervisors, first of threads and then of asyncio, run 20
services: nodes that are kept, watches forever, candidacies for the same elections.  The session of
one of them is ended, at a random moment, sometimes when it has just begun.  After each kill
everything has to be back; the figures are the seconds from the kill.

By fence: the leaders write with ``guard``, and the order of these writes is that of their fences.
By lease: when a term begins, no other is held by a session that nobody has killed.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from random import Random
from statistics import median
from typing import Any

import zkwire
from tests.interop.chaos_ways import TaskWay, Way
from tests.interop.trial import main
from tests.support.installed_servers import find_installed
from tests.support.lock_helpers import end_session
from tests.support.server_control import poll
from zkwire import Client, Credentials, Event, EventType, LockLostError, SetData, ZooKeeperError
from zkwire.blocking.sync import run as run_blocking
from zkwire.jute.records import ConnectResponse
from zkwire.testing import Server

NODES, WATCHES, ELECTIONS = 4, 3, 3  # of each supervisor
NAMES = ("a", "b")
LONGEST = 10.0  # seconds for everything to be back
LIMITS = {"node": 0.2, "watch": 0.5}  # what the median must not exceed
End = Callable[[Credentials], object]
now = time.monotonic


class Story:
    """What has been seen, by all threads and tasks."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.killed: set[int] = set()
        self.sessions: dict[str, tuple[int, float, Any]] = {}  # by supervisor: the newest
        self.created: dict[str, float] = {}  # by path
        self.candidates: dict[tuple[str, int], float] = {}  # by election and session
        self.read: dict[str, tuple[bytes | None, float]] = {}  # by path
        self.terms: list[Any] = []
        self.acts: list[tuple[str, int, int]] = []  # election, version, fence

    def event(self, event: Event) -> None:
        if event.type is not EventType.NODE_CREATED:
            return
        parent, _, child = event.path.rpartition("/")
        self.created[event.path] = now()
        if parent.startswith("/election"):
            owner = int(child[:16], 16)
            self.candidates[parent, owner - (owner >> 63 << 64)] = now()

    def see(self, path: str, seen: Any) -> None:
        self.read[path] = seen.data, now()

    def begin_term(self, lock: Any) -> None:
        for other in self.terms:
            if other.path == lock.path and other.held and _session(other) not in self.killed:
                self.wrong.append(f"{lock.path}: {lock.fence} beside {other.fence}")
        self.terms.append(lock)

    def judge_acts(self) -> None:
        for path in {path for path, _, _ in self.acts}:
            fences = [fence for _, _, fence in sorted(a for a in self.acts if a[0] == path)]
            if fences != sorted(fences):
                self.wrong.append(f"{path}: the fences of its writes are {fences}")


def _session(lock: Any) -> int:
    return int(getattr(lock, "_algorithm", lock)._runtime.session_id)


def config(name: str, number: int) -> str:
    return f"/config/{name}-{number}"


class Supervised:
    """One supervisor with its services, of threads or of asyncio."""

    def __init__(self, story: Story, hosts: str, name: str, way: Way) -> None:
        self.story, self.name, self.way = story, name, way
        self.supervisor = getattr(zkwire, f"{way.prefix}Supervisor")(hosts)
        keep = getattr(zkwire, f"{way.prefix}PersistentNode")
        self.nodes = [keep(self.supervisor, f"/nodes/{name}-{n}") for n in range(NODES)]
        for path in [config(name, number) for number in range(WATCHES)]:
            self.supervisor.watch_data(path, partial(story.see, path))
        work = self.work if way.prefix else lambda lock: run_blocking(self.work(lock))
        for number in range(ELECTIONS):
            self.supervisor.lead(f"/election{number}", work, name)
        self.reader: Any = None
        if way.prefix:
            self.reader = asyncio.ensure_future(self.read_async())
        else:
            self.reader = threading.Thread(target=self.read, daemon=True)
            self.reader.start()

    def note(self, client: Any) -> None:
        self.story.sessions[self.name] = client.session_id, now(), client.credentials

    def read(self) -> None:
        for session in self.supervisor:
            with session as client:
                self.note(client)

    async def read_async(self) -> None:
        async for session in self.supervisor:
            async with session as client:
                self.note(client)

    async def work(self, lock: Any) -> None:
        self.story.begin_term(lock)
        path = f"/acts{lock.path}"
        with suppress(LockLostError):
            while not lock.lost.ready:
                await self.way.sleep(0.02)
                write = SetData(path, b"%d" % lock.fence)
                results = await self.way.call(lock.guard, [write])
                self.story.acts.append((path, results[0].version, lock.fence))

    async def close(self) -> None:
        for one in (*self.nodes, self.supervisor):
            await self.way.call(one.close)
        await self.way.call(self.reader.join if not self.way.prefix else lambda: self.reader)


class Killer:
    """Kills sessions, and measures how long everything takes to be back."""

    def __init__(self, story: Story, hosts: str, end: End, kills: int, rng: Random) -> None:
        self.story, self.end, self.kills, self.rng = story, end, kills, rng
        self.observer = Client(hosts)
        self.observer.add_watch("/", story.event, recursive=True)
        self.seconds: dict[str, list[float]] = {"session": [], "node": [], "watch": [], "lead": []}

    def run(self) -> None:
        with self.observer:
            self._all_back(NAMES, 0, 0.0)
            for number in range(1, self.kills + 1):
                time.sleep(self.rng.uniform(0.0, 0.1))
                name = self.rng.choice(NAMES)
                if self.rng.random() < 0.2:
                    self.kill(name)
                    poll("a session", lambda name=name: self._alive(name) or None, LONGEST)  # type: ignore[misc]
                at = self.kill(name)
                self._all_back((name,), number, at)

    def kill(self, name: str) -> float:
        session_id, _, credentials = self.story.sessions[name]
        self.story.killed.add(session_id)
        at = now()
        self.end(credentials)
        return at

    def _alive(self, name: str) -> bool:
        known = self.story.sessions.get(name)
        return known is not None and known[0] not in self.story.killed

    def _back(self, name: str, value: bytes, at: float) -> dict[str, list[float]] | None:
        """When each thing of this supervisor has come back, if all have, after the kill ``at``."""
        if not self._alive(name):
            return None
        story = self.story
        session_id, began, _ = story.sessions[name]
        nodes = [story.created.get(f"/nodes/{name}-{n}", 0.0) for n in range(NODES)]
        reads = [story.read.get(config(name, n), (None, 0.0)) for n in range(WATCHES)]
        leads = [story.candidates.get((f"/election{n}", session_id)) for n in range(ELECTIONS)]
        there = [lead for lead in leads if lead is not None]
        seen = min(nodes) > at and all(data == value for data, _ in reads)
        if not seen or len(there) < ELECTIONS:
            return None
        times = [moment for _, moment in reads]
        return {"session": [began], "node": nodes, "watch": times, "lead": there}

    def _all_back(self, names: tuple[str, ...], kill: int, at: float) -> None:
        value = b"%d" % kill
        for path in [config(name, n) for name in names for n in range(WATCHES)]:
            with suppress(ZooKeeperError):
                self.observer.set_data(path, value)
        for name in names:
            found = poll(f"all of {name}", partial(self._back, name, value, at), LONGEST)
            for kind, times in found.items() if kill else ():
                self.seconds[kind] += [moment - at for moment in times]


def report(kind: str, killer: Killer) -> None:
    """Print the figures, and note what is wrong with them."""
    story = killer.story
    for what, seconds in killer.seconds.items():
        print(
            f"{kind:8} {what:8} back after {median(seconds):.3f} s (median), "
            f"{max(seconds):.3f} s (worst of {len(seconds)})"
        )
        if median(seconds) > LIMITS.get(what, LONGEST):
            story.wrong.append(f"{kind}: half of all {what} came back later than {LIMITS[what]} s")
    story.judge_acts()
    print(f"{kind:8} {len(story.terms)} terms, {len(story.acts)} guarded writes by fence")


async def killed(hosts: str, killer: Killer, way: Way) -> None:
    """All supervisors of one kind, while sessions are killed."""
    supervised = [Supervised(killer.story, hosts, name, way) for name in NAMES]
    if way.prefix:
        await asyncio.to_thread(killer.run)
    else:
        killer.run()
    for each in supervised:
        await each.close()
    if way.prefix:
        await asyncio.sleep(0.1)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            killer.story.wrong.append(f"tasks are left: {left}")


def trial(hosts: str, end: End, kind: str, options: Namespace) -> list[str]:
    """With supervisors of this kind; at the end no more threads than before."""
    story, before = Story(), threading.active_count()
    killer = Killer(story, hosts, end, options.kills, Random(options.seed))
    if kind == "threads":
        run_blocking(killed(hosts, killer, Way()))
    else:
        asyncio.run(killed(hosts, killer, TaskWay()))
    gc.collect()
    with suppress(TimeoutError):
        poll("no thread", lambda: threading.active_count() <= before or None, LONGEST)
    if threading.active_count() > before:
        story.wrong.append(f"{kind}: threads are left: {threading.enumerate()}")
    report(kind, killer)
    return story.wrong


@contextmanager
def on_the_embedded_server() -> Iterator[tuple[str, End]]:
    with Server() as server:
        yield server.hosts, lambda known: server.expire(known.session_id)


@contextmanager
def on_a_real_server() -> Iterator[tuple[str, End]]:
    """Another connection resumes the session and closes it, unless the client takes it back.

    With both in one write a client is often back before the end.
    """
    number = count()
    with find_installed().standalone() as server:

        def end(known: Credentials) -> None:
            with suppress(LookupError):  # it is over already
                while True:
                    with suppress(EOFError, OSError):
                        answer = ConnectResponse(0, 10_000, known.session_id, known.passwd, False)
                        at_once = next(number) % 2 == 0
                        return end_session(server.hosts, answer, at_once=at_once)

        yield server.hosts, end


def run(options: Namespace, _: Random) -> list[str]:
    """With threads, then with asyncio."""
    warnings.simplefilter("error", ResourceWarning)
    with on_a_real_server() if options.real else on_the_embedded_server() as (hosts, end):
        with Client(hosts) as client:
            for path in [config(name, number) for name in NAMES for number in range(WATCHES)]:
                client.ensure_path(path)
            for number in range(ELECTIONS):
                client.ensure_path(f"/acts/election{number}")
        kinds = ("threads", "asyncio")
        return [line for kind in kinds for line in trial(hosts, end, kind, options)]


if __name__ == "__main__":
    sys.exit(main(run, kills=100, real=True))
