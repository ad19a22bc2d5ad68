"""Every single fault at every request of a lock's life, and the end of its session at each.

A life is lived once without a fault, and then once for each request that it has sent and each fault
that can happen to it or to its answer, and for some pairs of cuts. Whatever happens: the result is
right, nobody else holds at the same time, the fence rises, no call waits forever, the session
lives, no node stays behind, and somebody new gets the lock soon. `test_recipe_cuts` cuts off all
other locks, with both clients, but on zkwire's own server.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress

import pytest

from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
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
    waiting_kinds,
)
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import CUTS, SINGLES, Fault, Faults, every, pairs, plan
from zkwire import Client, LockLostError, SessionExpiredError, State
from zkwire.testing.proxy import (
    Gate,
    black_hole,
    duplicate,
    hold,
    rst_after,
    rst_before,
    split,
    truncate,
)

LIMIT = 0.4
FAULTS = SINGLES | {
    "reset before": Fault(rst_before),
    "reset after": Fault(rst_after),
    "reply torn in its prefix": Fault(truncate(3), reply=True),
    "reply twice": Fault(duplicate, reply=True),
    "request in single bytes": Fault(split),
    "reply in single bytes": Fault(split, reply=True),
}
ALONE: dict[str, Faults] = {name: (fault,) for name, fault in FAULTS.items()}
SILENCE = Fault(black_hole)
SILENCES: dict[str, Faults] = {"silence": (SILENCE,)}
for _name, _cut in CUTS.items():
    SILENCES[f"{_name}, then silence"] = (_cut, SILENCE._replace(later=1))
    SILENCES[f"{_name}, then silence at the greeting"] = (_cut, SILENCE._replace(greeting=True))
ENDS = {"before": (Fault(hold(Gate())),), "behind": (Fault(hold(Gate()), reply=True),)}


class Run(Stage):
    """One life: ``own`` is the lock to which things happen, ``other`` a rival."""

    def __init__(self, server: ZooKeeperServer, observer: Client, kind: Kind, path: str) -> None:
        super().__init__(server, observer)
        self.kind, self.path = kind, path
        self.ends = False
        # It knows what the server lacks: of the requests behind one that a server does not know,
        # chance decides which are answered.
        self.subject = calm(self.client(), server)
        guards_at_once(self.subject)
        self.own, self.other = kind(self.subject, path), kind(observer, path)
        self.proxy.reset()

    @property
    def sent(self) -> int:
        return len(requests(self.proxy.frames()))

    def live(self) -> None:
        """Try in vain, wait for the holder's release, hold, and release."""
        with holding(self.other):
            assert Running(self.own.try_acquire).result() is False
            waiter = Running(lambda: self.own.acquire(PATIENCE))
            poll("it waits", lambda: waiter.ended or self.waits() or None, PATIENCE)
            assert_exclusive(self.other, self.own)
        assert waiter.result(PATIENCE + GRACE)
        assert self.own.fence > self.other.fence
        if not self.ends:  # else it is perhaps not held any longer
            stats = [self.observer.exists(node) for node in self.nodes(self.path)]
            assert self.own.fence in [stat.czxid for stat in stats if stat]
            assert not self.other.try_acquire()
            assert_exclusive(self.own, self.other)
        Running(self.own.release).result()

    def waits(self) -> bool:
        return bool(answers(self.proxy.frames(), "get_data"))

    def assert_free_again(self) -> None:
        """Somebody new gets the lock, with a higher fence, and no node stays behind."""
        fence = acquire_as_third_party(self, self.kind, self.path)
        assert fence > self.other.fence
        self.wait_no_nodes(self.path)
        assert not self.own.held


@pytest.fixture
def path(observer: Client, fresh_path: str) -> str:
    make_path(observer, fresh_path)  # or only the first life would have to make it
    return fresh_path


@waiting_kinds
def test_every_fault_at_every_request(
    zookeeper: ZooKeeperServer, observer: Client, path: str, kind: Kind
) -> None:
    def live(title: str, at: int, faults: Faults) -> int:
        with Run(zookeeper, observer, kind, f"{path}/{title}/lock") as run:
            plan(run.proxy, at, faults)
            session_id = run.subject.session_id
            run.live()
            run.assert_free_again()
            assert run.subject.session_id == session_id
            assert_no_blind_repeat(run.proxy.frames())
            assert run.sent > at, "the fault did not happen"
            return run.sent

    every(live, lambda *_: ALONE | pairs([1]))


@waiting_kinds
@pytest.mark.parametrize("taken", [False, True])
def test_deadline_is_kept_wherever_the_network_falls_silent(
    zookeeper: ZooKeeperServer, observer: Client, path: str, kind: Kind, taken: bool
) -> None:
    last = {"remove_watches"} if taken else {"get_data", "get_children2"}

    def live(title: str, at: int, faults: Faults) -> int:
        with Run(zookeeper, observer, kind, f"{path}/{title}/lock") as run:
            plan(run.proxy, at, faults)
            assert acquire_as_third_party(run, kind, run.path)
            with holding(run.other) if taken else nullcontext():
                acquired, seconds = Running(lambda: timed(lambda: run.own.acquire(LIMIT))).result()
                assert_in_time(LIMIT, seconds)
                assert not (taken and acquired)
                with suppress(TimeoutError):  # nobody waits for the last one; old servers lack it
                    run.proxy.wait_for(
                        lambda frames: last & {f.op for f in frames}, 0 if faults else 1
                    )
                sent = run.sent
                run.heal()
                run.proxy.cut_all()
            if acquired:
                run.own.release()
            run.wait_no_nodes(run.path)
            assert acquire_as_third_party(run, kind, run.path)
            return sent

    assert every(live, lambda *_: SILENCES) > len(SILENCES)


@waiting_kinds
def test_a_session_that_ends_at_every_request(
    zookeeper: ZooKeeperServer, observer: Client, path: str, kind: Kind
) -> None:
    """Every call ends, in one of these errors unless it had what it needed before."""

    def end_session(run: Run, gate: Gate) -> None:
        try:
            gate.wait_reached(PATIENCE)
            run.expire(run.subject)
        finally:
            run.heal()
            gate.release()

    def live(title: str, at: int, faults: Faults) -> int:
        with Run(zookeeper, observer, kind, f"{path}/{title}/lock") as run:
            if not faults:
                run.live()
                return run.sent
            gate = Gate()
            run.ends = True
            run._exit.callback(gate.release)
            run.proxy.on_frame(at, hold(gate), reply=faults[0].reply)
            ending = Running(lambda: end_session(run, gate))
            with suppress(SessionExpiredError, LockLostError):
                run.live()
            ending.result()
            assert run.subject.wait_for_state(State.EXPIRED, timeout=PATIENCE)
            assert not run.own.held
            run.assert_free_again()
            with pytest.raises(SessionExpiredError):
                run.own.try_acquire()
            return 0

    every(live, lambda *_: ENDS)
