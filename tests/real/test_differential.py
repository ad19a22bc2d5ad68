"""The embedded server and a real ZooKeeper give the same answers to the same random operations.

`tests/support/differential.py` says what is compared and what is not.  Each difference that was
found has become a test with a name, in `test_processor.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.support.differential import TIMEOUT_MS, Difference, Player, play_at_random
from tests.support.differential_sides import EmbeddedSide, RealSide, Side, playing
from tests.support.server_control import Backend, ZooKeeperServer
from tests.testbed import recorded
from tests.testbed.recorded import alone, embedded
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.records import Stat
from zkwire.testing.server.rules import DELETE_CONTAINER
from zkwire.testing.server.tree import Node
from zkwire.wire import ops

# Of the requests behind one that it does not know (before 3.7: who_am_i), a server executes none,
# some or all, as chance has it; random requests cannot be compared there.
pytestmark = [pytest.mark.apache, pytest.mark.since("3.7")]

STEPS = 80_000
PARTS = 4
SCENARIO_STEPS = 400


class Pair:
    """Both sides, which must have seen the same from the start."""

    def __init__(self, server: ZooKeeperServer, seed: object) -> None:
        self.version = playing(server)
        self.processor = embedded(seed, self.version)
        self.sides: list[Side] = [EmbeddedSide(self.processor), RealSide(server.host, server.port)]

    def run(self, name: str, steps: int = SCENARIO_STEPS) -> Player:
        player = Player(self.sides, f"seed {name!r}")
        play_at_random(player, lambda: self.processor.state.tree.nodes, name, steps)
        return player


@pytest.fixture(scope="module")
def pair(backend: Backend, seed: int) -> Iterator[Pair]:
    """What the random steps are played to."""
    with alone(backend) as server:
        yield Pair(server, seed)


@pytest.fixture(scope="module")
def open_pair(backend: Backend) -> Iterator[Pair]:
    """Another, whose nodes nobody has locked: random steps can forbid everybody everything."""
    with alone(backend) as server:
        yield Pair(server, "open")


@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_same_answers(pair: Pair, seed: int, part: int) -> None:
    """In parts, for a slow machine: a test that takes too long is taken for one that hangs."""
    done, events, met = 0, 0, set[tuple[str, int]]()
    while done < STEPS // PARTS:
        player = pair.run(f"{seed}/{part}/{done}")
        done += player.requests
        events += player.events // 2
        met.update(player.errors)
    print(f"seed {seed}: {done} steps, {events} events, {len(met)} kinds of outcome")
    assert events >= done // 40
    assert len(met) >= 60, sorted(met)


@pytest.mark.parametrize("name", [n for n in recorded.CONVERSATIONS if not n.startswith("walk")])
def test_a_conversation_goes_as_recorded(backend: Backend, name: str) -> None:
    """The walks are left out: those of `test_same_answers` are new ones each time."""
    with alone(backend) as server:
        recorded.asked(server, name, recorded.stored().get((playing(server), name)))


KNOWN = {op.opcode for op in ops.OPS.values()} | {DELETE_CONTAINER.opcode}
NUMBERS = [n for n in (*range(-20, 131), 999, 2**31 - 1, -(2**31)) if n not in KNOWN]


def test_operations_that_there_are_not(open_pair: Pair) -> None:
    """Among these is one of servers, create_session: its greeting comes again."""
    for body in (b"", b"\0\0\0\2/a\0\0\0\0\0\0", struct.pack(">i", 20_000)):
        for number in NUMBERS:
            answers = [unknown(side, number, body) for side in open_pair.sides]
            assert answers[0] == answers[1], (number, body)


def unknown(side: Side, number: int, body: bytes) -> list[object]:
    """What comes back of one request, without zxids."""
    link = side.connect()
    hello = frame(r.ConnectRequest(0, 0, TIMEOUT_MS, 0, bytes(16), False).encode())
    (greeting,) = link.exchange(hello, 1)
    found = link.exchange(frame(r.RequestHeader(7, number).encode() + body), 1)
    if found != [greeting]:
        if found[0][15] == 250:  # -6: it ends
            found += link.exchange(b"", None)
        shown: list[object] = [
            raw and (*r.ReplyHeader.decode(raw)[::2], raw[4:5], raw[16:]) for raw in found
        ]
    else:
        shown = ["greeted"]
    link.exchange(frame(r.RequestHeader(8, ops.CLOSE_SESSION.opcode).encode()), None)
    link.close()
    return shown


def test_a_check_outside_of_a_multi_is_answered_only_if_it_fails(open_pair: Pair) -> None:
    """From 3.9 on it is unknown, as the conversation about servers shows."""
    if open_pair.version < "3.9":
        embedded, real = map(unanswered, open_pair.sides)
        assert embedded == real


def unanswered(side: Side) -> list[tuple[int, int, int]]:
    """What comes back of a session in which a check is right: xids, zxids from its start, codes."""
    requests = (
        (ops.EXISTS, r.ExistsRequest("/", False).encode()),
        (ops.CHECK, r.CheckVersionRequest("/", -1).encode()),
        (ops.EXISTS, r.ExistsRequest("/", False).encode()),
        (ops.CLOSE_SESSION, b""),
    )
    data = frame(r.ConnectRequest(0, 0, TIMEOUT_MS, 0, bytes(16), False).encode())
    for xid, (op, body) in enumerate(requests):
        data += frame(r.RequestHeader(xid, op.opcode).encode() + body)
    link = side.connect()
    _, *replies, _ = link.exchange(data, None)
    link.close()
    headers = [r.ReplyHeader.decode(raw, 0, 16) for raw in replies]
    return [(h.xid, h.zxid - headers[0].zxid, h.err) for h in headers]


def test_a_planted_difference_is_found(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cversion that only counts creates, as it is stored, the comparison fails."""
    honest = Node.stat

    def planted(node: Node) -> Stat:
        values = list(honest(node))
        values[5] = node.created
        return Stat(*values)

    monkeypatch.setattr(Node, "stat", planted)
    with alone(backend) as server, pytest.raises(Difference, match="seed"):
        Pair(server, "planted").run("planted", 20 * SCENARIO_STEPS)
