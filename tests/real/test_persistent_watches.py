"""Persistent and recursive watches, their mixing with one-shot ones, and twenty thousand of all."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support.lock_helpers import Stage, answers, watch_table_size
from zkwire import (
    Client,
    EventType,
    NoWatcherError,
    State,
    Watch,
    WatchType,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.testing.proxy import Gate, cut_after, cut_before, hold, rst_before

pytestmark = pytest.mark.since("3.6")

PATIENCE = 30.0
LARGEST_FRAME = 129 * 1024
RESTORING = {"set_watches", "set_watches2"}

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
REREAD = EventType.REREAD


def next_event(watch: Watch) -> tuple[EventType | int, str]:
    """The next event's type and path."""
    event = watch.wait(PATIENCE)
    assert event is not None, f"nothing came for {watch!r}"
    return event.type, event.path


def events(watch: Watch, count: int) -> list[tuple[EventType | int, str]]:
    return [next_event(watch) for _ in range(count)]


def settled(client: Client, *watches: Watch) -> None:
    """Whatever was changed before this has fired; there is nothing left in the watches."""
    client.exists("/")
    assert not [watch for watch in watches if watch.ready]


def outage(stage: Stage, client: Client) -> None:
    """The client's connection is cut, and there is no other before the stage is healed."""
    stage.proxy.refuse()
    stage.proxy.cut_all()
    assert client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE) is State.DISCONNECTED


# --- what they see --------------------------------------------------------------------------------


@pytest.mark.parametrize("recursive", [False, True])
def test_what_they_see(stage: Stage, fresh_path: str, recursive: bool) -> None:
    client, other, node = stage.client(), stage.observer, fresh_path
    watch = Watch()
    client.add_watch(node, watch, recursive=recursive)
    child, below = (f"{node}/a", f"{node}/a/b")
    if recursive:
        seen = [(CREATED, node), (CHANGED, node), (CREATED, child), (CREATED, below)]
        seen += [(CHANGED, below), (DELETED, below), (DELETED, child), (DELETED, node)]
    else:  # no grandchild, and no change of a child
        seen = [(kind, node) for kind in (CREATED, CHANGED, CHILDREN, CHILDREN, DELETED)]
    for _ in range(2):
        other.create(node)
        other.create(f"{node}-not")  # begins with the same letters, and is not below it
        other.set_data(node, b"x")
        other.create(child)
        other.create(below)
        other.set_data(below, b"x")
        for path in (below, child, f"{node}-not", node):
            other.delete(path)
        assert events(watch, len(seen)) == seen
    settled(client, watch)


@pytest.mark.parametrize("recursive", [False, True])
def test_paths_inside_a_chroot(stage: Stage, fresh_path: str, recursive: bool) -> None:
    other = stage.observer
    other.create(fresh_path)
    client = stage.client(chroot=fresh_path)
    top, below = Watch(), Watch()
    client.add_watch("/", top, recursive=recursive)
    client.add_watch("/a", below, recursive=recursive)
    other.create(f"{fresh_path}/a")
    other.set_data(f"{fresh_path}/a", b"x")
    assert events(below, 2) == [(CREATED, "/a"), (CHANGED, "/a")]
    expected = [(CREATED, "/a"), (CHANGED, "/a")] if recursive else [(CHILDREN, "/")]
    assert events(top, len(expected)) == expected
    outage(stage, client)
    stage.proxy.refuse(False)
    assert events(top, 1) == [(REREAD, "/")]
    assert events(below, 1) == [(REREAD, "/a")]


def test_one_event_reaches_every_watch_that_it_concerns_once(stage: Stage, fresh_path: str) -> None:
    client, other, node = stage.client(), stage.observer, fresh_path
    other.create(node)
    other.create(f"{node}/a")
    above, at, one_shot, both = Watch(), Watch(), Watch(), Watch()
    client.add_watch(node, above, recursive=True)
    client.add_watch(f"{node}/a", at)
    client.add_watch(f"{node}/a", both)
    client.get_data(f"{node}/a", watch=one_shot)
    client.get_data(f"{node}/a", watch=both)  # the same watch a second time
    other.set_data(f"{node}/a", b"x")
    for watch in (above, at, one_shot, both):
        assert next_event(watch) == (CHANGED, f"{node}/a")
    settled(client, above, at, both)
    with pytest.raises(RuntimeError, match="not set"):
        one_shot.wait(0)
    other.set_data(f"{node}/a", b"y")
    for watch in (above, at, both):
        assert next_event(watch) == (CHANGED, f"{node}/a")


READS: dict[str, EventType] = {"get_data": CHANGED, "exists": CHANGED, "get_children": CHILDREN}


def test_what_servers_before_3_9_cannot_keep_apart_is_refused(
    stage: Stage, fresh_path: str, client: Client
) -> None:
    client.add_watch(fresh_path, Watch())
    with pytest.raises(RuntimeError, match="a persistent and a recursive watch"):
        client.add_watch(fresh_path, Watch(), recursive=True)
    client.add_watch(f"{fresh_path}/other", Watch(), recursive=True)
    gate = Gate()
    stage.proxy.on("add_watch", action=hold(gate))
    reply = client.pipeline.add_watch(f"{fresh_path}/later", Watch())
    gate.wait_reached()
    with pytest.raises(RuntimeError, match="has not been answered yet"):
        client.exists(f"{fresh_path}/later", watch=Watch())
    gate.release()
    reply.result(PATIENCE)
    client.exists(f"{fresh_path}/later", watch=Watch())


@pytest.mark.parametrize("at_once", [True, False])
def test_a_recursive_watch_right_behind_a_closed_persistent_one_keeps_its_mode(
    stage: Stage, fresh_path: str, at_once: bool
) -> None:
    """A read that was covered by the closed one is answered only now, and has its watch set."""
    client, other = stage.client(), stage.observer
    other.create(fresh_path)
    closed, data, child, recursive = Watch(), Watch(), Watch(), Watch()
    client.add_watch(fresh_path, closed)
    client.get_data(fresh_path, watch=data)
    gate = Gate()
    stage.proxy.on("get_children", action=hold(gate), reply=True)
    read = client.pipeline.get_children(fresh_path, watch=child)
    gate.wait_reached()
    closed.close()
    added = client.pipeline.add_watch(fresh_path, recursive, recursive=True)
    gate.release()
    read.result(PATIENCE)
    added.result(PATIENCE)
    if at_once:
        client.exists("/")  # behind all that the client has told the server since
    else:
        # The recursive watch has replaced the child watch of the read, which is set again.
        stage.proxy.wait_for(lambda frames: len(answers(frames, "set_watches")) == 1, PATIENCE)
    other.create(f"{fresh_path}/x")
    client.exists("/")
    assert next_event(child) == (CHILDREN, fresh_path)
    assert recursive.ready, "there is no gap"
    assert next_event(recursive) == (CREATED, f"{fresh_path}/x")
    other.set_data(fresh_path, b"x")
    assert next_event(data) == (CHANGED, fresh_path)
    assert next_event(recursive) == (CHANGED, fresh_path)
    other.set_data(f"{fresh_path}/x", b"x")
    assert next_event(recursive) == (CHANGED, f"{fresh_path}/x")


class Model:
    """One node under a random sequence of watches and changes; which watches must have fired."""

    def __init__(self, stage: Stage, client: Client, node: str, rng: random.Random) -> None:
        self.stage, self.client, self.node, self.rng = stage, client, node, rng
        self.other = stage.observer
        self.one_shots: list[tuple[Watch, EventType]] = []
        self.lasting: list[Watch] = []
        self.recursive = False
        self.names = itertools.count()

    def step(self) -> None:
        kinds = [self.watch, self.add, self.close, self.change, self.lose]
        self.rng.choices(kinds, [40, 10, 20, 60, 2])[0]()

    def lose(self) -> None:
        """A new connection tells of itself where an event may be missing."""
        outage(self.stage, self.client)
        self.stage.proxy.refuse(False)
        self.client.connect(PATIENCE)
        for watch in self.lasting:
            assert next_event(watch) == (REREAD, self.node)

    def watch(self) -> None:
        verb, watch = self.rng.choice(list(READS)), Watch()
        getattr(self.client, verb)(self.node, watch=watch)
        self.one_shots.append((watch, READS[verb]))

    def add(self) -> None:
        if not self.lasting:
            self.recursive = self.rng.random() < 0.5
        self.lasting.append(Watch())
        self.client.add_watch(self.node, self.lasting[-1], recursive=self.recursive)

    def close(self) -> None:
        if self.lasting and self.rng.random() < 0.5:
            self.lasting.pop(self.rng.randrange(len(self.lasting))).close()
        elif self.one_shots:
            self.one_shots.pop(self.rng.randrange(len(self.one_shots)))[0].close()

    def change(self) -> None:
        if self.rng.random() < 0.5:
            self.other.set_data(self.node, b"x")
            kind, seen = CHANGED, (CHANGED, self.node)
        else:
            kind, child = CHILDREN, f"{self.node}/{next(self.names)}"
            self.other.create(child)
            seen = (CREATED, child) if self.recursive else (CHILDREN, self.node)
        self.client.exists("/")  # its answer comes behind all events
        for watch in self.lasting:
            assert next_event(watch) == seen
            assert not watch.ready
        for watch, awaited in self.one_shots:
            assert watch.ready == (kind == awaited)
            assert not watch.ready or next_event(watch) == (kind, self.node)
        self.one_shots = [each for each in self.one_shots if each[1] != kind]


def test_random_mixes_lose_nothing(stage: Stage, fresh_path: str, seed: int) -> None:
    rng, client = random.Random(seed), stage.client()
    stage.observer.create(fresh_path)
    for number in range(40):
        node = stage.observer.create(f"{fresh_path}/{number}")
        model = Model(stage, client, node, rng)
        for _ in range(25):
            model.step()
        for watch in [*model.lasting, *(watch for watch, _ in model.one_shots)]:
            watch.close()
    assert watch_table_size(client) == 0


# --- removing -------------------------------------------------------------------------------------

GONE: dict[WatchType, set[str]] = {
    WatchType.DATA: {"data", "exist"},
    WatchType.CHILDREN: {"child"},
    WatchType.PERSISTENT: {"persistent"},
    WatchType.PERSISTENT_RECURSIVE: {"recursive"},
    WatchType.ANY: {"data", "exist", "child", "persistent", "recursive"},
}
LAST = {"child": EventType.CHILD_WATCH_REMOVED} | dict.fromkeys(
    ("persistent", "recursive"), EventType.PERSISTENT_WATCH_REMOVED
)


@pytest.mark.parametrize("lasting", ["none", "persistent", "recursive"])
@pytest.mark.parametrize("which", GONE, ids=lambda which: which.name)
def test_remove_watches_of_each_type(
    stage: Stage, fresh_path: str, which: WatchType, lasting: str
) -> None:
    client, other = stage.client(), stage.observer
    other.create(fresh_path)
    watches = {"data": Watch(), "exist": Watch(), "child": Watch()}
    client.get_data(fresh_path, watch=watches["data"])
    client.exists(fresh_path, watch=watches["exist"])
    client.get_children(fresh_path, watch=watches["child"])
    if lasting != "none":
        watches[lasting] = Watch()
        client.add_watch(fresh_path, watches[lasting], recursive=lasting == "recursive")
    gone = GONE[which] & set(watches)
    with nullcontext() if gone else pytest.raises(NoWatcherError):
        client.remove_watches(fresh_path, which)
    for name in gone:
        last = LAST.get(name, EventType.DATA_WATCH_REMOVED)
        assert next_event(watches[name]) == (last, fresh_path)
    other.set_data(fresh_path, b"x")
    other.create(f"{fresh_path}/x")
    client.exists("/")
    for name, watch in watches.items():
        if name in gone:
            assert not watch._events
        else:
            assert next_event(watch) == (CHILDREN if name == "child" else CHANGED, fresh_path)


def test_remove_watches_from_a_node_that_is_not_there(stage: Stage, fresh_path: str) -> None:
    client, watches = stage.client(), (Watch(), Watch())
    for watch, which in zip(watches, (WatchType.DATA, WatchType.ANY), strict=True):
        client.exists(fresh_path, watch=watch)
        with pytest.raises(NoWatcherError):
            client.remove_watches(fresh_path, WatchType.CHILDREN)
        client.remove_watches(fresh_path, which)
        assert next_event(watch) == (EventType.DATA_WATCH_REMOVED, fresh_path)
    stage.observer.create(fresh_path)
    client.exists("/")
    assert [f for f in stage.proxy.frames() if f.kind == "notification"] == []


# --- lost connections -----------------------------------------------------------------------------


def test_the_longest_path_that_can_be_watched_can_be_watched_again(stage: Stage) -> None:
    """A server would close every connection on which more than its limit is set again."""
    client, watch = stage.client(), Watch()
    around = (8 + 4 + 4) + (8 + 5 * 4)  # the add_watch, and what a set_watches2 has more
    longest = "/" + "a" * (SEND_LIMIT - around - 1)
    client.add_watch(longest, watch)
    for ask in (client.add_watch, client.exists, client.get_data, client.get_children):
        with pytest.raises(ValueError, match="set_watches on a new connection would have"):
            ask(longest + "aaaa", watch=Watch())
    outage(stage, client)
    stage.proxy.refuse(False)
    assert next_event(watch) == (REREAD, longest)


@pytest.mark.parametrize("recursive", [False, True])
def test_reread_tells_of_an_outage(stage: Stage, fresh_path: str, recursive: bool) -> None:
    client, other = stage.client(), stage.observer
    other.create(fresh_path)
    watch, second, one_shot = Watch(), Watch(), Watch()  # of the last the server does tell
    client.exists(f"{fresh_path}/never", watch=one_shot)
    client.add_watch(fresh_path, watch, recursive=recursive)
    client.add_watch(f"{fresh_path}/x", watch, recursive=recursive)  # one watch, two paths
    client.add_watch(fresh_path, second, recursive=recursive)
    for _ in range(3):
        outage(stage, client)
        other.set_data(fresh_path, b"during")
        stage.proxy.refuse(False)
        assert sorted(events(watch, 2)) == [(REREAD, fresh_path), (REREAD, f"{fresh_path}/x")]
        assert events(second, 1) == [(REREAD, fresh_path)]
        assert client.get_data(fresh_path).data == b"during"
        other.set_data(fresh_path, b"after")
        assert next_event(watch) == (CHANGED, fresh_path)
        assert next_event(second) == (CHANGED, fresh_path)
    settled(client, watch, second, one_shot)


FAULTS: dict[str, tuple[Callable[..., Any], bool]] = {
    "before the request": (cut_before, False),
    "reset before the request": (rst_before, False),
    "behind the request": (cut_after, False),
    "before the reply": (cut_before, True),
    "behind the reply": (cut_after, True),
}


@pytest.mark.parametrize(("fault", "reply"), FAULTS.values(), ids=FAULTS)
def test_the_restoration_itself_may_be_cut(
    stage: Stage, fresh_path: str, fault: Callable[..., Any], reply: bool
) -> None:
    client, other = stage.client(), stage.observer
    other.create(fresh_path)
    watch, one_shot = Watch(), Watch()
    client.add_watch(fresh_path, watch)
    client.get_children("/", watch=one_shot)
    outage(stage, client)
    other.create(f"{fresh_path}-other")
    for nth in (1, 2):
        stage.proxy.on("set_watches2", action=fault, nth=nth, reply=reply)
    stage.proxy.refuse(False)
    stage.proxy.wait_for(
        lambda frames: sum(f.op == "set_watches2" and f.direction == "c2s" for f in frames) >= 3,
        PATIENCE,
    )
    client.connect(PATIENCE)
    assert next_event(watch) == (REREAD, fresh_path)
    assert next_event(one_shot) == (CHILDREN, "/")
    other.set_data(fresh_path, b"x")
    while (event := next_event(watch)) == (REREAD, fresh_path):
        pass  # one for each time that it got so far
    assert event == (CHANGED, fresh_path)
    other.delete(f"{fresh_path}-other")
    client.exists("/")
    assert not one_shot._events


# --- many of them ---------------------------------------------------------------------------------

COUNTS = {"data": 7000, "exist": 6000, "child": 6000, "lasting": 1000}
EXPECTED = {"data": CHANGED, "exist": CREATED, "child": CHILDREN, "lasting": CHANGED}
OPERATIONS = {"data": "get_data", "exist": "exists", "child": "get_children"}
CHANGES = {"data": "set_data", "exist": "create", "child": "create", "lasting": "set_data"}
EVERY = 10  # one in so many is changed during the outage


class Many:
    """Twenty thousand watches of ``client``, each on a node of its own, that ``other`` changes."""

    def __init__(self, client: Client, other: Client, top: str) -> None:
        self.client, self.other, self.top = client, other, top
        self.watches = {kind: [Watch() for _ in range(n)] for kind, n in COUNTS.items()}
        other.create(top)
        for kind, watches in self.watches.items():
            paths = [self.node(kind, number) for number in range(len(watches))]
            if kind != "exist":
                all_of(map(other.pipeline.create, paths))
            all_of(self.ask(kind, *each) for each in zip(paths, watches, strict=True))

    def node(self, kind: str, number: int) -> str:
        return f"{self.top}/{kind}-node-{number:05d}"

    def ask(self, kind: str, path: str, watch: Watch) -> Any:
        pipeline = self.client.pipeline
        if kind == "lasting":
            return pipeline.add_watch(path, watch, recursive=int(path[-1]) % 2 == 1)
        return getattr(pipeline, OPERATIONS[kind])(path, watch=watch)

    def change(self, chosen: Callable[[int], bool]) -> None:
        """Change the chosen nodes."""
        for kind, count in COUNTS.items():
            make = getattr(self.other.pipeline, CHANGES[kind])
            paths = [
                self.node(kind, n) + "/x" * (kind == "child") for n in range(count) if chosen(n)
            ]
            all_of(make(path, b"x") for path in paths)

    def check(self, chosen: Callable[[int], bool], *, reread: bool) -> None:
        """Those of the chosen nodes have fired, and no others; a REREAD stands for lasting ones."""
        self.client.exists("/")  # behind every event
        for kind, watches in self.watches.items():
            for number, watch in enumerate(watches):
                path = self.node(kind, number)
                expected = REREAD if kind == "lasting" and reread else EXPECTED[kind]
                if chosen(number) or expected is REREAD:
                    assert watch.ready, f"the change of {path} was not reported"
                    assert next_event(watch) == (expected, path)
                assert not watch._events, path


def all_of(replies: Iterable[Any]) -> None:
    """Wait for them, when all have been sent."""
    for reply in list(replies):
        reply.result(60.0)


@pytest.mark.apache  # how long a frame may be is its limit; the pieces are test_session_garbage's
def test_twenty_thousand_watches_survive_an_outage(stage: Stage, fresh_path: str) -> None:
    client = stage.client(timeout=30.0)
    many = Many(client, stage.observer, fresh_path)
    assert watch_table_size(client) == 20_000
    outage(stage, client)
    many.change(lambda n: n % EVERY == 0)
    stage.proxy.reset()
    stage.proxy.refuse(False)
    started = time.monotonic()
    assert client.wait_for_state(State.CONNECTED, timeout=60.0) is State.CONNECTED
    took = time.monotonic() - started
    many.check(lambda n: n % EVERY == 0, reread=True)
    many.change(lambda n: n % EVERY != 0)
    many.check(lambda n: n % EVERY != 0, reread=False)
    sent = [frame for frame in stage.proxy.frames() if frame.direction == "c2s"]
    largest = max(len(frame.raw) for frame in sent)
    assert RESTORING & {frame.op for frame in sent}
    assert largest <= LARGEST_FRAME
    print(f"usable again {took:.2f} s after the server could be reached; {largest} bytes a frame")
    client.close()
