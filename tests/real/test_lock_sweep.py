"""Every single fault at every request of a lock's life, found by enumeration.

A life cycle is run once without a fault, and then once for each request that it has sent and each
fault that can happen to it or to its answer; and for each pair of cuts, at a request and at the one
that comes after it, or at the greeting of the next connection. Whatever happens: the result is
right, nobody else holds at the same time, the fence rises, no call waits forever, the session
lives, no node stays behind, and somebody new gets the lock soon. All of it is for zkwire's own
server; a real one has one life cycle of each kind, the longest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

import zkwire.blocking.leader
from tests.support.lock_helpers import (
    ALL_KINDS,
    GRACE,
    PATIENCE,
    WAITING_KINDS,
    Kind,
    Lock,
    Running,
    Stage,
    acquire_as_third_party,
    answers,
    assert_exclusive,
    assert_in_time,
    assert_no_blind_repeat,
    guards_at_once,
    make_path,
    requests,
    timed,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import BlockingLock, Client
from zkwire.testing.proxy import (
    Action,
    Frame,
    black_hole,
    cut_after,
    cut_before,
    duplicate,
    rst_after,
    rst_before,
    split,
    truncate,
)
from zkwire.testing.proxy.faults import Step

# The runs spend their time waiting for each other's sockets.
AT_ONCE = 12
# The time limit of an attempt, and the one for a machine that was too slow for it.
TIMEOUT = 0.4
LONG_TIMEOUT = 10 * TIMEOUT


class Fault(NamedTuple):
    """What happens to one request, or to the reply of it; or to the next ``greeting``.

    ``answered`` is whether the client gets the answer nevertheless.
    """

    action: Action
    reply: bool = False
    answered: bool = False
    greeting: bool = False


FAULTS = {
    "cut before": Fault(cut_before),
    "cut after": Fault(cut_after),
    "reset before": Fault(rst_before),
    "reset after": Fault(rst_after),
    "cut behind the reply": Fault(cut_after, reply=True, answered=True),
    "reply torn in its prefix": Fault(truncate(3), reply=True),
    "reply torn in its header": Fault(truncate(11), reply=True),
    "reply twice": Fault(duplicate, reply=True, answered=True),
    "request in single bytes": Fault(split, answered=True),
    "reply in single bytes": Fault(split, reply=True, answered=True),
}
CUTS = {name: fault for name, fault in FAULTS.items() if name in {"cut before", "cut after"}}
SINGLES = {name: (fault,) for name, fault in FAULTS.items()}
PAIRS = {
    f"{first}, then {second}": (CUTS[first], CUTS[second])
    for first, second in itertools.product(CUTS, repeat=2)
}
GREETINGS = {
    f"{first}, then the greeting {second}": (CUTS[first], CUTS[second]._replace(greeting=True))
    for first, second in itertools.product(CUTS, repeat=2)
}
POINTS = SINGLES | PAIRS | GREETINGS

SILENCE = Fault(black_hole)
SILENCES = {"silence": (SILENCE,)} | {
    f"{name}, then silence{where}": (fault, SILENCE._replace(greeting=bool(where)))
    for name, fault in CUTS.items()
    for where in ("", " at the greeting")
}


class Run(Stage):
    """One run of a life cycle, with faults at the ``at``-th request and those that follow it."""

    def __init__(
        self, server: ZooKeeperServer, observer: Client, kind: Kind, path: str, at: int = 0
    ) -> None:
        super().__init__(server, observer)
        self.kind = kind
        self.path = path
        self._at = at
        self.timeout = TIMEOUT
        self._unanswered: list[Frame] = []
        self._greeting: Action | None = None
        self.enumerated: int | None = None
        self.subject = self.client()
        guards_at_once(self.subject)
        self.own: Lock = kind(self.subject, path)
        self.other: Lock = kind(observer, path)

    def plan(self, faults: tuple[Fault, ...]) -> None:
        """Let these faults happen, one request after the other."""
        for offset, fault in enumerate(faults):
            if fault.greeting:
                self._greeting = fault.action
            else:
                self.proxy.on_frame(self._at + offset, self._noting(fault), reply=fault.reply)

    def _noting(self, fault: Fault) -> Action:
        def action(frame: Frame) -> Iterable[Step]:
            # Not before: a server without create2 ends a connection ahead of the one that is cut.
            if self._greeting is not None:
                self.proxy.on("connect", action=self._greeting)
                self._greeting = None
            if not fault.answered:
                self._unanswered.append(frame.request or frame)
            return fault.action(frame)

        return action

    def calm(self) -> None:
        """The faults are over, and what is asked for from here on is not enumerated."""
        self.enumerated = len(requests(self.proxy.frames()))
        self.heal()
        self.proxy.cut_all()

    def wait_until_waiting(self) -> None:
        """Wait until the client has got the answer to a look at the holder."""

        def looked(frames: list[Frame]) -> bool:
            return any(f.request not in self._unanswered for f in answers(frames, "get_data"))

        self.proxy.wait_for(looked, PATIENCE)

    @property
    def last_fence(self) -> int:
        """The fence of whoever held last."""
        fences = [0]
        for lock in (self.own, self.other):
            with suppress(RuntimeError):  # it never held
                fences.append(lock.fence)
        return max(fences)

    def assert_granted(self) -> None:
        """The lock is held: by one node, with that node's fence, and by nobody else."""
        assert_exclusive(self.own, self.other)
        stats = [self.observer.exists(node) for node in self.nodes(self.path)]
        assert self.own.fence in [stat.czxid for stat in stats if stat]
        assert not self.other.try_acquire()
        assert_exclusive(self.own, self.other)


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
    run.wait_until_waiting()
    assert_exclusive(run.other, run.own)
    run.other.release()
    assert waiter.result(PATIENCE + GRACE)
    assert run.own.fence > run.other.fence
    run.assert_granted()
    Running(run.own.release).result()


def tried(run: Run) -> None:
    """Try, while somebody else holds."""
    assert run.other.acquire(GRACE)
    assert Running(run.own.try_acquire).result() is False
    assert_exclusive(run.other, run.own)
    run.other.release()


def timed_out(run: Run) -> None:
    """Wait in vain."""
    assert run.other.acquire(GRACE)
    acquired, seconds = Running(lambda: timed(lambda: run.own.acquire(run.timeout))).result()
    assert not acquired
    assert_in_time(run.timeout, seconds)
    assert_exclusive(run.other, run.own)
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
    run.calm()
    run.other.release()


def try_in_time(run: Run) -> bool:
    """Whether the lock was acquired in time."""
    acquired, seconds = Running(lambda: timed(lambda: run.own.acquire(run.timeout))).result()
    assert_in_time(run.timeout, seconds)
    return acquired


Cycle = Callable[[Run], None]


def named(kind: str, cycle: Callable[..., None], *values: object, longest: bool) -> Any:
    """A parameter by the names of its kind and cycle; on a real server only the longest."""
    marks = () if longest else (pytest.mark.own_server,)
    return pytest.param(*values, id=f"{kind}-{cycle.__name__}", marks=marks)


CYCLES = [
    named(kind.__name__, cycle, kind, cycle, longest=cycle is longest)
    for kind in ALL_KINDS
    for longest in (waited if kind in WAITING_KINDS else free,)
    for cycle in (free, waited, tried, timed_out, closed)
    if kind in WAITING_KINDS or cycle not in {waited, timed_out}
]


# --- the sweep ------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a sweep runs, and where it prints."""

    server: ZooKeeperServer
    observer: Client
    path: str
    capsys: pytest.CaptureFixture[str]


class Sweep:
    """All runs of one life cycle, under each of the ``faults``."""

    def __init__(self, place: Place, faults: Mapping[str, tuple[Fault, ...]]) -> None:
        self._server, self._observer, self._path, self._capsys = place
        self._faults = faults

    def run_all(self, kind: Kind, cycle: Cycle) -> None:
        """Enumerate and run, print how much that was, and fail if any of it went wrong."""
        self._kind, self._cycle = kind, cycle
        make_path(self._observer, self._path)  # or only the first run would have to make it
        count = self._record()
        points = list(itertools.product(range(count), self._faults))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sweep") as pool:
            wrong = [line for line in pool.map(lambda point: self._fault(*point), points) if line]
        with self._capsys.disabled():
            print(
                f"\n{kind.__name__} {cycle.__name__}: {count} requests, {len(self._faults)} faults"
                f" each: {len(points)} runs, {len(wrong)} wrong"
            )
        assert not wrong, "\n".join(wrong)

    def _record(self) -> int:
        """How many requests the life cycle sends at least when nothing goes wrong.

        A lock that a slow run holds for longer than a moment asks for its guard, too.
        """
        return min(self._requests(f"clean-{n}") for n in range(3))

    def _requests(self, name: str) -> int:
        with self._run(name, 0) as run:
            self._live(run)
            return run.enumerated or len(requests(run.proxy.frames()))

    def _fault(self, at: int, name: str) -> str | None:
        """Run once with a fault; what is wrong with it, or None."""
        try:
            # On a machine that pauses an attempt's time may be over before the request is sent.
            happened = self._happens(at, name, TIMEOUT) or self._happens(at, name, LONG_TIMEOUT)
            assert happened, "the fault did not happen"
        except Exception as error:
            reason = str(error).partition("\n")[0]
            return f"{name} at request {at}: {type(error).__name__}: {reason}"
        return None

    def _happens(self, at: int, name: str, timeout: float) -> bool:
        """Run once with a fault, and with this time limit; whether the fault has happened."""
        with self._run(f"{at}-{name.replace(' ', '-')}-{timeout:g}", at) as run:
            run.timeout = timeout
            run.plan(self._faults[name])
            self._live(run)
            assert_no_blind_repeat(run.proxy.frames())
            return len(requests(run.proxy.frames())) > at

    def _run(self, name: str, at: int) -> Run:
        return Run(self._server, self._observer, self._kind, f"{self._path}/{name}/lock", at)

    def _live(self, run: Run) -> None:
        session_id = run.subject.session_id
        self._cycle(run)
        assert acquire_as_third_party(run, run.kind, run.path) > run.last_fence
        run.wait_no_nodes(run.path)
        assert not run.own.held
        assert run.subject.session_id == session_id


@pytest.mark.parametrize(("kind", "cycle"), CYCLES)
def test_every_fault_at_every_request(place: Place, kind: Kind, cycle: Cycle) -> None:
    Sweep(place, POINTS).run_all(kind, cycle)


@pytest.mark.own_server
@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
def test_every_fault_at_every_request_of_a_lock_held_for_a_moment(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setattr(zkwire.blocking.leader, "DEFER_SECONDS", PATIENCE)
    Sweep(place, POINTS).run_all(kind, held_for_a_moment)


IN_TIME = [
    named(kind.__name__, cycle, kind, cycle, longest=(kind, cycle) == (BlockingLock, taken_in_time))
    for kind in ALL_KINDS
    for cycle in (free_in_time, taken_in_time)
]


@pytest.mark.parametrize(("kind", "cycle"), IN_TIME)
def test_deadline_is_kept_wherever_the_network_falls_silent(
    place: Place, kind: Kind, cycle: Cycle
) -> None:
    Sweep(place, SILENCES).run_all(kind, cycle)
