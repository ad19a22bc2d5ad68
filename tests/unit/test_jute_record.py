"""Frames, and the codec by hand; what must hold for any record is in `test_jute_records`."""

from __future__ import annotations

import copy
import itertools
import pickle
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.errors import ProtocolError, ReplyTooLargeError
from zkwire.jute import values as jute_values
from zkwire.jute.frames import RECEIVE_LIMIT, SEND_LIMIT, FrameSplitter, frame
from zkwire.jute.record import (
    Bool,
    Buffer,
    Byte,
    Double,
    Float,
    Int,
    Long,
    Record,
    Secret,
    Tail,
    UString,
    Vector,
)

PROPERTY = settings(derandomize=True, deadline=None, max_examples=examples(200))
KIB = 1024
MIB = 1024 * KIB

bodies = st.lists(st.binary(max_size=40), max_size=8)
cut_places = st.lists(st.integers(0, 400), max_size=12)


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


def until_refused(
    splitter: FrameSplitter, chunks: Iterable[bytes]
) -> tuple[list[bytes], ProtocolError | None]:
    """The frames before the first refusal, and the refusal."""
    found = []
    try:
        for chunk in chunks:
            for data, start, end in splitter.feed(chunk):
                found.append(data[start:end])
    except ProtocolError as error:
        return found, error
    return found, None


@PROPERTY
@given(bodies, cut_places)
@example([b"", b"", b"x"], [0, 0, 4, 5])
@example([b"abc", b"de"], list(range(13)))  # one byte at a time
def test_a_frame_comes_with_its_last_byte(sent: list[bytes], cuts: list[int]) -> None:
    ends = list(itertools.accumulate(len(body) + 4 for body in sent))
    splitter, arrived, found = FrameSplitter(), 0, list[bytes]()
    for piece in pieces(b"".join(map(frame, sent)), cuts):
        arrived += len(piece)
        found += taken(splitter, piece)
        assert found == sent[: sum(end <= arrived for end in ends)]
    assert splitter.missing == 0


def test_what_is_missing() -> None:
    splitter = FrameSplitter()
    assert splitter.missing == 0
    for chunk, missing in ((b"\0\0", 2), (b"\0\5", 5), (b"abc", 2)):
        assert taken(splitter, chunk) == []
        assert splitter.missing == missing
    assert taken(splitter, b"de" + frame(b"f") + b"\0") == [b"abcde", b"f"]
    assert splitter.missing == 3


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
    for stream, cuts in ((b"", ()), (b"", (1, 2, 3)), (bytes(64), ())):
        _, error = until_refused(FrameSplitter(), pieces(prefix(length) + stream, cuts))
        assert type(error) is kind
        assert f" {length} bytes" in str(error)


@PROPERTY
@given(st.binary(max_size=200), cut_places)
def test_no_bytes_do_harm(stream: bytes, cuts: list[int]) -> None:
    found, error = until_refused(FrameSplitter(100), [stream])
    again, other = until_refused(FrameSplitter(100), pieces(stream, cuts))
    assert (again, str(other)) == (found, str(error))
    assert b"".join(map(frame, found)) == stream[: sum(len(body) + 4 for body in found)]


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


def memory_of_feeding(chunks: Iterable[bytes]) -> tuple[int, int]:
    """What is held in the end, and at most."""
    splitter = FrameSplitter()
    tracemalloc.start()
    try:
        for chunk in chunks:
            for _ in splitter.feed(chunk):
                pass
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_the_limits_are_the_servers_and_allowed_themselves() -> None:
    """A reply may be longer than any request: data, stat and header around it."""
    assert SEND_LIMIT == 1_048_575
    assert RECEIVE_LIMIT > SEND_LIMIT + 100
    assert taken(FrameSplitter(10), frame(bytes(10))) == [bytes(10)]
    with pytest.raises(ReplyTooLargeError, match="a frame of 11 bytes is over the limit of 10"):
        taken(FrameSplitter(10), prefix(11))


def test_a_length_that_lies_costs_nothing() -> None:
    assert memory_of_feeding([prefix(RECEIVE_LIMIT)])[1] < 4 * KIB
    assert memory_of_feeding([prefix(RECEIVE_LIMIT), *[b"x" * 100] * 100])[1] < 64 * KIB


class Numbers(Record):
    flag: Bool
    tiny: Byte
    small: Int
    big: Long
    single: Float
    double: Double


class Blob(Record):
    data: Buffer


class Text(Record):
    text: UString


class Texts(Record):
    texts: Vector[UString]


class Pair(Record):
    left: Int
    right: Long


class Named(Record):
    name: UString
    pair: Pair
    flag: Bool


class Nameds(Record):
    items: Vector[Named]


class MaybePairs(Record):
    items: Vector[Pair] | None


class Tailed(Record):
    data: Buffer | None
    tail: Tail[Int]


class Login(Record):
    user: UString
    password: Secret
    token: Secret | None


class Nothing(Record):
    pass


class Everything(Record):
    """Every layout word in one record, in an order that mixes fixed and variable fields."""

    flag: Bool
    text: UString
    tiny: Byte
    small: Int
    pair: Pair
    big: Long
    named: Named
    data: Buffer
    maybe_data: Buffer | None
    single: Float
    double: Double
    maybe_text: UString | None
    texts: Vector[UString]
    maybe_texts: Vector[UString] | None
    pairs: Vector[Pair]
    maybe_nameds: Vector[Named] | None
    secret: Secret
    maybe_secret: Secret | None
    last: Bool
    tail: Tail[Long]


def text_of(encoded: str) -> bytes:
    data = bytes.fromhex(encoded)
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        (
            Numbers(True, -1, 1, -2, 1.5, -2.0),
            "01 ff 00000001 fffffffffffffffe 3fc00000 c000000000000000",
        ),
        (
            Numbers(False, 127, -(2**31), 2**63 - 1, 0.0, 0.0),
            "00 7f 80000000 7fffffffffffffff 00000000 0000000000000000",
        ),
        (Blob(b"\x00\xff"), "00000002 00ff"),
        (Tailed(b"", None), "00000000"),
        (Tailed(None, None), "ffffffff"),
        (Texts(()), "00000000"),
        (Texts(("a", "", "bc")), "00000003 00000001 61 00000000 00000002 6263"),
        (Named("n", Pair(1, -1), True), "00000001 6e 00000001 ffffffffffffffff 01"),
        (MaybePairs(None), "ffffffff"),
        (MaybePairs((Pair(1, 2),)), "00000001 00000001 0000000000000002"),
        (Tailed(b"x", 5), "00000001 78 00000005"),
        (Tailed(b"x", None), "00000001 78"),
        (Login("u", b"p", None), "00000001 75 00000001 70 ffffffff"),
        (Nothing(), ""),
    ],
)
def test_each_word_byte_by_byte(record: Record, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    decoded = type(record).decode(data)
    assert (record.encode(), decoded, type(decoded)) == (data, record, type(record))


def test_a_nested_record_has_its_type() -> None:
    items = Nameds.decode(Nameds((Named("n", Pair(2, 3), False),)).encode()).items
    assert (type(items), type(items[0]), type(items[0].pair)) == (tuple, Named, Pair)


@pytest.mark.parametrize("cls", [Blob, Text, Texts, Nameds])
def test_null_only_where_the_layout_allows_it(cls: type[Record]) -> None:
    with pytest.raises(ProtocolError, match=rf"{cls.__name__}\.\w+ is null"):
        cls.decode(b"\xff" * 4)
    with pytest.raises(ValueError, match=cls.__name__):
        cls.pack(None)


@settings(parent=PROPERTY)
@given(
    st.sampled_from([("lock-0000000001", "lock-0000000002"), ("a", "bc", "d" * 127)]).flatmap(
        lambda some: st.lists(st.sampled_from(some), min_size=8, max_size=12)
    ),
    st.integers(0, 7),
    st.sampled_from(
        [
            *("", "lock", "lock-00000000012", "löck-000000001", "lock-\0\0\0\x0f000000"),
            *("\0", "a\0\0\0\1b", "d" * 128, "d" * 256),
        ]
    ),
    st.integers(0, 40),
    st.one_of(st.binary(max_size=2), st.just(bytes(68))),
)
@example(["lock-0000000001"] * 8, 3, "lock-\0\0\0\x0f000000", 0, b"")
def test_many_strings_are_read_as_few_are(
    names: list[str], place: int, other: str, cut: int, behind: bytes
) -> None:
    def outcome(data: bytes) -> object:
        try:
            return Texts.decode(data)
        except ProtocolError as error:
            return str(error)

    for vector in (names, [*names[:place], other, *names[place + 1 :]], [other] * len(names)):
        whole = Texts(tuple(vector)).encode()
        for data in (whole, whole + behind, whole[: len(whole) - cut]):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(jute_values, "MANY_STRINGS", 1000)
                expected = outcome(data)
            assert outcome(data) == expected


def test_a_layout_that_cannot_be_is_refused() -> None:
    class Ints(Record):
        items: Vector[Int]

    class TextTail(Record):
        text: Tail[UString]

    with pytest.raises(TypeError, match=r"Ints\.items"):
        Ints.decode(b"\0\0\0\0")
    with pytest.raises(TypeError, match="text"):
        TextTail.decode(b"")


@pytest.mark.parametrize(
    "encoded",
    [
        "eda0bd",  # a first half alone
        "edb880",  # a second half alone
        "edb880 eda0bd",  # in the wrong order
        "eda0bd 61 edb880",  # apart
        "eda0bd eda0bd edb880",  # one too many
        "eda0bd edb8",  # cut
        "eda0bd f09f9880",  # a half before a whole
        "c080",  # NUL in two bytes
        "e080af",  # '/' in three
        "f4908080",  # beyond U+10FFFF
        "61 c3 28",
    ],
)
def test_other_ill_formed_text_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError, match="Text: "):
        Text.decode(text_of(encoded))
    with pytest.raises(ProtocolError, match="Texts: "):
        Texts.decode(b"\0\0\0\1" + text_of(encoded))


@pytest.mark.parametrize("end", range(6, 15))
def test_nothing_is_read_from_behind_the_end(end: int) -> None:
    data = b"before" + Text("here").encode() + b"behind"
    if end == 14:
        assert Text.unpack(data, 6) == Text.unpack(data, 6, end) == (Text("here"), end)
        assert Text.decode(data, 6, end) == Text("here")
    else:
        with pytest.raises(ProtocolError):
            Text.unpack(data, 6, end)


def test_a_byte_too_many() -> None:
    with pytest.raises(ProtocolError, match="Text leaves 1 unknown trailing bytes"):
        Text.decode(Text("x").encode() + b"\0")
    assert Text.unpack(Text("x").encode() + b"\0") == (Text("x"), 5)


def test_a_tail_that_is_cut_is_no_tail() -> None:
    whole = Tailed(b"x", 5).encode()
    assert Tailed.decode(whole[:-4]) == Tailed(b"x", None)
    for cut in (1, 2, 3):
        with pytest.raises(ProtocolError):
            Tailed.decode(whole[:-cut])
        with pytest.raises(ProtocolError):
            Tailed.decode(whole, 0, len(whole) - cut)


@pytest.mark.parametrize(
    ("cls", "encoded", "message"),
    [
        (Text, "00000005 68656c6c", "Text is truncated"),
        (Blob, "80000000", r"Blob\.data has the length -2147483648"),
        (Blob, "7fffffff", "Blob is truncated"),
        (Tailed, "fffffffe", r"Tailed\.data has the length -2"),
        (Texts, "fffffffb", r"Texts\.texts has the length -5"),
        (Texts, "00000001 ffffffff", r"Texts\.texts is null"),
        (Texts, "00000001 fffffffb", r"Texts\.texts has the length -5"),
        (Texts, "7fffffff 00000000", r"Texts\.texts claims 2147483647 elements in 4 bytes"),
        (Nameds, "00000002" + "00" * 17, r"Nameds\.items claims 2 elements in 17 bytes"),
        (MaybePairs, "00000001" + "00" * 11, r"MaybePairs\.items claims 1 elements in 11 bytes"),
    ],
)
def test_what_a_refusal_says(cls: type[Record], encoded: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        cls.decode(bytes.fromhex(encoded))


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        *((Pair, (left, 0)) for left in (2**31, -(2**31) - 1, "1", 1.0, None)),
        (Pair, (0, 2**63)),
        (Numbers, (True, 128, 0, 0, 0.0, 0.0)),
        (Numbers, (True, 0, 0, 0, 1e39, 0.0)),
        (Numbers, (True, 0, 0, 0, 0.0, 10**400)),
        (Numbers, (True, 0, 0, 0, "0", 0.0)),
        *((Blob, (data,)) for data in ("text", 5, ["x"])),
        *((Text, (text,)) for text in (b"bytes", 5, "\ud800")),
        *((Texts, (texts,)) for texts in (5, "text", b"bytes", ("a", 5), (None,), ("\udfff",))),
        *(
            (Nameds, (items,))
            for items in (("n",), 5, (None,), (Pair(1, 2),), (("n", None, True),))
        ),
        (MaybePairs, ((Pair(1, 2), 3),)),
        (Tailed, (b"", "tail")),
        (Login, ("u", "text", None)),
    ],
)
def test_a_wrong_value_is_a_value_error(cls: type[Record], values: tuple[object, ...]) -> None:
    make: Any = cls
    # Of a record inside a record, the inner one may be named.
    names = "Nameds|Named" if cls is Nameds else cls.__name__
    for encode in (lambda: cls.pack(*values), lambda: make(*values).encode()):
        with pytest.raises(ValueError, match=rf"^({names})\(.* does not fit its layout"):
            encode()


def test_a_wrong_value_is_named_by_type_not_shown() -> None:
    with pytest.raises(ValueError, match="does not fit its layout") as caught:
        Login.pack(5, b"hunter2", None)
    assert "Login(user: int, password: bytes, token: NoneType)" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("record", [Pair(1, 2), Text("x"), Texts(("a",)), Nothing()])
def test_a_record_can_be_copied_and_pickled(record: Record) -> None:
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    copies = [pickle.loads(pickle.dumps(record, protocol)) for protocol in protocols]
    for other in [*copies, copy.copy(record), copy.deepcopy(record)]:
        assert (other, type(other)) == (record, type(record))


def test_repr_hides_what_is_secret() -> None:
    login = Login("u", b"hunter2", b"t0ken")
    assert repr(login) == "Login(user='u', password=<hidden>, token=<hidden>)"
    for shown in (str(login), f"{login}", repr([login]), f"{login!r:>99}"):
        assert "hunter2" not in shown
        assert "t0ken" not in shown
