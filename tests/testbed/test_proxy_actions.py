"""What the fault proxy can do to requests, and to what the server sends."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

import pytest

from tests.testbed.test_proxy import (
    GET,
    GOT,
    HELLO,
    MEGABYTE,
    NEXT,
    NEXT_REPLY,
    WELCOME,
    End,
    Stage,
    exchange,
    framed,
    notification,
    reply,
    request,
)
from zkwire.testing.proxy import (
    Action,
    Frame,
    Gate,
    black_hole,
    cut_after,
    cut_before,
    delay,
    delay_reply,
    drip,
    drop,
    duplicate,
    half_close,
    hold,
    rewrite,
    rst_after,
    rst_before,
    split,
    truncate,
)
from zkwire.testing.proxy.faults import Send
from zkwire.testing.proxy.relay import Flow

# --- actions on requests ---


def ended_before(stage: Stage, action: Action, how: str) -> None:
    stage.proxy.on("exists", action=action)
    client, server = stage.connect()
    exchange(client, server)
    client.send(NEXT + request(3, "delete"))
    assert client.ending() == (b"", how)
    assert server.ending() == (b"", how)
    assert stage.proxy.connections == 0


def test_cut_before(stage: Stage) -> None:
    ended_before(stage, cut_before, "FIN")


def test_rst_before(stage: Stage) -> None:
    ended_before(stage, rst_before, "RST")


def test_a_cut_is_a_fin_even_to_a_client_that_goes_on_sending(stage: Stage) -> None:
    stage.proxy.on("exists", action=cut_before)
    client, _ = stage.connect()
    client.send(NEXT)
    assert client.ending() == (b"", "FIN")
    client.send(GET)
    client.send(GET)  # would fail now, had the first one been answered with RST


def test_requests_before_a_cut_reach_a_server_that_is_still_answering(stage: Stage) -> None:
    stage.proxy.on("exists", action=cut_before)
    client, server = stage.connect()
    client.send(GET + request(5, "delete") + NEXT)
    stage.proxy.wait_for(lambda _: stage.proxy.connections == 0)
    server.expect(GET)
    server.send(GOT)
    stage.settle()
    server.expect(request(5, "delete"))
    assert server.ending() == (b"", "FIN")


def ended_after(stage: Stage, action: Action, how: str) -> None:
    stage.proxy.on("exists", action=action)
    client, server = stage.connect()
    client.send(GET + NEXT + request(3, "delete"))
    server.expect(GET, NEXT, request(3, "delete"))
    server.send(GOT)
    client.expect(GOT)
    stage.settle()
    assert client.has_nothing()  # executed or not: as long as the server is silent, no cut
    server.send(NEXT_REPLY)
    assert client.ending() == (b"", how)
    assert server.ending() == (b"", how)
    assert stage.proxy.frames()[-1].raw == NEXT_REPLY


def test_cut_after(stage: Stage) -> None:
    ended_after(stage, cut_after, "FIN")


def test_rst_after(stage: Stage) -> None:
    ended_after(stage, rst_after, "RST")


def test_cut_after_picks_its_reply_by_xid(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("exists", action=cut_after)
    client.send(NEXT + request(7, "auth"))
    server.expect(NEXT, request(7, "auth"))
    server.send(reply(7) + NEXT_REPLY)
    assert client.ending() == (reply(7), "FIN")


def test_cut_after_a_request_that_is_rewritten_on_the_way(stage: Stage) -> None:
    def renumbered(frame: Frame) -> list[Send]:
        return [Send(request(70, "exists"), reply=cut_before)]

    stage.proxy.on("exists", action=renumbered)
    client, server = stage.connect()
    client.send(NEXT)
    server.expect(request(70, "exists"))
    server.send(reply(70))
    assert client.ending() == (b"", "FIN")


def test_drop(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("ping", action=drop)
    stage.proxy.on("ping", nth=2, action=cut_after)
    client.send(request(-2, "ping") + GET + request(-2, "ping"))
    server.expect(GET, request(-2, "ping"))
    server.send(GOT + reply(-2))
    # A dropped request has no reply, so the pong belongs to the second ping.
    assert client.ending() == (GOT, "FIN")


def test_duplicate_request(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=duplicate)
    client.send(GET + NEXT)
    server.expect(GET, GET, NEXT)
    server.send(GOT + GOT + NEXT_REPLY)
    client.expect(GOT, GOT, NEXT_REPLY)
    assert [f.op for f in stage.proxy.frames()[-3:]] == ["get_data", "get_data", "exists"]


def test_delay(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=delay(0.1))
    sent = time.monotonic()
    client.send(GET + NEXT)
    stage.proxy.wait_for(lambda frames: frames[-1].op == "exists")
    server.send(notification("/a"))
    client.expect(notification("/a"))  # the other direction does not wait
    silent = server.has_nothing()
    assert silent or time.monotonic() - sent >= 0.1
    server.expect(GET, NEXT)
    assert time.monotonic() - sent >= 0.1


def test_delay_reply(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=delay_reply(0.1))
    client.send(GET + NEXT)
    server.expect(GET, NEXT)
    sent = time.monotonic()
    server.send(GOT + NEXT_REPLY)
    client.expect(GOT, NEXT_REPLY)
    assert time.monotonic() - sent >= 0.1


def test_delays_count_from_the_arrival_of_each_frame(stage: Stage) -> None:
    stage.proxy.rule(lambda frame: delay(0.2) if frame.kind == "request" else None)
    client, server = stage.connect()
    sent = time.monotonic()
    burst = [request(xid, "get_data") for xid in range(1, 31)]
    client.send(b"".join(burst))
    server.expect(*burst)
    assert 0.2 <= time.monotonic() - sent < 30 * 0.2


def test_black_hole(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=black_hole)
    client.send(NEXT + GET)
    server.expect(NEXT)
    stage.proxy.wait_for(lambda frames: frames[-1].op == "get_data")
    client.send(NEXT)
    server.send(NEXT_REPLY)
    stage.proxy.refuse(False)  # any command makes it look at all connections again
    stage.settle()
    assert client.has_nothing()
    assert server.has_nothing()
    assert stage.proxy.connections == 1
    stage.proxy.cut_all()
    assert server.ending() == client.ending() == (b"", "FIN")


def test_half_close(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=half_close)
    client.send(GET + NEXT)
    assert server.ending() == (GET, "FIN")
    server.send(GOT)
    client.expect(GOT)
    server.sock.close()
    assert client.ending() == (b"", "FIN")


def segments_received(sock: socket.socket) -> int:
    """How many segments with data the kernel has received (tcpi_data_segs_in)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    return int(struct.unpack_from("=I", info, 152)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="segments are counted by Linux")
def test_split(stage: Stage, client: End, server: End) -> None:
    stage.proxy.rule(lambda frame: split if frame.op == "unknown" else None)
    before = segments_received(server.sock)
    short = framed(b"abcd")  # fits into the initial congestion window, one segment a byte
    client.send(short)
    server.expect(short)
    assert segments_received(server.sock) - before == len(short)


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
    with socket.socket() as unused:
        flow = Flow("s2c", unused, unused, lambda: None)
    flow.target = intake  # type: ignore[assignment]
    flow.add(steps)
    return flow


def test_a_split_or_dripped_frame_leaves_in_pieces_whatever_the_receiver_takes() -> None:
    intake = Intake(1, 1, 1)
    assert flow_into(intake, Send(b"abc", size=1)).perform(0.0) is None
    assert intake.taken == [b"a", b"b", b"c"]

    intake = Intake(2, 1, 4, 4, 4)
    flow = flow_into(intake, Send(b"abcdef", size=4, gap=1.0), Send(b"next"))
    flow.perform(0.0)
    assert intake.taken == [b"ab", b"c", b"d"]
    assert flow.deadline == 1.0
    flow.perform(1.0)
    assert intake.taken[3:] == [b"ef", b"next"]


def test_a_frame_in_many_pieces_leaves_room_for_other_connections() -> None:
    intake = Intake(*[1] * 1000)
    flow = flow_into(intake, Send(b"x" * 1000, size=1))
    flow.perform(0.0)
    assert 0 < len(intake.taken) < 1000
    assert flow.deadline <= 0.0


def test_whole_frames_share_a_call_and_survive_a_receiver_that_takes_a_part() -> None:
    intake = Intake(4, 1, 100)
    flow = flow_into(intake, Send(b"abc"), Send(b""), Send(b"defg"), Send(b"h"))
    flow.perform(0.0)
    assert intake.taken == [b"abcd", b"e", b"fgh"]


def test_what_cannot_be_delivered_is_dropped_without_trying_again() -> None:
    intake = Intake(2, then=BrokenPipeError)
    flow = flow_into(intake, Send(b"abc"), Send(b"def"))
    flow.perform(0.0)
    assert (flow.closed, flow.deadline, flow.readable) == (True, float("inf"), True)
    assert intake.taken == [b"ab"]


def test_more_is_read_only_while_little_waits_for_the_receiver() -> None:
    flow = flow_into(Intake(1), Send(b"x" * MEGABYTE))
    before = flow.readable
    flow.perform(0.0)
    assert (before, flow.readable, flow.blocked) == (False, True, True)
    assert flow.deadline == float("inf")


def test_a_peer_that_does_not_read_stops_nobody_else(stage: Stage) -> None:
    greedy, source = stage.connect()
    source.sock.setblocking(False)
    block, sent = reply(1, b"x" * 65536), 0
    for _ in range(3):  # fill everything between the two, more than once
        try:
            while True:
                sent += source.sock.send(block[sent % len(block) :])
        except BlockingIOError:
            stage.settle()
    exchange(*stage.connect())
    source.sock.shutdown(socket.SHUT_WR)
    data, how = greedy.ending()
    assert (len(data), how) == (sent, "FIN")
    assert data == (block * (sent // len(block) + 1))[:sent]


@pytest.mark.parametrize("count", [0, 3, 4, 7, len(GET)])
def test_truncate(stage: Stage, count: int, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=truncate(count))
    client.send(GET + NEXT)
    assert server.ending() == (GET[:count], "FIN")
    assert client.ending() == (b"", "FIN")


def test_rewrite(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=rewrite(lambda raw: raw[:-1] + b"\1"))
    client.send(GET + NEXT)
    server.expect(GET[:-1] + b"\1", NEXT)


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


# --- actions on what the server sends ---


def test_drip(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("get_data", action=drip(0.2))
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


def test_a_reply_is_doubled(stage: Stage, client: End, server: End) -> None:
    stage.proxy.on("exists", nth=2, action=duplicate, reply=True)
    exchange(client, server, 1, "exists")
    client.send(NEXT + GET)
    server.expect(NEXT, GET)
    server.send(GOT + NEXT_REPLY)
    client.expect(GOT, NEXT_REPLY, NEXT_REPLY)
    exchange(client, server, 3, "exists")


def test_a_rule_for_the_request_and_one_for_its_reply_both_count(stage: Stage) -> None:
    gate = Gate()
    stage.proxy.on("exists", action=hold(gate))
    stage.proxy.on("exists", action=drop, reply=True)
    client, server = stage.connect()
    client.send(NEXT + GET)
    gate.wait_reached()
    gate.release()
    server.expect(NEXT, GET)
    server.send(NEXT_REPLY + GOT)
    client.expect(GOT)


def test_notifications_are_counted_as_the_server_sends_them(stage: Stage) -> None:
    stage.proxy.on("notification", nth=2, action=drop)
    client, server = stage.connect()
    server.send(notification("/1") + notification("/2") + notification("/3"))
    client.expect(notification("/1"), notification("/3"))


def test_the_handshake_answer_can_be_chosen(stage: Stage) -> None:
    stage.proxy.on("connect", nth=2, action=rewrite(lambda raw: raw[:-1] + b"\1"), reply=True)
    stage.connect()
    client, server = stage.dial(), stage.accept()
    client.send(HELLO)
    server.expect(HELLO)
    server.send(WELCOME)
    client.expect(WELCOME[:-1] + b"\1")


@pytest.mark.parametrize(("action", "how"), [(cut_after, "FIN"), (rst_after, "RST")])
def test_after_a_frame_of_the_server_means_behind_it(
    stage: Stage, action: Action, how: str, client: End, server: End
) -> None:
    stage.proxy.on("get_data", action=action, reply=True)
    client.send(GET)
    server.expect(GET)
    server.send(GOT + notification("/a"))
    assert client.ending() == (GOT, how)
    assert server.ending() == (b"", how)


def test_reply_actions_act_at_once_on_a_frame_of_the_server(stage: Stage) -> None:
    stage.proxy.on("notification", action=delay_reply(0.05))
    client, server = stage.connect()
    sent = time.monotonic()
    server.send(notification("/a"))
    client.expect(notification("/a"))
    assert time.monotonic() - sent >= 0.05
