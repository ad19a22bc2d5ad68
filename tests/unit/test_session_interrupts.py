"""An interrupt wherever Python looks for one, while the state machine handles what ends something.

What an interrupted thread has done to a connection cannot be known, so the driver ends it; nobody
must wait forever for what was lost on the way.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.scripted import Claim, Script, reply_frame, script_in, welcome_frame
from zkwire.errors import ZooKeeperError
from zkwire.jute.records import AddWatchRequest
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State
from zkwire.wire.ops import WatchKind

EXPIRED, SESSION_REJECTED = -112, -115


class Interrupted(BaseException):
    """What a signal handler raises."""


def interrupted_at(place: int, function: Callable[[], object]) -> bool:
    """Call it, with an interrupt at the n-th place where one can come; whether it had as many.

    Those are the beginnings of functions and the ends of C functions (CPython's eval breaker).
    """
    left = [place]

    def look(_frame: object, event: str, _argument: Any) -> None:
        if event in {"call", "c_return"}:
            left[0] -= 1
            if left[0] == 0:
                raise Interrupted

    gc.disable()  # a collection calls functions, too, and nobody hears of what they raise
    sys.setprofile(look)
    try:
        function()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return left[0] <= 0


def interrupted_everywhere(
    scene: Callable[[], tuple[Script, Callable[[], object]]],
) -> Iterator[Script]:
    """The scene once for each place; after it the driver has ended the connection."""
    for place in range(1, 10_000):
        script, function = scene()
        if not interrupted_at(place, function):
            assert place > 10, "the interrupts have hit nothing"
            return
        script.lose(why="interrupted")
        script.session.on_deadline(script.now)
        yield script


class Full:
    """A session with something of everything, and what has been told of it."""

    def __init__(self) -> None:
        self.script = script = script_in(State.CONNECTED)
        self.seen, self.events, self.claim = list[State](), list[Event](), Claim()
        script.session.observers.add(self)
        script.session.hold(self.claim)
        self.watch = script.watching("get_data", "/w")
        script.answer(script.call("get_children", "/w", watch=Watch(self.events.append)))
        self.calls = [script.call("get_data", "/a"), script.call("exists", "/b", watch=Watch())]
        script.flush()
        self.calls += [script.call("create", "/c", b""), script.call("add_auth", "digest", b"u:p")]

    def see(self, state: State) -> list[Callable[[], object]]:
        return [lambda: self.seen.append(state)]


@pytest.mark.parametrize("end", ["expired", "rejected", "closed"])
def test_the_end_of_a_session_reaches_everybody(end: str) -> None:
    """Who has been told already is not told again, and nobody is forgotten."""
    scenes: list[Full] = []

    def scene() -> tuple[Script, Callable[[], object]]:
        scenes.append(full := Full())
        if end == "closed":
            return full.script, full.script.session.closed
        code = EXPIRED if end == "expired" else SESSION_REJECTED
        answer = full.script.reply_to(full.calls[0], error=code)
        return full.script, lambda: full.script.session.receive_data(answer, full.script.now)

    for script in interrupted_everywhere(scene):
        full, session = scenes[-1], script.session
        if not script.state.terminal:
            continue  # nothing of the answer has been believed
        assert (session.ended, session.usable) == (True, False)
        assert all(call.ready for call in full.calls)
        with pytest.raises(ZooKeeperError):
            full.watch.take()
        assert full.claim.lost
        assert (session.watch_count, session.has_output) == (0, False)
        script.wake()
        assert full.seen == [script.state]
        assert full.events == [Event(EventType.NONE, "", script.state)]


@pytest.mark.parametrize("verb", ["add_auth", "get_data", "create"])
def test_calls_that_end_together_or_in_vain_are_not_forgotten(verb: str) -> None:
    calls: list[Request] = []

    def scene() -> tuple[Script, Callable[[], object]]:
        script = script_in(State.CONNECTED if verb == "add_auth" else State.DISCONNECTED)
        calls[:] = [script.call("add_auth", "digest", b"u:p") for _ in range(3)]
        if verb != "add_auth":
            calls.extend(script.call(verb, path) for path in ("/a", "/b"))
            late = script.now + script.session.timeout
            return script, lambda: script.session.on_deadline(late)
        script.flush()
        return script, lambda: script.session.receive_data(reply_frame(ops.AUTH_XID), script.now)

    for script in interrupted_everywhere(scene):
        script.advance(2 * script.session.timeout)
        assert all(call.ready for call in calls)


@pytest.mark.parametrize("name", ["add_watch", "get_data", "alone"])
def test_a_request_that_was_not_submitted_leaves_no_watch_to_be_expected(name: str) -> None:
    def scene() -> tuple[Script, Callable[[], object]]:
        script, watch = script_in(State.CONNECTED), Watch()
        if name != "alone":
            return script, lambda: script.call(name, "/a", *[watch] * (name == "add_watch"))
        body = AddWatchRequest.pack("/a", 0)
        call = Request(ops.ADD_WATCH, "/a", body, None, watch, "/a", WatchKind.PERSISTENT)
        return script, lambda: script.session.send_alone(call, script.now)

    for place in range(1, 10_000):
        script, function = scene()
        if not interrupted_at(place, function):
            break
        if name == "alone":
            script.lose(why="interrupted")
        queued = bool(script.session.queued) and name == "add_watch"
        assert bool(script.session._watches._expected) == queued


def test_a_handshake_that_was_interrupted_is_begun_anew() -> None:
    """Whatever the state says by then, no request is to blame for the end of this connection."""

    def scene() -> tuple[Script, Callable[[], object]]:
        script = Script()
        script.call("exists", "/a")
        script.reach()
        return script, lambda: script.session.receive_data(welcome_frame(), script.now)

    for script in interrupted_everywhere(scene):
        assert not script.state.usable
        script.connect()
        (call,) = script.calls
        if not call.ready:
            script.answer(call)
        assert call.ready
