"""Nodes to be watched, and a second connection that deletes them all: together, or one by one.

Together, in a few transactions that are ready before the clock starts: sending them costs the
measured process less than a hundredth of what receiving the events does.  One by one, with a
request for each, by a process of its own: `python -m benchmarks.firing HOST PORT PARENT COUNT`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from typing import Self

from benchmarks.wire import Address, Bare, multi, request

TOGETHER = 1000


class Targets:
    """So many nodes, there from the beginning of the block."""

    _number = 0

    def __init__(self, address: Address, count: int) -> None:
        Targets._number += 1
        self.parent = f"/bench/new/targets-{os.getpid()}-{Targets._number}"
        self.paths = paths_under(self.parent, count)
        self._server = Bare(address)
        self._deletes: list[bytes] = [multi("delete", share) for share in self._shares()]

    def _shares(self) -> list[list[str]]:
        return [self.paths[n : n + TOGETHER] for n in range(0, len(self.paths), TOGETHER)]

    def __enter__(self) -> Self:
        self._server.ask(request("create", self.parent))
        for share in self._shares():
            self._server.ask(multi("create", share))
        return self

    def delete_all(self) -> None:
        """Delete them; returns when the requests are sent."""
        for transaction in self._deletes:
            self._server.socket.sendall(transaction)

    def __exit__(self, *_error: object) -> None:
        for _ in self._deletes:
            self._server.read_frame()
        self._server.ask(request("delete", self.parent))
        self._server.close()


class OneByOne(Targets):
    """The same, deleted by another process with one request each."""

    def __init__(self, address: Address, count: int) -> None:
        super().__init__(address, count)
        self._deletes = []
        arguments = (address[0], str(address[1]), self.parent, str(count))
        command = [sys.executable, "-m", "benchmarks.firing", *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            said.readline()  # it is ready
        return super().__enter__()

    def delete_all(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def __exit__(self, *error: object) -> None:
        self.delete_all()
        self._process.wait()
        super().__exit__(*error)


def targets(address: Address, count: int, together: int) -> Targets:
    """Nodes of which so many are deleted by one request."""
    return OneByOne(address, count) if together == 1 else Targets(address, count)


def paths_under(parent: str, count: int) -> list[str]:
    return [f"{parent}/t{n:06d}" for n in range(count)]


def main() -> None:
    host, port, parent, count = sys.argv[1:]
    deletes = [request("delete", path) for path in paths_under(parent, int(count))]
    with closing(Bare((host, int(port)))) as server:
        print("ready", flush=True)
        sys.stdin.read()
        server.flood(b"".join(deletes), 20 * len(deletes))


if __name__ == "__main__":
    main()
