"""No watch is ever silently lost, whatever is set, closed, changed and lost in whatever order.

The other side is the embedded server without its sockets: up to 3.8 it keeps one mode for each path
in each of its two tables, where the last request wins, or several as from 3.9 on. The session's
frames drive it and nothing else does, so a watch that it has forgotten does not fire here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.examples import examples
from tests.support.operation_samples import BY_NAME
from tests.support.scripted import Script, Sent, events
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.session.request import Answered, Request
from zkwire.session.waitable import Watch
from zkwire.session.watch_table import ancestors
from zkwire.testing.server.processor import Processor
from zkwire.wire.model import OPEN_ACL_UNSAFE, Event, EventType, WatchType
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
VERBS = st.sampled_from(["get_data", "exists", "get_children"])
PATHS = st.sampled_from(["/a", "/a", "/a", "/a/b", "/"])


class Change(NamedTuple):
    zxid: int
    type: EventType
    path: str


class Server:
    """The embedded server, its connection to the session under test, and one of somebody else."""

    def __init__(self, one_mode: bool) -> None:
        self.processor = Processor(rng=Random(1), version="3.8" if one_mode else "3.9")
        self._other = self.processor.connect()
        hello = r.ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode()
        self.processor.receive(self._other, frame(hello), 0.0)
        self.changes: list[Change] = []
        self.executed: dict[int, int] = {}  # the zxid as of which each request was executed
        self.set_again_missing = set[str]()
        self._mine = self.processor.connect()
        self.connect()

    @property
    def zxid(self) -> int:
        return self.processor.state.tree.zxid

    @property
    def out(self) -> list[bytes]:
        """What has not reached the session yet."""
        return self._mine.output

    def connect(self) -> None:
        """A new connection: no watch of the old one is known."""
        self.processor.lost(self._mine)
        self._mine = self.processor.connect()
        self.inbox: list[Sent] = []

    def change(self, path: str, data: bool) -> None:
        """Somebody else writes the node, or else makes it come or go."""
        nodes, above = self.processor.state.tree.nodes, parent(path)
        if data and path in nodes:
            self._write("set_data", r.SetDataRequest(path, b"", -1).encode(), (CHANGED, path))
        elif path != "/" and path not in nodes and above in nodes:
            body = r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0).encode()
            self._write("create", body, (CREATED, path), (CHILDREN, above))
        elif path != "/" and path in nodes and path + "/b" not in nodes:
            body = r.DeleteRequest(path, -1).encode()
            self._write("delete", body, (DELETED, path), (CHILDREN, above))

    def _write(self, name: str, body: bytes, *changes: tuple[EventType, str]) -> None:
        before = self.zxid
        self.processor.receive(self._other, request_frame(Sent(name, 1, body, 0.0)), 0.0)
        assert self.zxid == before + 1
        self.changes += [Change(self.zxid, *change) for change in changes]

    def serve(self) -> None:
        """Execute the oldest request."""
        sent = self.inbox.pop(0)
        self.executed[sent.xid] = self.zxid
        if sent.name in {"set_watches", "set_watches2"}:
            asked = sent.set_watches() if sent.name == "set_watches" else sent.set_watches2()
            nodes = self.processor.state.tree.nodes
            self.set_again_missing |= set(asked.exist_watches) - nodes.keys()
        self.processor.receive(self._mine, request_frame(sent), 0.0)


def request_frame(sent: Sent) -> bytes:
    if sent.name == "connect":
        return frame(sent.body)
    return frame(r.RequestHeader(sent.xid, BY_NAME[sent.name].opcode).encode() + sent.body)


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
        self.locals: list[Local] = []

    @initialize(one_mode=st.sampled_from([True, True, False]), there=st.integers(0, 2))
    def begin(self, one_mode: bool, there: int) -> None:
        self.server = Server(one_mode)
        for path in ["/a", "/a/b"][:there]:
            self.server.change(path, data=False)
        self._connect()

    def _connect(self) -> None:
        self.script.dial()
        while not self.script.state.usable:
            self.flush()
            self.serve(100)
            for local in self._persistent():
                local.since, local.heard = self.server.zxid, []
            self.deliver(100)

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
        arrived = [self.server.out.pop(0) for _ in self.server.out[:some]]
        for data in arrived:
            self.script.feed(data)
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
        self._connect()

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
