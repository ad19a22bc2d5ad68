"""The world of one experiment: the client that things happen to, an observer, and a path.

The observer talks to the server directly, so what it sees is what is true there; the proxy's log
and its faults are about the client alone.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tests.connection_loss.clients import ClientKind
from tests.support.lock_helpers import GRACE, LONG, PATIENCE, Stage, guards_at_once
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, ConnectionLossError, Watch, ZooKeeperError
from zkwire.jute.records import Stat

T = TypeVar("T")
Row: TypeAlias = tuple[str, ...]
"""One line of a table, in the document's words."""
Rows: TypeAlias = dict[str, list[Row]]
"""By the titles under which the lines stand."""

STEPS = 4  # in the background, or requests of it, that follow one another
AT_ONCE = 6  # the experiments wait for sockets most of the time

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
        self.session_id: int = self.subject.session_id

    def client(self, *, timeout: float = LONG, direct: bool = False, chroot: str = "") -> Client:
        """A connected client; behind the proxy, the one that this is about."""
        if direct:
            return super().client(timeout=timeout, direct=True, chroot=chroot)
        client: Client = self.client_kind.open(self.proxy.hosts + chroot, timeout)
        guards_at_once(client, alone=False)
        self._exit.callback(client.close)
        client.connect()
        return client

    def hold_lock(self) -> None:
        """That client is the ``holder`` of a lock on ``path``."""
        run = self._exit.enter_context(self.client_kind.owner())
        client = getattr(self.subject, "real", self.subject)
        self.holder: Any = self.client_kind.recipes.SequentialLock(client, self.path)
        assert run(partial(self.holder.acquire, GRACE))
        self.subject.sync()

    def fresh_client(self) -> Client:
        """What a program makes after its session has expired."""
        self.subject = self.client()
        self.watch = Watch()
        return self.subject

    # --- what networks do -------------------------------------------------------------------------

    def keep_away(self, client: Any = None) -> None:
        """Have the client lose its connection and find none, and wait until it has noticed."""
        self.proxy.refuse()
        self.proxy.cut_all()
        self.wait_noticed(client)

    def wait_noticed(self, client: Any = None) -> None:
        """Wait until the client knows of the loss, and its recipes have drawn their conclusions.

        A client that is back before asks for more: a watch of a read that was lost, say, is set
        again unless it has been closed by then.
        """
        client = client or self.subject
        poll("it notices", lambda: not client.state.usable or None, PATIENCE)
        let_run(client._driver)

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

    def owned(self, path: str) -> Stat:
        """The stat of a node, which is one of its session."""
        stat = self.observer.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == self.session_id
        return stat

    def own_of(self, nodes: Iterable[str], view: Client | None = None) -> int:
        """How many of these nodes there are of its session, as the server says."""
        stats = map((view or self.observer).exists, nodes)
        return sum(stat is not None and stat.ephemeral_owner == self.session_id for stat in stats)

    def events(self) -> list[str]:
        """The events that the watch has got, after all that has happened so far."""
        repeat(self.subject.sync)  # an event stands before the answers that follow it
        return self.taken()

    def taken(self) -> list[str]:
        """The events that have come, without asking the server for more."""
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


def let_run(driver: Any) -> None:
    """Wait until the driver has done what it has been left to do so far, and what that leads to."""
    for _ in range(STEPS):
        done = threading.Event()
        with driver.mutex:
            pass  # a thread that was in the middle of something has left it the rest
        assert not driver.call_soon(done.set) or done.wait(PATIENCE)


def repeat(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Repeat something that may be repeated, until a connection has held for so long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call(*arguments, **named)
        except ConnectionLossError:  # the next try waits for the next connection
            if time.monotonic() > deadline:
                raise


def run_each(
    setting: Setting, cells: Iterable[tuple[str, Callable[[], Row]]], at_once: int = AT_ONCE
) -> Rows:
    """Each of these experiments, by its title; whatever goes wrong says whose it is."""

    def run(cell: tuple[str, Callable[[], Row]]) -> Row:
        title, experiment = cell
        try:
            return experiment()
        except Exception as error:
            error.add_note(f"in {experiment} of {title}, with {setting.client_kind.title}")
            raise

    rows: Rows = {}
    cells = list(cells)
    with ThreadPoolExecutor(at_once, thread_name_prefix="experiment") as pool:
        for (title, _), row in zip(cells, pool.map(run, cells), strict=True):
            rows.setdefault(title, []).append(row)
    return rows


def told(error: ZooKeeperError | None) -> str:
    """What the caller gets."""
    if error is None:
        return "a result"
    return f"`{type(error).__name__}`" + ", `maybe_applied`" * error.maybe_applied


def result_of(reply: Any) -> Any:
    """The answer to a request that was sent earlier."""
    return reply.result(PATIENCE)
