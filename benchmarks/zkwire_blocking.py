"""zkwire's blocking client as a user would write it; pipelined through `client.pipeline`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks import decoding, locks
from benchmarks.candidate import Arguments, Candidate
from benchmarks.firing import targets
from benchmarks.jobs import Job, Outcome
from benchmarks.measure import timed
from benchmarks.threads import calling, timed_beside, timed_threads
from benchmarks.watching import LIMIT_SECONDS, Countdown, called_back
from benchmarks.wire import SESSION_MS, Address
from zkwire import Client, SequentialLock, Watch

NAMES = {
    "get": "get_data",
    "set": "set_data",
    "children": "get_children",
    "create": "create",
    "delete": "delete",
    "exists": "exists",
}


def connected(address: Address) -> Client:
    """A client with a session of its own."""
    client = Client(f"{address[0]}:{address[1]}", session_timeout=SESSION_MS / 1000)
    client.connect(10.0)
    return client


class ZkwireBlocking(Candidate):
    """See the module's docstring."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.client = connected(address)

    def close(self) -> None:
        self.client.close()

    def one(self, verb: str) -> Callable[..., object]:
        call: Callable[..., object] = getattr(self.client, NAMES[verb])
        return call

    def many(self, verb: str, window: Arguments) -> None:
        submit = getattr(self.client.pipeline, NAMES[verb])
        replies = [submit(*each) for each in window]
        for reply in replies:
            reply.result()

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return timed_threads(self.one(verb), arguments, threads)

    def beside_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        return timed_beside(self.one(verb), arguments, threads)

    def opened(self) -> Callable[[], None]:
        return connected(self.address).close

    # --- beyond plain operations ------------------------------------------------------------------

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        return {
            "lock": self._free_lock,
            "contended": self._contended,
            "handoff": self._hand_off,
            "busy-lock": self._busy_lock,
            "busy-handoff": self._busy_hand_off,
            "watches": self._watches,
            "callbacks": self._callbacks,
            **decoding.specials(decoding.zkwire_decoders),
        }

    def _free_lock(self, job: Job) -> Outcome:
        return locks.free_lock(SequentialLock(self.client, "/bench/locks/zkwire-free"), job.count)

    def _pair(self, path: str, other: Client) -> tuple[locks.Lock, locks.Lock]:
        return SequentialLock(self.client, path), SequentialLock(other, path)

    def _contended(self, job: Job) -> Outcome:
        with connected(self.address) as other:
            return locks.contended(self._pair("/bench/locks/zkwire-contended", other), job.count)

    def _hand_off(self, job: Job) -> Outcome:
        path = "/bench/locks/zkwire-handoff"
        with connected(self.address) as other:
            return locks.hand_off(self._pair(path, other), path, self.bare(), job.count)

    def _busy_lock(self, job: Job) -> Outcome:
        with calling(self.client.get_data, [("/",)], job.width - 1):
            return self._free_lock(job)

    def _busy_hand_off(self, job: Job) -> Outcome:
        path = "/bench/locks/zkwire-handoff"
        with connected(self.address) as other, ExitStack() as stack:
            for client in (self.client, other):
                stack.enter_context(calling(client.get_data, [("/",)], job.width // 2))
            return locks.hand_off(self._pair(path, other), path, self.bare(), job.count)

    def _watches(self, job: Job) -> Outcome:
        watches = [Watch() for _ in range(job.count)]
        with targets(self.address, job.count, job.width) as nodes:
            pipeline = self.client.pipeline
            replies = [
                pipeline.get_data(path, watch=watch)
                for path, watch in zip(nodes.paths, watches, strict=True)
            ]
            for reply in replies:
                reply.result()

            def work() -> None:
                nodes.delete_all()
                for watch in watches:
                    if watch.wait(LIMIT_SECONDS) is None:
                        raise TimeoutError("an event has not come")

            return timed(job.count, work)

    def _callbacks(self, job: Job) -> Outcome:
        def watch(paths: Sequence[str], callback: Countdown) -> None:
            pipeline = self.client.pipeline
            replies = [pipeline.get_data(path, watch=Watch(callback)) for path in paths]
            for reply in replies:
                reply.result()

        return called_back(self.address, job, watch)
