"""Every single fault at every request of a lock's life, found by enumeration.

A life cycle is run once without a fault, and then once for each request that it has sent and each
fault that can happen to it or to its answer; and for each pair of cuts, at a request and at the one
that comes after it, or at the greeting of the next connection. Whatever happens: the result is
right, nobody else holds at the same time, the fence rises, no call waits forever, the session
lives, no node stays behind, and somebody new gets the lock soon. In the last part the session is
ended instead. All of it is for zkwire's own server; a real one has the longest of the life cycles.
The other locks are cut off in `test_recipe_cuts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest

import zkwire.blocking.leader
from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    ALL_KINDS,
    GRACE,
    PATIENCE,
    Running,
    Stage,
    acquire_as_third_party,
    answers,
    assert_exclusive,
    assert_in_time,
    assert_no_blind_repeat,
    calm,
    guards_at_once,
    holding,
    make_path,
    requests,
    timed,
)
from tests.support.recipe_samples import lock
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import CUTS, SINGLES, Fault, Faults, every, pairs, plan
from zkwire import (
    Client,
    LockLostError,
    ReadWriteLock,
    SessionExpiredError,
    State,
)
from zkwire.testing.proxy import (
    Frame,
    Gate,
    black_hole,
    duplicate,
    hold,
    rst_after,
    rst_before,
    split,
    truncate,
)

# The time limit of an attempt, and the one for a machine that was too slow for it.
TIMEOUT = 0.4
LONG_TIMEOUT = 10 * TIMEOUT

FAULTS = SINGLES | {
    "reset before": Fault(rst_before),
    "reset after": Fault(rst_after),
    "reply torn in its prefix": Fault(truncate(3), reply=True),
    "reply twice": Fault(duplicate, reply=True, answered=True),
    "request in single bytes": Fault(split, answered=True),
    "reply in single bytes": Fault(split, reply=True, answered=True),
}
ALONE: dict[str, Faults] = {name: (fault,) for name, fault in FAULTS.items()}
POINTS = ALONE | pairs([1])
SILENCE = Fault(black_hole)
SILENCES: dict[str, Faults] = {"silence": (SILENCE,)}
for _name, _cut in CUTS.items():
    SILENCES[f"{_name}, then silence"] = (_cut, SILENCE._replace(later=1))
    SILENCES[f"{_name}, then silence at the greeting"] = (_cut, SILENCE._replace(greeting=True))


# --- who holds, and who is kept out ---------------------------------------------------------------

CLASSIC = tuple(kind.__name__ for kind in ALL_KINDS)
WAITING = ("BlockingLock", "SequentialLock")
DOWNGRADED = "ReadWriteLock.write"


class Place(NamedTuple):
    """Where a sweep runs."""

    server: ZooKeeperServer
    observer: Client
    path: str


@pytest.fixture
def place(zookeeper: ZooKeeperServer, observer: Client, fresh_path: str) -> Place:
    make_path(observer, fresh_path)  # or only the first run would have to make it
    return Place(zookeeper, observer, fresh_path)


class Run(Stage):
    """One run of a life cycle: ``own`` is the lock to which things happen, ``other`` a rival."""

    def __init__(self, place: Place, name: str, title: str, timeout: float = TIMEOUT) -> None:
        super().__init__(place.server, place.observer)
        self.kind = name
        self.path = f"{place.path}/{title}/lock"
        self.timeout = timeout
        self.unanswered: list[Frame] = []
        self.enumerated: int | None = None
        self.ends = False
        self.subject = self.client()
        guards_at_once(self.subject)
        self.rival_kind: Any = partial(lock, name)
        self.own: Any = lock(name, self.subject, self.path)
        self.other: Any = lock(name, self.observer, self.path)

    def calm(self) -> None:
        """The faults are over, and what is asked for from here on is not enumerated."""
        self.enumerated = len(requests(self.proxy.frames()))
        self.heal()
        self.proxy.cut_all()

    def waits(self, frames: list[Frame]) -> bool:
        """Whether the client has got the answer to a look at the holder."""
        heard = [frame for frame in frames if frame.request not in self.unanswered]
        return bool(answers(heard, "get_data"))

    @property
    def last_fence(self) -> int:
        """The fence of whoever held last."""
        fences = [0]
        for one in (self.own, self.other):
            with suppress(RuntimeError):  # it never held
                fences.append(one.fence)
        return max(fences)

    def assert_granted(self) -> None:
        """The lock is held: by one node, with that node's fence, and by nobody else."""
        assert_exclusive(self.own, self.other)
        if self.ends:  # perhaps it is not held any longer
            return
        stats = [self.observer.exists(node) for node in self.nodes(self.path)]
        assert self.own.fence in [stat.czxid for stat in stats if stat]
        assert not self.other.try_acquire()
        assert_exclusive(self.own, self.other)

    def assert_free_again(self) -> None:
        """Somebody new gets the lock, with a higher fence, and no node stays behind."""
        assert acquire_as_third_party(self, self.rival_kind, self.path) > self.last_fence
        self.wait_no_nodes(self.path)
        assert not self.own.held


# --- the life cycles ------------------------------------------------------------------------------


def free(run: Run) -> None:
    """Acquire a free lock, and release it."""
    assert Running(lambda: run.own.acquire(PATIENCE)).result()
    run.assert_granted()
    Running(run.own.release).result()
    assert not run.own.held


def held_for_a_moment(run: Run) -> None:
    """Release before the guard is asked for, which then need not be."""
    del run.subject._driver.defer
    free(run)


def waited(run: Run) -> None:
    """Wait for the holder's release, acquire, and release."""
    assert run.other.acquire(GRACE)
    waiter = Running(lambda: run.own.acquire(PATIENCE))
    poll("it waits", lambda: waiter.ended or run.waits(run.proxy.frames()) or None, PATIENCE)
    assert_exclusive(run.other, run.own)
    run.other.release()
    assert waiter.result(PATIENCE + GRACE)
    assert run.own.fence > run.other.fence
    run.assert_granted()
    Running(run.own.release).result()


def tried(run: Run) -> None:
    """Try, while somebody else holds."""
    with holding(run.other):
        assert Running(run.own.try_acquire).result() is False
        assert_exclusive(run.other, run.own)


def timed_out(run: Run) -> None:
    """Wait in vain."""
    assert run.other.acquire(GRACE)
    assert not try_in_time(run)
    assert_exclusive(run.other, run.own)
    wait_until_unwatched(run)
    run.other.release()


def closed(run: Run) -> None:
    """Acquire a free lock, and close the client."""
    assert Running(lambda: run.own.acquire(PATIENCE)).result()
    run.assert_granted()
    Running(run.subject.close).result()
    assert not run.own.held


def free_in_time(run: Run) -> None:
    """Acquire a free lock within a time limit, and release it when the faults are over."""
    acquired = try_in_time(run)
    run.calm()
    if acquired:
        run.own.release()


def taken_in_time(run: Run) -> None:
    """Fail to acquire a taken lock within a time limit."""
    assert run.other.acquire(GRACE)
    assert not try_in_time(run)
    wait_until_unwatched(run)
    run.calm()
    run.other.release()


def try_in_time(run: Run) -> bool:
    """Whether the lock was acquired in time."""
    acquired, seconds = Running(lambda: timed(lambda: run.own.acquire(run.timeout))).result()
    assert_in_time(run.timeout, seconds)
    return bool(acquired)


def wait_until_unwatched(run: Run) -> None:
    """Wait for the last request of an attempt, which nobody waits for, to be counted by the proxy.

    A lock that does not wait sets no watch, and where the network falls silent it is never sent.
    """
    if run.kind not in WAITING:
        return
    with suppress(TimeoutError):
        run.proxy.wait_for(lambda frames: any(f.op == "remove_watches" for f in frames), 1)


def downgraded(run: Run) -> None:
    """Write, become a reader while somebody waits to write, release both."""
    both = ReadWriteLock(run.subject, run.path)
    run.own = both.write
    with ThreadPoolExecutor(1) as holder:
        assert holder.submit(both.write.acquire, PATIENCE).result(GRACE + PATIENCE)
        waiting = Running(lambda: run.other.acquire(2 * PATIENCE))
        soon("somebody waits to write", lambda: len(run.nodes(run.path)) >= 2)
        assert holder.submit(both.read.acquire, PATIENCE).result(GRACE + PATIENCE)
        assert both.write.held
        holder.submit(both.write.release).result(GRACE)
    run.own = both.read
    assert both.read.held
    assert not run.other.held
    assert not waiting.ended
    Running(both.read.release).result()
    assert waiting.result(PATIENCE + GRACE)
    assert run.other.fence
    run.other.release()


# --- the sweep ------------------------------------------------------------------------------------

Cycle = Callable[[Run], None]


def each(
    names: Iterable[str],
    cycles: Iterable[Callable[..., None]],
    longest: Callable[[str, Callable[..., None]], bool],
) -> pytest.MarkDecorator:
    """A test for each lock and cycle; on a real server only of the longest."""
    rows = [
        pytest.param(
            name,
            cycle,
            id=f"{name}-{cycle.__name__}",
            marks=() if longest(name, cycle) else pytest.mark.own_server,
        )
        for name, cycle in itertools.product(names, cycles)
        if name in WAITING or cycle not in {waited, timed_out}
    ]
    return pytest.mark.parametrize(("name", "cycle"), rows)


def is_longest(name: str, cycle: Callable[..., None]) -> bool:
    return cycle is (waited if name in WAITING else free)


def swept(place: Place, name: str, cycle: Cycle, faults: Mapping[str, Faults]) -> None:
    def once(title: str, at: int, faults: Faults, timeout: float) -> tuple[int, int]:
        """How many requests that were, and how many of them are enumerated."""
        with Run(place, name, f"{title}-{timeout:g}", timeout) as run:
            plan(run.proxy, at, faults, run.unanswered.append)
            session_id = run.subject.session_id
            cycle(run)
            run.assert_free_again()
            assert run.subject.session_id == session_id
            assert_no_blind_repeat(run.proxy.frames())
            sent = len(requests(run.proxy.frames()))
            return sent, run.enumerated or sent

    def live(title: str, at: int, faults: Faults) -> int:
        if not faults:  # a slow run holds a lock for longer than a moment, and asks for its guard
            return min(once(f"{title}-{n}", 0, (), TIMEOUT)[1] for n in range(3))
        # On a machine that pauses an attempt's time may be over before the request is sent.
        tries = (once(title, at, faults, timeout)[0] for timeout in (TIMEOUT, LONG_TIMEOUT))
        assert any(sent > at for sent in tries), "the fault did not happen"
        return 0

    every(live, lambda *_: faults)


@each(CLASSIC, (free, waited, tried, timed_out, closed), is_longest)
def test_every_fault_at_every_request(place: Place, name: str, cycle: Cycle) -> None:
    swept(place, name, cycle, POINTS)


def test_every_fault_at_every_request_of_a_downgrade(place: Place) -> None:
    """While a writer waits."""
    swept(place, DOWNGRADED, downgraded, POINTS)


@pytest.mark.own_server
@pytest.mark.parametrize("name", CLASSIC)
def test_every_fault_at_every_request_of_a_lock_held_for_a_moment(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(zkwire.blocking.leader, "DEFER_SECONDS", PATIENCE)
    swept(place, name, held_for_a_moment, POINTS)


@each(
    CLASSIC,
    (free_in_time, taken_in_time),
    lambda name, cycle: (name, cycle) == ("BlockingLock", taken_in_time),
)
def test_deadline_is_kept_wherever_the_network_falls_silent(
    place: Place, name: str, cycle: Cycle
) -> None:
    swept(place, name, cycle, SILENCES)


# --- a session that is ended from outside, before each request and behind it ----------------------


def end_session(run: Run, gate: Gate) -> None:
    try:
        gate.wait_reached(PATIENCE)
        run.expire(run.subject)
    finally:
        run.heal()
        gate.release()


def live_and_end(run: Run, cycle: Cycle, ending: Running[None]) -> None:
    """Every call ends, in one of these errors unless it had what it needed before."""
    try:
        Running(lambda: cycle(run)).result()
    except (SessionExpiredError, LockLostError):
        assert run.subject.state is State.EXPIRED
    # A client that closes may have been faster, or the server be at it just now: then it greets
    # and may answer nothing.
    faster = suppress(LookupError, EOFError, TimeoutError)
    with faster if cycle is closed else nullcontext():
        ending.result()
    over = (State.EXPIRED, State.CLOSED)
    poll("the client knows", lambda: run.subject.state in over or None, GRACE)
    assert not run.own.held
    run.assert_free_again()
    if run.subject.state is State.EXPIRED:
        with pytest.raises(SessionExpiredError):
            run.own.try_acquire()


@each(
    CLASSIC,
    (free, waited, tried, closed),
    is_longest,
)
def test_a_session_that_ends_at_every_request(place: Place, name: str, cycle: Cycle) -> None:
    def live(title: str, at: int, faults: Faults) -> int:
        with Run(place, name, title) as run:
            # It knows what the server lacks: of the requests behind one that a server does not
            # know, chance decides which are answered, and only one that is answered is counted.
            calm(run.subject, place.server)
            run.proxy.reset()
            run.ends = True
            if not faults:
                cycle(run)
                return len(requests(run.proxy.frames()))
            gate = Gate()
            run._exit.callback(gate.release)
            run.proxy.on_frame(at, hold(gate), reply=faults[0].reply)
            live_and_end(run, cycle, Running(lambda: end_session(run, gate)))
            return 0

    ends = {"before": (Fault(hold(Gate())),), "behind": (Fault(hold(Gate()), reply=True),)}
    every(live, lambda *_: ends)
