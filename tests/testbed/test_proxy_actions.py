"""What the fault proxy can do to requests, and to what the server sends."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.testbed.stage import (
    GET,
    MEGABYTE,
    NEXT,
    End,
    Stage,
    framed,
    notification,
    reply,
    request,
)
from zkwire.testing.proxy import FaultProxy, Frame, faults
from zkwire.testing.proxy.faults import Action, Gate, Send, cut_after, cut_before, drop, hold
from zkwire.testing.proxy.relay import Flow

# --- conversations --------------------------------------------------------------------------------


BEFORE = "c> GET; s< GET; s> GOT; c< GOT; c> NEXT delete3; c. {0}; s. {0}"
# Executed or not: as long as the server is silent, no cut.
AFTER = (
    "c> GET NEXT delete3; s< GET NEXT delete3; s> GOT; c< GOT; settle; c=; s> MISSING; "
    "c. {0}; s. {0}"
)
BEHIND = "c> GET; s< GET; s> GOT /a; c. GOT {0}; s. {0}"
TWICE = (
    "c> exists1; s< exists1; s> re1; c< re1; c> NEXT GET; s< NEXT GET; s> GOT MISSING; "
    "c< GOT MISSING MISSING; c> exists3; s< exists3; s> re3; c< re3"
)


def renumbered(frame: Frame) -> list[Send]:
    return [Send(request(70, "exists"), reply=cut_before)]


Rules = Callable[[FaultProxy], object]


def on(op: str, action: Action, nth: int = 1, **how: bool) -> Rules:
    return lambda proxy: proxy.on(op, nth=nth, action=action, **how)


def both(*rules: Rules) -> Rules:
    return lambda proxy: [rule(proxy) for rule in rules]


CONVERSATIONS: dict[str, tuple[Rules, str]] = {
    # Each kind of end passes after what came before it.
    "the end of an incomplete frame": (both(), "c> GET NEXT:-1; c-; s. GET NEXT:-1 FIN"),
    "the end of a server": (both(), "s> GOT; s-; c. GOT FIN"),
    "the reset of a client": (both(), "c> GET; s< GET; c!; s. RST"),
    "the reset of a server": (both(), "s> GOT; c< GOT; s!; c. RST"),
    "a client that only reads any more": (both(), "c> GET; c/; s. GET FIN; s> GOT; c< GOT"),
    "cut before": (on("exists", cut_before), BEFORE.format("FIN")),
    "reset before": (on("exists", faults.rst_before), BEFORE.format("RST")),
    # The last one would fail now, had the one before it been answered with RST.
    "a cut is a FIN": (on("exists", cut_before), "c> NEXT; c. FIN; c> GET; c> GET"),
    "cut after": (on("exists", cut_after), AFTER.format("FIN")),
    "reset after": (on("exists", faults.rst_after), AFTER.format("RST")),
    "cut after picks its reply by xid": (
        on("exists", cut_after),
        "c> NEXT auth7; s< NEXT auth7; s> re7 MISSING; c. re7 FIN",
    ),
    "cut after a request that is rewritten": (
        on("exists", renumbered),
        "c> NEXT; s< exists70; s> re70; c. FIN",
    ),
    "cut after a reply": (on("get_data", cut_after, reply=True), BEHIND.format("FIN")),
    "reset after a reply": (on("get_data", faults.rst_after, reply=True), BEHIND.format("RST")),
    "duplicate": (
        on("get_data", faults.duplicate),
        "c> GET NEXT; s< GET GET NEXT; s> GOT GOT; c< GOT GOT",
    ),
    "a reply is doubled": (on("exists", faults.duplicate, 2, reply=True), TWICE),
    "half close": (
        on("get_data", faults.half_close),
        "c> GET NEXT; s. GET FIN; s> GOT; c< GOT; s-; c. FIN",
    ),
    **{
        f"truncate to {count}": (
            on("get_data", faults.truncate(count)),
            f"c> GET NEXT; s. GET:{count} FIN; c. FIN",
        )
        for count in (0, 3, 4, 7, len(GET))
    },
    # A dropped request has no reply, so the pong belongs to the second ping.
    "drop": (
        both(on("ping", drop), on("ping", cut_after, 2)),
        "c> PING GET PING; s< GET PING; s> GOT PONG; c. GOT FIN",
    ),
    "the reply of a frame by its number": (
        lambda proxy: proxy.on_frame(1, drop, reply=True),
        "c> GET NEXT; s< GET NEXT; s> MISSING GOT; c< GOT",
    ),
    "a request and its reply": (
        both(on("exists", renumbered), on("exists", drop, reply=True)),
        "c> NEXT GET; s< exists70 GET; s> re70; c. FIN",
    ),
    "notifications as the server sends them": (
        on("notification", drop, 2),
        "s> /1 /2 /3; c< /1 /3",
    ),
}


@pytest.mark.parametrize(("rules", "script"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_rules_make_a_conversation_go_so(stage: Stage, rules: Rules, script: str) -> None:
    rules(stage.proxy)
    stage.play(script)


# --- held and lost --------------------------------------------------------------------------------


def test_hold(stage: Stage, client: End, server: End) -> None:
    gate = Gate()
    stage.proxy.on("get_data", action=hold(gate))
    with pytest.raises(TimeoutError):
        gate.wait_reached(timeout=0)
    client.send(GET + NEXT)
    assert gate.wait_reached().raw == GET
    server.send(notification("/a"))
    client.expect(notification("/a"))
    stage.settle()
    assert server.has_nothing()
    gate.release()
    server.expect(GET, NEXT)
    stage.proxy.on("exists", action=hold(gate))
    client.send(NEXT)
    server.expect(NEXT)  # an open gate lets pass


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "action", "script"),
    [
        # Each frame from its arrival, and later ones behind it; the other direction does not wait.
        ("get_data", faults.delay(0.1), "c> GET NEXT GET; s> /a; c< /a; s< GET NEXT GET"),
        ("get_data", faults.delay_reply(0.1), "c> GET NEXT; s< GET NEXT; s> GOT MISSING; c< GOT"),
        ("notification", faults.delay_reply(0.1), "s> /a; c< /a"),  # a frame of the server: at once
    ],
)
def test_delay(stage: Stage, op: str, action: Action, script: str) -> None:
    stage.proxy.rule(lambda frame: action if frame.op == op and frame.kind != "reply" else None)
    sent = time.monotonic()
    stage.play(script)
    assert time.monotonic() - sent >= 0.1


# --- pieces ---------------------------------------------------------------------------------------


def segments_received(sock: socket.socket) -> int:
    """How many segments with data the kernel has received (tcpi_data_segs_in)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    return int(struct.unpack_from("=I", info, 152)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="segments are counted by Linux")
def test_split(stage: Stage, client: End, server: End) -> None:
    stage.proxy.rule(lambda frame: faults.split if frame.op == "unknown" else None)
    before = segments_received(server.sock)
    short = framed(b"abcd")  # fits into the initial congestion window, one segment a byte
    client.send(short)
    server.expect(short)
    assert segments_received(server.sock) - before == len(short)


def test_drip(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=faults.drip(0.2))
    client.send(GET)
    server.expect(GET)
    answer = reply(1, os.urandom(9_000))
    sent = time.monotonic()
    server.send(answer)
    first = client.read(1)
    begun = time.monotonic()
    assert first + client.read(len(answer) - 1) == answer
    assert time.monotonic() - sent >= 0.2
    # Trickles rather than arrives in one piece at the end, however late this thread is.
    assert begun - sent < 0.2 or segments_received(client.sock) > 10


class Intake:
    """The socket of a receiver that takes so many bytes at a time, and then no more."""

    def __init__(self, *portions: int, then: type[OSError] = BlockingIOError) -> None:
        self.portions = list(portions)
        self.then = then
        self.taken: list[bytes] = []

    def send(self, data: bytes) -> int:
        if not self.portions:
            raise self.then
        self.taken.append(bytes(data[: self.portions.pop(0)]))
        return len(self.taken[-1])


def flow_into(intake: Intake, *steps: Send) -> Flow:
    """A flow that has sent what it could at 0.0."""
    unused: Any = None
    target: Any = intake
    flow = Flow("s2c", unused, target, lambda: None)
    flow.add(steps)
    flow.perform(0.0)
    return flow


@pytest.mark.parametrize(
    ("portions", "steps", "taken"),
    [
        ((1, 1, 1), [Send(b"abc", size=1)], [b"a", b"b", b"c"]),
        # Whole frames share a call, and survive a receiver that takes a part.
        (
            (4, 1, 100),
            [Send(b"abc"), Send(b""), Send(b"defg"), Send(b"h")],
            [b"abcd", b"e", b"fgh"],
        ),
        # What is dripped waits, and what comes next behind it.
        ((2, 1, 4, 4), [Send(b"abcdef", size=4, gap=1.0), Send(b"next")], [b"ab", b"c", b"d"]),
    ],
)
def test_frames_leave_in_what_pieces_the_receiver_takes(
    portions: tuple[int, ...], steps: list[Send], taken: list[bytes]
) -> None:
    intake = Intake(*portions)
    flow_into(intake, *steps)
    assert intake.taken == taken


def test_a_flow_waits_for_its_receiver_and_lets_others_have_their_turn() -> None:
    many = Intake(*[1] * 1000)
    flow = flow_into(many, Send(b"x" * 1000, size=1))
    assert 0 < len(many.taken) < 1000
    assert flow.deadline <= 0.0
    gone = Intake(2, then=BrokenPipeError)
    flow = flow_into(gone, Send(b"abc"), Send(b"def"))
    assert (flow.closed, flow.deadline, flow.readable) == (True, float("inf"), True)
    assert gone.taken == [b"ab"], "what cannot be delivered is dropped without trying again"


def test_more_is_read_only_while_little_waits_for_the_receiver() -> None:
    flow = flow_into(Intake(1), Send(b"x" * MEGABYTE))
    assert (flow.readable, flow.blocked, flow.deadline) == (True, True, float("inf"))
    assert not flow_into(Intake(), Send(b"x" * MEGABYTE)).readable
