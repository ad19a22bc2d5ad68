"""The longest path that can be watched, and twenty thousand watches through an outage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.lock_helpers import Stage, watch_table_size
from zkwire import Client, EventType, State, Watch
from zkwire.jute.frames import SEND_LIMIT

pytestmark = pytest.mark.since("3.6")

PATIENCE = 30.0
LARGEST_FRAME = 129 * 1024
RESTORING = {"set_watches", "set_watches2"}

CREATED = EventType.NODE_CREATED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
REREAD = EventType.REREAD


def next_event(watch: Watch) -> tuple[EventType | int, str]:
    """The next event's type and path."""
    event = watch.wait(PATIENCE)
    assert event is not None, f"nothing came for {watch!r}"
    return event.type, event.path


def outage(stage: Stage, client: Client) -> None:
    """The client's connection is cut, and there is no other before the stage is healed."""
    stage.proxy.refuse()
    stage.proxy.cut_all()
    assert client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE) is State.DISCONNECTED


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
