"""The watch that a caller holds, and the table of all that are set."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.errors import ClientClosedError, SessionExpiredError
from zkwire.jute.records import SetWatches2
from zkwire.session.request import Request
from zkwire.session.waitable import CallbackWatch, Waitable, Watch
from zkwire.session.watch_table import BATCH_BYTES, WatchManager, WatchTable
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State
from zkwire.wire.ops import WatchKind

DATA, EXIST, CHILD, PERSISTENT, RECURSIVE = WatchKind
CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
EXPIRED = Event(EventType.NONE, "", State.EXPIRED)


class Owner:
    """A client as a watch sees it. Waiting does what the test has prepared; no time passes."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []
        self.meanwhile: list[Callable[[], object]] = []
        self.closed: list[Watch] = []
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
        self.closed.append(watch)

    def dispatch(self, function: Callable[[], object]) -> None:
        self.dispatched.append(function)


def event(path: str = "/a", kind: EventType = CHANGED) -> Event:
    return Event(kind, path, State.CONNECTED)


def armed(owner: Owner, times: int = 1) -> Watch:
    watch = Watch()
    watch._owner = owner
    for _ in range(times):
        watch._arm()
    return watch


def expire(watch: Watch) -> None:
    watch._end(State.EXPIRED, lambda: SessionExpiredError("the session has expired"))


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def watch(owner: Owner) -> Watch:
    return armed(owner)


# --- waiting --------------------------------------------------------------------------------------


def test_an_event_that_is_there_is_not_waited_for(owner: Owner, watch: Watch) -> None:
    assert not watch.ready
    watch._deliver(event())
    assert watch.ready
    assert watch.wait() == event()
    assert owner.waits == []


def test_waiting_for_an_event(owner: Owner, watch: Watch) -> None:
    owner.meanwhile.append(lambda: watch._deliver(event()))
    assert watch.wait(5.0) == event()
    assert owner.waits == [5.0]


def test_no_event_in_time(owner: Owner, watch: Watch) -> None:
    assert watch.wait(0.25) is None
    assert owner.waits == [0.25]
    watch._deliver(event())
    assert watch.wait(0) == event(), "it is still set"


def test_events_come_in_their_order(owner: Owner) -> None:
    watch = armed(owner, 3)
    for path in ("/a", "/b"):
        watch._deliver(event(path))
    assert [watch.wait(), watch.wait()] == [event("/a"), event("/b")]
    assert not watch.ready, "the third read has not fired"


def test_a_watch_that_is_not_set(owner: Owner) -> None:
    """Waiting for it would be waiting forever."""
    for watch in (Watch(), armed(owner, 0)):
        assert watch.ready
        with pytest.raises(RuntimeError, match="not set"):
            watch.wait(1.0)
    watch = armed(owner)
    watch._deliver(event())
    watch.wait()
    with pytest.raises(RuntimeError, match="not set"):
        watch.wait()
    assert owner.waits == []


def test_to_disarm_once_too_often_is_harmless(owner: Owner, watch: Watch) -> None:
    watch._disarm()
    watch._disarm()
    watch._arm()
    assert not watch.ready


def test_each_raise_is_an_exception_of_its_own(owner: Owner, watch: Watch) -> None:
    expire(watch)
    raised = []
    for _ in range(2):
        with pytest.raises(SessionExpiredError) as caught:
            watch.wait()
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def test_closing(owner: Owner, watch: Watch) -> None:
    owner.meanwhile.append(watch.close)
    with pytest.raises(ClientClosedError, match="this watch"):
        watch.wait()
    watch.close()
    assert watch.ready
    assert owner.closed == [watch, watch]
    never_set = Watch()
    never_set.close()
    with pytest.raises(ClientClosedError):
        never_set.wait()


def test_iteration_ends_with_close_and_raises_at_the_end_of_the_session(owner: Owner) -> None:
    watch = armed(owner, 2)
    watch._deliver(event())
    watch.close()
    assert list(watch) == [event()]
    watch = armed(owner, 2)
    watch._deliver(event())
    expire(watch)
    events = iter(watch)
    assert next(events) == event()
    with pytest.raises(SessionExpiredError):
        next(events)


@pytest.mark.parametrize("end", [Watch.close, Watch._disarm], ids=["closed", "not set any more"])
def test_iteration_ends_when_the_watch_does_meanwhile(
    owner: Owner, end: Callable[[Watch], object]
) -> None:
    async def all_of(watch: Watch) -> list[Event]:
        return [event async for event in watch]

    for collect in (list, lambda watch: asyncio.run(all_of(watch))):
        watch = armed(owner)
        owner.meanwhile.append(partial(end, watch))
        assert collect(watch) == []


def test_iteration_raises_when_the_client_is_closed_meanwhile(owner: Owner, watch: Watch) -> None:
    closed = partial(ClientClosedError, "the client has been closed")
    owner.meanwhile.append(lambda: watch._end(State.CLOSED, closed))
    with pytest.raises(ClientClosedError, match="the client"):
        list(watch)


def test_iteration_under_asyncio_raises_when_the_session_is_over(owner: Owner) -> None:
    async def first_of(watch: Watch) -> Event:
        return await anext(aiter(watch))

    watch = armed(owner)
    watch._end(State.CLOSED, partial(ClientClosedError, "the client has been closed"))
    with pytest.raises(ClientClosedError):
        asyncio.run(first_of(watch))


def test_who_waits_is_woken_once(owner: Owner) -> None:
    watch, woken = armed(owner), list[str]()
    for name in ("one", "two"):
        watch._add_waker(partial(woken.append, name))
    watch._deliver(event())
    for wake in watch._take_wakers():
        wake()
    assert watch._take_wakers() == ()
    assert woken == ["one", "two"]
    assert watch.wait() == event(), "to wake is not to take"


def test_many_who_wait_are_no_costlier_than_their_number(owner: Owner) -> None:
    class Counted:
        compared = 0

        def __call__(self) -> None:
            raise AssertionError("it has given up")

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return self is other

        __hash__ = object.__hash__

    watch, wakers = armed(owner), [Counted() for _ in range(1000)]
    for waker in wakers:
        watch._add_waker(waker)
    for waker in wakers[::2] + wakers[::-2]:
        watch._drop_waker(waker)
        watch._drop_waker(waker)
    assert watch._take_wakers() == ()
    assert Counted.compared < 2 * len(wakers)


def test_repr(owner: Owner) -> None:
    watch = armed(owner, 2)
    watch._deliver(event())
    assert repr(watch) == "<Watch 1 armed, 1 events>"
    watch.close()
    assert repr(watch) == "<Watch 1 armed, 1 events closed>"


# --- callbacks ------------------------------------------------------------------------------------


def dispatched(owner: Owner, watch: Watch) -> None:
    """Do what the driver does: wake, then run what was dispatched."""
    for wake in watch._take_wakers():
        wake()
    work, owner.dispatched = owner.dispatched, []
    for function in work:
        function()


def test_a_callback_gets_each_event_once(owner: Owner) -> None:
    seen = list[Event]()
    watch = Watch(seen.append)
    watch._owner = owner
    for path in ("/a", "/b"):
        watch._arm()
        watch._deliver(event(path))
        assert event(path) not in seen, "not in the state machine"
        dispatched(owner, watch)
    dispatched(owner, watch)
    assert seen == [event("/a"), event("/b")]


def test_events_of_several_callbacks_keep_their_order(owner: Owner) -> None:
    seen = list[Event]()
    # Two functions, so that they are two watches.
    watches = {path: Watch(partial(seen.append)) for path in ("/a", "/b")}
    for watch in watches.values():
        watch._owner = owner
    wakers = list[Callable[[], object]]()
    told = ["/a", "/b", "/a/c"]
    for path in told:
        watches[path[:2]]._deliver(event(path), spent=False)
        wakers += watches[path[:2]]._take_wakers()
    for function in wakers:
        function()
    for function in owner.dispatched:
        function()
    assert [e.path for e in seen] == told


def test_a_callback_hears_of_the_end(owner: Owner) -> None:
    seen = list[Event]()
    watch = Watch(seen.append)
    watch._owner = owner
    watch._arm()
    watch._deliver(event())
    dispatched(owner, watch)
    expire(watch)
    dispatched(owner, watch)
    assert seen == [event(), EXPIRED]


@pytest.mark.parametrize("callback", [5, "callback", [], b""])
def test_a_callback_must_be_callable(callback: object) -> None:
    wrong: Any = callback
    with pytest.raises(TypeError, match="callable"):
        Watch(wrong)


@dataclass
class Unhashable:
    """A dataclass that can be called, as a key it cannot be used."""

    name: str = ""

    def __call__(self, event: Event) -> None: ...


class Falsy:
    """A callable that looks empty."""

    def __len__(self) -> int:
        return 0

    def __call__(self, event: Event) -> None: ...


def test_a_callback_that_cannot_be_a_key_is_refused_in_the_caller() -> None:
    """And not when the reply arrives, where nobody could be told."""
    with pytest.raises(TypeError, match="unhashable"):
        CallbackWatch(Unhashable())


def test_what_makes_two_watches_the_same() -> None:
    def callback(event: Event) -> None: ...

    assert Watch()._identity != Watch()._identity
    assert Watch(callback)._identity != Watch(callback)._identity
    assert CallbackWatch(callback)._identity == CallbackWatch(callback)._identity
    falsy = Falsy()
    assert CallbackWatch(falsy)._identity == CallbackWatch(falsy)._identity


# --- the table: what fires ------------------------------------------------------------------------


def fire(table: WatchTable, kind: int, path: str) -> list[Watch]:
    """Take out and return what an event spends."""
    told, spent = table.concerned(kind, path)
    table.take_out(path, spent)
    table.take_out(path, spent)  # as after an interrupt
    return [watch for watch, spends in told if spends]


@pytest.mark.parametrize(
    ("kind", "concerned"),
    [
        (CREATED, {DATA, EXIST}),
        (CHANGED, {DATA, EXIST}),
        (CHILDREN, {CHILD}),
        (DELETED, {DATA, EXIST, CHILD}),
        (EventType.NONE, set()),
        (5, set()),
        (99, set()),
        (-(2**31), set()),
    ],
)
def test_which_watches_an_event_concerns(kind: int, concerned: set[WatchKind]) -> None:
    table = WatchTable()
    watches = {asked: Watch() for asked in WatchKind}
    others = {asked: Watch() for asked in WatchKind}
    for asked in WatchKind:
        table.add(asked, "/a", watches[asked])
        table.add(asked, "/a/b", others[asked])
    assert {id(watch) for watch in fire(table, kind, "/a")} == {
        id(watches[asked]) for asked in concerned
    }
    assert len(table) == 10 - len(concerned), "those that are spent, and no persistent one"
    assert fire(table, kind, "/a") == []
    assert fire(table, kind, "/") == fire(table, kind, "/none") == []


def test_many_watches_on_one_path_fire_in_their_order() -> None:
    table, watches = WatchTable(), [Watch() for _ in range(5)]
    for watch in watches:
        table.add(DATA, "/a", watch)
    assert fire(table, CHANGED, "/a") == watches
    assert len(table) == 0


def test_one_change_is_one_call_of_a_callback() -> None:
    """A function that is passed to two reads makes two watches, but they are the same."""

    def callback(event: Event) -> None: ...

    table, first, second = WatchTable(), CallbackWatch(callback), CallbackWatch(callback)
    table.add(DATA, "/a", first)
    table.add(CHILD, "/a", second)
    assert fire(table, DELETED, "/a") == [first]
    third, fourth = CallbackWatch(callback), CallbackWatch(callback)
    table.add(DATA, "/a", third)
    table.add(DATA, "/a", fourth)
    assert fire(table, CHANGED, "/a") == [third]


def test_one_of_two_watches_with_one_callback_is_taken_out_alone() -> None:
    def callback(event: Event) -> None: ...

    table, first, second = WatchTable(), Watch(callback), Watch(callback)
    for kind in (DATA, PERSISTENT):
        table.add(kind, "/a", first)
        table.add(kind, "/a", second)
        assert table.discard(kind, "/a", first)
        assert table.at(kind, "/a") == [second]


def test_one_watch_on_two_paths(owner: Owner) -> None:
    table, watch = WatchTable(), armed(owner, 2)
    table.add(DATA, "/a", watch)
    table.add(DATA, "/b", watch)
    assert fire(table, CHANGED, "/a") == [watch]
    watch._deliver(event("/a"))
    assert len(table) == 1
    assert fire(table, CHANGED, "/b") == [watch]
    watch._deliver(event("/b"))
    assert [watch.wait(), watch.wait()] == [event("/a"), event("/b")]


# --- the table: what is taken out -----------------------------------------------------------------


def test_discarding_one_registration() -> None:
    table, watch, other = WatchTable(), Watch(), Watch()
    table.add(CHILD, "/a", watch)
    table.add(CHILD, "/a", other)
    assert table.discard(CHILD, "/a", watch)
    assert not table.discard(CHILD, "/a", watch)
    assert not table.discard(DATA, "/a", other)
    assert not table.discard(CHILD, "/b", other)
    assert fire(table, CHILDREN, "/a") == [other]
    assert not table.discard(CHILD, "/a", other)


def test_a_watch_knows_where_it_is() -> None:
    """So that taking it out does not mean a search of the whole table."""
    table, watch = WatchTable(), Watch()
    table.add(DATA, "/a", watch)
    table.add(CHILD, "/b", watch)
    table.add(PERSISTENT, "/c", watch)
    assert watch._places == {(DATA, "/a"), (CHILD, "/b"), (PERSISTENT, "/c")}
    fire(table, CHANGED, "/a")
    table.discard(CHILD, "/b", watch)
    fire(table, CHANGED, "/c")
    assert watch._places == {(PERSISTENT, "/c")}


def test_what_is_set_on_exactly_one_path() -> None:
    table, watch, other = WatchTable(), Watch(), Watch()
    table.add(DATA, "/a", watch)
    table.add(DATA, "/a", other)
    table.add(RECURSIVE, "/a/b", other)
    assert table.has(DATA, "/a")
    assert not table.has(EXIST, "/a")
    assert table.at(DATA, "/a") == [watch, other]
    assert table.at(RECURSIVE, "/a") == []
    assert table.paths(RECURSIVE) == ["/a/b"]
    table.discard(RECURSIVE, "/a/b", other)
    assert not table.has(RECURSIVE, "/a/b")
    assert table.paths(RECURSIVE) == []


def test_all() -> None:
    table, watch, other = WatchTable(), Watch(), Watch()
    for kind in WatchKind:
        table.add(kind, "/a", watch)
    table.add(DATA, "/b", watch)
    table.add(CHILD, "/a", other)
    found = table.all()
    assert len(found) == 2
    assert {id(one) for one in found} == {id(watch), id(other)}
    table.clear()
    assert len(table) == 0
    assert table.all() == []


# --- the table: what is set again -----------------------------------------------------------------


def test_setting_again() -> None:
    table, watch = WatchTable(), Watch()
    table.add(CHILD, "/c", watch)
    table.add(EXIST, "/e", watch)
    table.add(DATA, "/d", watch)
    table.add(DATA, "/d", Watch())
    table.add(DATA, "/d/2", watch)
    table.add(RECURSIVE, "/r", watch)
    table.add(PERSISTENT, "/p", watch)
    batch = (["/d", "/d/2"], ["/e"], ["/c"], ["/p"], ["/r"])
    assert list(table.batches()) == [batch]
    assert list(table.batches()) == [batch], "they stay in the table"


@settings(derandomize=True, deadline=None, max_examples=examples(40))
@given(
    st.sets(
        st.tuples(st.sampled_from(WatchKind), st.integers(0, 400), st.integers(1, 80_000)),
        max_size=25,
    )
)
def test_batches_are_small_and_complete(wanted: set[tuple[WatchKind, int, int]]) -> None:
    table, watch = WatchTable(), Watch()
    paths = {(kind, f"/{number}" + "\u00e4" * size) for kind, number, size in wanted}
    for kind, path in paths:
        table.add(kind, path, watch)
    batches = list(table.batches())
    again = [(kind, path) for batch in batches for kind in WatchKind for path in batch[kind]]
    assert len(again) == len(paths)
    assert set(again) == paths
    for batch in batches:
        size = len(SetWatches2.pack(0, *batch)) - 28
        assert size > 0
        assert size <= BATCH_BYTES or sum(map(len, batch)) == 1, "one long path goes alone"


def test_many_watches_go_in_few_batches() -> None:
    table, watch = WatchTable(), Watch()
    for number in range(20_000):
        table.add(CHILD, f"/{number:04x}", watch)
    batches = list(table.batches())
    assert sum(len(lists[CHILD]) for lists in batches) == 20_000
    assert len(batches) == -(-20_000 * (4 + len("/0000")) // BATCH_BYTES) == 2


def test_a_batch_is_far_below_a_servers_limit() -> None:
    assert BATCH_BYTES <= 256 * 1024


# --- what is rare ---------------------------------------------------------------------------------


def test_a_watch_whose_request_has_no_client_yet_cannot_be_waited_for() -> None:
    watch = Watch()
    watch._arm()
    with pytest.raises(RuntimeError, match="not set"):
        watch.wait()


def test_a_wait_that_ends_for_nothing_is_begun_again(owner: Owner, watch: Watch) -> None:
    owner.meanwhile = [lambda: None, lambda: watch._deliver(event())]
    assert list(watch) == [event()]
    assert len(owner.waits) == 2


def test_a_task_waits_for_events_as_a_thread_does(owner: Owner) -> None:
    watch = armed(owner, 2)
    owner.meanwhile = [lambda: watch._deliver(event("/a")), lambda: watch._deliver(event("/b"))]

    async def scenario() -> list[Event]:
        return [await watch, *[event async for event in watch]]

    assert asyncio.run(scenario()) == [event("/a"), event("/b")]


def test_an_event_that_an_interrupt_makes_come_again_is_one(owner: Owner) -> None:
    watch, twice = armed(owner, 2), event()
    watch._deliver(twice)
    watch._deliver(twice)
    assert watch.take() == twice
    assert watch.take() is None, "the second read's watch is still set"


@pytest.mark.parametrize("look", [Watch.take, Watch.wait, lambda watch: next(iter(watch))])
def test_an_event_that_another_thread_is_delivering_has_come(
    owner: Owner, look: Callable[[Watch], Event], watch: Watch
) -> None:
    """The watch is spent already, and the event not there yet."""
    watch._disarm()
    owner.half_done.append(lambda: watch._deliver(event()))
    assert look(watch) == event()
    with pytest.raises(RuntimeError, match="is not set"):
        watch.take()


def test_a_read_that_has_lost_its_cover_meanwhile_has_its_watch_set_by_itself() -> None:
    """Two of them, so that the first answer leaves one under way."""
    watching, cover = WatchManager("", []), Watch()
    watching.table.add(PERSISTENT, "/a", cover)
    calls = [
        (Request(ops.GET_CHILDREN, "/a", b"\1", None, watch, "/a", CHILD), watch)
        for watch in (Watch(), Watch())
    ]
    for call, watch in calls:
        watching.expect(call, watch)
        assert call.covered
    watching.table.discard(PERSISTENT, "/a", cover)
    for number, (call, watch) in enumerate(calls, 1):
        watching.answered(call, watch, 0, None, number)
        assert [request.op for request in watching.requests] == [ops.SET_WATCHES] * number


# --- memory ---------------------------------------------------------------------------------------

MANY = 1000
OBJECT = 200  # bytes; seen: 120, and 1,096 where each has a deque and a set from the start
SET = 1000  # with its place in the table; seen: 680, and 1,440


def bytes_each(make: Callable[[], object]) -> float:
    """What is still there for each of many when they have been made."""
    tracemalloc.start()
    try:
        before, made = tracemalloc.get_traced_memory()[0], make()
        size = tracemalloc.get_traced_memory()[0] - before
        del made
        return size / MANY
    finally:
        tracemalloc.stop()


def test_a_watch_that_waits_is_small() -> None:
    paths = [f"/a{n}" for n in range(MANY)]
    table = WatchTable()

    def some_set() -> list[Watch]:
        return [table.add(WatchKind.DATA, path, Watch()) for path in paths]

    assert bytes_each(lambda: [Watch() for _ in paths]) <= OBJECT
    assert bytes_each(some_set) <= SET
