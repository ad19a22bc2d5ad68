"""No watch is ever silently lost, whatever is set, closed, changed and lost in whatever order.

The other side is a model of a real server's watches: up to 3.8 one mode for each path in each of
its two tables, where the last request wins, or several as from 3.9 on. The session's frames drive
it and nothing else does, so a watch that the server has forgotten is one that does not fire here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.examples import examples
from tests.support.scripted import NO_NODE, STAT, Script, Sent, event_frame, events, reply_frame
from zkwire.jute import records as r
from zkwire.session.request import Answered, Request
from zkwire.session.waitable import Watch
from zkwire.session.watch_table import ancestors
from zkwire.wire.model import Event, EventType, WatchType
from zkwire.wire.ops import LASTING, WatchKind
from zkwire.wire.paths import parent

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
REMOVED = {
    EventType.DATA_WATCH_REMOVED,
    EventType.CHILD_WATCH_REMOVED,
    EventType.PERSISTENT_WATCH_REMOVED,
}
CONCERNS = {
    WatchKind.DATA: {CREATED, CHANGED, DELETED},
    WatchKind.EXIST: {CREATED, CHANGED, DELETED},
    WatchKind.CHILD: {CHILDREN, DELETED},
    WatchKind.PERSISTENT: {CREATED, CHANGED, DELETED, CHILDREN},
    WatchKind.RECURSIVE: {CREATED, CHANGED, DELETED},
}
ONCE, ALWAYS, BELOW = "standard", "persistent", "recursive"  # the modes of a server
NO_WATCHER = -121
VERBS = st.sampled_from(["get_data", "exists", "get_children"])
PATHS = st.sampled_from(["/a", "/a", "/a", "/a/b", "/"])


@dataclass
class Node:
    mzxid: int
    pzxid: int


@dataclass(frozen=True)
class Change:
    zxid: int
    type: EventType
    path: str


class Table:
    """``WatchManager``, for one connection."""

    def __init__(self, one_mode: bool) -> None:
        self.modes: dict[str, set[str]] = {}
        self._one_mode = one_mode

    def add(self, path: str, mode: str) -> None:
        kept = set[str]() if self._one_mode else self.modes.get(path, set())
        self.modes[path] = kept | {mode}

    def remove(self, path: str, modes: set[str]) -> bool:
        old = self.modes.pop(path, set())
        if old - modes:
            self.modes[path] = old - modes
        return bool(old & modes)

    def fire(self, event: EventType, path: str) -> bool:
        """Whether the connection hears of it; one-shot watches of the path are gone then."""
        told = False
        for above in ancestors(path):
            modes = self.modes.get(above, set())
            told = told or (BELOW in modes and event is not CHILDREN)
            told = told or (above == path and bool(modes - {BELOW}))
        self.remove(path, {ONCE})
        return told


class Server:
    """Nodes, and the watches of the one connection there is."""

    def __init__(self, one_mode: bool) -> None:
        self._one_mode = one_mode
        self.zxid = 0x100
        self.nodes = {"/": Node(0, 0)}
        self.changes: list[Change] = []
        self.executed: dict[int, int] = {}  # the zxid as of which each request was executed
        self.set_again_missing = set[str]()
        self.connect()

    def connect(self) -> None:
        """A new connection: no watch of the old one is known."""
        self.data, self.child = Table(self._one_mode), Table(self._one_mode)
        self.inbox: list[Sent] = []
        self.out: list[bytes] = []

    # --- changes by others ------------------------------------------------------------------------

    def change(self, path: str, data: bool) -> None:
        """Write the node, or else make it come or go."""
        if data and path in self.nodes:
            self.zxid += 1
            self.nodes[path].mzxid = self.zxid
            self._note(CHANGED, path)
        elif path != "/" and path not in self.nodes and parent(path) in self.nodes:
            self._come_or_go(path, CREATED)
        elif path != "/" and path in self.nodes and path + "/b" not in self.nodes:
            self._come_or_go(path, DELETED)

    def _come_or_go(self, path: str, event: EventType) -> None:
        self.zxid += 1
        if event is CREATED:
            self.nodes[path] = Node(self.zxid, self.zxid)
        else:
            del self.nodes[path]
        self.nodes[parent(path)].pzxid = self.zxid
        self._note(event, path)
        self._note(CHILDREN, parent(path))

    def _note(self, event: EventType, path: str) -> None:
        self.changes.append(Change(self.zxid, event, path))
        told = self.child.fire(event, path) if event is CHILDREN else self.data.fire(event, path)
        if event is DELETED:
            told = self.child.fire(event, path) or told  # one event, though two tables have it
        if told:
            self._tell(event, path)

    def _tell(self, event: EventType, path: str) -> None:
        self.out.append(event_frame(event, path))

    # --- requests ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Execute the oldest request."""
        sent = self.inbox.pop(0)
        self.executed[sent.xid] = self.zxid
        code, body = self._execute(sent)
        self.out.append(reply_frame(sent.xid, self.zxid, code, body))

    def _execute(self, sent: Sent) -> tuple[int, bytes]:
        if sent.name == "add_watch":
            request = sent.read(r.AddWatchRequest)
            self._add(request.path, BELOW if request.mode else ALWAYS)
            return 0, r.ErrorResponse(0).encode()
        if sent.name == "remove_watches":
            removal = sent.read(r.RemoveWatchesRequest)
            return (0 if self._remove(removal.path, removal.type) else NO_WATCHER), b""
        if sent.name == "set_watches":
            old = sent.read(r.SetWatches)
            lists = (old.data_watches, old.exist_watches, old.child_watches)
            self._set_again(r.SetWatches2(old.relative_zxid, *lists, (), ()))
            return 0, b""
        if sent.name == "set_watches2":
            self._set_again(sent.read(r.SetWatches2))
            return 0, b""
        return self._read(sent)

    def _read(self, sent: Sent) -> tuple[int, bytes]:
        request = sent.read(r.ExistsRequest)  # all of them look like this
        there = request.path in self.nodes
        table = self.child if sent.name == "get_children" else self.data
        if request.watch and (there or sent.name == "exists"):
            table.add(request.path, ONCE)
        if not there:
            return NO_NODE, b""
        answers = {
            "exists": r.ExistsResponse(STAT),
            "get_data": r.GetDataResponse(b"", STAT),
            "get_children": r.GetChildrenResponse(()),
        }
        return 0, answers[sent.name].encode()

    def _add(self, path: str, mode: str) -> None:
        self.data.add(path, mode)
        if mode == ALWAYS or self._one_mode:
            self.child.add(path, mode)

    def _remove(self, path: str, kind: int) -> bool:
        anything = {ONCE, ALWAYS, BELOW}
        modes = anything if kind == WatchType.ANY or self._one_mode else {ONCE}
        tables = {WatchType.DATA: [self.data], WatchType.CHILDREN: [self.child]}
        found = [
            t.remove(path, modes) for t in tables.get(WatchType(kind), [self.data, self.child])
        ]
        return any(found)

    def _set_again(self, request: r.SetWatches2) -> None:
        missed: EventType | None
        for path in request.data_watches:
            node = self.nodes.get(path)
            missed = CHANGED if node and node.mzxid > request.relative_zxid else None
            self._set_or_tell(self.data, path, missed if node else DELETED)
        for path in request.exist_watches:
            if path not in self.nodes:
                self.set_again_missing.add(path)
            self._set_or_tell(self.data, path, CREATED if path in self.nodes else None)
        for path in request.child_watches:
            node = self.nodes.get(path)
            missed = CHILDREN if node and node.pzxid > request.relative_zxid else None
            self._set_or_tell(self.child, path, missed if node else DELETED)
        for path in request.persistent_watches:
            self._add(path, ALWAYS)
        for path in request.persistent_recursive_watches:
            self._add(path, BELOW)

    def _set_or_tell(self, table: Table, path: str, missed: EventType | None) -> None:
        if missed is None:
            table.add(path, ONCE)
        else:
            self._tell(missed, path)


@dataclass(eq=False)
class Local:
    """A watch of the client, and what it has heard."""

    call: Request
    watch: Watch
    closed: bool = False
    heard: list[Event] = field(default_factory=list)
    since: int | None = None  # what happens behind this zxid, it must hear of

    @property
    def set(self) -> bool:
        return isinstance(self.call.outcome, Answered) and not self.closed

    @property
    def kind(self) -> WatchKind:
        there = isinstance(self.call.outcome, Answered) and self.call.record is not None
        exists = self.call.watch_kind is WatchKind.EXIST
        return WatchKind.DATA if exists and there else self.call.watch_kind

    def concerned(self, change: Change) -> bool:
        paths = {change.path}
        if self.kind is WatchKind.RECURSIVE:
            paths = set(ancestors(change.path))
        return change.type in CONCERNS[self.kind] and self.call.watch_path in paths


class WatchingMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.script = Script()
        self.script.connect()
        self.locals: list[Local] = []

    @initialize(one_mode=st.sampled_from([True, True, False]), there=st.integers(0, 2))
    def begin(self, one_mode: bool, there: int) -> None:
        self.server = Server(one_mode)
        for path in ["/a", "/a/b"][:there]:
            self.server.change(path, data=False)

    # --- the client -------------------------------------------------------------------------------

    @rule(verb=VERBS, path=PATHS)
    def read(self, verb: str, path: str) -> None:
        watch = Watch()
        with suppress(RuntimeError):  # a mix that is refused
            self.locals.append(Local(self.script.call(verb, path, watch=watch), watch))

    @rule(path=PATHS, recursive=st.booleans())
    def add_watch(self, path: str, recursive: bool) -> None:
        watch = Watch()
        with suppress(RuntimeError):
            call = self.script.call("add_watch", path, watch, recursive=recursive)
            self.locals.append(Local(call, watch))

    @rule(path=PATHS, recursive=st.booleans())
    def add_watch_and_wait(self, path: str, recursive: bool) -> None:
        self.add_watch(path, recursive)
        self.settle()

    @precondition(lambda self: bool(self.locals))
    @rule(which=st.integers(0, 20))
    def close(self, which: int) -> None:
        self._close(self.locals[which % len(self.locals)])

    @precondition(lambda self: any(self._persistent()))
    @rule()
    def close_persistent(self) -> None:
        self._close(next(self._persistent()))

    @precondition(lambda self: any(self._persistent()))
    @rule(verb=VERBS, again=st.sampled_from([None, False, True]))
    def overtake(self, verb: str, again: bool | None) -> None:
        """A read is under way while what covers it goes, and perhaps comes back."""
        covering = next(self._persistent())
        path = covering.call.watch_path
        self.read(verb, path)
        self.flush()
        self._close(covering)
        if again is not None:
            self.add_watch(path, again)

    def _persistent(self) -> Iterator[Local]:
        return (one for one in self.locals if one.set and one.kind in LASTING)

    def _close(self, local: Local) -> None:
        local.closed = True
        local.watch.close()

    @rule(path=PATHS, which=st.sampled_from(WatchType))
    def remove_watches(self, path: str, which: WatchType) -> None:
        self.script.call("remove_watches", path, which)

    # --- the server, and others -------------------------------------------------------------------

    @rule(path=PATHS, data=st.booleans())
    def change(self, path: str, data: bool) -> None:
        self.server.change(path, data)

    @rule()
    def flush(self) -> None:
        self.server.inbox += self.script.flush()

    @rule(some=st.integers(1, 3))
    def serve(self, some: int) -> None:
        for _ in self.server.inbox[:some]:
            self.server.serve()

    @rule(some=st.integers(1, 3))
    def deliver(self, some: int) -> None:
        arrived, self.server.out = self.server.out[:some], self.server.out[some:]
        for frame in arrived:
            self.script.feed(frame)
        assert self.script.session.broken is None
        self._listen()

    def _listen(self) -> None:
        for local in self.locals:
            local.heard += events(local.watch)
            local.closed = local.closed or any(event.type in REMOVED for event in local.heard)
            if local.since is None and local.set:
                local.since = self.server.executed[local.call.xid]

    @rule()
    def reconnect(self) -> None:
        """Changes behind the loss are caught up with, but for persistent watches."""
        self._listen()
        self.script.lose()
        self.server.connect()
        self.script.dial()
        self.script.flush()
        self.script.welcome()
        while not self.script.state.usable:
            self.flush()
            self.serve(100)
            for local in self._persistent():
                local.since, local.heard = self.server.zxid, []
            self.deliver(100)

    @rule()
    def settle(self) -> None:
        """Everything under way arrives; then nothing may be missing."""
        while self.script.session.has_output or self.server.inbox or self.server.out:
            self.flush()
            self.serve(100)
            self.deliver(100)
        for local in self.locals:
            if local.set and local.since is not None:
                self._check(local, local.since)

    def _check(self, local: Local, since: int) -> None:
        due = [c for c in self.server.changes if c.zxid > since and local.concerned(c)]
        heard = [(event.type, event.path) for event in local.heard]
        if local.kind in LASTING:
            remaining = iter(heard)
            for change in due:
                assert (change.type, change.path) in remaining, f"{change} was lost by {local}"
        elif due and not self._unseen(local):
            assert heard, f"{due} was lost by {local}"

    def _unseen(self, local: Local) -> bool:
        """A node that came and went while its watch was being set again; servers cannot tell."""
        return local.kind is WatchKind.EXIST and local.call.watch_path in (
            self.server.set_again_missing
        )

    @invariant()
    def a_one_shot_watch_fires_once(self) -> None:
        for local in self.locals:
            if local.call.watch_kind not in LASTING:
                assert len(local.heard) <= 1 or local.closed

    def teardown(self) -> None:
        """Whatever is set must hear of what comes now, and the persistent ones twice."""
        self.settle()
        for path in ["/a", "/a/b", "/a/b", "/a", "/a", "/a/b", "/a/b"]:
            self.server.change(path, data=True)
            self.settle()
            self.server.change(path, data=False)
            self.settle()


# To shrink takes longer than a test may; it can be switched on by hand.
WatchingMachine.TestCase.settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(400),
    stateful_step_count=40,
    phases=[Phase.generate],
)
TestWatchingMachine = WatchingMachine.TestCase
