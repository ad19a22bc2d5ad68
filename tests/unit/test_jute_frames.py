"""Frames: how a stream of bytes is cut, and what it may cost."""

from __future__ import annotations

import struct

import pytest

from zkwire.errors import ProtocolError, ReplyTooLargeError
from zkwire.jute.frames import RECEIVE_LIMIT, SEND_LIMIT, FrameSplitter, frame

KIB = 1024
MIB = 1024 * KIB


def prefix(length: int) -> bytes:
    return struct.pack(">i", length)


def taken(splitter: FrameSplitter, chunk: bytes) -> list[bytes]:
    found = list(splitter.feed(chunk))
    assert all(0 <= start <= end <= len(data) for data, start, end in found)
    return [data[start:end] for data, start, end in found]


@pytest.mark.parametrize(
    ("length", "kind"),
    [
        (-1, ProtocolError),
        (-(2**31), ProtocolError),
        (RECEIVE_LIMIT + 1, ReplyTooLargeError),
        (2**31 - 1, ReplyTooLargeError),
        (int.from_bytes(b"HTTP", "big"), ReplyTooLargeError),
    ],
)
def test_impossible_lengths(length: int, kind: type[ProtocolError]) -> None:
    data = prefix(length)
    for chunks in ([data], [data[:1], data[1:3], data[3:]], [data + bytes(64)]):
        splitter = FrameSplitter()
        with pytest.raises(ProtocolError, match=f" {length} bytes") as caught:
            [taken(splitter, chunk) for chunk in chunks]
        assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("body", "piece", "number"),
    [(16 * KIB, 1, 1), (MIB, 1400, 1), (100, 7, 5000), (100, 60_000, 5000)],
)
def test_feeding_is_linear(body: int, piece: int, number: int) -> None:
    """What is kept grows in its place and is joined once; frames are cut from what has come."""
    splitter, stream, found = FrameSplitter(), frame(bytes(body)) * number, 0
    for at in range(0, len(stream), piece):
        chunk, partial = stream[at : at + piece], splitter.partial
        before = len(partial)
        frames = list(splitter.feed(chunk))
        if not frames and before >= 4:
            assert splitter.partial is partial
        for data, start, end in frames:
            assert data is frames[0][0]
            assert data is chunk if not before else len(data) == before + len(chunk)
            assert end - start == body
        found += len(frames)
    assert found == number


def test_the_limits_are_the_servers_and_allowed_themselves() -> None:
    """A reply may be longer than any request: data, stat and header around it."""
    assert SEND_LIMIT == 1_048_575
    assert RECEIVE_LIMIT > SEND_LIMIT + 100
    assert taken(FrameSplitter(10), frame(bytes(10))) == [bytes(10)]
    with pytest.raises(ReplyTooLargeError, match="a frame of 11 bytes is over the limit of 10"):
        taken(FrameSplitter(10), prefix(11))
