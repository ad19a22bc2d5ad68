"""The floor: a bare blocking socket and frames that are ready before the clock starts.

It asks for nothing and decodes nothing; it only counts the bytes of the replies, whose length it
has learned from one of them.  Nothing in Python can be faster over a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks import floor_locks, floor_watches
from benchmarks.candidate import Arguments, Candidate
from benchmarks.jobs import Job, Outcome
from benchmarks.wire import CHUNK, Address, Bare, request


class Floor(Candidate):
    """See the module's docstring."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.connection = Bare(address)
        self._reply = 0  # bytes of each reply of this segment

    def close(self) -> None:
        self.connection.close()

    def arguments(self, verb: str, paths: Sequence[str], data: bytes) -> Arguments:
        self._reply = self._reply_size(verb, paths[0], data)
        return [(request(verb, path, data),) for path in paths]

    def _reply_size(self, verb: str, path: str, data: bytes) -> int:
        if verb == "create":
            return 20 + 4 + len(path)
        return 20 if verb == "delete" else 4 + len(self.connection.ask(request(verb, path, data)))

    def one(self, verb: str) -> Callable[..., object]:
        send, receive = self.connection.socket.sendall, self.connection.socket.recv
        skip, size = self.connection.skip, self._reply

        def one(frame: bytes) -> None:
            send(frame)
            received = len(receive(CHUNK))
            if received != size:
                skip(size - received)

        return one

    def many(self, verb: str, window: Arguments) -> None:
        self.connection.flood(b"".join([frame for (frame,) in window]), self._reply * len(window))

    def in_threads(self, verb: str, arguments: Arguments, threads: int) -> Outcome:
        """What threads cannot beat: one thread with as many requests in flight as they have."""
        windows = [arguments[n : n + threads] for n in range(0, len(arguments), threads)]
        return self.time_windows(verb, windows)

    def opened(self) -> Callable[[], None]:
        return Bare(self.address).close

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        return floor_locks.specials(self.address) | floor_watches.specials(self.address)
