"""The fault proxy: what it passes on and logs, its rules and actions, and the proxy as a whole."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.testbed.stage import (
    GET,
    HELLO,
    MEGABYTE,
    NEXT,
    TIMEOUT,
    End,
    Stage,
    framed,
    notification,
    reply,
    request,
    ustring,
)
from zkwire.testing.proxy import OPCODES, FaultProxy, Frame, faults
from zkwire.testing.proxy.faults import Action, Gate, Send, cut_after, cut_before, drop, hold
from zkwire.testing.proxy.relay import Flow
from zkwire.wire import ops

# --- what it sees ---------------------------------------------------------------------------------


def test_frames_pass_and_are_logged_with_what_they_are(stage: Stage) -> None:
    client, server = stage.connect()
    create = request(1, "create2", ustring("/ü") + b"rest")
    auth = request(-4, "auth", b"\0\0\0\0" + ustring("digest"))
    client.send(create + request(-2, "ping") + auth)
    server.expect(create, request(-2, "ping"), auth)
    server.send(notification("/ü") + reply(1, error=-110) + reply(-2) + reply(-4))
    client.expect(notification("/ü"), reply(1, error=-110), reply(-2), reply(-4))
    log = stage.proxy.wait_for(lambda frames: len(frames) == 9)
    assert [(f.direction, f.kind, f.op, f.xid, f.opcode, f.number, f.path) for f in log] == [
        ("c2s", "connect", "connect", None, None, None, None),
        ("s2c", "connect", "connect", None, None, None, None),
        ("c2s", "request", "create2", 1, 15, 0, "/ü"),
        ("c2s", "ping", "ping", -2, 11, None, None),
        ("c2s", "auth", "auth", -4, 100, 1, None),
        ("s2c", "notification", "notification", -1, None, None, "/ü"),
        ("s2c", "reply", "create2", 1, 15, None, "/ü"),
        ("s2c", "ping", "ping", -2, 11, None, None),
        ("s2c", "auth", "auth", -4, 100, None, None),
    ]
    assert [(f.zxid, f.error) for f in log[5:8]] == [(-1, 0), (9, -110), (9, 0)]
    assert (log[1].request, log[6].request, log[2].body) == (log[0], log[2], create[4:])
    assert log[0].time <= log[-1].time <= time.monotonic()
    assert repr(log[6]) == "<Frame 0 s2c create2 reply xid=1 error=-110 '/ü', 20 bytes>"


def test_replies_are_matched_by_xid_in_whatever_order_they_come(stage: Stage) -> None:
    asked, answers = "get_data1 auth7 exists2 delete2 ping5", "re7 re1 re2 re2 re2 PONG"
    stage.play(f"c> {asked}; s< {asked}; s> {answers}; c< {answers}")
    log = stage.proxy.frames()
    assert [f.op for f in log[7:]] == ["auth", "get_data", "exists", "delete", "unknown", "ping"]
    assert log[-1].request is log[6], "a ping is answered under the xid of pings"
    assert {op.name: op.opcode for op in ops.OPS.values()}.items() <= OPCODES.items()


def test_what_is_read_from_frames_that_make_no_sense(stage: Stage) -> None:
    client, server = stage.connect()
    odd_requests = [framed(b""), framed(b"1234567"), framed(struct.pack(">ii", 1, 999))]
    odd_paths = [request(2, "exists"), request(3, "exists", struct.pack(">i", -1))]
    odd_paths += [request(4, "exists", struct.pack(">i", 5) + b"/a"), request(5, "multi")]
    client.send(b"".join(odd_requests + odd_paths))
    server.expect(*odd_requests, *odd_paths)
    odd_replies = [framed(b"short"), reply(77), reply(-1, b"\0"), reply(-2)]
    server.send(b"".join(odd_replies))
    client.expect(*odd_replies)
    log = stage.proxy.frames()[2:]
    assert [f.op for f in log[:3]] == ["unknown"] * 3
    assert log[2].opcode == 999
    assert [f.path for f in log[3:7]] == [None] * 4
    assert [(f.kind, f.op) for f in log[7:]] == [
        ("reply", "unknown"),
        ("reply", "unknown"),
        ("notification", "notification"),
        ("ping", "ping"),
    ]


def test_four_letter_words_pass(stage: Stage) -> None:
    client, server = stage.dial(), stage.accept()
    client.send(b"ruok")
    assert server.read(4) == b"ruok"
    server.send(b"\0\0\0\1imok")  # begins like a frame, but an answer to a word has none
    server.sock.close()
    assert client.ending() == (b"\0\0\0\1imok", "FIN")
    word, *answer = stage.proxy.frames()
    assert (word.kind, word.op, word.body) == ("command", "ruok", b"ruok")
    assert {frame.kind for frame in answer} == {"raw"}
    assert b"".join(frame.body for frame in answer) == b"\0\0\0\1imok"


# --- rules ----------------------------------------------------------------------------------------


def test_clear_drops_rules_and_reset_all_the_rest(stage: Stage, client: End, server: End) -> None:
    def numbers() -> list[int | None]:
        """Of all frames, behind two that pass."""
        frames = request(1, "exists"), request(2, "sync")
        client.send(b"".join(frames))
        server.expect(*frames)
        return [frame.number for frame in stage.proxy.frames()]

    stage.proxy.on("delete", action=drop)
    stage.proxy.on("exists", action=drop)
    stage.proxy.clear()
    assert numbers() == [None, None, 0, 1]
    with pytest.raises(ValueError, match="past"):
        stage.proxy.on_frame(1, drop)
    stage.proxy.on("exists", action=drop)
    stage.proxy.reset()
    assert stage.proxy.log == []
    assert numbers() == [0, 1]


def test_bad_use_is_refused_at_once(stage: Stage) -> None:
    bad: list[Callable[[], object]] = [
        lambda: stage.proxy.on("createTTL", action=drop),
        lambda: stage.proxy.on("unknown", action=drop),
        lambda: stage.proxy.on("create2", nth=0, action=drop),
        lambda: stage.proxy.on("notification", reply=True, action=drop),
        lambda: stage.proxy.on_frame(-1, drop),
        lambda: faults.delay(-1),
        lambda: faults.delay_reply(-1),
        lambda: faults.drip(float("nan")),
        lambda: faults.truncate(-1),
        lambda: FaultProxy(upstream="127.0.0.1"),
        lambda: FaultProxy(upstream=":2181"),
        lambda: FaultProxy(upstream="127.0.0.1:2181,127.0.0.1:2182"),
        lambda: setattr(stage.proxy, "upstream", "host:"),
    ]
    stage.proxy.upstream = "[::1]:2181"
    stage.proxy.upstream = stage.address
    for call in bad:
        with pytest.raises(ValueError, match=r"."):
            call()
    assert stage.proxy.upstream == stage.address


def sends_no_steps(frame: Frame) -> Any:
    return Send(frame.raw)


def returns_nothing(raw: bytes) -> Any:
    return None


WRONG: list[Callable[[Any], Any]] = [
    lambda frame: frame.missing,
    lambda frame: True,
    lambda frame: faults.delay,
    lambda frame: sends_no_steps,
    lambda frame: faults.rewrite(returns_nothing),
]


@pytest.mark.parametrize("rule", WRONG)
def test_leaving_the_proxy_reports_a_rule_or_action_of_the_wrong_kind(
    stage: Stage, rule: Callable[[Any], Any]
) -> None:
    def run() -> None:
        with FaultProxy(stage.address) as proxy:
            proxy.rule(rule)
            stage.proxy.upstream = proxy.hosts
            client = stage.dial()
            client.send(HELLO)
            assert client.ending() == (b"", "RST")

    with pytest.raises(RuntimeError, match="failed"):
        run()


# --- the proxy as a whole -------------------------------------------------------------------------


def test_a_cut_ends_although_the_peer_never_closes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, client: End, server: End
) -> None:
    monkeypatch.setattr("zkwire.testing.proxy.relay._LINGER", 0.05)
    stage.proxy.cut_all()
    assert client.ending() == server.ending() == (b"", "FIN")

    def sends() -> bool:
        try:
            client.send(GET)
        except ConnectionError:
            return False
        return True

    deadline = time.monotonic() + TIMEOUT
    while sends():
        assert time.monotonic() < deadline
        stage.settle()


def test_a_server_that_is_down_ends_the_connection(stage: Stage) -> None:
    stage.listener.close()
    client = stage.dial()
    client.send(HELLO)
    assert client.ending() == (b"", "FIN")
    stage.proxy.wait_for(lambda _: stage.proxy.connections == 0)
    assert stage.proxy.frames() == []


def test_wait_for_returns_the_log_of_large_frames_too(stage: Stage) -> None:
    client, _ = stage.connect()
    with pytest.raises(TimeoutError, match="not within 0 s"):
        stage.proxy.wait_for(lambda frames: frames[-1].op == "get_data", timeout=0)
    client.send(GET)
    log = stage.proxy.wait_for(lambda frames: frames[-1].op == "get_data")
    assert len(log) == 3
    assert log == stage.proxy.log
    assert log is not stage.proxy.log
    large, answer = request(1, "set_data", os.urandom(MEGABYTE)), reply(1, os.urandom(MEGABYTE))
    client, server = stage.connect()
    client.send(large)
    server.expect(large)
    server.send(answer)
    client.expect(answer)
    assert [frame.raw for frame in stage.proxy.frames()[-2:]] == [large, answer]


def open_sockets() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="descriptors are counted in /dev/fd")
def test_close_leaves_no_thread_and_no_socket() -> None:
    descriptors = open_sockets()
    gate = Gate()
    with Stage() as stage:
        stage.proxy.on("get_data", action=hold(gate))
        stage.proxy.on("delete", action=faults.black_hole)
        held, _ = stage.connect()
        lost, _ = stage.connect()
        stage.connect()
        held.send(GET)
        lost.send(request(1, "delete"))
        gate.wait_reached()
        stage.proxy.cut_all()
        stage.connect()
        stage.proxy.black_hole()
        stage.dial()
        stage.proxy.wait_for(lambda _: stage.proxy.connections == 2)
        assert [t.name for t in threading.enumerate()].count("zkwire-proxy") == 1
        stage.proxy.close()
        assert "zkwire-proxy" not in [t.name for t in threading.enumerate()]
        assert stage.proxy.connections == 0
        gate.release()  # nobody is left to hear it
        stage.proxy.close()
        with pytest.raises(RuntimeError, match="closed"):
            stage.proxy.cut_all()
        client_side = [end.sock for end in stage.ends]
        assert open_sockets() == descriptors + len(client_side) + 1
    assert open_sockets() == descriptors


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
