"""Sessions that are killed under supervisors: ``python3 -m tests.interop.supervisor``.

``[--kills N] [--seed N] [--real]``.  Two supervisors, first of threads and then of asyncio, run 20
services: nodes that are kept, watches forever, candidacies for the same elections.  The session of
one of them is ended, at a random moment, sometimes when it has just begun.  After each kill
everything has to be back; the figures are the seconds from the kill.
Exit code 1 if anything was wrong.

By fence: the leaders write with ``guard``, and the order of these writes is that of their fences.
By lease: when a term begins, no other is held by a session that nobody has killed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from random import Random
from statistics import median
from typing import Any, NamedTuple

from tests.support.installed_servers import find_installed
from tests.support.lock_helpers import end_session
from zkwire import (
    AsyncPersistentNode,
    AsyncSupervisor,
    Client,
    Credentials,
    Event,
    EventType,
    PersistentNode,
    SetData,
    Supervisor,
    ZooKeeperError,
)
from zkwire.jute.records import ConnectResponse
from zkwire.testing import Server

NODES, WATCHES, ELECTIONS = 4, 3, 3  # of each supervisor
NAMES = ("a", "b")
LONGEST = 10.0  # seconds for everything to be back
NODE_LIMIT, WATCH_LIMIT = 0.2, 0.5  # what the median must not exceed
now = time.monotonic


class Story:
    """What has been seen, by all threads and tasks."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.wrong: list[str] = []
        self.killed: set[int] = set()
        self.sessions: dict[str, tuple[int, float, Any]] = {}  # by supervisor: the newest
        self.created: dict[str, float] = {}  # by path
        self.candidates: dict[tuple[str, int], float] = {}  # by election and session
        self.read: dict[str, tuple[bytes | None, float]] = {}  # by path
        self.terms: list[Any] = []
        self.acts: list[tuple[str, int, int]] = []  # election, version, fence

    def session(self, name: str, client: Any) -> None:
        self.sessions[name] = client.session_id, now(), client.credentials

    def event(self, event: Event) -> None:
        if event.type is not EventType.NODE_CREATED:
            return
        parent, _, child = event.path.rpartition("/")
        self.created[event.path] = now()
        if parent.startswith("/election"):
            owner = int(child[:16], 16)
            self.candidates[parent, owner - (owner >> 63 << 64)] = now()

    def begin_term(self, lock: Any) -> None:
        for other in self.terms:
            if other.path == lock.path and other.held and _session(other) not in self.killed:
                self.wrong.append(f"{lock.path}: {lock.fence} beside {other.fence}")
        self.terms.append(lock)

    def act(self, path: str, fence: int, results: list[Any]) -> None:
        self.acts.append((path, results[0].version, fence))

    def judge_acts(self) -> None:
        for path in {path for path, _, _ in self.acts}:
            fences = [fence for _, _, fence in sorted(a for a in self.acts if a[0] == path)]
            if fences != sorted(fences):
                self.wrong.append(f"{path}: the fences of its writes are {fences}")


def _session(lock: Any) -> int:
    runtime = getattr(lock, "_algorithm", lock)._runtime
    return int(runtime.session_id)


def config(name: str, number: int) -> str:
    return f"/config/{name}-{number}"


class Threads:
    """One supervisor with its services."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.name = story, name
        self.supervisor = Supervisor(story.hosts)
        self.nodes = [PersistentNode(self.supervisor, f"/nodes/{name}-{n}") for n in range(NODES)]
        for number in range(WATCHES):
            path = config(name, number)
            self.supervisor.watch_data(path, partial(self.see, path))
        for number in range(ELECTIONS):
            self.supervisor.lead(f"/election{number}", self.work, name)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def see(self, path: str, seen: Any) -> None:
        self.story.read[path] = seen.data, now()

    def read(self) -> None:
        for session in self.supervisor:
            with session as client:
                self.story.session(self.name, client)

    def work(self, lock: Any) -> None:
        self.story.begin_term(lock)
        path = f"/acts{lock.path}"
        while not lock.lost.wait(0.02):
            self.story.act(path, lock.fence, lock.guard([SetData(path, b"%d" % lock.fence)]))

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self.supervisor.close()
        self.reader.join()


class Tasks:
    """The same under asyncio."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.name = story, name
        self.supervisor = AsyncSupervisor(story.hosts)
        self.nodes = [
            AsyncPersistentNode(self.supervisor, f"/nodes/{name}-{n}") for n in range(NODES)
        ]
        for number in range(WATCHES):
            path = config(name, number)
            self.supervisor.watch_data(path, partial(self.see, path))
        for number in range(ELECTIONS):
            self.supervisor.lead(f"/election{number}", self.work, name)
        self.reader = asyncio.ensure_future(self.read())

    def see(self, path: str, seen: Any) -> None:
        self.story.read[path] = seen.data, now()

    async def read(self) -> None:
        async for session in self.supervisor:
            async with session as client:
                self.story.session(self.name, client)

    async def work(self, lock: Any) -> None:
        self.story.begin_term(lock)
        path = f"/acts{lock.path}"
        while True:
            await asyncio.sleep(0.02)
            results = await lock.guard([SetData(path, b"%d" % lock.fence)])
            self.story.act(path, lock.fence, results)

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()
        await self.supervisor.close()
        await self.reader


class Stage(NamedTuple):
    """A server, how a session is ended there, and what is done."""

    hosts: str
    end: Callable[[Credentials], object]
    kills: int
    rng: Random


class Killer:
    """Kills sessions, and measures how long everything takes to be back."""

    def __init__(self, stage: Stage) -> None:
        self.story = story = Story(stage.hosts)
        self.kills, self.rng, self.end = stage.kills, stage.rng, stage.end
        self.observer = Client(story.hosts)
        self.observer.add_watch("/", story.event, recursive=True)
        self.seconds: dict[str, list[float]] = {"session": [], "node": [], "watch": [], "lead": []}

    def run(self) -> None:
        with self.observer as observer:
            self._all_back(observer, NAMES, 0, 0.0)
            for number in range(1, self.kills + 1):
                time.sleep(self.rng.uniform(0.0, 0.1))
                name = self.rng.choice(NAMES)
                if self.rng.random() < 0.2:
                    self.kill(name)
                    self._wait("a session", partial(self._alive, name))
                at = self.kill(name)
                self._all_back(observer, (name,), number, at)

    def kill(self, name: str) -> float:
        session_id, _, credentials = self.story.sessions[name]
        self.story.killed.add(session_id)
        at = now()
        self.end(credentials)
        return at

    def _alive(self, name: str) -> bool:
        known = self.story.sessions.get(name)
        return known is not None and known[0] not in self.story.killed

    def _created(self, paths: list[str], at: float) -> bool:
        return all(self.story.created.get(path, 0.0) > at for path in paths)

    def _read(self, paths: list[str], value: bytes) -> bool:
        return all(self.story.read.get(path, (None, 0.0))[0] == value for path in paths)

    def _candidates(self, keys: list[tuple[str, int]]) -> bool:
        return all(key in self.story.candidates for key in keys)

    def _wait(self, what: str, probe: Callable[[], bool]) -> None:
        latest = now() + LONGEST
        while not probe():
            if now() > latest:
                raise TimeoutError(f"{what} is not back within {LONGEST} s")
            time.sleep(0.001)

    def _all_back(self, observer: Client, names: tuple[str, ...], kill: int, at: float) -> None:
        story = self.story
        value = b"%d" % kill
        for name in names:
            for number in range(WATCHES):
                with suppress(ZooKeeperError):
                    observer.set_data(config(name, number), value)
        for name in names:
            self._wait("a session", partial(self._alive, name))
            session_id, began, _ = story.sessions[name]
            found = {"session": [began]}
            paths = [f"/nodes/{name}-{n}" for n in range(NODES)]
            self._wait("a node", partial(self._created, paths, at))
            found["node"] = [story.created[path] for path in paths]
            configs = [config(name, n) for n in range(WATCHES)]
            self._wait("a watch", partial(self._read, configs, value))
            found["watch"] = [story.read[path][1] for path in configs]
            keys = [(f"/election{n}", session_id) for n in range(ELECTIONS)]
            self._wait("a candidate", partial(self._candidates, keys))
            found["lead"] = [story.candidates[key] for key in keys]
            for kind, times in found.items() if kill else ():
                self.seconds[kind] += [moment - at for moment in times]


def prepare(hosts: str) -> None:
    with Client(hosts) as client:
        for name in NAMES:
            for number in range(WATCHES):
                client.ensure_path(config(name, number))
        for number in range(ELECTIONS):
            client.ensure_path(f"/acts/election{number}")


def report(kind: str, killer: Killer) -> list[str]:
    """Print the figures; what is wrong with them."""
    for what, seconds in killer.seconds.items():
        print(
            f"{kind:8} {what:8} back after {median(seconds):.3f} s (median), "
            f"{max(seconds):.3f} s (worst of {len(seconds)})"
        )
    story = killer.story
    story.judge_acts()
    print(f"{kind:8} {len(story.terms)} terms, {len(story.acts)} guarded writes by fence")
    limits = {"node": NODE_LIMIT, "watch": WATCH_LIMIT}
    return story.wrong + [
        f"{kind}: half of all {what} came back later than {limit} s"
        for what, limit in limits.items()
        if median(killer.seconds[what]) > limit
    ]


@contextmanager
def nothing_left(kind: str, wrong: list[str]) -> Iterator[None]:
    before = threading.active_count()
    yield
    gc.collect()
    latest = now() + LONGEST
    while threading.active_count() > before and now() < latest:
        time.sleep(0.01)
    print(f"{kind:8} threads before {before}, after {threading.active_count()}")
    if threading.active_count() > before:
        wrong.append(f"{kind}: threads are left: {threading.enumerate()}")


def with_threads(stage: Stage) -> list[str]:
    wrong = list[str]()
    with nothing_left("threads", wrong):
        killer = Killer(stage)
        supervised = [Threads(killer.story, name) for name in NAMES]
        killer.run()
        for each in supervised:
            each.close()
    return wrong + report("threads", killer)


def with_tasks(stage: Stage) -> list[str]:
    wrong, killer = list[str](), Killer(stage)

    async def main() -> None:
        supervised = [Tasks(killer.story, name) for name in NAMES]
        await asyncio.to_thread(killer.run)
        for each in supervised:
            await each.close()
        await asyncio.sleep(0.1)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        print(f"asyncio  tasks left: {len(left)}")
        if left:
            wrong.append(f"tasks are left: {left}")

    with nothing_left("asyncio", wrong):
        asyncio.run(main())
    return wrong + report("asyncio", killer)


@contextmanager
def on_the_embedded_server() -> Iterator[tuple[str, Callable[[Credentials], object]]]:
    with Server() as server:
        yield server.hosts, lambda known: server.expire(known.session_id)


@contextmanager
def on_a_real_server() -> Iterator[tuple[str, Callable[[Credentials], object]]]:
    """Another connection resumes the session and closes it, unless the client takes it back.

    With both in one write a client is often back before the end (hazard A55).
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.supervisor")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--real", action="store_true", help="on an installed ZooKeeper")
    chosen = parser.parse_args(arguments)
    print(f"seed {chosen.seed}, {chosen.kills} kills", flush=True)
    warnings.simplefilter("error", ResourceWarning)
    wrong = list[str]()
    with on_a_real_server() if chosen.real else on_the_embedded_server() as (hosts, end):
        prepare(hosts)
        for run in (with_threads, with_tasks):
            wrong += run(Stage(hosts, end, chosen.kills, Random(chosen.seed)))
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
