"""Pings, dead connections and the lease, on a clock that only the test moves.

The timeout is 9 s, so that thirds are exact.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.examples import examples
from zkwire.session.liveness import Liveness, Reported


@pytest.fixture
def live() -> Liveness:
    live = Liveness(9.0)
    live.open(100.0)
    live.greeted(9.0)
    return live


def test_a_new_connection_has_its_full_time() -> None:
    live = Liveness(9.0)
    live.open(100.0)
    assert (live.ping_at, live.dead_at, live.lease_deadline) == (103.0, 106.0, 0.0)


def test_a_connection_that_is_silent_for_two_thirds_is_dead(live: Liveness) -> None:
    """What is sent proves nothing, and what comes tells the server nothing."""
    live.last_receive = 102.0
    live.last_send = 104.0
    assert (live.ping_at, live.dead_at) == (107.0, 108.0)
    live.ping(107.5)
    assert (live.ping_at, live.dead_at) == (110.5, 108.0)


def test_answers_of_a_server_without_the_ensemble_do_not_prolong_the_lease(live: Liveness) -> None:
    live.open(104.0)
    live.greeted(9.0, read_only=True)
    live.answered(105.0, 107.0)
    live.ping(106.0)
    live.pong(0.0)
    assert live.lease_deadline == 109.0
    live.open(107.0)
    live.greeted(9.0)
    assert live.lease_deadline == 116.0


def test_known_A46_with_a_margin_an_answer_counts_when_one_asked_so_much_later_has_come() -> None:
    live = Reported(10.0, 2.0)
    live.open(100.0)
    live.greeted(10.0)
    assert (live.ping_at, live.lease_deadline) == (102.5, 110.0)
    assert not live.has_served(100.9)
    for sent_at, answered_at, deadline in [
        (102.5, 102.6, 110.0),
        (104.5, 104.7, 110.0),  # sent less than a margin behind the other's answer
        (104.6, 104.7, 112.5),
        (106.6, 106.7, 112.5),
        (107.1, 107.2, 114.6),
    ]:
        live.answered(sent_at, answered_at)
        assert live.has_served(100.9), "one answer is enough for that"
        assert live.lease_deadline == deadline, sent_at
    live.open(108.0)
    assert not live.has_served(108.1)
    live.answered(110.0, 110.1)
    assert live.lease_deadline == 114.6, "another server may have answered that"
    live.greeted(10.0)
    assert live.lease_deadline == 118.0


class LeaseAgainstServer(RuleBasedStateMachine):
    """A server's own timer starts when a request reaches it, at any moment after its sending.

    Whatever the delays, the lease never promises more than the server keeps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.live = self.make()
        self.live.open(self.now)
        self.on_the_way: list[tuple[str, float]] = []  # sent, not yet at the server
        self.coming_back: list[tuple[str, float]] = []
        self.server_expires = -math.inf
        self.send("greeting")

    def make(self) -> Liveness:
        return Liveness(9.0)

    def send(self, what: str) -> None:
        self.on_the_way.append((what, self.now))

    def hear(self, what: str) -> None:
        self.server_expires = self.now + self.live.timeout

    @rule(seconds=st.floats(0.0, 4.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.live.lease_deadline)
    @rule()
    def request(self) -> None:
        self.live.last_send = self.now
        self.send("request")

    @precondition(lambda self: self.live.lease_deadline)
    @rule()
    def ping(self) -> None:
        self.live.ping(self.now)
        self.send("ping")

    @precondition(lambda self: self.on_the_way)
    @rule()
    def server_reads(self) -> None:
        self.hear(self.on_the_way[0][0])
        self.coming_back.append(self.on_the_way.pop(0))

    @precondition(lambda self: self.coming_back)
    @rule()
    def client_reads(self) -> None:
        what, sent_at = self.coming_back.pop(0)
        self.live.last_receive = self.now
        if what == "greeting":
            self.live.greeted(9.0)
        elif what == "ping":
            self.live.pong(self.now)
        else:
            self.live.answered(sent_at, self.now)

    @rule()
    def reconnect(self) -> None:
        self.on_the_way.clear()
        self.coming_back.clear()
        self.live.open(self.now)
        self.send("greeting")

    @invariant()
    def the_lease_ends_first(self) -> None:
        assert not self.live.lease_deadline or self.live.lease_deadline <= self.server_expires


class LeaseAgainstLeader(LeaseAgainstServer):
    """A follower reports what it has heard every half tick, and may crash at any moment before."""

    half_tick = 1.0

    def __init__(self) -> None:
        self.reports_at, self.unreported = 100.0, False
        super().__init__()

    def make(self) -> Liveness:
        return Reported(9.0, self.half_tick)

    def hear(self, what: str) -> None:
        if what == "greeting":  # which the leader answers
            super().hear(what)
        self.unreported = True

    @rule(seconds=st.sampled_from([0.125, 0.75, 3.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.reports_at <= end:
            self.now = self.reports_at
            if self.unreported:
                super().hear("report")
            self.reports_at, self.unreported = self.now + self.half_tick, False
        self.now = end

    @precondition(lambda self: not self.on_the_way and not self.coming_back)
    @rule()
    def is_asked_and_answers_at_once(self) -> None:
        self.send("request")
        self.server_reads()
        self.client_reads()


THOROUGH = settings(
    derandomize=True, deadline=None, max_examples=examples(150), stateful_step_count=30
)
TestLeaseAgainstServer = LeaseAgainstServer.TestCase
TestLeaseAgainstServer.settings = THOROUGH
TestLeaseAgainstLeader = LeaseAgainstLeader.TestCase
TestLeaseAgainstLeader.settings = THOROUGH
