"""One process of a client: calls go in by lines, answers and what it tells by itself come out.

The lines are those of `drivers/lines.py`.  All times are of one clock: when this process has read
the line.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.support.installed_servers import _leash

ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
LOGS = ROOT / ".check" / "atlas"


class Told(NamedTuple):
    """A state or an event that a client has told by itself."""

    at: float
    session: str
    what: str  # "state" or "event"
    words: str


class Answer(NamedTuple):
    """How a call has ended: "ok ..." or an error's name; None if it has not."""

    words: str | None
    seconds: float
    lacks: bool = False

    @property
    def good(self) -> bool:
        return (self.words or "").startswith("ok")

    @property
    def said(self) -> str:
        """The words, without what a call has returned."""
        return "ok" if self.good else self.words or "no answer"

    @property
    def text(self) -> str:
        """What the call returned."""
        return (self.words or "").removeprefix("ok").strip()


class Call:
    """A call that may not have ended."""

    def __init__(self, changed: threading.Condition) -> None:
        self.started = time.monotonic()
        self._changed = changed
        self.ended: tuple[float, str] | None = None

    def wait(self, limit: float) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self.ended is not None, limit)
        if self.ended is None:
            return Answer(None, time.monotonic() - self.started)
        at, words = self.ended
        if words == "lacks":
            return Answer(None, 0.0, lacks=True)
        return Answer(words.removeprefix("error "), at - self.started)


class Driver:
    """The process; a context manager that kills it."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self.told: list[Told] = []
        self.version = ""
        self.ended_at: float | None = None
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._calls: dict[str, Call] = {}
        self._ready = False
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*_leash(), *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, errors="replace", process_group=0, env={**os.environ, **environment},
            )  # fmt: skip
        threading.Thread(target=self._read, name="atlas-driver", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self.ended_at is not None, 60.0)
        if not self._ready:
            raise RuntimeError(f"{command} is not ready; see {log}")

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, session: str, *words: object) -> Call:
        """Begin a call."""
        call = Call(self._changed)
        number = str(next(self._numbers))
        with self._changed:
            self._calls[number] = call
            assert self.process.stdin is not None
            with suppress(BrokenPipeError, ValueError):  # the process has ended
                self.process.stdin.write(" ".join(map(str, (number, session, *words))) + "\n")
                self.process.stdin.flush()
        return call

    def ask(self, session: str, *words: object, limit: float) -> Answer:
        """A whole call."""
        return self.start(session, *words).wait(limit)

    def wait_told(self, chosen: Callable[[Told], bool], limit: float) -> Told | None:
        """The first state or event that is chosen; None if there is none in time."""
        found: list[Told] = []

        def look() -> bool:
            found[:] = [told for told in self.told if chosen(told)]
            return bool(found) or self.ended_at is not None

        with self._changed:
            self._changed.wait_for(look, limit)
        return found[0] if found else None

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._take(line.rstrip("\n"), time.monotonic())
        with self._changed:
            self.ended_at = time.monotonic()
            self._changed.notify_all()

    def _take(self, line: str, now: float) -> None:
        first, _, rest = ADDRESS.sub("ADDRESS", line).partition(" ")
        with self._changed:
            if first == "ready":
                self._ready, self.version = True, rest
            elif first == "*":
                self.told.append(Told(now, *rest.split(" ", 2)))
            elif call := self._calls.pop(first, None):
                call.ended = (now, rest)
            self._changed.notify_all()
