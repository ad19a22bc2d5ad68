"""Bytes that are not ZooKeeper's protocol, or not what was asked for: they cost one connection."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scripted import (
    ANSWERS,
    Script,
    armed,
    event_frame,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    usable_again,
    welcome_frame,
)
from zkwire.errors import (
    GarbledError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
)
from zkwire.jute.frames import frame
from zkwire.jute.records import GetDataResponse
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.wire import ops
from zkwire.wire.model import EventType, State

PROPERTY = settings(derandomize=True, deadline=None, max_examples=examples(200))
LAST_XID = 2**31 - 1


@pytest.mark.parametrize("xid", [1, 3, LAST_XID, 0, -3, -5, -9, -(2**31)])
def test_known_A11_an_unexpected_xid_costs_one_connection(xid: int, script: Script) -> None:
    script.answer(script.call("exists", "/answered"))
    call = script.send("create", "/a")
    assert call.xid == 2
    script.feed(reply_frame(xid, 7))
    assert script.session.broken is not None
    assert not call.ready
    script.lose()
    assert failure(call) is GarbledError
    assert maybe_applied(call)
    assert usable_again(script)


@pytest.mark.parametrize("verb", ["exists", "get_data", "create", "delete", "get_children", "sync"])
def test_known_A11_a_reply_that_comes_twice_costs_one_connection(verb: str, script: Script) -> None:
    call = script.call(verb, "/a")
    script.feed(script.reply_to(call) * 2)
    assert failure(call) is None
    assert script.session.broken is not None
    assert usable_again(script)


@pytest.mark.parametrize(
    "length",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        *(frame(bytes(size)) for size in (0, 1, 15, 16)),
        struct.pack(">i", 2**31 - 1),
        b"HTTP/1.1 200 OK",
    ],
)
def test_known_A12_a_bad_frame_length_costs_one_connection(length: bytes, script: Script) -> None:
    call = script.send("create", "/a")
    script.feed(length)
    assert script.session.broken is not None
    script.lose()
    assert call.ready
    assert usable_again(script)


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0\0\x7fdata", ANSWERS[ops.GET_DATA].encode() + b"\0", bytes(71)],  # type: ignore[union-attr]
    ids=["empty", "cut short", "a byte too many", "too short"],
)
def test_known_A14_an_unreadable_reply_ends_its_call_and_the_connection(body: bytes) -> None:
    script = script_in(State.CONNECTED)
    call, other = script.call("get_data", "/a"), script.call("create", "/b")
    script.flush()
    script.log_when_ready(call, "call")
    script.feed(reply_frame(call.xid, 1, 0, body))
    assert failure(call) is ProtocolError
    assert script.session.broken is not None
    script.lose()
    assert failure(call) is ProtocolError
    assert failure(other) is GarbledError
    assert script.wake() == ["call"]
    assert usable_again(script)


@pytest.mark.parametrize("verb", ["create", "delete"])  # too short, and not empty
def test_an_unreadable_reply_to_a_change_may_have_been_applied(verb: str, script: Script) -> None:
    call = script.send(verb, "/a")
    script.feed(reply_frame(call.xid, 1, 0, b"\0"))
    assert failure(call) is ProtocolError
    assert maybe_applied(call)
    assert script.session.broken is not None


def test_known_A16_a_reply_over_the_limit_ends_its_own_call_definitely() -> None:
    script = Script(receive_limit=200)
    script.connect()
    before, big, behind = (script.call("get_data", f"/{number}") for number in range(3))
    script.flush()
    script.feed(script.reply_to(before))
    script.log_when_ready(big, "big")
    script.feed(script.reply_to(big, GetDataResponse(bytes(200), ANSWERS[ops.EXISTS].stat)))  # type: ignore[union-attr]
    assert failure(before) is None
    assert failure(big) is ReplyTooLargeError
    assert not behind.ready
    script.lose()
    assert failure(big) is ReplyTooLargeError
    assert issubclass(failure(behind) or Exception, OutcomeUnknownError)
    assert script.wake() == ["big"]
    assert usable_again(script)


def test_nothing_behind_a_broken_frame_is_believed_or_told() -> None:
    script = Script(receive_limit=100)
    script.connect()
    watch = script.watching("exists", "/a")
    first, second = script.call("exists", "/1"), script.call("exists", "/2")
    script.flush()
    script.feed(struct.pack(">i", 101))
    broken = script.session.broken
    for data in (struct.pack(">i", 102), struct.pack(">i", -5), script.reply_to(second)):
        script.feed(data)
    script.event(EventType.NODE_DELETED, "/a")
    assert script.session.broken == broken
    assert failure(first) is ReplyTooLargeError
    assert not second.ready
    assert armed(watch)


PIECES = st.lists(st.integers(1, 40), max_size=60)
FRAMES = st.one_of(
    st.binary(max_size=60),
    st.builds(frame, st.binary(max_size=120)),
    st.builds(
        reply_frame,
        st.sampled_from([-8, -4, -2, -1, 0, 1, 2, 3, 4]),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([0, 0, 0, -101, -112, -115, -118, -5, 9]),
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([answer.encode() for answer in ANSWERS.values() if answer]),
        ),
    ),
    st.builds(event_frame, st.integers(-2, 8), st.sampled_from(["/a", "", "/b", "x"])),
    st.builds(welcome_frame, st.sampled_from([0, 1, -1]), st.sampled_from([0, 4, -1])),
)


def _ended_at_most_once(script: Script, outcomes: dict[Request, object]) -> None:
    for call in script.calls:
        if call in outcomes:
            assert call.outcome is outcomes[call]
        elif call.ready:
            outcomes[call] = call.outcome


@settings(PROPERTY, max_examples=examples(600))
@given(st.sampled_from([State.HANDSHAKE, State.CONNECTED]), st.lists(FRAMES, max_size=8), PIECES)
def test_no_bytes_make_a_session_raise_or_end_a_call_twice(
    state: State, frames: list[bytes], sizes: list[int]
) -> None:
    script = script_in(state)
    watch = Watch()
    for verb in ["get_data", "create", "exists", "get_children"]:
        watched = {} if verb == "create" else {"watch": watch}
        script.call(verb, "/a", **watched)
    script.session.add_auth("digest", b"u:p")
    script.flush()
    outcomes: dict[Request, object] = {}
    data, at = b"".join(frames), 0
    for size in [*sizes, len(data)]:
        script.session.receive_data(data[at : at + size], script.now)
        at += size
        script.flush()
        _ended_at_most_once(script, outcomes)
    script.lose()
    _ended_at_most_once(script, outcomes)
    if not script.state.terminal:
        assert script.state is State.DISCONNECTED
        assert script.session.broken is None
        assert all(call.ready or not call.sent for call in script.calls)
        assert usable_again(script)
    script.session.closed()
    assert all(call.ready for call in script.calls)
    assert not armed(watch)


@settings(PROPERTY)
@given(st.binary(min_size=1, max_size=400), PIECES)
def test_how_bytes_are_cut_makes_no_difference(data: bytes, sizes: list[int]) -> None:
    seen = []
    for pieces in (sizes, []):
        script = script_in(State.CONNECTED)
        call = script.send("get_data", "/a")
        script.feed(script.reply_to(call) + data, pieces)
        seen.append((script.state, script.session.broken, call.value()))
    assert seen[0] == seen[1]


def _peak(script: Script, *chunks: bytes) -> int:
    tracemalloc.start()
    try:
        for chunk in chunks:
            script.feed(chunk)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_known_A15_what_a_peer_claims_costs_no_memory(script: Script) -> None:
    assert _peak(script, struct.pack(">i", 60 * 1024 * 1024) + bytes(1000)) < 64 * 1024


def test_known_A15_what_comes_behind_garbage_costs_no_memory(script: Script) -> None:
    script.feed(struct.pack(">i", -1))
    chunk = struct.pack(">i", 60 * 1024 * 1024) + bytes(10_000)
    assert _peak(script, *[chunk] * 200) < 200_000
