"""The parts of a simulation: the clients, their tasks, the server, and the frames under way.

It decides what one step does to frames and tasks.  It must not know when a step happens
(:mod:`zkwire.testing.simulation.simulation`) or what may go wrong
(:mod:`zkwire.testing.simulation.fault_choice`).

A server of the ensemble may lag: it has not applied the latest writes.  It answers reads from an
older tree, and sends events later.  A request that needs the latest tree (a write, a sync) makes it
catch up first, and so does a persistent watch, which would need an event for each write that is
still to be applied.  A client never sees a tree older than one that it has seen: a server with such
a tree refuses the client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import copy
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from zkwire.errors import ZooKeeperError
from zkwire.jute.records import SetWatches, WatcherEvent
from zkwire.testing.server.operations import READS, WRITES, set_watches
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.sessions import Connection, Sessions
from zkwire.testing.server.state import Mode, ServerState
from zkwire.testing.server.tree import DataTree, Node, values_of
from zkwire.testing.simulation.client import (
    Cancelled,
    Client,
    Link,
    Step,
    Suspend,
    Task,
    ViolationError,
)
from zkwire.wire import ops
from zkwire.wire.model import EventType
from zkwire.wire.ops import NOTIFICATION_XID

_OF_CHILDREN: Final = frozenset({EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED})
_OF_DATA: Final = frozenset(
    {EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED}
)
_EVENT_AT: Final = 20  # after the length and a reply's header
_NOTIFICATION: Final = struct.pack(">i", NOTIFICATION_XID)


def event_in(frame: bytes) -> tuple[EventType, str] | None:
    """The watch event in a server's frame; None if the frame is something else."""
    if frame[4:8] != _NOTIFICATION:
        return None
    event, _ = WatcherEvent.unpack(frame, _EVENT_AT)
    return EventType(event.type), event.path


def _copied(tree: DataTree, before: DataTree | None = None) -> DataTree:
    """A copy for reads only; it shares the nodes that have not changed since ``before``."""
    old = copy(tree)
    known = {} if before is None else before.nodes
    old.nodes = {path: _same(node, known.get(path)) for path, node in tree.nodes.items()}
    old._of_session = {owner: dict(paths) for owner, paths in tree._of_session.items()}
    return old


def _same(node: Node, known: Node | None) -> Node:
    if known is not None and values_of(known) == values_of(node):
        return known
    same = copy(node)
    same.names = node.names.copy()
    return same


def tree_fingerprint(tree: DataTree) -> int:
    """A number that is equal for trees that give equal answers, apart from the times of nodes.

    The order of the nodes counts: some answers depend on which node is the first.
    """
    nodes = [
        (path, n.owner, n.czxid, n.mzxid, n.pzxid, n.version, n.created, n.data, n.acl, n.aversion)
        for path, n in tree.nodes.items()
    ]
    owned = [(owner, *paths) for owner, paths in tree._of_session.items()]
    return hash((tree.zxid, *nodes, *sorted(owned)))


class TreeHistory:
    """The tree as it was before each write, if it is ``wanted``: copies take time."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._trees: list[DataTree] = []
        self._prints: list[int] = []  # of the first trees, as far as they were asked for

    def remember(self, tree: DataTree) -> None:
        """Copy the tree before a step that may write to it."""
        last = self._trees[-1] if self._trees else None
        if self._wanted and (last is None or last.zxid < tree.zxid):
            self._trees.append(_copied(tree, last))

    def forget(self) -> None:
        """Drop all copies: no more servers will lag, and those that do have their own tree."""
        self._wanted = False
        self._trees.clear()
        self._prints.clear()

    def oldest(self, zxid: int, tree: DataTree) -> DataTree:
        """The oldest tree with all writes up to ``zxid``."""
        return next((old for old in self._trees if old.zxid >= zxid), None) or _copied(tree)

    def fingerprint(self, zxid: int) -> list[int]:
        """The fingerprints of the trees that a client that has seen ``zxid`` may still see."""
        self._prints += map(tree_fingerprint, self._trees[len(self._prints) :])
        return [
            found
            for tree, found in zip(self._trees, self._prints, strict=True)
            if tree.zxid >= zxid
        ]


class StaleServer:
    """The server of one connection that lags: its tree, and the events that it holds back."""

    def __init__(self, tree: DataTree) -> None:
        self.tree = tree
        self.held: list[bytes] = []
        self._events: set[tuple[EventType, str]] = set()

    def fingerprint(self) -> tuple[object, ...]:
        """A value that is equal for stale servers that behave equally from now on."""
        return (tree_fingerprint(self.tree), *self.held, "|", *sorted(self._events))

    def hold_back(self, frames: list[bytes]) -> list[bytes]:
        """Keep the events back, and return the other frames."""
        passed: list[bytes] = []
        for frame in frames:
            event = event_in(frame)
            if event is None:
                passed.append(frame)
            else:
                self.held.append(frame)
                self._events.add(event)
        return passed

    def catch_up(self, state: ServerState, connection: Connection) -> None:
        """Send the events for watches that were set in the old tree and that later writes fire.

        That is what a set_watches does with the one-shot watches.  Of these, one that was set again
        while its event was held back is used up by that event.  Persistent watches have had all
        their events.
        """
        watchers = state.watchers
        data, child = (
            sorted(
                path
                for path in table.paths(connection)
                if table.remove(path, connection, Mode.ONE_SHOT) and not self._told(path, kinds)
            )
            for table, kinds in ((watchers.data, _OF_DATA), (watchers.child, _OF_CHILDREN))
        )
        there = [path for path in data if path in self.tree.nodes]
        missing = [path for path in data if path not in self.tree.nodes]
        request = SetWatches(self.tree.zxid, tuple(there), tuple(missing), tuple(child))
        set_watches(state, connection, request)

    def _told(self, path: str, kinds: frozenset[EventType]) -> bool:
        return any((kind, path) in self._events for kind in kinds)


START: Final = 100.0  # seconds; at 0 a moment could be mistaken for "never"
_MUTATING: Final = frozenset({*WRITES, ops.MULTI.opcode, ops.CLOSE_SESSION.opcode, 0})
_UP_TO_DATE: Final = frozenset(op.opcode for op in (ops.SYNC, ops.ADD_WATCH, ops.SET_WATCHES2))
_ANSWERED_STALE: Final = (frozenset(READS) - _UP_TO_DATE) | {0, ops.PING.opcode}
"""The requests that a stale server answers from its old tree; 0 is the handshake."""


class Delivered(NamedTuple):
    """A watch event that the server has sent: in which step, its type and path, and the client."""

    step: int
    type: EventType
    path: str
    client: Client


class System:
    """See the module's docstring.  The options are those of ``Simulation``; ``lag`` is a fault."""

    def __init__(
        self, timeout: float, tick: float, servers: int, seed: int, trace: bool, lag: bool
    ) -> None:
        self.timeout = timeout
        self.tick = tick
        self.servers = servers
        self.seed = seed
        self.rng: Random = Random(seed)
        self.now = START
        self.clients: list[Client] = []
        self.current: Task | None = None
        self.done: list[Step] = []
        self.events: list[Delivered] = []
        self.history: list[str] = []
        self.trace = trace
        self.stolen: dict[int, float] = {}  # czxids of nodes that an outsider deleted, and when
        self.long: float = 2 * (timeout + tick)  # longer than any session lives
        self._tasks: dict[str, Task] = {}
        self.ended: list[Task] = []
        self._by_name: dict[str, Client] = {}
        self._of_connection: dict[Connection, Client] = {}
        self.stale_servers: dict[Connection, StaleServer] = {}  # by the connection to it
        self.tree_history: TreeHistory = TreeHistory(wanted=lag)
        self.processor: Processor = Processor(rng=self.rng, tick=tick, members=servers)
        self.processor.advance(START)

    @property
    def tree(self) -> DataTree:
        """The server's nodes."""
        return self.processor.state.tree

    @property
    def sessions(self) -> Sessions:
        """The server's living sessions."""
        return self.processor.state.sessions

    @property
    def watches_on_server(self) -> int:
        """The number of watches on the server."""
        return len(self.processor.state.watchers)

    @property
    def tasks(self) -> list[Task]:
        """The tasks that have not ended."""
        return list(self._tasks.values())

    def client(self, name: str = "", *, chroot: str = "", connected: bool = True) -> Client:
        """A new client; with ``connected`` it connects at once, without steps of the schedule."""
        client = Client(self, name or chr(ord("a") + len(self.clients)), chroot)
        self.clients.append(client)
        self._by_name[client.name] = client
        client.session.start(self.now)
        if connected:
            for step in (self._dial, self._up, self._down):
                step(client)
            assert client.session.usable
        return client

    def spawn(self, coroutine: Coroutine[Any, Any, object], client: Client | None = None) -> Task:
        """Run a coroutine in the process of ``client``, by default of the client made last."""
        return (client or self.clients[-1]).spawn(coroutine)

    def client_of(self, step: Step) -> Client | None:
        """The client of a step; None for the passing of time and for faults of nodes."""
        if step.kind in ("run", "cancel"):
            return self._tasks[step.subject].client
        return self._by_name.get(step.subject)

    def note(self, text: str) -> None:
        """Add a line to the history."""
        if self.trace:
            self.history.append(f"{'':18}{text}")

    def drop_tasks(self, tasks: list[Task]) -> None:
        """Drop tasks; their clean-up code runs, and must not change anything."""
        for task in tasks:
            self._tasks.pop(task.name, None)
            task.client.session.closed()
            with suppress(RuntimeError, ZooKeeperError):
                task.coroutine.close()

    # --- tasks ------------------------------------------------------------------------------------

    def add_task(
        self, client: Client, coroutine: Coroutine[Any, Any, Any], name: str, *, background: bool
    ) -> Task:
        """For clients: a new task with a name of its own.

        A task in the background gets the first free name, so that two states do not differ by the
        number of background tasks that have ended.
        """
        stem = name or (f"{client.name}.background" if background else client.name)
        number = client.spawned.get(stem, 0) + 1
        if background:
            number = 1
            while (stem if number == 1 else f"{stem}{number}") in self._tasks:
                number += 1
        else:
            client.spawned[stem] = number
        task = Task(stem if number == 1 else f"{stem}{number}", client, coroutine, background)
        self._tasks[task.name] = task
        return task

    def step_within(self, task: Task) -> None:
        """For clients: run a task to its next await, within the step of another task."""
        outer = self.current
        self._run(task)
        self.current = outer

    def drop_task(self, task: Task) -> None:
        """For clients: end a task at its await."""
        task.coroutine.close()
        self._finish(task)

    def _run(self, task: Task, interrupt: BaseException | None = None) -> None:
        client = task.client
        client.print = hash((client.print, task.name, interrupt is None, self.now))
        task.ready, task.deadline = False, None
        self.current = task
        try:
            if interrupt is None:
                asked = task.coroutine.send(None)
            else:
                asked = task.coroutine.throw(interrupt)
        except StopIteration as stop:
            task.result = stop.value
            self._finish(task)
        except (ZooKeeperError, Cancelled) as error:
            task.error = error
            self._finish(task)
            if task.background:
                raise ViolationError("ERROR", f"{task.name} ended with {error!r}") from error
        except Exception as error:
            self._finish(task)
            raise ViolationError("ERROR", f"{task.name} ended with {error!r}") from error
        else:
            task.awaits += 1
            if isinstance(asked, Suspend):
                task.deadline = asked.deadline
            elif asked.ready:
                task.ready = True
            else:
                asked._add_waker(task.wake)
        finally:
            self.current = None
        client.call_due()
        client.flush()

    def _finish(self, task: Task) -> None:
        task.done = True
        del self._tasks[task.name]
        self.ended.append(task)
        if self.trace:
            self.note(f"{task.name} ends: {task.result if task.error is None else task.error!r}")

    # --- the network ------------------------------------------------------------------------------

    def _dial(self, client: Client) -> None:
        target = client.session.target
        if target is None or client.link is not None:
            return
        connection = self.processor.connect(member=target[1], now=self.now)
        self._of_connection[connection] = client
        client.link = Link(connection)
        client.session.connection_made(self.now)
        client.flush()

    def _up(self, client: Client, *, one: bool = False) -> None:
        link = client.link
        if link is not None:
            for _ in range(1 if one else len(link.up[0])):
                self._arrive(link)
        self.collect()

    def _arrive(self, link: Link) -> None:
        """The first frame on the way up reaches the server."""
        frame = link.take()
        greeted = link.connection.greeted
        opcode = int.from_bytes(frame[8:12], "big", signed=True) if greeted else 0
        if link.connection in self.stale_servers and opcode not in _ANSWERED_STALE:
            self._catch_up(link)  # the request needs all earlier writes
        if opcode in _MUTATING:
            self.tree_history.remember(self.tree)
        self._on_server_of(link, partial(self.processor.receive, link.connection, frame, self.now))

    def _on_server_of(self, link: Link, function: Callable[[], object]) -> None:
        """Call ``function`` while the server's state has the tree of this connection's server."""
        state, stale = self.processor.state, self.stale_servers.get(link.connection)
        newest = state.tree
        state.tree = newest if stale is None else stale.tree
        try:
            function()
        finally:
            state.tree = newest

    def collect(self) -> None:
        """Put the server's output on the way to the clients."""
        for connection in self.processor.take_ready():
            frames, connection.output, connection.waiting = connection.output, [], 0
            client = self._of_connection[connection]
            for frame in frames:
                event = event_in(frame)
                if event is not None:
                    self.events.append(Delivered(len(self.done), *event, client))
            if client.link is not None and client.link.connection is connection:
                stale = self.stale_servers.get(connection)
                client.link.down.extend(frames if stale is None else stale.hold_back(frames))

    def _down(self, client: Client, *, one: bool = False) -> None:
        link = client.link
        if link is None or not link.down:
            return
        data = b"".join(link.down.popleft() for _ in range(1 if one else len(link.down)))
        client.print = hash((client.print, data))
        client.session.receive_data(data, self.now)
        client.conclude()

    def _eof(self, client: Client) -> None:
        client.lose("closed by the server")
        client.conclude()

    def _apply(self, client: Client) -> None:
        if client.link is not None:
            self._catch_up(client.link)

    def _catch_up(self, link: Link) -> None:
        """Bring the server of this connection up to date."""
        stale = self.stale_servers.pop(link.connection, None)
        if stale is not None:
            link.down.extend(stale.held)
            stale.catch_up(self.processor.state, link.connection)
            self.collect()

    def _late(self, client: Client) -> None:
        link = client.ghosts.pop(0)
        while link.up:
            self._arrive(link)
        self.processor.lost(link.connection)
        self.collect()
