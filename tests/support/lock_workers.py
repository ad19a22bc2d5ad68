"""What the tests of the locks run in processes of their own; see `lock_helpers.Worker`.

``python -m tests.support.lock_workers FUNCTION ARGUMENT ...``: each public function here is one
worker. It talks to its test in lines: its standard input gives orders, its standard output reports.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import select
import signal
import sys
import threading
import time
from pathlib import Path

import zkwire
from tests.support.lock_helpers import Lock
from tests.support.recipe_samples import lock as lock_of
from zkwire import (
    Client,
    Election,
    NonBlockingLock,
)

# A non-blocking lock never waits, so its user must: at most this long between two tries.
LONGEST_PAUSE = 0.01


def say(line: object) -> None:
    """Report a line, in one piece whatever interrupts it."""
    os.write(1, f"{line}\n".encode())


def counting(hosts: str, kind_name: str, path: str, times: str, file: str) -> None:
    """Count the number in a file up, under the lock; report each number found and the fence."""
    counter = Path(file)
    with Client(hosts) as client:
        lock = lock_of(kind_name, client, path)
        say("ready")
        sys.stdin.readline()
        for _ in range(int(times)):
            wait_for(lock)
            number = int(counter.read_text())
            counter.write_text(str(number + 1))
            assert lock.held
            say(f"{number} {lock.fence}")
            lock.release()


def wait_for(lock: Lock) -> None:
    """Acquire a lock of any kind."""
    if isinstance(lock, NonBlockingLock):
        while not lock.try_acquire():
            time.sleep(random.uniform(0, LONGEST_PAUSE))
    else:
        assert lock.acquire()


def writing(hosts: str, kind_name: str, path: str, session_timeout: str, register: str) -> None:
    """Hold the lock; at each line look at ``held`` first of all, then write to the register."""
    with Client(hosts, session_timeout=float(session_timeout)) as client:
        lock = lock_of(kind_name, client, path)
        lost = threading.Event()
        lock.lost.add_callback(lambda _: lost.set())
        assert lock.acquire(10)
        say(f"fence {lock.fence}")
        while sys.stdin.readline():
            held = lock.held
            written = fenced_write(Path(register), f"by {os.getpid()}", lock.fence)
            told = lock.lost.wait(10) and lost.wait(10) if not held else False
            say(f"held {held} written {written} told {told}")


def fenced_write(register: Path, value: str, fence: int) -> bool:
    """Write to a register that refuses whoever comes with an older fence than it has seen."""
    with register.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        highest = int(file.readline() or 0)
        if fence < highest:
            return False
        file.seek(0)
        file.truncate()
        file.write(f"{fence}\n{value}\n")
    return True


class Orders:
    """Lines of the standard input, waited for in a way that no signal can slip through."""

    def __init__(self) -> None:
        # A signal that comes just before a system call that blocks does not end it; a byte does.
        self._signalled, signalled = os.pipe()
        os.set_blocking(signalled, False)
        signal.set_wakeup_fd(signalled)

    def next(self) -> str:
        """The next line; "" at the end."""
        while True:
            ready, _, _ = select.select([0, self._signalled], [], [])
            if self._signalled in ready:
                os.read(self._signalled, 100)
            elif ready:
                return os.read(0, 100).decode()


def interrupted(hosts: str, kind_name: str, path: str) -> None:
    """Wait for the lock at each line, and be interrupted twice.

    The line says how many microseconds after the first interrupt the second one comes.
    """
    interruptions = {signal.SIGINT, signal.SIGALRM}
    # Threads inherit this: both signals are for the one that is to be interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, interruptions)
    with Client(hosts) as client:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interruptions)
        lock, orders = lock_of(kind_name, client, path), Orders()
        interrupts, pause = 0, 0.0

        def interrupt(number: int, _: object) -> None:
            nonlocal interrupts
            interrupts += 1
            if number == signal.SIGINT:
                signal.setitimer(signal.ITIMER_REAL, pause)
            raise KeyboardInterrupt

        def serve() -> None:
            nonlocal pause
            while True:
                try:
                    say(f"interrupts {interrupts}")
                    line = orders.next()
                    if not line:
                        return
                    pause = int(line) / 1e6
                    lock.acquire()
                except KeyboardInterrupt:
                    pass

        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGALRM, interrupt)
        while True:
            try:
                return serve()
            except KeyboardInterrupt:  # the second one, while the first was being handled
                pass


# --- the rest of the family -----------------------------------------------------------------------


def leading(hosts: str, path: str, text: str, session_timeout: str) -> None:
    """Lead, and say so each time; a line ends the term."""
    with Client(hosts, session_timeout=float(session_timeout)) as client:
        election = Election(client, path, text)
        while True:
            with election.lead() as leadership:
                say(f"leads {leadership.fence}")
                if not sys.stdin.readline():
                    return


# --- asyncio --------------------------------------------------------------------------------------


def writing_in_a_task(
    hosts: str, kind_name: str, path: str, session_timeout: str, register: str
) -> None:
    """As `writing`, by a task; the loop runs while there is no order."""

    async def main() -> None:
        async with zkwire.AsyncClient(hosts, session_timeout=float(session_timeout)) as client:
            lock = lock_of(kind_name, client, path)
            lost = asyncio.Event()
            lock.lost.add_callback(lambda _: lost.set())
            assert await lock.acquire(10)
            say(f"fence {lock.fence}")
            loop = asyncio.get_running_loop()
            while await loop.run_in_executor(None, sys.stdin.readline):
                held = lock.held
                written = fenced_write(Path(register), f"by {os.getpid()}", lock.fence)
                told = False
                if not held:
                    async with asyncio.timeout(10):
                        told = await lock.lost and await lost.wait()
                say(f"held {held} written {written} told {told}")

    asyncio.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
