"""The world of one experiment: the client that things happen to, an observer, and a path.

The observer talks to the server directly, so what it sees is what is true there; the proxy's log
and its faults are about the client alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.lock_helpers import LONG, PATIENCE, Stage
from tests.server_control import ZooKeeperServer
from zkwire import Client, ConnectionLossError, Watch, ZooKeeperError

T = TypeVar("T")

# More than the kernel takes on both sides of a connection that nobody reads from.
FILLING = bytes(1000 * 1000)
FILLINGS = 16

_numbers = itertools.count()


class Case(Stage):
    """One client behind a proxy; ``base`` is a node of its own, ``path`` one below it."""

    def __init__(
        self, server: ZooKeeperServer, observer: Client, root: str, timeout: float = LONG
    ) -> None:
        super().__init__(server, observer)
        self.base = f"{root}/case{next(_numbers)}"
        self.path = f"{self.base}/node"
        self.id = f"id-{self.base.rpartition('/')[2]}"  # in a program: uuid4().hex
        self.watch = Watch()
        self.notes: dict[str, Any] = {}
        observer.create(self.base)
        self.subject = self.client(timeout=timeout)

    def fresh_client(self) -> Client:
        """What a program makes after its session has expired."""
        self.subject = self.client()
        self.watch = Watch()
        return self.subject

    # --- what networks do -------------------------------------------------------------------------

    def fill(self) -> None:
        """Have the kernel take no more bytes of the client, so that the next request waits."""
        self.proxy.black_hole()
        for _ in range(FILLINGS):
            self.subject.pipeline.set_data(f"{self.base}/nowhere", FILLING)

    def empty(self) -> None:
        """Cut the connection that was filled: nothing of what is in it gets through."""
        self.proxy.cut_all()
        self.proxy.black_hole(False)

    # --- what is seen -----------------------------------------------------------------------------

    def ending(self, call: Callable[[], Any]) -> ZooKeeperError | None:
        """How a call ends: its error, or None for a result."""
        try:
            call()
        except ZooKeeperError as error:
            return error
        return None

    def events(self, client: Client | None = None) -> list[str]:
        """The events that the watch has got, after all that has happened so far."""
        repeat((client or self.subject).sync)  # an event stands before the answers that follow it
        seen = []
        while self.watch.ready:
            try:
                event = self.watch.take()
            except (ZooKeeperError, RuntimeError):  # no more can come
                break
            if event is None:
                break
            seen.append(getattr(event.type, "name", str(event.type)))
        return seen


def repeat(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Repeat something that may be repeated, until a connection has held for so long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call(*arguments, **named)
        except ConnectionLossError:  # the next try waits for the next connection
            if time.monotonic() > deadline:
                raise


def result_of(reply: Any) -> Any:
    """The answer to a request that was sent earlier."""
    return reply.result(PATIENCE)
