"""Who is measured, how each is started as a process of its own, and who is missing here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.jobs import Job
from benchmarks.processes import WorkerProcess
from benchmarks.programs import MissingError, c_client, curator, java_client
from benchmarks.wire import Address


@dataclass(frozen=True)
class Candidate:
    """One line of the tables."""

    title: str
    worker: str = ""
    """Its name for `benchmarks.worker`; empty for a program that is none in Python."""
    program: Callable[[Path], list[str]] | None = None
    needs: str = ""
    """A module that must be there."""
    floor: str = "floor"
    """The title of the candidate that it is compared with."""
    compiles: bool = False
    """Whether it gets faster while it runs, so that it must be warmed up before it is measured."""


CANDIDATES = [
    Candidate("floor", "floor"),
    Candidate("codec floor", "codec"),
    Candidate("listing floor", "listing"),
    Candidate("leader floor", "leader"),
    Candidate("reader floor", "reader"),
    Candidate("zkwire", "zkwire"),
    Candidate("kazoo", "kazoo", needs="kazoo"),
    Candidate("C client", program=c_client),
    Candidate("Java client", program=java_client, compiles=True),
    Candidate("Curator", program=partial(curator, program="Recipes"), compiles=True),
    Candidate("asyncio floor", "asyncio-floor", floor="asyncio floor"),
    Candidate("zkwire asyncio", "zkwire-asyncio", floor="asyncio floor"),
    Candidate("aiozk", "aiozk", needs="aiozk", floor="asyncio floor"),
]
BY_TITLE = {candidate.title: candidate for candidate in CANDIDATES}
WARMING = [way + verb for way in ("", "pipelined-") for verb in ("get", "create", "set", "delete")]
WARMING_CALLS = 20_000
WARM_FACTOR = 3.0


@dataclass
class Workers(AbstractContextManager["Workers"]):
    """The processes of a run: each is started once, and a fresh one whenever asked for."""

    missing: dict[str, str]
    """Who cannot be measured, and why not; to be filled."""
    commands: dict[str, list[str]] = field(default_factory=dict)
    _running: dict[str, WorkerProcess] = field(default_factory=dict)
    _real: Address = ("", 0)

    def find(self, directory: Path, addresses: tuple[Address, Address], pattern: str) -> None:
        """Find out who can be measured here; floors always can."""
        ends = [f"{host}:{port}" for host, port in addresses]
        self._real = addresses[0]
        for candidate in CANDIDATES:
            if not (fnmatch(candidate.title, pattern) or "floor" in candidate.title):
                continue
            if candidate.needs and find_spec(candidate.needs) is None:
                self.missing[candidate.title] = f"no module {candidate.needs}"
                continue
            try:
                self.commands[candidate.title] = [*_command(candidate, directory), *ends]
            except MissingError as error:
                self.missing[candidate.title] = str(error)

    def __iter__(self) -> Iterator[str]:
        return iter(self.commands)

    def start(self) -> None:
        """Start all, so that no workload has to wait for one."""
        for title in self.commands:
            self.get(title)

    def get(self, title: str) -> WorkerProcess:
        """Its process; a new one if the last has died."""
        if title not in self._running or not self._running[title].running:
            self._running[title] = self.fresh(title)
            if BY_TITLE[title].compiles:
                for kind in WARMING:
                    width = 1000 if "-" in kind else 1
                    self._running[title].run(Job("replay", kind, WARMING_CALLS, width))
        return self._running[title]

    def fresh(self, title: str) -> WorkerProcess:
        """One more process, for the caller to end."""
        return WorkerProcess(self.commands[title], self._real)

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # which ends the others if one is interrupted
            for worker in self._running.values():
                stack.callback(worker.end)
                worker.let_go()


def _command(candidate: Candidate, directory: Path) -> list[str]:
    if candidate.program is not None:
        return candidate.program(directory)
    return [sys.executable, "-m", "benchmarks.worker", candidate.worker]
