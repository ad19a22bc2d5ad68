"""Nodes to be watched, and a second connection that deletes them all in a few transactions.

The transactions are ready before the clock starts; sending them costs the measured process less
than a hundredth of what receiving the events does.
"""

from __future__ import annotations

import os
from typing import Self

from benchmarks.wire import Address, Bare, multi, request

TOGETHER = 1000


class Targets:
    """So many nodes, there from the beginning of the block."""

    _number = 0

    def __init__(self, address: Address, count: int) -> None:
        Targets._number += 1
        self.parent = f"/bench/new/targets-{os.getpid()}-{Targets._number}"
        self.paths = [f"{self.parent}/t{n:06d}" for n in range(count)]
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
