"""Contenders of zkwire and of kazoo for one lock, each with a session of its own.

    python3 -m tests.interop.neighbours.contenders LIBRARY HOSTS PATH PORT RECIPE COUNT

As Curator's (`Contend.java`) they acquire, tell the arbiter on this port, hold and release until it
says that it is over, and begin with a new client behind each error. ``kazoo`` names its nodes as
zkwire and Curator do, ``kazoo-patterns`` is told of theirs, ``kazoo-plain`` knows its own alone;
``zkwire-kazoo`` names its nodes as that one does; ``zkwire.kazoo-plain`` is that one on zkwire.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from itertools import cycle, islice, takewhile
from textwrap import dedent
from typing import Any

import zkwire
from tests.check.environment import ROOT
from tests.interop.neighbours.arbiter import ALONE, LEASE, SHARED
from zkwire import AsyncClient, Client

PAGE = ROOT / "docs" / "locks.md"
SESSION_SECONDS = 4.0
ACQUIRE_SECONDS = 90.0
PAUSE_SECONDS = 0.1  # behind an error
LEASES = 2
MODES = {"mutex": ALONE, "election": ALONE, "read": SHARED, "write": ALONE, "semaphore": LEASE}
"""By the recipe."""


class OverError(Exception):
    """The arbiter says that there are no more turns, or is gone."""


class Teller:
    """Tells the arbiter; its calls wait for the answers."""

    def __init__(self, library: str, recipe: str, port: int) -> None:
        self._library, self._mode = library, MODES[recipe]
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rw", newline="\n")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def enter(self, session_id: int, password: bytes) -> float:
        """For how many seconds to hold."""
        self._say(f"enter {self._library} {self._mode} {session_id} {password.hex()}")
        answer = self._file.readline().split()
        if answer[:1] != ["hold"]:
            raise OverError
        return float(answer[1])

    def leave(self) -> None:
        self._say("leave")
        self._file.readline()

    def trouble(self, error: BaseException) -> None:
        self._say(f"trouble {self._library} {type(error).__name__}")
        if self._file.readline() != "again\n":
            raise OverError

    def _say(self, line: str) -> None:
        try:
            self._file.write(f"{line}\n")
            self._file.flush()
        except OSError:
            raise OverError from None


# --- zkwire ---------------------------------------------------------------------------------------


def lock_of(prefix: str, recipe: str, client: Any, path: str, names: str = "zkwire") -> Any:
    """A lock of the client that the prefix of its classes stands for."""
    classes = {
        name: partial(getattr(zkwire, prefix + name), names=names)
        for name in ("SequentialLock", "ReadWriteLock", "Election", "Semaphore")
    }
    make: dict[str, Callable[[], Any]] = {
        "mutex": lambda: classes["SequentialLock"](client, path),
        "read": lambda: classes["ReadWriteLock"](client, path).read,
        "write": lambda: classes["ReadWriteLock"](client, path).write,
        "election": lambda: classes["Election"](client, path).lead(),
        "semaphore": lambda: classes["Semaphore"](client, path, LEASES).lease(),
    }
    return make[recipe]()


def with_threads(hosts: str, path: str, recipe: str, teller: Teller, names: str) -> None:
    """Turns with one client, until an error."""
    with Client(hosts, session_timeout=SESSION_SECONDS) as client:
        while True:
            lock = lock_of("", recipe, client, path, names)
            with lock.within(ACQUIRE_SECONDS):
                known = client.credentials
                time.sleep(teller.enter(known.session_id, known.passwd))
                teller.leave()


async def with_tasks(hosts: str, path: str, recipe: str, teller: Teller) -> None:
    """The same with asyncio."""
    async with AsyncClient(hosts, session_timeout=SESSION_SECONDS) as client:
        while True:
            lock = lock_of("Async", recipe, client, path)
            async with lock.within(ACQUIRE_SECONDS):
                known = client.credentials
                enter = asyncio.to_thread(teller.enter, known.session_id, known.passwd)
                await asyncio.sleep(await enter)
                await asyncio.to_thread(teller.leave)


# --- kazoo ----------------------------------------------------------------------------------------


def classes_of_the_page() -> dict[str, Any]:
    """What the block of docs/locks.md defines that begins with kazoo's import."""
    _, begin, rest = PAGE.read_text().partition("    from kazoo.recipe.lock import Lock\n")
    block = takewhile(lambda line: not line.strip() or line[0] == " ", rest.splitlines(True))
    defined: dict[str, Any] = {}
    exec(dedent(begin + "".join(block)), defined)
    return defined


def kazoo_lock(client: Any, path: str, recipe: str, way: str) -> Any:
    """A lock of kazoo's; the classes with the names of the others are those of docs/locks.md."""
    if recipe == "semaphore":
        return client.Semaphore(path, max_leases=LEASES)
    if recipe == "election":
        return client.Election(path).lock
    if way == "kazoo":
        names = {"mutex": "SharedLock", "write": "SharedWriteLock", "read": "SharedReadLock"}
        return classes_of_the_page()[names[recipe]](client, path)
    make, patterns = {
        "mutex": (client.Lock, ["-lock-"]),
        "write": (client.WriteLock, ["__WRIT__", "__READ__"]),
        "read": (client.ReadLock, ["__WRIT__"]),
    }[recipe]
    return make(path, extra_lock_patterns=patterns if way == "kazoo-patterns" else ())


def with_kazoo(way: str, hosts: str, path: str, recipe: str, teller: Teller) -> None:
    """The same with kazoo."""
    from kazoo.client import KazooClient as PlainClient

    from zkwire.kazoo import KazooClient

    kind = KazooClient if way == "zkwire.kazoo-plain" else PlainClient
    client: Any = kind(hosts, timeout=SESSION_SECONDS)
    try:
        client.start(ACQUIRE_SECONDS)
        while True:
            lock = kazoo_lock(client, path, recipe, way)
            if not lock.acquire(timeout=ACQUIRE_SECONDS):
                raise TimeoutError
            try:
                if client.client_id is None:
                    raise ConnectionError
                time.sleep(teller.enter(*client.client_id))
                teller.leave()
            finally:
                lock.release()
    finally:
        with suppress(Exception):
            client.stop()
            client.close()


# --- a process ------------------------------------------------------------------------------------


def turns(turn: Callable[[Teller], object], library: str, recipe: str, port: int) -> None:
    """One contender, until there are no more turns."""
    with suppress(OverError), closing(Teller(library, recipe, port)) as teller:
        while True:
            try:
                turn(teller)
            except OverError:
                return
            except Exception as error:
                teller.trouble(error)
                time.sleep(PAUSE_SECONDS)


def main() -> None:
    """So many contenders, each in a thread."""
    library, hosts, path, port, recipe, count = sys.argv[1:]
    logging.disable()  # of kazoo, which says much of each cut

    def turn(recipe: str, teller: Teller) -> None:
        if library in ("zkwire", "zkwire-kazoo"):
            with_threads(hosts, path, recipe, teller, library.rpartition("-")[2])
        elif library == "zkwire-asyncio":
            asyncio.run(with_tasks(hosts, path, recipe, teller))
        else:
            with_kazoo(library, hosts, path, recipe, teller)

    recipes = islice(cycle(["write", "read"] if recipe == "read-write" else [recipe]), int(count))
    threads = [
        threading.Thread(target=turns, args=(partial(turn, one), library, one, int(port)))
        for one in recipes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
