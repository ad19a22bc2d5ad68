"""The long trials: processes at work on a server, what is done to them, and what they have said.

A module of a trial has a function ``run(options, rng)``, which prints its figures and returns what
was wrong, and perhaps ``work(...)``, that of a process of its own; it ends with `main`.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.check.environment import ROOT
from tests.support.installed_servers import _leash

END_SECONDS = 120.0
Run = Callable[[argparse.Namespace, random.Random], list[str]]


def say(*words: object) -> None:
    """A line, written at once and as a whole: what is killed later cannot take it back."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def stopped() -> threading.Event:
    """In a worker: set when the trial says stop, or has ended."""
    event = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=listen, daemon=True).start()
    return event


class Worker:
    """A process of this program's `work`, and the lines that it has said, as words."""

    def __init__(self, *words: object) -> None:
        spec = sys.modules["__main__"].__spec__
        assert spec is not None
        self.process = subprocess.Popen(
            [*_leash(), sys.executable, "-m", spec.name, "--work", *map(str, words)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[list[str]] = []
        self.killed = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                if line.endswith("\n"):  # or it was killed in the middle of it
                    self.lines.append(line.split())

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.killed = time.monotonic()
        self.process.kill()
        self.end()

    def stop(self) -> None:
        """Ask it to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> int:
        """Wait for its end; its exit status, with all that it has said."""
        status = self.process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)
        self.stop()
        return status


class Crew:
    """So many workers at a time; whoever is killed or ends has a successor."""

    def __init__(self, number: int, make: Callable[[], Worker]) -> None:
        self._make = make
        self.now = [make() for _ in range(number)]
        self.all = list(self.now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for worker in self.now:
            if worker.running:
                worker.kill()

    @property
    def kills(self) -> int:
        return sum(worker.killed > 0 for worker in self.all)

    def replace(self, worker: Worker) -> None:
        self.now.remove(worker)
        self.add()

    def add(self) -> Worker:
        self.now.append(self._make())
        self.all.append(self.now[-1])
        return self.now[-1]

    def end(self) -> list[int]:
        """Have all end; their exit statuses."""
        for worker in self.now:
            worker.stop()
        return [worker.end() for worker in self.now]


class Moments:
    """Random moments, so many seconds apart."""

    def __init__(self, rng: random.Random, least: float, most: float) -> None:
        self._rng, self._seconds = rng, (least, most)
        self._next = time.monotonic() + rng.uniform(least, most)
        self.count = 0

    def come(self) -> bool:
        """Whether the next one has come."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._rng.uniform(*self._seconds)
        self.count += 1
        return True


def main(run: Run, work: Callable[..., object] | None = None, **options: Any) -> int:
    """The command: ``options`` are its options with their defaults; True for what has no value."""
    if sys.argv[1:2] == ["--work"]:
        assert work is not None
        work(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    for name, value in options.items():
        how = {"action": "store_true"} if value is True else {"type": type(value), "default": value}
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    wrong = run(chosen, random.Random(chosen.seed))
    for line in wrong[:30]:
        print(f"WRONG: {line}")
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0
