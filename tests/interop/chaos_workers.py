"""The contenders of a chaos run: one process with one of them for each kind of lock and recipe.

``python3 -m tests.interop.chaos_workers NAME threads|tasks HOSTS SESSION_TIMEOUT LOG SEED``. It
contends until its standard input says "stop"; if that ends without a word, so does the process, at
once.

The log is told line by line, each in one write, so that it is complete up to the moment in which
the process is killed. What a claim is must not depend on when a process or the machine stood still:
it reaches from *after* the first look at ``held`` that was True to *before* the last one that was.
In between it was held, whatever happened; outside of it nobody has claimed anything.

Each contender is written once, for threads and for asyncio: `Worker` makes the difference.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.chaos_recipes import ITEMS, RECIPES, Line, Mirror
from tests.interop.chaos_ways import EXPECTED, ROOT, Contender, Worker, clock
from tests.support.history import Record
from zkwire import LockLostError, SetData, ZooKeeperError
from zkwire.blocking.sync import run

LEASES = 3
LOOKS = 4
LONGEST_WORK = 0.02
LONG_WORK, LONG_SHARE = 3.0, 0.05
SILENT = 0.62
LOOK_SECONDS = 0.02
JOIN_SECONDS = 240.0
THREAD_SECONDS = 60.0

NAMES = {"nb": "NonBlockingLock", "bl": "BlockingLock", "sq": "SequentialLock"}
KINDS = (*NAMES, "rw", "sem", "multi", "el", "re", "lead")
"""The locks; read-write, semaphore, multi, election, re-entrant, election of a supervisor."""
KEYS = {"multi": ("ma", "mb")}


def register_of(key: str) -> str:
    """The node that the lock's holders write to."""
    return f"/registers/{key}"


class Part(NamedTuple):
    """One lock that is held: the name of its history, the role in it, who can be asked."""

    key: str
    role: str
    lock: Any
    guards: bool


class LockContender(Contender):
    """Acquires, works and releases, again and again."""

    _written = 0

    async def turn(self, client: Any) -> None:
        keys = KEYS.get(self.kind, (self.kind,))
        timeout = self.rng.choice((0.3, 1.0, 4.0, None, None))
        began = clock()
        for key in keys:
            self.tell("ask", at=began, key=key)
        held, note = None, "not in time"
        try:
            held = await self._acquire(client, timeout)
        except ZooKeeperError as error:
            note = type(error).__name__
            raise
        finally:
            for key in keys if held is None else ():
                self.tell("give up", key=key, note=note)
        if held is not None:
            parts, lock = held
            try:
                await self._hold(client, parts, lock)
            finally:
                self._end(*parts)
                await self.worker.call(lock.release)

    async def _acquire(self, client: Any, timeout: float | None) -> tuple[list[Part], Any] | None:
        """What is held, and who releases it."""
        parts, lock = self._lock(client)
        return (parts(), lock) if await self.worker.call(lock.acquire, timeout) else None

    def _lock(self, client: Any) -> tuple[Callable[[], list[Part]], Any]:
        """What will be held, once it is, and what is to be acquired."""
        kind, path, guards, role = self.kind, f"{ROOT}/{self.kind}", self.kind != "sem", ""
        if kind == "sem":
            lock = self.make(client, "Semaphore", path, LEASES).lease()
        elif kind == "rw":
            role = self.rng.choice(("read", "write"))
            lock = getattr(self.make(client, "ReadWriteLock", path), role)
        elif kind == "multi":
            keys = KEYS[kind]
            locks = [self.make(client, "SequentialLock", f"{ROOT}/{key}") for key in keys]
            lock = self.make(locks[0], "MultiLock", *locks[1:])
            both_parts = [Part(k, "", one, True) for k, one in zip(keys, locks, strict=True)]
            return lambda: both_parts, lock
        elif kind == "re":
            lock = self.make(client, "ReentrantLock", path)
            return lambda: [Part(kind, "", lock.lock, True)], lock
        elif kind == "el":
            lock = self.make(client, "Election", path).lead()
        else:
            lock, guards = self.make(client, NAMES[kind], path), kind == "sq"
        return lambda: [Part(kind, role, lock, guards)], lock

    async def _hold(self, client: Any, parts: list[Part], lock: Any) -> None:
        """Work under the lock, looking now and then whether it is held."""
        claims = [part for part in parts if self._granted(part)]
        for part in claims:
            await self._write(client, part)
        if self.kind == "re":
            await self.worker.call(lock.acquire)
            await self.worker.call(lock.release)
        for _ in range(self.rng.randint(1, LOOKS)):
            await self.worker.sleep(self.rng.uniform(0, LONGEST_WORK / LOOKS))
            claims = self._look(claims)
        claims = await self._hold_on(claims)
        if claims and self.rng.random() < 0.2:
            await self._read(client, claims[0])
        self._look(claims)

    async def _hold_on(self, claims: list[Part]) -> list[Part]:
        """Now and then for long; and as long as the lease runs out: then a claim is in danger.

        A connection that works renews the lease before it is down to two thirds.
        """
        began, timeout = clock(), self.worker.session_timeout
        long = self.rng.uniform(0, LONG_WORK) if self.rng.random() < LONG_SHARE else 0.0
        while claims and clock() < began + 2 * timeout:
            least = min(part.lock.lease_remaining() for part in claims)
            if clock() > began + long and least > SILENT * timeout:
                break
            await self.worker.sleep(LOOK_SECONDS)
            claims = self._look(claims)
        return claims

    def _granted(self, part: Part) -> bool:
        held, now = bool(part.lock.held), clock()
        if held:
            self.tell("grant", at=now, key=part.key, role=part.role, fence=part.lock.fence)
        return held

    def _look(self, claims: list[Part]) -> list[Part]:
        """Those that are held still."""
        kept = []
        for part in claims:
            now = clock()
            if part.lock.held:
                self.tell("look", at=now, key=part.key, role=part.role)
                kept.append(part)
        return kept

    def _end(self, *parts: Part) -> None:
        for part in parts:
            self.tell("end", key=part.key, role=part.role)

    # --- what the lock is for ---------------------------------------------------------------------

    async def _write(self, client: Any, part: Part) -> None:
        """A write that the server refuses if the lock is lost, where the lock has a `guard`."""
        if part.role == "read" or not part.guards:
            return
        self._written += 1
        value, fence, began = f"{self.who} {self._written}", part.lock.fence, clock()
        fields: dict[str, Any] = {"key": register_of(part.key), "value": value, "fence": fence}
        # Whoever is killed now cannot tell what became of it.
        self.tell("intent", at=began, **fields)
        ok: bool | None = None
        zxid = version = 0
        try:
            fields["session"] = f"{client.session_id:x}"
            (stat,) = await self.worker.call(
                part.lock.guard, [SetData(fields["key"], value.encode())]
            )
            ok, zxid, version = True, stat.mzxid, stat.version
        except LockLostError:
            ok = False
            raise
        finally:
            more = {"end": clock(), "ok": ok, "zxid": zxid, "version": version}
            self.tell("write", at=began, **fields, **more)

    async def _read(self, client: Any, part: Part) -> None:
        if not part.guards:
            return
        began, path = clock(), register_of(part.key)
        data, stat = await self.worker.call(client.get_data, path)
        self.tell(
            "read", at=began, end=clock(), key=path, value=data.decode(),
            zxid=stat.mzxid, version=stat.version, session=f"{client.session_id:x}",
        )  # fmt: skip


class Leader(LockContender):
    """A candidate of an election that outlives sessions, as a supervisor has it."""

    async def contend(self) -> None:
        supervisor = self.worker.supervisor
        supervisor.lead(f"{ROOT}/{self.kind}", self.worker.callback(self._term), self.who)
        while not self.worker.stopped.is_set():
            await self.worker.sleep(LOOK_SECONDS)

    async def _term(self, lock: Any) -> None:
        part = Part(self.kind, "", lock, True)
        try:
            with suppress(*EXPECTED):
                client = await self.worker.call(self.worker.supervisor.client, 1.0)
                await self._hold(client, [part], lock)
        except Exception:
            self.tell("bug", note=traceback.format_exc())
        finally:
            self._end(part)
        await self.worker.sleep(self.rng.uniform(0, LOOK_SECONDS))


# --- what all have told, as a history for `support.history`; always for the accused ---------------


@dataclass
class Claim:
    """One lock, held by one contender."""

    who: str
    key: str
    role: str
    fence: int
    start: float
    end: float


def read(path: Path) -> list[Line]:
    """The lines of a process, without one that it did not finish."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def claims_of(lines: Iterable[Line]) -> list[Claim]:
    """The claims of one process that somebody can be held to, in the order of its grants."""
    made: list[Claim] = []
    held: dict[tuple[str, str, str], Claim] = {}
    for line in lines:
        name = (line.get("who", ""), line.get("key", ""), line.get("role", ""))
        match line["what"]:
            case "grant":
                at = line["at"]
                held[name] = Claim(*name, line["fence"], at, at)
                made.append(held[name])
            case "look":
                held[name].end = line["at"]
            case "end":
                held.pop(name, None)
    return made


def history(told: Sequence[Sequence[Line]], deaths: dict[str, float]) -> list[Record]:
    """Everything that the processes have told; ``deaths`` are those of processes, by name."""
    records = [Record(0.0, "", "lock", "sem", limit=LEASES)]
    for lines in told:
        for claim in claims_of(lines):
            what = claim.who, "grant", claim.key, claim.role, claim.fence
            records.append(Record(claim.start, *what))
            records.append(Record(claim.end, claim.who, "release", claim.key, claim.role))
        records += filter(None, map(_other, lines))
        records += _unheld(lines)
        records += _untold(lines)
    for name, at in deaths.items():
        records += [Record(at, f"{name}-{kind}", "die") for kind in (*KINDS, "part")]
    return records


def _other(line: Line) -> Record | None:
    """What goes into the history as it is."""
    what = line["what"]
    if what in ("ask", "give up"):
        return Record(line["at"], line["who"], what, line["key"], note=line.get("note", ""))
    if what in ("write", "read"):
        return Record(**line)
    return None


def _unheld(lines: Iterable[Line]) -> list[Record]:
    """Who has acquired, and lost it before the first look: no claim, but the wait is over."""
    records = []
    granted: set[tuple[str, str]] = set()
    for line in lines:
        name = (line.get("who", ""), line.get("key", ""))
        match line["what"]:
            case "ask":
                granted.discard(name)
            case "grant":
                granted.add(name)
            case "end" if name not in granted:
                records.append(Record(line["at"], name[0], "give up", name[1], note="lost at once"))
    return records


def _untold(lines: Iterable[Line]) -> list[Record]:
    """The writes whose end a killed process could not tell any more."""
    intents: dict[str, Line] = {}
    for line in lines:
        if line["what"] == "intent" and "of" not in line:
            intents[line["who"]] = line
        elif line["what"] == "write":
            intents.pop(line["who"], None)
    return [Record(**{**line, "what": "write"}, ok=None) for line in intents.values()]


def grants(told: Iterable[Iterable[Line]]) -> Counter[str]:
    """How often each contender has got its lock; a `MultiLock` counts once, an item not."""
    others = (KEYS["multi"][1], *ITEMS)
    return Counter(
        line["who"]
        for lines in told
        for line in lines
        if line["what"] == "grant" and line["key"] not in others
    )


# --- the process ----------------------------------------------------------------------------------


def contenders(worker: Worker, log: Path, seed: int) -> list[Contender]:
    """One for each kind."""
    kinds: dict[str, Any] = {**dict.fromkeys(KINDS, LockContender), "lead": Leader, **RECIPES}
    made = [make(worker, kind, random.Random(f"{seed} {kind}")) for kind, make in kinds.items()]
    for each in made:
        if isinstance(each, Mirror):
            each.rests = log.with_suffix(".rest")
    return made


def obey(worker: Worker) -> None:
    """Wait for the order to stop; without the one who gives it there is nothing left to do."""
    if sys.stdin.readline() != "stop\n":
        os._exit(3)
    worker.stopped.set()


Begun = tuple[Worker, list[Contender]]


def in_threads(begun: Callable[[], Begun]) -> tuple[Worker, list[str]]:
    """Contend in threads; what is left behind."""
    worker, crew = begun()
    threads = [
        threading.Thread(target=run, args=(each.contend(),), name=each.who, daemon=True)
        for each in crew
    ]
    for thread in threads:
        thread.start()
    worker.stopped.wait()
    until = time.monotonic() + JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = [thread.name for thread in threads if thread.is_alive()]
    run(worker.close())
    return worker, stuck


async def in_tasks(begun: Callable[[], Begun]) -> tuple[Worker, list[str]]:
    """The same in tasks."""
    worker, crew = begun()
    tasks = {asyncio.create_task(each.contend(), name=each.who) for each in crew}
    await asyncio.to_thread(worker.stopped.wait)
    _, pending = await asyncio.wait(tasks, timeout=JOIN_SECONDS)
    await worker.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    return worker, [task.get_name() for task in pending | left]


def main() -> int:
    """See the module's docstring."""
    name, mode, hosts, timeout, path, seed = sys.argv[1:]
    os.nice(5)  # servers that come back have the machine first

    tasks = mode == "tasks"

    def begun() -> Begun:
        worker = Worker(name, hosts, float(timeout), path, tasks=tasks)
        threading.Thread(target=obey, args=(worker,), name="orders", daemon=True).start()
        return worker, contenders(worker, Path(path), int(seed))

    worker, left = asyncio.run(in_tasks(begun)) if tasks else in_threads(begun)
    deadline = time.monotonic() + THREAD_SECONDS
    while (own := own_threads()) and time.monotonic() < deadline:
        time.sleep(0.05)
    worker.tell("bye", at=clock(), who=name, left=left + own)
    return 1 if left + own else 0


def own_threads() -> list[str]:
    """The library's threads that live still."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("zkwire")]


if __name__ == "__main__":
    sys.exit(main())
