"""The world of one experiment: the client that things happen to, an observer, and a path.

The observer talks to the server directly, so what it sees is what is true there; the proxy's log
and its faults are about the client alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tests.connection_loss.clients import ClientKind, Make, Owned
from tests.support.lock_helpers import LONG, PATIENCE, Stage, greeting, guards_at_once
from tests.support.server_control import ZooKeeperServer
from zkwire import Client, ConnectionLossError, Watch, ZooKeeperError

T = TypeVar("T")

# More than the kernel takes on both sides of a connection that is not read from.
FILLING = bytes(1000 * 1000)
FILLINGS = 16

_numbers = itertools.count()


class Setting(NamedTuple):
    """Where experiments happen, and with which of the clients."""

    server: ZooKeeperServer
    observer: Client
    root: str
    client_kind: ClientKind


class Case(Stage):
    """One client behind a proxy; ``base`` is a node of its own, ``path`` one below it."""

    def __init__(self, setting: Setting, timeout: float = LONG) -> None:
        super().__init__(setting.server, setting.observer)
        self.client_kind = setting.client_kind
        self.base = f"{setting.root}/case{next(_numbers)}"
        self.path = f"{self.base}/node"
        self.id = f"id-{self.base.rpartition('/')[2]}"  # in a program: uuid4().hex
        self.watch = Watch()
        self.notes: dict[str, Any] = {}
        setting.observer.create(self.base)
        self.subject = self.client(timeout=timeout)

    def client(self, *, timeout: float = LONG, direct: bool = False, chroot: str = "") -> Client:
        """A connected client; behind the proxy, the one that this is about."""
        if direct:
            return super().client(timeout=timeout, direct=True, chroot=chroot)
        client: Client = self.client_kind.open(self.proxy.hosts + chroot, timeout)
        guards_at_once(client, alone=False)
        self._exit.callback(client.close)
        client.connect()
        self._greetings[client.session_id] = greeting(self.proxy, client.session_id)
        return client

    def subjects_lock(self, make: Make) -> Owned:
        """A lock of that client on ``path``."""
        run = self._exit.enter_context(self.client_kind.owner())
        return self.client_kind.lock(make, self.subject, self.path, run)

    def fresh_client(self) -> Client:
        """What a program makes after its session has expired."""
        self.subject = self.client()
        self.watch = Watch()
        return self.subject

    # --- what networks do -------------------------------------------------------------------------

    def fill(self) -> None:
        """Have the kernel take no more bytes of the client, so that the next request waits."""
        self.proxy.black_hole()
        put = self.subject.pipeline.set_data
        self._fillings = [put(f"{self.base}/nowhere", FILLING) for _ in range(FILLINGS)]

    def empty(self) -> None:
        """Cut the connection that was filled: nothing of what is in it gets through.

        By a reset: behind a FIN the proxy reads on, and the kernel takes what waits.
        """
        self.proxy.reset_all()
        self.proxy.black_hole(False)
        for filling in self._fillings:
            self.ending(partial(filling.result, PATIENCE))  # asked for, or asyncio complains

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
