"""Frames: where they end, which lengths are refused and when, what it costs."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from functools import partial
from typing import SupportsIndex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.errors import ProtocolError, ReplyTooLargeError
from zkwire.jute import frames
from zkwire.jute.frames import RECEIVE_LIMIT, SEND_LIMIT, FrameSplitter, frame

PROPERTY = settings(derandomize=True, deadline=None, max_examples=examples(200))
KIB = 1024
MIB = 1024 * KIB

bodies = st.lists(st.binary(max_size=40), max_size=8)


def prefix(length: int) -> bytes:
    return struct.pack(">i", length)


def taken(splitter: FrameSplitter, chunk: bytes) -> list[bytes]:
    found = list(splitter.feed(chunk))
    assert all(0 <= start <= end <= len(data) for data, start, end in found)
    return [data[start:end] for data, start, end in found]


def pieces(stream: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """The stream, cut at these offsets."""
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return (stream[start:end] for start, end in itertools.pairwise(edges))


def until_refused(splitter: FrameSplitter, chunks: Iterable[bytes]) -> tuple[list[bytes], str]:
    """The frames before the first refusal, and its message."""
    found = []
    try:
        for chunk in chunks:
            for data, start, end in splitter.feed(chunk):
                found.append(data[start:end])
    except ProtocolError as error:
        return found, str(error)
    return found, ""


# --- where frames end -----------------------------------------------------------------------------


def test_a_frame_is_its_length_and_its_body() -> None:
    assert frame(b"") == b"\0\0\0\0"
    assert frame(b"abc") == b"\0\0\0\3abc"
    assert frame(bytes(258))[:4] == b"\0\0\1\2"


@PROPERTY
@given(bodies, st.lists(st.integers(0, 400), max_size=12))
@example([b"", b"", b"x"], [0, 0, 4, 5])
def test_any_split_gives_the_same_frames(sent: list[bytes], cuts: list[int]) -> None:
    splitter, stream = FrameSplitter(), b"".join(map(frame, sent))
    assert [body for piece in pieces(stream, cuts) for body in taken(splitter, piece)] == sent
    assert splitter.missing == 0


@PROPERTY
@given(bodies, st.lists(st.integers(0, 400), max_size=12))
def test_a_frame_comes_with_its_last_byte(sent: list[bytes], cuts: list[int]) -> None:
    ends = [len(b"".join(map(frame, sent[: count + 1]))) for count in range(len(sent))]
    splitter, arrived, found = FrameSplitter(), 0, 0
    for piece in pieces(b"".join(map(frame, sent)), cuts):
        arrived += len(piece)
        found += len(taken(splitter, piece))
        assert found == sum(end <= arrived for end in ends)


@PROPERTY
@given(bodies)
def test_one_byte_at_a_time(sent: list[bytes]) -> None:
    splitter, stream = FrameSplitter(), b"".join(map(frame, sent))
    one_by_one = (stream[at : at + 1] for at in range(len(stream)))
    assert [body for piece in one_by_one for body in taken(splitter, piece)] == sent


def test_what_is_missing() -> None:
    splitter = FrameSplitter()
    assert splitter.missing == 0
    assert taken(splitter, b"\0\0") == []
    assert splitter.missing == 2
    assert taken(splitter, b"\0\5") == []
    assert splitter.missing == 5
    assert taken(splitter, b"abc") == []
    assert splitter.missing == 2
    assert taken(splitter, b"de" + frame(b"f") + b"\0") == [b"abcde", b"f"]
    assert splitter.missing == 3


# --- which lengths are refused --------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 15, 16, 100])
def test_short_frames_are_frames(length: int) -> None:
    assert taken(FrameSplitter(100), frame(bytes(length))) == [bytes(length)]


@pytest.mark.parametrize(
    ("length", "kind"),
    [
        (-1, ProtocolError),
        (-5, ProtocolError),
        (-(2**31), ProtocolError),
        (RECEIVE_LIMIT + 1, ReplyTooLargeError),
        (2**31 - 1, ReplyTooLargeError),
        (int.from_bytes(b"HTTP", "big"), ReplyTooLargeError),
        (int.from_bytes(b"This", "big"), ReplyTooLargeError),
    ],
)
def test_impossible_lengths(length: int, kind: type[ProtocolError]) -> None:
    for stream, cuts in ((b"", ()), (b"", (1, 2, 3)), (bytes(64), ())):
        splitter, chunks = FrameSplitter(), pieces(prefix(length) + stream, cuts)
        with pytest.raises(ProtocolError, match=f" {length} bytes") as caught:
            list(map(partial(taken, splitter), chunks))
        assert type(caught.value) is kind


def test_the_limit_itself_is_allowed() -> None:
    assert taken(FrameSplitter(10), frame(bytes(10))) == [bytes(10)]
    with pytest.raises(ReplyTooLargeError, match="a frame of 11 bytes is over the limit of 10"):
        taken(FrameSplitter(10), prefix(11))


@PROPERTY
@given(
    bodies,
    st.one_of(st.integers(-(2**31), -1), st.integers(41, 2**31 - 1)),
    st.binary(max_size=20),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_what_came_before_an_impossible_length_comes_first(
    sent: list[bytes], length: int, behind: bytes, cuts: list[int]
) -> None:
    stream = b"".join(map(frame, sent)) + prefix(length) + behind
    found, message = until_refused(FrameSplitter(40), pieces(stream, cuts))
    assert found == sent
    assert f"{length} bytes" in message


@PROPERTY
@given(st.binary(max_size=200), st.lists(st.integers(0, 400), max_size=12))
def test_no_bytes_do_harm(stream: bytes, cuts: list[int]) -> None:
    whole = until_refused(FrameSplitter(100), [stream])
    assert until_refused(FrameSplitter(100), pieces(stream, cuts)) == whole
    assert b"".join(map(frame, whole[0])) == stream[: sum(len(body) + 4 for body in whole[0])]


def test_the_limits_are_the_servers() -> None:
    assert SEND_LIMIT == 1_048_575
    # A server's reply may be longer than any request: data, stat and header around it.
    assert RECEIVE_LIMIT > SEND_LIMIT + 100
    assert taken(FrameSplitter(), frame(bytes(SEND_LIMIT + 49))) == [bytes(SEND_LIMIT + 49)]


# --- what it costs --------------------------------------------------------------------------------


class Tally:
    """How many bytes have been copied."""

    copied = 0


class Bytes(bytes):
    """Bytes that tell what is copied out of them, and whatever is made of them does, too."""

    def __getitem__(self, key: SupportsIndex | slice) -> Bytes:  # type: ignore[override]
        assert isinstance(key, slice)
        return counted(super().__getitem__(key))

    def __add__(self, other: object) -> Bytes:
        assert isinstance(other, bytes | bytearray)
        return counted(super().__add__(other))

    def __radd__(self, other: bytes) -> Bytes:
        return counted(bytes(other) + bytes(self))


def counted(data: bytes) -> Bytes:
    Tally.copied += len(data)
    return Bytes(data)


class ByteArray(bytearray):
    """The same for a bytearray; to append to one costs what is appended."""

    def __init__(self, data: bytes | bytearray = b"") -> None:
        super().__init__(data)
        Tally.copied += len(data)

    def __iadd__(self, other: object) -> ByteArray:
        assert isinstance(other, bytes | bytearray)
        Tally.copied += len(other)
        super().__iadd__(other)
        return self

    def __add__(self, other: object) -> ByteArray:
        assert isinstance(other, bytes | bytearray)
        return ByteArray(super().__add__(other))

    def __getitem__(self, key: SupportsIndex | slice) -> ByteArray:  # type: ignore[override]
        assert isinstance(key, slice)
        return ByteArray(super().__getitem__(key))

    def __delitem__(self, key: SupportsIndex | slice) -> None:
        super().__delitem__(key)
        Tally.copied += len(self)


def copied_for(
    monkeypatch: pytest.MonkeyPatch, body: int, piece: int, number: int = 1
) -> tuple[int, int]:
    """The length of a stream of frames, and how many bytes were copied to take it apart."""
    monkeypatch.setattr(frames, "bytes", counted, raising=False)
    monkeypatch.setattr(frames, "bytearray", ByteArray, raising=False)
    splitter, stream = FrameSplitter(), frame(bytes(body)) * number
    Tally.copied = found = 0
    for at in range(0, len(stream), piece):
        for _, start, end in splitter.feed(Bytes(stream[at : at + piece])):
            assert end - start == body
            found += 1
    assert found == number
    return len(stream), Tally.copied


@pytest.mark.parametrize(
    ("body", "piece", "number"),
    [(256 * KIB, 1, 1), (MIB, 1, 1), (MIB, 1400, 1), (100, 7, 5000), (100, 60_000, 5000)],
)
def test_feeding_is_linear(
    monkeypatch: pytest.MonkeyPatch, body: int, piece: int, number: int
) -> None:
    """Each byte is copied a few times, whatever the pieces and however long the frame."""
    length, copied = copied_for(monkeypatch, body, piece, number)
    assert copied <= 3 * length + 100


def peak_of_feeding(chunks: Iterable[bytes]) -> int:
    splitter = FrameSplitter()
    tracemalloc.start()
    try:
        for chunk in chunks:
            for _ in splitter.feed(chunk):
                pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_length_that_lies_costs_nothing() -> None:
    assert peak_of_feeding([prefix(RECEIVE_LIMIT)]) < 4 * KIB
    assert peak_of_feeding([prefix(RECEIVE_LIMIT), *[b"x" * 100] * 100]) < 64 * KIB


def test_a_frame_costs_its_own_size() -> None:
    stream = frame(bytes(MIB))
    chunks = [stream[at : at + 1400] for at in range(0, len(stream), 1400)]
    assert peak_of_feeding(chunks) <= 3 * MIB + 64 * KIB


def test_what_was_handed_out_is_not_kept() -> None:
    splitter = FrameSplitter()
    tracemalloc.start()
    try:
        for _ in range(200):
            for _ in splitter.feed(frame(bytes(10_000)) + b"\0"):
                pass
            for _ in splitter.feed(b"\0\0\0"):
                pass
        assert tracemalloc.get_traced_memory()[0] < 40 * KIB
    finally:
        tracemalloc.stop()
