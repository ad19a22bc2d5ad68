"""The contenders of a chaos run: one process with one of them for each kind of lock.

``python3 -m tests.interop.chaos_workers NAME threads|tasks HOSTS SESSION_TIMEOUT LOG SEED``. It
contends until its standard input says "stop"; if that ends without a word, so does the process, at
once.

The log is told line by line, each in one write, so that it is complete up to the moment in which
the process is killed. What a claim is must not depend on when a process or the machine stood still:
it reaches from *after* the first look at ``held`` that was True to *before* the last one that was.
In between it was held, whatever happened; outside of it nobody has claimed anything.

Each contender is written once, for threads and for asyncio: `Way` makes the difference.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import zkwire
from tests.interop.chaos_ways import Log, TaskWay, Way, clock, fenced_write
from zkwire import (
    ClientClosedError,
    ConnectionLossError,
    LockLostError,
    LockTakenError,
    OperationTimeoutError,
    SessionExpiredError,
    SetData,
    ZooKeeperError,
)
from zkwire.blocking.sync import run

ROOT = "/chaos"
LEASES = 3
SESSION_TIMEOUT = 4.0
CLIENTS = 2
LOOKS = 4
LONGEST_WORK = 0.02
LONGEST_REST = 0.1
LONG_WORK, LONG_SHARE = 3.0, 0.05
SILENT = 0.62
LOOK_SECONDS = 0.02
JOIN_SECONDS = 240.0
THREAD_SECONDS = 60.0

KINDS = ("nb", "bl", "sq", "rw", "sem", "multi", "el", "re")
"""Non-blocking, blocking, sequential, read-write, semaphore, multi, election, re-entrant."""

EXPECTED = (
    ConnectionLossError, OperationTimeoutError, SessionExpiredError, ClientClosedError,
    LockLostError, LockTakenError,
)  # fmt: skip
"""What may happen to whom the world is bad to; any other error is a finding."""


class Box:
    """A client that several contenders share, replaced when its session is over."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._guard = threading.Lock()
        self.old: list[Any] = []
        self.client = self._made()

    def _made(self) -> Any:
        kind = getattr(zkwire, self._worker.way.prefix + "Client")
        return kind(
            self._worker.hosts, session_timeout=self._worker.session_timeout, operation_timeout=10.0
        )

    async def replace(self, client: Any) -> None:
        """Have another client, unless somebody has seen to that already."""
        with self._guard:
            if self.client is not client:
                return
            self.client = self._made()
        self.old.append(client)
        await self._worker.way.call(client.close)


class Part(NamedTuple):
    """One lock that is held: the name of its history, the role in it, who can be asked."""

    key: str
    role: str
    lock: Any
    guards: bool


class Worker:
    """All contenders of one process."""

    def __init__(self, name: str, way: Way, hosts: str, timeout: float, log: Log) -> None:
        self.name = name
        self.way = way
        self.hosts = hosts
        self.session_timeout = timeout
        self.log = log
        self.stopped = threading.Event()
        self.boxes = [Box(self) for _ in range(CLIENTS)]

    async def close(self) -> None:
        for box in self.boxes:
            await self.way.call(box.client.close)


class Contender:
    """Acquires, works and releases, again and again."""

    def __init__(self, worker: Worker, kind: str, register: Path, rng: random.Random) -> None:
        self.who = f"{worker.name}-{kind}"
        self._worker = worker
        self._way = worker.way
        self._kind = kind
        self._register = register
        self._rng = rng
        self._box = rng.choice(worker.boxes)
        self._written = 0
        self._reader: Any = None  # of the read-write lock that is held
        self._log = worker.log

    def contend_in_thread(self) -> None:
        run(self.contend())

    async def contend(self) -> None:
        """Until the worker stops; an error that cannot be explained ends it."""
        while not self._worker.stopped.is_set():
            client = self._box.client
            try:
                await self._turn(client)
            except (SessionExpiredError, ClientClosedError):
                await self._box.replace(client)
            except EXPECTED:
                pass
            except Exception:
                self._log.write("bug", who=self.who, note=traceback.format_exc())
                return
            await self._way.sleep(self._rng.uniform(0, LONGEST_REST))

    async def _turn(self, client: Any) -> None:
        keys = KEYS.get(self._kind, (self._kind,))
        timeout = self._rng.choice((0.3, 1.0, 4.0, None, None))
        began = clock()
        for key in keys:
            self._log.write("ask", at=began, who=self.who, key=key)
        held, note = None, "not in time"
        try:
            held = await self._acquire(client, timeout)
        except ZooKeeperError as error:
            note = type(error).__name__
            raise
        finally:
            if timeout is not None:
                now = clock()
                late = max(0.0, now - began - timeout)
                self._log.write("timed", at=now, who=self.who, late=late)
            if held is None:
                self._gave_up(keys, note)
        if held is not None:
            await self._hold(client, *held)

    def _gave_up(self, keys: tuple[str, ...], note: str) -> None:
        for key in keys:
            self._log.write("give up", at=clock(), who=self.who, key=key, note=note)

    async def _acquire(self, client: Any, timeout: float | None) -> tuple[list[Part], Any] | None:
        """What is held, and who releases it."""
        call = self._way.call
        if self._kind == "sem":
            lease = self._make(client, "Semaphore", f"{ROOT}/sem", LEASES).lease()
            got = await call(lease.acquire, timeout)
            return ([Part("sem", "", lease, False)], lease) if got else None
        parts, lock = self._lock(client)
        return (parts(), lock) if await call(lock.acquire, timeout) else None

    def _make(self, client: Any, name: str, *arguments: Any) -> Any:
        return getattr(zkwire, self._way.prefix + name)(client, *arguments)

    def _lock(self, client: Any) -> tuple[Callable[[], list[Part]], Any]:
        """What will be held, once it is, and what is to be acquired."""
        kind, path = self._kind, f"{ROOT}/{self._kind}"
        if kind == "rw":
            both = self._make(client, "ReadWriteLock", path)
            role = self._rng.choice(("read", "write"))
            self._reader = both.read
            lock = getattr(both, role)
            return lambda: [Part(kind, role, lock, True)], lock
        if kind == "multi":
            keys = KEYS[kind]
            locks = [self._make(client, "SequentialLock", f"{ROOT}/{key}") for key in keys]
            lock = getattr(zkwire, f"{self._way.prefix}MultiLock")(*locks)
            return lambda: [
                Part(k, "", one, True) for k, one in zip(keys, locks, strict=True)
            ], lock
        if kind == "re":
            lock = self._make(client, "ReentrantLock", path)
            return lambda: [Part(kind, "", lock.lock, True)], lock
        if kind == "el":
            lock = self._make(client, "Election", path).lead()
        else:
            lock = self._make(client, NAMES[kind], path)
        return lambda: [Part(kind, "", lock, kind not in NAMES or kind == "sq")], lock

    async def _hold(self, client: Any, parts: list[Part], lock: Any) -> None:
        """Work under the lock, looking now and then whether it is held."""
        try:
            claims = [part for part in parts if self._granted(client, part)]
            for part in claims:
                await self._write(client, part)
            if self._kind == "re":
                await self._way.call(lock.acquire)
                await self._way.call(lock.release)
            for _ in range(self._rng.randint(1, LOOKS)):
                await self._way.sleep(self._rng.uniform(0, LONGEST_WORK / LOOKS))
                claims = [part for part in claims if self._look(part)]
            claims = await self._hold_on(claims)
            if claims and self._rng.random() < 0.2:
                await self._read(client, claims[0])
            if claims and claims[0].role == "write" and self._rng.random() < 0.3:
                await self._downgrade(client)
            claims = [part for part in claims if self._look(part)]
        finally:
            for part in parts:
                self._log.write("end", at=clock(), who=self.who, key=part.key, role=part.role)
            await self._way.call(lock.release)

    async def _hold_on(self, claims: list[Part]) -> list[Part]:
        """Now and then for long; and as long as the lease runs out: then a claim is in danger.

        A connection that works renews the lease before it is down to two thirds.
        """
        began, timeout = clock(), self._worker.session_timeout
        long = self._rng.uniform(0, LONG_WORK) if self._rng.random() < LONG_SHARE else 0.0
        while claims and clock() < began + 2 * timeout:
            least = min(part.lock.lease_remaining() for part in claims)
            if clock() > began + long and least > SILENT * timeout:
                break
            await self._way.sleep(LOOK_SECONDS)
            claims = [part for part in claims if self._look(part)]
        return claims

    async def _downgrade(self, client: Any) -> None:
        """Read while writing; the reader's claim ends first, for once."""
        read = self._reader
        if not await self._way.call(read.acquire, 1.0):
            return
        try:
            part = Part("rw", "read", read, True)
            if self._granted(client, part, downgrade=True):
                self._look(part)
        finally:
            self._log.write("end", at=clock(), who=self.who, key="rw", role="read")
            await self._way.call(read.release)

    def _granted(self, client: Any, part: Part, *, downgrade: bool = False) -> bool:
        held = part.lock.held
        now = clock()
        if held:
            session = client.session_id
            passwd = client.credentials.passwd.hex()
            self._log.write(
                "grant", at=now, who=self.who, key=part.key, role=part.role,
                fence=part.lock.fence, session=session, passwd=passwd, downgrade=downgrade,
            )  # fmt: skip
        return bool(held)

    def _look(self, part: Part) -> bool:
        now = clock()
        held = part.lock.held
        if held:
            self._log.write("look", at=now, who=self.who, key=part.key, role=part.role)
        return bool(held)

    # --- what the lock is for ---------------------------------------------------------------------

    async def _write(self, client: Any, part: Part) -> None:
        """A fenced write: the server's `guard` where there is one, else a file that compares."""
        if part.role == "read" or part.key == "sem":
            return
        self._written += 1
        value, fence, began = f"{self.who} {self._written}", part.lock.fence, clock()
        fields: dict[str, Any] = {"who": self.who, "key": register_of(part.key), "value": value}
        # Whoever is killed now cannot tell what became of it.
        self._log.write("intent", at=began, fence=fence, **fields)
        if not part.guards:
            number = fenced_write(self._register.with_name(part.key), fence)
            self._log.write(
                "write", at=began, end=clock(), ok=number is not None, zxid=number or 0,
                version=number or 0, fence=fence, **fields,
            )  # fmt: skip
            return
        ok: bool | None = None
        zxid = version = 0
        try:
            (stat,) = await self._way.call(
                part.lock.guard, [SetData(fields["key"], value.encode())]
            )
            ok, zxid, version = True, stat.mzxid, stat.version
        except LockLostError:
            ok = False
            raise
        finally:
            self._log.write(
                "write", at=began, end=clock(), ok=ok, zxid=zxid, version=version, fence=fence,
                session=f"{client.session_id:x}", **fields,
            )  # fmt: skip

    async def _read(self, client: Any, part: Part) -> None:
        if not part.guards or part.key == "sem":
            return
        began, path = clock(), register_of(part.key)
        data, stat = await self._way.call(client.get_data, path)
        self._log.write(
            "read", at=began, end=clock(), who=self.who, key=path, value=data.decode(),
            zxid=stat.mzxid, version=stat.version, session=f"{client.session_id:x}",
        )  # fmt: skip


NAMES = {"nb": "NonBlockingLock", "bl": "BlockingLock", "sq": "SequentialLock"}
KEYS = {"multi": ("ma", "mb")}
FAIR = ("sq", "el", "re", *KEYS["multi"])
"""The locks that go by order of arrival alone; of `rw`, readers may pass each other."""


def register_of(key: str) -> str:
    """The node that the lock's holders write to."""
    return f"/registers/{key}"


# --- the process ----------------------------------------------------------------------------------


def contenders(worker: Worker, register: Path, seed: int) -> list[Contender]:
    """One for each kind."""
    return [Contender(worker, kind, register, random.Random(f"{seed} {kind}")) for kind in KINDS]


def obey(worker: Worker) -> None:
    """Wait for the order to stop; without the one who gives it there is nothing left to do."""
    if sys.stdin.readline() != "stop\n":
        os._exit(3)
    worker.stopped.set()


def in_threads(worker: Worker, crew: list[Contender]) -> list[str]:
    """Contend in threads; what is left behind."""
    threads = [
        threading.Thread(target=each.contend_in_thread, name=each.who, daemon=True) for each in crew
    ]
    for thread in threads:
        thread.start()
    worker.stopped.wait()
    until = time.monotonic() + JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = [thread.name for thread in threads if thread.is_alive()]
    run(worker.close())
    return stuck


async def in_tasks(worker: Worker, crew: list[Contender]) -> list[str]:
    """The same in tasks."""
    tasks = {asyncio.create_task(each.contend(), name=each.who) for each in crew}
    await asyncio.to_thread(worker.stopped.wait)
    _, pending = await asyncio.wait(tasks, timeout=JOIN_SECONDS)
    await worker.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    return [task.get_name() for task in pending | left]


def main() -> int:
    """See the module's docstring."""
    name, mode, hosts, timeout, path, seed = sys.argv[1:]
    os.nice(5)  # servers that come back have the machine first
    log = Log(path)
    register = Path(path).with_name("register")

    def worker(way: Way) -> tuple[Worker, list[Contender]]:
        made = Worker(name, way, hosts, float(timeout), log)
        threading.Thread(target=obey, args=(made,), name="orders", daemon=True).start()
        return made, contenders(made, register, int(seed))

    async def tasks() -> list[str]:
        return await in_tasks(*worker(TaskWay()))

    left = asyncio.run(tasks()) if mode == "tasks" else in_threads(*worker(Way()))
    deadline = time.monotonic() + THREAD_SECONDS
    while (own := own_threads()) and time.monotonic() < deadline:
        time.sleep(0.05)
    log.write("bye", at=clock(), who=name, left=left + own)
    log.close()
    return 1 if left + own else 0


def own_threads() -> list[str]:
    """The library's threads that live still."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("zkwire")]


if __name__ == "__main__":
    sys.exit(main())
