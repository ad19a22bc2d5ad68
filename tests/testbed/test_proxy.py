"""The fault proxy: what it passes on and logs, its rules, and the proxy as a whole."""

from __future__ import annotations

import os
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
from zkwire.testing.proxy.faults import Gate, Send, cut_before, drop, hold
from zkwire.testing.proxy.relay import Conversation
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
    assert [(f.direction, f.kind, f.op, f.xid, f.opcode, f.number) for f in log] == [
        ("c2s", "connect", "connect", None, None, None),
        ("s2c", "connect", "connect", None, None, None),
        ("c2s", "request", "create2", 1, 15, 0),
        ("c2s", "ping", "ping", -2, 11, None),
        ("c2s", "auth", "auth", -4, 100, 1),
        ("s2c", "notification", "notification", -1, None, None),
        ("s2c", "reply", "create2", 1, 15, None),
        ("s2c", "ping", "ping", -2, 11, None),
        ("s2c", "auth", "auth", -4, 100, None),
    ]
    assert [f.path for f in log] == [None, None, "/ü", None, None, "/ü", "/ü", None, None]
    assert [(f.zxid, f.error) for f in log[5:8]] == [(-1, 0), (9, -110), (9, 0)]
    assert log[1].request is log[0]
    assert log[6].request is log[2]
    assert log[2].body == create[4:]
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


def test_a_stream_means_the_same_however_it_is_cut() -> None:
    stream = HELLO + GET + NEXT + struct.pack(">i", -1) + b"tail"

    def read(size: int) -> list[tuple[str, bytes]]:
        conversation = Conversation(0)
        frames: list[tuple[str, bytes]] = []
        for at in range(0, len(stream), size):
            arrived = conversation.receive("c2s", stream[at : at + size], 0.0)
            frames += [(frame.op, frame.raw) for frame, _ in arrived]
        return frames

    assert read(len(stream))[:3] == [("connect", HELLO), ("get_data", GET), ("exists", NEXT)]
    for size in range(1, len(stream), 3):
        pieces = read(size)
        assert pieces[:3] == read(len(stream))[:3]
        assert b"".join(raw for _, raw in pieces) == stream


# --- rules ----------------------------------------------------------------------------------------


def dropped(client: End, server: End, *requests: bytes) -> list[int]:
    """Which of the requests, by position, do not get through."""
    last = request(99, "sync")
    client.send(b"".join(requests) + last)
    passed: list[bytes] = []
    while (frame := server.frame()) != last:
        passed.append(frame)
    return [at for at, raw in enumerate(requests) if raw not in passed]


def burst(*ops: str, start: int = 1) -> list[bytes]:
    return [request(xid, op) for xid, op in enumerate(ops, start)]


def test_every_rule_sees_every_frame_and_the_first_answer_decides(stage: Stage) -> None:
    seen: list[str] = []

    def note(frame: Frame) -> None:
        seen.append(frame.op)

    stage.proxy.rule(lambda frame: drop if frame.op == "delete" else None)
    stage.proxy.on("delete", nth=1, action=cut_before)
    stage.proxy.rule(lambda frame: faults.forward if frame.xid == 3 else None)
    stage.proxy.on("exists", nth=2, action=drop)
    stage.proxy.on("exists", nth=3, action=drop)
    stage.proxy.rule(note)
    client, server = stage.connect()
    assert dropped(client, server, *burst("delete", "exists", "exists", "exists")) == [0, 3]
    assert seen == ["connect", "connect", "delete", "exists", "exists", "exists", "sync"]


def test_clear_drops_rules_and_reset_all_the_rest(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("delete", action=drop)
    stage.proxy.on("exists", action=drop)
    stage.proxy.clear()
    assert dropped(client, server, *burst("exists")) == []
    assert [frame.number for frame in stage.proxy.frames()] == [None, None, 0, 1]
    with pytest.raises(ValueError, match="past"):
        stage.proxy.on_frame(1, drop)
    stage.proxy.on("exists", action=drop)
    stage.proxy.reset()
    assert stage.proxy.log == []
    assert dropped(client, server, *burst("exists")) == []
    assert [frame.number for frame in stage.proxy.frames()] == [0, 1]


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
