"""The line protocol between the benchmark and its workers: a job goes in, an outcome comes out.

A job is one line of five words, so that a program in C can read it with one call; an outcome is one
line of JSON.  Nothing here measures or connects.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Self

SMALL = 100
"""Bytes of an ordinary node's data."""

NODES = 100
"""How many ordinary nodes the requests of a segment go round."""


@dataclass(frozen=True)
class Job:
    """One segment of work for one worker."""

    server: str
    """`real` or `replay`."""
    kind: str
    """A verb (`get`: one at a time), `pipelined-get`, `threads-get`, `lock`, ..."""
    count: int
    """How many operations to measure; a worker may round up to whole windows."""
    width: int = 1
    """How many at a time: requests in flight, threads, clients."""
    size: int = SMALL
    """Bytes of a node's data, or names in a list of children."""

    def line(self) -> str:
        return f"{self.server} {self.kind} {self.count} {self.width} {self.size}"

    @classmethod
    def parse(cls, line: str) -> Self:
        server, kind, count, width, size = line.split()
        return cls(server, kind, int(count), int(width), int(size))


@dataclass
class Outcome:
    """What a segment has cost its worker."""

    ops: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """User and system time of the worker's process."""
    p50: float | None = None
    """Microseconds from the call to its result."""
    p99: float | None = None
    rss: int = 0
    """Resident bytes of the process, after the segment."""
    added: float | None = None
    """KiB of memory that each client has added, where that is what is measured."""
    note: str = ""
    error: str = ""
    """Why there are no figures; empty if there are."""

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Self:
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in json.loads(line).items() if key in known})


def data_path(job: Job, number: int) -> str:
    """The node that the `number`th request of a segment reads or writes."""
    return f"/bench/d{job.size}/{number % NODES if job.size <= SMALL else 0:02d}"


def list_path(job: Job) -> str:
    """The node with `job.size` children."""
    return f"/bench/n{job.size}"
