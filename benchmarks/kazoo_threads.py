"""kazoo with its ordinary threads; pipelined through its `_async` methods."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from kazoo.client import KazooClient

from benchmarks import decoding, locks
from benchmarks.candidate import Arguments, Candidate
from benchmarks.jobs import Job, Outcome
from benchmarks.threads import calling, timed_beside, timed_threads
from benchmarks.watching import Countdown, called_back
from benchmarks.wire import SESSION_MS, Address

NAMES = {
    "get": "get",
    "set": "set",
    "children": "get_children",
    "create": "create",
    "delete": "delete",
    "exists": "exists",
}


def connected(address: Address) -> Any:
    """A client with a session of its own."""
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    client = KazooClient(f"{address[0]}:{address[1]}", timeout=SESSION_MS / 1000)
    client.start(10.0)
    return client


def ended(client: Any) -> None:
    """Stop and close a client."""
    client.stop()
    client.close()


class KazooThreads(Candidate):
    """See the module's docstring."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.client = connected(address)

    def close(self) -> None:
        ended(self.client)

    def one(self, verb: str) -> Callable[..., object]:
        call: Callable[..., object] = getattr(self.client, NAMES[verb])
        return call

    def many(self, verb: str, window: Arguments) -> None:
        submit = getattr(self.client, NAMES[verb] + "_async")
        replies = [submit(*each) for each in window]
        for reply in replies:
            reply.get()

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return timed_threads(self.one(verb), arguments, threads)

    def beside_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return timed_beside(self.one(verb), arguments, threads)

    def opened(self) -> Callable[[], None]:
        return partial(ended, connected(self.address))

    # --- beyond plain operations ------------------------------------------------------------------

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        return {
            "lock": self._free_lock,
            "contended": self._contended,
            "handoff": self._hand_off,
            "busy-lock": self._busy_lock,
            "busy-handoff": self._busy_hand_off,
            "callbacks": self._callbacks,
            **decoding.specials(decoding.kazoo_decoders),
        }

    def _free_lock(self, job: Job) -> Outcome:
        return locks.free_lock(self.client.Lock("/bench/locks/kazoo-free"), job.count)

    def _contended(self, job: Job) -> Outcome:
        path, other = "/bench/locks/kazoo-contended", connected(self.address)
        try:
            return locks.contended((self.client.Lock(path), other.Lock(path)), job.count)
        finally:
            ended(other)

    def _hand_off(self, job: Job) -> Outcome:
        path, other = "/bench/locks/kazoo-handoff", connected(self.address)
        try:
            pair = (self.client.Lock(path), other.Lock(path))
            return locks.hand_off(pair, path, self.bare(), job.count)
        finally:
            ended(other)

    def _busy_lock(self, job: Job) -> Outcome:
        with calling(self.client.get, [("/",)], job.width - 1):
            return self._free_lock(job)

    def _busy_hand_off(self, job: Job) -> Outcome:
        path, other = "/bench/locks/kazoo-handoff", connected(self.address)
        try:
            with ExitStack() as stack:
                for client in (self.client, other):
                    stack.enter_context(calling(client.get, [("/",)], job.width // 2))
                pair = (self.client.Lock(path), other.Lock(path))
                return locks.hand_off(pair, path, self.bare(), job.count)
        finally:
            ended(other)

    def _callbacks(self, job: Job) -> Outcome:
        def watch(paths: Sequence[str], callback: Countdown) -> None:
            replies = [self.client.get_async(path, watch=callback) for path in paths]
            for reply in replies:
                reply.get()

        return called_back(self.address, job, watch)
