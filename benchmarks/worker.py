"""A process with one Python client: `python -m benchmarks.worker NAME REAL REPLAY`.

Does jobs from standard input until that ends; see benchmarks/jobs.py for the two kinds of lines.
It connects when a server is first needed and stays connected, asleep between its jobs.
"""

from __future__ import annotations

import gc
import importlib
import sys
from contextlib import suppress

from benchmarks.candidate import Candidate
from benchmarks.jobs import Job, Outcome
from benchmarks.measure import NotOffered
from benchmarks.wire import Address

CLASSES = {
    "floor": "benchmarks.floor:Floor",
    "listing": "benchmarks.floor_locks:ListingFloor",
    "leader": "benchmarks.floor_shared:LeaderFloor",
    "reader": "benchmarks.floor_shared:ReaderFloor",
    "codec": "benchmarks.codec_floor:CodecFloor",
    "zkwire": "benchmarks.zkwire_blocking:ZkwireBlocking",
    "zkwire-asyncio": "benchmarks.zkwire_asyncio:ZkwireAsyncio",
    "asyncio-floor": "benchmarks.asyncio_floor:AsyncioFloor",
    "aiozk": "benchmarks.aiozk_tasks:AiozkTasks",
    "kazoo": "benchmarks.kazoo_threads:KazooThreads",
}


def kind_of(name: str) -> type[Candidate]:
    """The candidate of this name; it is imported only now, for not all can be everywhere."""
    module, _, cls = CLASSES[name].partition(":")
    kind: type[Candidate] = getattr(importlib.import_module(module), cls)
    return kind


class Worker:
    """One client, and its connections to the servers."""

    def __init__(self, name: str, addresses: dict[str, Address]) -> None:
        self._kind = kind_of(name)
        self._addresses = addresses
        self._connected: dict[str, Candidate] = {}
        self._refused: dict[str, Exception] = {}

    def run(self, job: Job) -> Outcome:
        """Do a job; a failure is an outcome too."""
        try:
            candidate = self._candidate(job.server)
            gc.collect()
            return candidate.run(job)
        except NotOffered:
            return Outcome(error="not offered")
        except Exception as error:
            self._forget(job.server)
            return Outcome(error=f"{type(error).__name__}: {error}"[:120])

    def _forget(self, server: str) -> None:
        """The next job gets a new connection: replies may be under way on this one."""
        candidate = self._connected.pop(server, None)
        if candidate is not None:
            with suppress(Exception):
                _close(candidate)

    def _candidate(self, server: str) -> Candidate:
        """The client that is connected to this server; who could not connect is not asked again."""
        if server in self._refused:
            raise self._refused[server]
        if server not in self._connected:
            try:
                self._connected[server] = self._kind(self._addresses[server])
            except Exception as error:
                self._refused[server] = error
                raise
        return self._connected[server]

    def close(self) -> None:
        """End all connections."""
        for candidate in self._connected.values():
            _close(candidate)


def _close(candidate: Candidate) -> None:
    candidate.close()
    if candidate.helper is not None:
        candidate.helper.close()


def parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    name, real, replay = sys.argv[1:]
    worker = Worker(name, {"real": parse_address(real), "replay": parse_address(replay)})
    try:
        print(Outcome(note="ready").line(), flush=True)
        for line in sys.stdin:
            print(worker.run(Job.parse(line)).line(), flush=True)
    finally:
        worker.close()


if __name__ == "__main__":
    main()
