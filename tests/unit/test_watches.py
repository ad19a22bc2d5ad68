"""The watch that a caller holds, the table of all that are set, and who is told of states."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.scripted import script_in
from zkwire.errors import ClientClosedError, SessionExpiredError
from zkwire.session.request import Request
from zkwire.session.states import StateWait
from zkwire.session.waitable import CallbackWatch, Waitable, Watch
from zkwire.session.watch_table import WatchTable
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State
from zkwire.wire.ops import WatchKind

if TYPE_CHECKING:
    from zkwire.session.waitable import Waker

DATA, CHILD = WatchKind.DATA, WatchKind.CHILD
DELETED, CHANGED = EventType.NODE_DELETED, EventType.NODE_DATA_CHANGED


class Owner:
    """A client as a watch sees it. Waiting does what the test has prepared; no time passes."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []
        self.meanwhile: list[Callable[[], object]] = []
        self.dispatched: list[Callable[[], object]] = []
        self.half_done: list[Callable[[], object]] = []

    def await_delivery(self) -> None:
        while self.half_done:
            self.half_done.pop()()

    def wait(self, waitable: Waitable, timeout: float | None) -> bool:
        self.waits.append(timeout)
        assert len(self.waits) < 100, "it waits forever"
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return waitable.ready

    async def ready(self, waitable: Waitable) -> None:
        self.wait(waitable, None)

    def close_watch(self, watch: Watch) -> None:
        """Nobody has to be told."""

    def dispatch(self, function: Callable[[], object]) -> None:
        self.dispatched.append(function)

    def work(self, watch: Watch) -> None:
        """Do what the driver does: wake, then run what was dispatched."""
        for wake in watch._take_wakers():
            wake()
        work, self.dispatched = self.dispatched, []
        for function in work:
            function()


def event(path: str = "/a", kind: EventType = CHANGED) -> Event:
    return Event(kind, path, State.CONNECTED)


def armed(owner: Owner, times: int = 1, callback: Callable[[Event], object] | None = None) -> Watch:
    watch = Watch(callback)
    watch._owner, watch._pending = owner, times
    return watch


def unset(watch: Watch) -> None:
    watch._pending = 0


def expire(watch: Watch) -> None:
    watch._end(State.EXPIRED, lambda: SessionExpiredError("the session has expired"))


def ignore(event: Event) -> None: ...


@dataclass
class Unhashable:
    """A dataclass that can be called; as a key it cannot be used."""

    def __call__(self, event: Event) -> None: ...


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def watch(owner: Owner) -> Watch:
    return armed(owner)


def test_a_watch_that_is_not_set_is_not_waited_for(owner: Owner) -> None:
    spent, no_client = armed(owner), Watch()
    spent._deliver(event())
    spent.wait()
    unset(spent)
    no_client._pending = 1
    for watch in (Watch(), armed(owner, 0), spent, no_client):
        with pytest.raises(RuntimeError, match="not set"):
            watch.wait(1.0)
    assert owner.waits == []
    assert spent.ready
    spent._pending = 1
    assert not spent.ready


async def _listed(watch: Watch) -> list[Event]:
    return [event async for event in watch]


@pytest.mark.parametrize("all_of", [list, lambda watch: asyncio.run(_listed(watch))])
def test_iteration_ends_with_the_watch_and_raises_what_ended_the_session(
    owner: Owner, all_of: Callable[[Watch], list[Event]]
) -> None:
    watch = armed(owner, 2)
    watch._deliver(event())
    watch.close()
    assert all_of(watch) == [event()]
    for end in (Watch.close, unset):
        watch = armed(owner)
        owner.meanwhile.append(partial(end, watch))
        assert all_of(watch) == []
    closed = partial(ClientClosedError, "the client has been closed")
    endings: list[tuple[Callable[[Watch], object], type[Exception]]] = [
        (expire, SessionExpiredError),
        (lambda watch: watch._end(State.CLOSED, closed), ClientClosedError),
    ]
    for ending, error in endings:
        watch = armed(owner, 2)
        owner.meanwhile = [lambda: None, partial(watch._deliver, event()), partial(ending, watch)]
        with pytest.raises(error):
            all_of(watch)
        assert owner.meanwhile == []


@pytest.mark.parametrize("look", [Watch.take, Watch.wait, lambda watch: next(iter(watch))])
def test_an_event_that_another_thread_is_delivering_has_come(
    owner: Owner, look: Callable[[Watch], Event], watch: Watch
) -> None:
    """The watch is spent already, and the event not there yet."""
    unset(watch)
    owner.half_done.append(lambda: watch._deliver(event()))
    assert look(watch) == event()
    with pytest.raises(RuntimeError, match="is not set"):
        watch.take()


def test_events_of_several_callbacks_keep_their_order(owner: Owner) -> None:
    seen = list[Event]()
    watches = {path: armed(owner, 0, seen.append) for path in ("/a", "/b")}
    wakers = list[Callable[[], object]]()
    told = ["/a", "/b", "/a/c"]
    for path in told:
        watches[path[:2]]._deliver(event(path))
        wakers += watches[path[:2]]._take_wakers()
    for wake in wakers:
        wake()
    owner.work(Watch())
    assert [e.path for e in seen] == told


def test_a_callback_must_be_callable_and_a_key() -> None:
    """It fails in the caller, and not when the reply arrives, where nobody could be told."""
    wrong: Any
    for wrong in (5, "callback", [], b""):
        with pytest.raises(TypeError, match="callable"):
            Watch(wrong)

    with pytest.raises(TypeError, match="unhashable"):
        CallbackWatch(Unhashable())


def fire(table: WatchTable, kind: int, path: str) -> list[Watch]:
    """Take out and return what an event spends."""
    told = table._concerned(kind, path)
    table._take_out(kind, path)
    table._take_out(kind, path)  # as after an interrupt
    return told


def test_one_change_is_one_call_of_a_callback() -> None:
    """A function that is passed to two reads makes two watches, but they are the same."""
    table = WatchTable("", [])
    for kinds, change in (((DATA, CHILD), DELETED), ((DATA, DATA), CHANGED)):
        watches = [CallbackWatch(ignore) for _ in kinds]
        for kind, watch in zip(kinds, watches, strict=True):
            table.add(kind, "/a", watch)
        assert fire(table, change, "/a") == watches[:1]


def test_a_read_that_has_lost_its_cover_meanwhile_has_its_watch_set_by_itself() -> None:
    """Two of them, so that the first answer leaves one under way."""
    watching, cover = WatchTable("", []), Watch()
    watching.add(WatchKind.PERSISTENT, "/a", cover)
    calls = [
        (Request(ops.GET_CHILDREN, "/a", b"\1", None, watch, "/a", CHILD), watch)
        for watch in (Watch(), Watch())
    ]
    for call, watch in calls:
        watching.expect(call, watch)
        assert call.covered
    watching.discard(WatchKind.PERSISTENT, "/a", cover)
    for number, (call, watch) in enumerate(calls, 1):
        watching.answered(call, watch, 0, None, number)
        assert [request.op for request in watching.requests] == [ops.SET_WATCHES] * number


MANY = 1000
OBJECT = 200  # bytes; seen: 120, and 1,096 where each has a deque and a set from the start
SET = 1000  # with its place in the table; seen: 680, and 1,440


def test_a_watch_that_waits_is_small() -> None:
    paths, table = [f"/a{n}" for n in range(MANY)], WatchTable("", [])
    makers: list[tuple[Callable[[], object], int]] = [
        (lambda: [Watch() for _ in paths], OBJECT),
        (lambda: [table.add(DATA, path, Watch()) for path in paths], SET),
    ]
    for make, limit in makers:
        tracemalloc.start()
        try:
            before, made = tracemalloc.get_traced_memory()[0], make()
            assert tracemalloc.get_traced_memory()[0] - before <= limit * MANY
            del made
        finally:
            tracemalloc.stop()


class Observer:
    """Writes down what it sees."""

    def __init__(self) -> None:
        self.seen: list[State] = []

    def see(self, state: State) -> list[Waker]:
        self.seen.append(state)
        return []


def test_who_waits_for_a_connection_is_woken_once_and_in_order() -> None:
    change = script_in(State.DISCONNECTED).session.change
    woken: list[int] = []
    wakers: list[Waker] = [lambda n=n: woken.append(n) for n in range(4)]  # type: ignore[misc]
    for waker in wakers:
        change._add_waker(waker)
    change._drop_waker(wakers[1])
    change._drop_waker(wakers[1])
    for waker in (*change._take_wakers(), *change._take_wakers()):
        waker()
    assert woken == [0, 2, 3]


@pytest.mark.parametrize("current", State)
def test_a_state_that_is_already_there(current: State) -> None:
    wait = StateWait({State.CONNECTED}, current)
    assert wait.ready == (current is State.CONNECTED or current.terminal)
    assert wait.reached is (current if wait.ready else None)


def test_a_session_tells_every_transition() -> None:
    script, onlooker = script_in(State.NOT_STARTED), Observer()
    script.session.observers.add(onlooker)
    script.connect()
    script.reconnect()
    script.session.closed()
    way = [State.CONNECTING, State.HANDSHAKE, State.CONNECTED]
    assert onlooker.seen == [*way, State.DISCONNECTED, *way, State.CLOSED]
