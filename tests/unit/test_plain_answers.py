"""The loop for plain answers (`RequestQueue.complete_plain`) and the general way must never differ.

A traced session takes every frame the general way, an untraced one takes what it can in the loop:
the same bytes, cut anywhere, must leave both in the same state.  So must `send_alone` and `push`
beside `submit`.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scripted import Script, event_frame
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.wire import ops
from zkwire.wire.model import EventType

NO_NODE, MOVED = -101, -118
CALLS = ("get_data", "delete", "set_data", "exists", "get_children", "watch", "close")
BAD = ("truncated", "trailing", "xid", "length", "long")

calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=12)
errors = st.sampled_from([0, 0, 0, 0, 0, NO_NODE, MOVED])
sizes = st.lists(st.integers(1, 60), max_size=30)


def submitted(script: Script, names: list[str]) -> list[Request]:
    made: list[Request] = []
    for number, name in enumerate(names):
        path = f"/n{number}"
        if name == "close":
            made.append(script.close())
            break
        if name == "watch":
            made.append(script.call("get_data", path, watch=Watch()))
        else:
            made.append(script.call(name, path, *([b"x"] if name == "set_data" else [])))
    for call in made:
        script.log_when_ready(call, call.path or "close")
    script.flush()
    return made


def spoilt(frame: bytes, how: str) -> bytes:
    """A frame that must end the connection, or the call."""
    length, xid = struct.unpack_from(">ii", frame)
    length_, xid_, more = {
        "truncated": (length - 1, xid, frame[8:-1]),
        "trailing": (length + 1, xid, frame[8:] + b"\0"),
        "xid": (length, xid + 1, frame[8:]),
        "length": (-2, xid, frame[8:]),
        "long": (5000, xid, frame[8:] + bytes(5000 - length)),
    }[how]
    return struct.pack(">ii", length_, xid_) + more


def wire(script: Script, made: list[Request], codes: list[int], extra: Any, bad: Any) -> bytes:
    pieces: list[bytes] = []
    for number, call in enumerate(made):
        code = codes[number % len(codes)] if call.op is not ops.CLOSE_SESSION else 0
        frame = script.reply_to(call, error=code)
        if bad is not None and number == bad[0]:
            frame = spoilt(frame, bad[1])
        pieces.append(frame)
        if number == extra:
            pieces.append(event_frame(EventType.NODE_DATA_CHANGED, "/n0"))
    return b"".join(pieces)


def shown(script: Script, made: list[Request]) -> list[Any]:
    """All that one can see of a session and its calls."""
    session = script.session
    ends = [
        (type(call.outcome).__name__, getattr(call.outcome, "code", None),
         getattr(call.outcome, "message", None), getattr(call, "record", None))
        for call in made
    ]  # fmt: skip
    return [
        *ends, session.state, session.broken, session.last_zxid, session.lease_deadline,
        session.unanswered, session.queued, session.watch_count, session.next_deadline(),
        script.wake(), session.has_output, session._live.dead_at,
    ]  # fmt: skip


@example(names=["delete"], codes=[0], extra=9, bad=(0, "trailing"), pieces=[], pause=1.0)
@example(names=["get_data"], codes=[0], extra=9, bad=(0, "xid"), pieces=[], pause=1.0)
@example(names=["get_children"], codes=[0], extra=9, bad=None, pieces=[35], pause=1.0)
@settings(max_examples=examples(400), deadline=None)
@given(
    names=calls,
    codes=st.lists(errors, min_size=1, max_size=5),
    extra=st.integers(0, 15),
    bad=st.none() | st.tuples(st.integers(0, 11), st.sampled_from(BAD)),
    pieces=sizes,
    pause=st.floats(0, 4),
)
def test_the_loop_does_what_the_general_way_does(
    names: list[str], codes: list[int], extra: int, bad: Any, pieces: list[int], pause: float
) -> None:
    seen: list[list[Any]] = []
    for traced in (False, True):
        script = Script(receive_limit=4000)
        script.connect()
        script.jump(1.5)
        if traced:
            script.traced()
        made = submitted(script, names)
        data = wire(script, made, codes, extra, bad)
        script.jump(pause)
        script.feed(data, pieces)
        seen.append(shown(script, made))
    assert seen[0] == seen[1]


def deleting(path: str = "/a") -> Request:
    return Request(ops.DELETE, path, ops.DELETE.request.pack(path, -1))  # type: ignore[union-attr]


def connected() -> Script:
    script = Script()
    script.connect()
    return script


def test_alone_and_pushed_a_call_leaves_as_when_submitted() -> None:
    frames: list[bytes] = []
    for way in ("submit", "push", "alone"):
        script, call = connected(), deleting()
        if way == "push":
            assert script.session.push(call) == 1
        elif way == "submit":
            script.session.submit(call, script.now)
        alone = script.session.send_alone(call, script.now) if way == "alone" else b""
        frames.append(alone or script.session.data_to_send(script.now))
        assert script.session.unanswered == 1
        assert call.sent_at == script.now
    assert frames[0] == frames[1] == frames[2] != b""


def test_a_watch_that_is_refused_is_for_submit_to_refuse() -> None:
    script = connected()
    script.persistent("/a")
    call = Request(ops.ADD_WATCH, "/a", b"", None, Watch(), "/a", ops.WatchKind.RECURSIVE)
    assert script.session.send_alone(call, script.now) == b""
    assert not script.session.unanswered
    with pytest.raises(RuntimeError, match="a persistent and a recursive watch"):
        script.session.submit(call, script.now)
