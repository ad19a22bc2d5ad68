"""Captures of packets, written here byte by byte, and what `zkwire spy --read` shows of them."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.command import run
from tests.support.examples import examples
from tests.unit.test_command_spy_records import STORY
from zkwire.cli.spy.capture import read
from zkwire.testing.proxy.frames import Direction

FIN, SYN, ACK = 1, 2, 16
START = 0xFFFF_FFF0  # so that the numbers of bytes begin anew soon
V4 = (bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
V6 = (bytes(15) + b"\1", bytes(15) + b"\2")
Packets = list[tuple[bytes, int]]  # each with its length on the wire


class Sent(NamedTuple):
    """A TCP segment."""

    side: Direction
    number: int
    flags: int
    data: bytes = b""


def talk(pieces: Sequence[tuple[Direction, bytes]] = STORY, size: int = 10_000) -> list[Sent]:
    """A whole connection; ``size`` is that of the largest segment."""
    at: dict[Direction, int] = {"c2s": START, "s2c": START}
    sent = [Sent("c2s", START, SYN), Sent("s2c", START, SYN | ACK)]
    for side, data in [*pieces, ("c2s", b""), ("s2c", b"")]:
        for piece in [data[i : i + size] for i in range(0, len(data), size)] or [b""]:
            number = (at[side] + 1) & 0xFFFF_FFFF
            sent.append(Sent(side, number, ACK if piece else FIN | ACK, piece))
            at[side] += len(piece)
    return sent


def packet(sent: Sent, ip: int = 4, port: int = 40_000) -> bytes:
    """An IP packet."""
    ports = (port, 2181) if sent.side == "c2s" else (2181, port)
    tcp = struct.pack(">HHIIBBHHH", *ports, sent.number, 0, 8 << 4, sent.flags, 0, 0, 0)
    tcp += bytes(12) + sent.data  # three words of options
    source, target = (V4 if ip == 4 else V6)[:: 1 if sent.side == "c2s" else -1]
    if ip == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 7, 0x4000, 64, 6, 0)
        return head + source + target + tcp
    extension = bytes((6, 0, *bytes(6)))  # hop by hop
    head = struct.pack(">IHBB", 6 << 28, len(extension) + len(tcp), 0, 64)
    return head + source + target + extension + tcp


LINKS: dict[str, tuple[int, Callable[[bytes, int], bytes]]] = {
    "ethernet": (1, lambda data, kind: bytes(12) + struct.pack(">H", kind) + data + bytes(6)),
    "vlan": (1, lambda data, kind: bytes(12) + struct.pack(">HHH", 0x8100, 7, kind) + data),
    "cooked": (113, lambda data, kind: bytes(14) + struct.pack(">H", kind) + data),
    "cooked, version 2": (276, lambda data, kind: struct.pack(">H", kind) + bytes(18) + data),
    "loopback": (0, lambda data, kind: struct.pack("<I", 2) + data),
    "raw": (101, lambda data, kind: data),
}


def packets(sent: Sequence[Sent], link: str = "raw", ip: int = 4) -> Packets:
    kind = 0x0800 if ip == 4 else 0x86DD
    made = [LINKS[link][1](packet(each, ip), kind) for each in sent]
    return [(data, len(data)) for data in made]


def pcap(made: Packets, link: int = 101, order: str = "<", magic: int = 0xA1B2C3D4) -> bytes:
    """A classic file; the packets are a millisecond apart."""
    units = 1000 if magic == 0xA1B2C3D4 else 1_000_000
    records = [
        struct.pack(order + "IIII", 1_700_000_000, number * units, len(data), size) + data
        for number, (data, size) in enumerate(made)
    ]
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262_144, link) + b"".join(records)


def pcapng(made: Packets, link: int = 101, order: str = "<") -> bytes:
    """The newer kind, with nanoseconds, a comment, and a block that nothing here knows."""

    def block(kind: int, body: bytes) -> bytes:
        length = struct.pack(order + "I", 12 + len(body) + -len(body) % 4)
        return struct.pack(order + "I", kind) + length + body + bytes(-len(body) % 4) + length

    options = struct.pack(order + "HH", 1, 5) + b"hello\0\0\0"
    options += struct.pack(order + "HHB3xHH", 9, 1, 9, 0, 0)
    blocks = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    blocks += block(1, struct.pack(order + "HHI", link, 0, 0) + options) + block(77, b"what")
    for number, (data, size) in enumerate(made):
        high, low = divmod(1_700_000_000 * 10**9 + number * 10**6, 1 << 32)
        blocks += block(6, struct.pack(order + "IIIII", 0, high, low, len(data), size) + data)
    return blocks


def spied(file: bytes, *words: str) -> tuple[list[dict[str, Any]], str]:
    """All records of a capture, and the notes."""
    ran = run("127.0.0.1:1", "spy", "--read", "-", "-f", "jsonl", "--pings", *words, stdin=file)
    assert ran.status == 0, ran.err
    return [json.loads(line) for line in ran.lines], ran.err


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in record.items() if k not in ("n", "t", "re", "rtt_ms", "peer")}
        for record in records
    ]


def requests(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [record for record in records if record.get("dir") == "c2s"]
    return [{k: v for k, v in r.items() if k != "session"} for r in without_times(kept)]


WHOLE = spied(pcap(packets(talk())))[0]


def test_a_capture_says_what_passed() -> None:
    shown = [record["op"] for record in WHOLE]
    assert " ".join(shown) == (
        "open connect connect auth auth sasl sasl create create get_acl get_acl ping ping delete "
        "delete watch unknown unknown auth close"
    )
    assert WHOLE[0]["peer"] == "10.0.0.1:40000 to 10.0.0.2:2181"
    assert WHOLE[-1]["by"] == "client"
    assert WHOLE[8]["created"] == "/a0000000001"
    assert (WHOLE[8]["re"], WHOLE[8]["rtt_ms"]) == (WHOLE[7]["n"], 1.0)
    assert [record["t"] for record in WHOLE[:3]] == [0.0, 0.002, 0.003]
    assert WHOLE[2]["session"] == "0x1000000000000007"


@pytest.mark.parametrize("ip", [4, 6])
@pytest.mark.parametrize("link", LINKS)
def test_links_and_addresses(link: str, ip: int) -> None:
    made = packets(talk(), link, ip)
    noise = [
        (LINKS[link][1](data, 0x0806), 0) for data in (b"", b"\x60", b"E" + bytes(30), bytes(60))
    ]
    for order in "<>":
        for file in (
            pcap(noise + made, LINKS[link][0], order),
            pcap(made, LINKS[link][0], order, 0xA1B23C4D),
            pcapng(made + noise, LINKS[link][0], order),
        ):
            records, notes = spied(file)
            assert without_times(records) == without_times(WHOLE)
            assert records[8]["rtt_ms"] == 1.0
            assert notes == ""
    if ip == 6:
        assert records[0]["peer"] == "[::1]:40000 to [::2]:2181"


@pytest.mark.parametrize("seed", range(5))
def test_repeated_reordered_and_tiny_segments(seed: int) -> None:
    """The network may do all that to a stream; what is said stays the same."""
    chance = random.Random(seed)
    sent = [each for each in talk(size=chance.choice([1, 7, 50])) if each.data]
    for _ in range(30):
        at = chance.randrange(len(sent) - 1)
        sent.insert(at + chance.randrange(2), sent[at])
    for at in range(len(sent) - 1):
        if sent[at].side == sent[at + 1].side and chance.random() < 0.5:
            sent[at], sent[at + 1] = sent[at + 1], sent[at]
    both = talk()
    records, notes = spied(pcap(packets([*both[:2], *sent, *both[-2:]])))
    # A reply may be whole before its request now, so only what the client says is all the same.
    assert requests(records) == requests(WHOLE)
    assert sum("dir" in record for record in records) == len(STORY)
    assert "gap" not in [record["op"] for record in records]
    assert notes == ""


def test_missing_bytes_are_said_and_what_follows_is_shown() -> None:
    sent = talk()
    lost = [each for each in sent if each.data][7]  # the answer to the create
    file = pcap(packets([each for each in sent if each != lost]))
    records, _ = spied(file)
    gap = next(record for record in records if record["op"] == "gap")
    assert (gap["dir"], gap["bytes"]) == ("s2c", len(lost.data))
    kept = [record["op"] for record in records if record is not gap]
    assert kept == [record["op"] for record in WHOLE if record is not WHOLE[8]]
    shown = run("127.0.0.1:1", "spy", "--read", "-", "--errors-only", stdin=file).out.decode()
    assert f"{len(lost.data)} bytes missing in the capture" in shown


def test_a_connection_that_was_open_before() -> None:
    """Its messages begin with the first segment that begins like one; secrets stay hidden."""
    pieces = [each for each in talk() if each.data]
    half = pieces[6]._replace(number=pieces[6].number + 9, data=pieces[6].data[9:])
    records, notes = spied(pcap(packets([half, *pieces[7:]])))
    assert notes == "connections that were open before the capture began: 1\n"
    assert records[0]["peer"].endswith("before the capture")
    assert records[1]["op"] == "gap"
    assert (records[2]["op"], records[2]["dir"]) == ("unknown", "s2c")
    assert [record["op"] for record in records[3:]] == [r["op"] for r in WHOLE[9:-1]]


def test_a_port_that_is_used_again_and_others_that_are_not_zookeepers() -> None:
    other = [("c2s", b"\x16\x03\x01\x00\x05hello"), ("s2c", b"HTTP/1.1 400 what\r\n")]
    word: list[tuple[Direction, bytes]] = [("c2s", b"ruok"), ("s2c", b"imok")]
    later = [each._replace(number=(each.number + 70_000) & 0xFFFF_FFFF) for each in talk(word)]
    made = packets([*talk(), *later])
    made += [(packet(each, port=50_000), 100) for each in talk(other)]  # type: ignore[arg-type]
    fragment = bytearray(made[5][0])
    fragment[6] = 0x20
    made.append((bytes(fragment), 100))
    records, notes = spied(pcap(made), "--op", "open,connect,close")
    assert [(r["op"], r["conn"]) for r in records] == [
        ("open", 1), ("connect", 1), ("connect", 1), ("close", 1), ("open", 2), ("close", 2)
    ]  # fmt: skip
    assert "fragments of IP are left out: 1\n" in notes
    assert "other connections are left out: 1 (with TLS, whose keys are not in it: 1)\n" in notes
    assert max(map(len, notes.splitlines())) <= 80


def test_what_is_cut_is_said() -> None:
    made = packets(talk())
    for file in (pcap(made), pcapng(made)):
        records, notes = spied(file[:-90])
        assert "the capture ends in the middle of a packet" in notes
        assert without_times(records)[:-1] == without_times(WHOLE)[: len(records) - 1]
    short = [(data[:80], size) for data, size in made]
    records, notes = spied(pcap(short))
    assert "packets are cut short" in notes
    assert {r["op"] for r in records if r.get("bytes", 0) > 60} == {"gap"}


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (pcap([]), "no connection of ZooKeeper's protocol in it"),
        (pcap([])[:10], "ends in the middle of a packet"),
        (pcap(packets(talk()), link=195), "unknown kind of link are left out: 195"),
        (pcap([]) + bytes(8) + b"\xff" * 8, "offset 24: this cannot be the beginning of a packet"),
        (pcapng([])[:8] + bytes(20), "offset 0: a section of an unknown byte order"),
        (pcapng([]) + bytes(4) + b"\5\0\0\0" + bytes(20), "a block cannot have 5 bytes"),
        (pcapng([])[:28] + pcapng(packets(talk()))[len(pcapng([])) :], "a block that cannot be"),
    ],
)
def test_what_is_no_capture(file: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "zk.pcap").write_bytes(file)
    ran = run("127.0.0.1:1", "spy", "--read", str(tmp_path / "zk.pcap"))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert why in ran.err


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from([pcap, pcapng]), st.data())
def test_no_capture_does_harm(form: Callable[..., bytes], data: st.DataObject) -> None:
    """Any bytes in any place are shown somehow, or are one error."""
    sent = talk(size=data.draw(st.sampled_from([20, 10_000])))
    kept = data.draw(st.lists(st.sampled_from(sent), max_size=30))
    file = bytearray(form(packets(kept or sent)))
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(file) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=6))
        file[at : at + data.draw(st.integers(0, 6))] = piece
    try:
        capture = read(bytes(file), "file")
    except ValueError:
        return
    assert [event.number for event in capture.events] == list(range(1, len(capture.events) + 1))


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from([pcap([])[:4], pcapng([])[:12]]), st.binary(max_size=200))
@example(pcap([]), struct.pack("<IIII", 0, 0, 16_000_000, 0))
def test_garbage_is_one_error(begin: bytes, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^file: "):
        read(begin + data, "file")
