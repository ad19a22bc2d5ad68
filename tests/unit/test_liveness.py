"""Time: pings, dead connections, back-off, and until when a holder may rely on the session."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from unittest.mock import Mock

import pytest

from tests.support.scripted import (
    START,
    TIMEOUT,
    Claim,
    Script,
    event_frame,
    failure,
    reply_frame,
    script_in,
)
from zkwire.errors import NotSentError, OutcomeUnknownError
from zkwire.jute.records import GetDataResponse, Stat
from zkwire.net.driver import Driver
from zkwire.session.hosts import FIRST_PAUSE
from zkwire.session.liveness import PROGRESS_BYTES, SETTLED, Liveness, Reported
from zkwire.session.outcomes import CLOSED, UNGREETED
from zkwire.wire import ops
from zkwire.wire.model import State


@pytest.fixture
def live() -> Liveness:
    live = Liveness(9.0)
    live.open(100.0)
    live.greeted(9.0)
    return live


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


THIRD = TIMEOUT / 3
SMALL = 0.001
PONG = reply_frame(ops.PING_XID, 0x999)
LONG_FRAME = reply_frame(ops.NOTIFICATION_XID, -1, 0, bytes(100_000))


def test_known_A23_what_a_server_sends_does_not_put_the_ping_off(script: Script) -> None:
    for _ in range(35):
        script.advance(0.25)
        script.event(3, "/a")
    assert [sent.name for sent in script.sent[1:]] == ["ping"] * 2


def test_known_A24_pings_go_out_while_a_long_reply_drips_in(script: Script) -> None:
    call = script.send("get_data", "/a")
    reply = script.reply_to(call, GetDataResponse(bytes(90_000), Stat(*range(11))))
    for byte in range(0, len(reply), PROGRESS_BYTES):
        script.advance(TIMEOUT / 20)
        script.feed(reply[byte : byte + PROGRESS_BYTES])
    assert script.now > START + 4 * TIMEOUT
    assert failure(call) is None
    times = [*(sent.at for sent in script.sent), script.now]
    assert max(b - a for a, b in pairwise(times)) <= THIRD + SMALL


@pytest.mark.parametrize("state", [State.CONNECTED, State.CONNECTED_READ_ONLY])
def test_known_A21_a_connection_silent_for_two_thirds_is_given_up(state: State) -> None:
    script = script_in(state)
    call = script.send("create", "/a")
    script.advance(2 * THIRD - SMALL)
    assert script.state is state
    script.advance(SMALL)
    assert failure(call) is OutcomeUnknownError
    assert script.state is not state


@pytest.mark.parametrize("data", [PONG, event_frame(3, "/a"), LONG_FRAME[:PROGRESS_BYTES]])
def test_a_frame_or_a_good_part_of_one_keeps_a_connection(data: bytes, script: Script) -> None:
    script.advance(THIRD)
    script.feed(data)
    script.advance(2 * THIRD - SMALL)
    assert script.state is State.CONNECTED
    script.advance(SMALL)
    assert not script.session.usable


def test_known_A55_events_alone_keep_a_connection_for_a_session_timeout(script: Script) -> None:
    call = script.send("get_data", "/a")
    while script.session.usable and script.now < START + 2 * TIMEOUT:
        script.event(3, "/a")
        script.advance(0.5)
    assert script.now == START + TIMEOUT
    assert failure(call) is OutcomeUnknownError
    assert "no answer arrived for 9.0 s" in script.session.last_failure


@pytest.mark.parametrize(
    ("servers", "why", "waits"), [(1, CLOSED, True), (1, "it is silent", False), (2, CLOSED, False)]
)
def test_known_A55_the_only_server_has_a_moment_to_end_what_it_has_closed(
    servers: int, why: str, waits: bool
) -> None:
    """It has nothing to end before it greets."""
    early, script = Script(servers=servers), Script(servers=servers)
    early.reach()
    early.lose(why=why)
    assert early.session.act_at == early.now
    assert early.session.last_failure.endswith(why + UNGREETED) == (why == CLOSED)
    script.connect()
    script.lose(why=why)
    pause = script.session.act_at - script.now
    assert FIRST_PAUSE / 2 <= pause <= FIRST_PAUSE if waits else pause == 0


@pytest.mark.parametrize("lives", [False, True])
def test_known_A10_servers_that_have_lost_data_are_asked_for_the_session(lives: bool) -> None:
    """They close the connection of a client that has seen more, whatever became of its session."""
    script, asked = Script(servers=2, read_only=True), list[float]()
    script.connect()
    script.answer(script.send("sync", "/"))
    seen = script.session.last_zxid
    script.lose(why=CLOSED)
    while script.now < START + 5 * TIMEOUT and not script.session.ended:
        (greeting,) = script.reach()
        request = greeting.connect_request()
        assert request.read_only == (request.last_zxid_seen == seen)
        if request.read_only:
            script.lose(why=CLOSED)
            continue
        asked.append(script.now)
        script.welcome() if lives else script.gone()
        assert script.drop_if_broken()
    late = [2 * TIMEOUT, 4 * TIMEOUT] if lives else [2 * TIMEOUT]
    assert [at - START for at in asked] == pytest.approx(late, abs=3)
    assert script.state is (State.DISCONNECTED if lives else State.EXPIRED)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("watching", [False, True])
def test_known_A55_a_session_taken_back_is_asked_for_again_soon(
    watching: bool, answered: bool
) -> None:
    script = script_in(State.CONNECTED)
    if watching:
        script.watching("get_data", "/a")
    script.lose(why=CLOSED)
    script.greet()
    script.flush()
    script.advance(SETTLED)
    asked = "set_watches" if watching else "ping"
    assert [sent.name for sent in script.sent[1:]] == [asked]
    if answered:
        script.feed(reply_frame(script.sent[1].xid) if watching else PONG)
    greeted = script.state
    script.advance(THIRD - SMALL)
    assert script.state is greeted
    assert script.sent[1:][-1].name == ("ping" if answered else asked)
    script.advance(SMALL)
    assert (script.state is greeted) == answered
    if not answered:
        script.reach()
        script.gone()
        assert script.state is State.EXPIRED


def test_answers_to_pings_that_vanish_in_a_garbled_frame_do_not_keep_a_connection() -> None:
    script = script_in(State.CONNECTED)
    script.feed(LONG_FRAME[:4])
    for _ in range(2):
        script.advance(THIRD)
        if script.session.usable:
            script.feed(PONG)
    assert not script.session.usable


def test_known_A22_a_ping_that_was_not_answered_is_forgotten_with_its_connection() -> None:
    script = script_in(State.CONNECTED)
    script.advance(THIRD)
    assert script.sent[-1].name == "ping"
    script.reconnect()
    for _ in range(9):
        script.advance(THIRD)
        script.feed(PONG)
    assert [sent.name for sent in script.sent] == ["connect"] + ["ping"] * 9
    assert script.state is State.CONNECTED


def _holding(script: Script) -> Claim:
    claim = Claim(log=script.log)
    script.session.hold(claim)
    return claim


@pytest.mark.parametrize("seconds", [0, TIMEOUT / 2, TIMEOUT * 0.7])
def test_a_hold_wakes_the_io_if_its_end_may_come_before_what_that_waits_for(
    script: Script, seconds: float
) -> None:
    """Behind a slow answer and a request that was sent meanwhile, a ping is due too late."""
    slow = script.send("get_data", "/a")
    script.advance(seconds)
    script.send("get_data", "/b")
    script.feed(script.reply_to(slow, GetDataResponse(b"", Stat(*range(11)))))
    due, driver = script.session.next_deadline(), Mock(session=script.session, mutex=nullcontext())
    Driver.hold(driver, Claim())
    assert due is not None
    assert driver.wake.called == (script.session.next_deadline() != due) == (seconds > TIMEOUT / 2)


def test_known_A32_a_hold_ends_while_a_long_reply_keeps_the_connection(script: Script) -> None:
    """Its bytes prove nothing about when the server has last heard of the client.

    The answers to pings stand behind it; once it is whole, they prolong the lease again, and the
    session has lived all the time.
    """
    claim = _holding(script)
    script.advance(SMALL)
    call = script.send("get_data", "/a")
    asked, piece = script.now, 9_000
    reply = script.reply_to(call, GetDataResponse(bytes(900_000), Stat(*range(11))))
    for begin in range(0, len(reply), piece):
        assert claim.lost == (script.now >= START + TIMEOUT)
        script.advance(2 * TIMEOUT / (len(reply) / piece))
        script.feed(reply[begin : begin + piece])
    assert claim.lost
    assert failure(call) is None
    assert script.state is State.CONNECTED
    assert script.session.lease_deadline == asked + TIMEOUT
    sent = [each.at for each in script.sent if each.name == "ping"]
    script.feed(PONG * len(sent))
    assert script.session.lease_deadline == sent[-1] + TIMEOUT > script.now


def test_known_A29_a_pause_ends_a_hold_before_anything_is_read(script: Script) -> None:
    call = script.send("exists", "/a")
    _holding(script)
    script.log_when_ready(call, "reply")
    script.jump(3 * TIMEOUT)
    script.answer(call)
    assert script.wake() == ["claim", "reply"]


def test_known_A30_a_pause_longer_than_an_attempt_takes_nothing_from_it() -> None:
    script = Script(servers=2, timeout=0.9)
    script.session.start(script.now)
    for _ in range(20):
        script.lose(why="refused")
        pause = script.session.act_at - script.now
        script.now = script.session.act_at
        script.session.on_deadline(script.now)
    assert pause > 0.9 / 3
    assert script.session.act_at == pytest.approx(script.now + 0.3)
    script.session.on_deadline(script.now + 0.29)
    assert script.session.broken is None
    script.connect()


def test_known_A10_servers_that_hang_up_without_a_word_keep_nobody_waiting() -> None:
    script = Script(servers=3)
    script.connect()
    claim = _holding(script)
    script.lose()
    call = script.call("create", "/a")
    while script.now < START + TIMEOUT:
        script.reach()
        script.lose(why="the server closed it")
    script.session.on_deadline(script.now)
    assert claim.lost
    assert failure(call) is NotSentError
    assert "the server closed it" in str(call.error())
