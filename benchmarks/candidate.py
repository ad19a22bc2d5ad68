"""What a client must offer to be measured, and how a segment of it is measured.

`Candidate` does what all have in common: it makes the arguments before the clock starts, and brings
and takes away nodes on a connection of its own, so that this costs every candidate the same.  A
candidate must do within `one` and `many` what a user would write, with results asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.connecting import connect_time, many_clients
from benchmarks.jobs import Job, Outcome, data_path, list_path
from benchmarks.measure import NotOffered, timed, timed_calls
from benchmarks.wire import OPCODES, Address, Bare, request

Arguments = Sequence[tuple[Any, ...]]


class Candidate(ABC):
    """One client in one process, with one connection to each server."""

    _made = 0  # nodes so far, so that no two have the same name

    def __init__(self, address: Address) -> None:
        self.address = address
        self.helper: Bare | None = None

    # --- what a client is -------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """End the session."""

    @abstractmethod
    def one(self, verb: str) -> Callable[..., object]:
        """A function that does one operation and returns its result."""

    @abstractmethod
    def many(self, verb: str, window: Arguments) -> None:
        """All operations of a window at once, and then all their results."""

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        """Operations one at a time in each of several threads."""
        raise NotOffered

    def beside_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        """Operations one at a time in one thread, while the other threads call, too."""
        raise NotOffered

    def special(self, job: Job) -> Outcome:
        """Whatever is no plain operation; see `specials`."""
        if job.kind == "connect":
            return connect_time(self.opened, job)
        if job.kind == "clients":
            return many_clients(self.opened, job)
        special = self.specials().get(job.kind)
        if special is None:
            raise NotOffered
        return special(job)

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        """What this client can do besides, by kind of job."""
        return {}

    def opened(self) -> Callable[[], None]:
        """One more client, connected; what closes it."""
        raise NotOffered

    def arguments(self, verb: str, paths: Sequence[str], data: bytes) -> Arguments:
        """The arguments of `one`, made before the clock starts."""
        if verb in ("create", "set"):
            return [(path, data) for path in paths]
        return [(path,) for path in paths]

    # --- what is done with it ---------------------------------------------------------------------

    def run(self, job: Job) -> Outcome:
        """Measure one segment."""
        way, _, verb = job.kind.rpartition("-")
        if verb not in OPCODES:
            return self.special(job)
        count = job.count if way == "busy" else -(-job.count // job.width) * job.width
        with self.material(job, verb, count) as arguments:
            if way == "pipelined":
                windows = [arguments[n : n + job.width] for n in range(0, count, job.width)]
                return self.time_windows(verb, windows)
            if way == "threads":
                return self.in_threads(verb, arguments, job.width)
            if way == "busy":
                return self.beside_threads(verb, arguments, job.width)
            return self.time_calls(verb, arguments)

    def time_calls(self, verb: str, arguments: Arguments) -> Outcome:
        """One operation after the other."""
        return timed_calls(self.one(verb), arguments)

    def time_windows(self, verb: str, windows: Sequence[Arguments]) -> Outcome:
        """One window of operations after the other."""

        def work() -> None:
            for window in windows:
                self.many(verb, window)

        return timed(sum(map(len, windows)), work)

    @contextmanager
    def material(self, job: Job, verb: str, count: int) -> Iterator[Arguments]:
        """The arguments of a segment; the nodes that it needs are there, and go afterwards."""
        paths = list(self._paths(job, verb, count))
        data = b"x" * job.size if verb in ("create", "set") else b""
        real = job.server == "real"
        if verb == "delete" and real:
            self.bare().do_all([request("create", path) for path in paths])
        yield self.arguments(verb, paths, data)
        if verb == "create" and real:
            self.bare().do_all([request("delete", path) for path in paths])

    def _paths(self, job: Job, verb: str, count: int) -> Iterator[str]:
        for number in range(count):
            if verb in ("create", "delete"):
                Candidate._made += 1
                yield f"/bench/new/node-{Candidate._made:09d}"
            elif verb == "children":
                yield list_path(job)
            else:
                yield data_path(job, number)

    def bare(self) -> Bare:
        """The connection for what is not measured."""
        if self.helper is None:
            self.helper = Bare(self.address)
        return self.helper


class Partial(Candidate):
    """A floor for some kinds of jobs alone; by itself it has no connection."""

    def close(self) -> None:
        """Whoever has connected for a job has closed."""

    def one(self, verb: str) -> Callable[..., object]:
        raise NotOffered

    def many(self, verb: str, window: Arguments) -> None:
        raise NotOffered

    def run(self, job: Job) -> Outcome:
        """Measure one segment, if it is of these kinds."""
        special = self.specials().get(job.kind)
        if special is None:
            raise NotOffered
        return special(job)
