"""The codec, and all records: their layouts, golden bytes, and what must hold for any bytes.

The invariant of a decoder: any bytes give a record or a ProtocolError, and a record only if they
are its encoding to the last byte. It is checked against `Reader`, a second decoder.
"""

from __future__ import annotations

import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.errors import ProtocolError
from zkwire.jute import records as r
from zkwire.jute import values as jute_values
from zkwire.jute.codec import FIXED, Field
from zkwire.jute.frames import frame
from zkwire.jute.multi import MultiResponse
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
from zkwire.jute.records import RECORDS
from zkwire.wire import ops


class Numbers(Record):
    flag: Bool
    tiny: Byte
    small: Int
    big: Long
    single: Float
    double: Double


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


class Tailed(Record):
    data: Buffer | None
    tail: Tail[Int]


class Login(Record):
    user: UString
    password: Secret
    token: Secret | None


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


CODECS: tuple[type[Record], ...] = (*RECORDS, Everything)
EXAMPLES = settings(derandomize=True, deadline=None, max_examples=examples(12))
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
KIB = 1024

every_record = pytest.mark.parametrize("cls", CODECS, ids=lambda cls: cls.__name__)


SCHEMA = Path(__file__).with_name("jute_records.txt")
"""What goes over the wire, in its order.

i32, i64: signed; buf: bytes; [x]: a vector; x?: may be null here; ...: a last field that old peers
leave out.  `python3 -m tests.unit.test_jute_records` writes it anew, and `test_java_bytes.py`
compares each record with ZooKeeper's own class.
"""

WORDS = {"Bool": "bool", "Int": "i32", "Long": "i64", "UString": "str"}


def shown(field: Field) -> str:
    word = WORDS.get(field.word, "buf") if field.record is None else field.word
    word = f"[{word}]" if field.vector else word
    return f"{field.name} {word}{'?' * field.nullable}{'...' * field.tail}"


def schema() -> str:
    """A line for each record."""
    layouts = {cls.__name__: ", ".join(map(shown, cls.layout())) for cls in RECORDS}
    return "".join(f"{name}: {layout}\n" for name, layout in layouts.items())


def test_the_layouts_are_the_protocols() -> None:
    assert schema() == SCHEMA.read_text()


def test_what_may_not_be_shown_is_secret() -> None:
    secret = {
        f"{cls.__name__}.{f.name}" for cls in RECORDS for f in cls.layout() if f.word == "Secret"
    }
    assert secret == {
        "ConnectRequest.passwd",
        "ConnectResponse.passwd",
        "AuthPacket.auth",
        "GetSASLRequest.token",
        "SetSASLRequest.token",
        "SetSASLResponse.token",
    }
    for name in secret:
        shown_record = repr(sample_of(getattr(r, name.partition(".")[0])))
        assert "<hidden>" in shown_record
        assert "pw" not in shown_record


@pytest.mark.parametrize("op", ops.OPS.values(), ids=repr)
def test_the_records_of_an_operation_are_in_the_schema(op: ops.Op) -> None:
    """A multi's reply is no record but several, strung together."""
    assert {op.request, op.reply} <= {None, MultiResponse, *RECORDS}
    assert (op.reply is MultiResponse) == (op in {ops.MULTI, ops.MULTI_READ})


WORLD = (r.ACL(31, r.Id("world", "anyone")),)

# Frames that servers accepted, or sent.
GOLDEN: dict[str, tuple[str, list[Record]]] = {
    "connect request": (
        "0000002d000000000000000000000000000027100000000000000000"
        "0000001000000000000000000000000000000000 00",
        [r.ConnectRequest(0, 0, 10_000, 0, bytes(16), False)],
    ),
    "ping": ("00000008fffffffe0000000b", [r.RequestHeader(-2, 11)]),
    "exists": (
        "0000000f0000000100000003000000022f6101",
        [r.RequestHeader(1, 3), r.ExistsRequest("/a", True)],
    ),
    "create": (
        "000000320000000200000001000000022f610000000178000000010000001f"
        "00000005776f726c6400000006616e796f6e6500000001",
        [r.RequestHeader(2, 1), r.CreateRequest("/a", b"x", WORLD, 1)],
    ),
    "auth": (
        "0000001dfffffffc00000064000000000000000664696765737400000003753a70",
        [r.RequestHeader(-4, 100), r.AuthPacket(0, "digest", b"u:p")],
    ),
    "set watches": (
        "00000022fffffff800000065000000000000001000000001000000022f610000000000000000",
        [r.RequestHeader(-8, 101), r.SetWatches(16, ("/a",), (), ())],
    ),
    "multi": (
        "00000024000000030000000e0000000d00ffffffff000000022f6100000000ffffffff01ffffffff",
        [
            r.RequestHeader(3, 14),
            r.MultiHeader(13, False, -1),
            r.CheckVersionRequest("/a", 0),
            r.MultiHeader(-1, True, -1),
        ],
    ),
    "close session": ("0000000800000004fffffff5", [r.RequestHeader(4, -11)]),
    "notification": (
        "0000001effffffffffffffffffffffff000000000000000200000003000000022f61",
        [r.ReplyHeader(-1, -1, 0), r.WatcherEvent(2, 3, "/a")],
    ),
    "no node": ("00000010000000010000000000000007ffffff9b", [r.ReplyHeader(1, 7, -101)]),
    "session gone": (
        "0000002500000000000000000000000000000000000000100000000000000000000000000000000000",
        [r.ConnectResponse(0, 0, 0, bytes(16), False)],
    ),
    "session gone, from a 3.3 server": (
        "00000024000000000000000000000000000000000000001000000000000000000000000000000000",
        [r.ConnectResponse(0, 0, 0, bytes(16), None)],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frames_are_written_and_read(name: str) -> None:
    encoded, records = GOLDEN[name]
    data, at = bytes.fromhex(encoded), 4
    assert frame(b"".join(record.encode() for record in records)) == data
    for record in records[:-1]:
        found, at = type(record).unpack(data, at)
        assert found == record
    assert type(records[-1]).decode(data, at) == records[-1]


def test_the_clients_own_frames_are_the_golden_ones() -> None:
    body = r.ExistsRequest.pack("/a", True)
    own = {
        "ping": ops.PING_FRAME,
        "close session": ops.encode(4, ops.CLOSE_SESSION),
        "auth": ops.encode(ops.AUTH_XID, ops.AUTH, r.AuthPacket.pack(0, "digest", b"u:p")),
        "exists": ops.encode(1, ops.EXISTS, body),
    }
    assert own == {name: bytes.fromhex(GOLDEN[name][0]) for name in own}


class MalformedError(Exception):
    """The second decoder's refusal."""


class Reader:
    """A decoder too simple to be wrong, which notes where each length is and if it may be null."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.lengths: list[tuple[int, int, bool]] = []

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise MalformedError(f"{count} bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def fixed(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0]

    def length(self, nullable: bool) -> int:
        at, length = self.at, int(self.fixed("i"))
        self.lengths.append((at, length, nullable))
        if length < -nullable or length > len(self.data) - self.at:
            raise MalformedError(f"{length} bytes or elements")
        return length

    def word(self, field: Field, nullable: bool) -> Any:
        if field.record is not None:
            return self.record(field.record)
        if field.word in FIXED:
            return self.fixed(FIXED[field.word])
        length = self.length(nullable)
        if length < 0:
            return None
        data = self.take(length)
        try:
            return HALVES.sub(join_halves, data).decode() if field.word == "UString" else data
        except UnicodeDecodeError as error:
            raise MalformedError(str(error)) from None

    def field(self, field: Field) -> Any:
        if field.tail and self.at == len(self.data):
            return None
        if not field.vector:
            return self.word(field, field.nullable)
        count = self.length(field.nullable)
        return None if count < 0 else tuple(self.word(field, False) for _ in range(count))

    def record(self, cls: type[Record]) -> Any:
        make: Any = cls
        return make(*map(self.field, cls.layout()))

    def whole(self, cls: type[Record]) -> Any:
        record = self.record(cls)
        if self.at != len(self.data):
            raise MalformedError("bytes are left")
        return record


HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")


def join_halves(match: re.Match[bytes]) -> bytes:
    high, low = map(ord, match[0].decode("utf-8", "surrogatepass"))
    return chr(0x10000 + (high - 0xD800) * 0x400 + (low - 0xDC00)).encode()


def decoded(cls: type[Record], data: bytes, at: int = 0, end: int | None = None) -> Record | None:
    try:
        return cls.decode(data, at, end)
    except ProtocolError:
        return None


def outcome(cls: type[Record], data: bytes) -> Record | None:
    """What zkwire makes of the bytes, None for its refusal; the second decoder must agree.

    As text, because a NaN is not equal to itself.
    """
    try:
        expected = Reader(data).whole(cls)
    except MalformedError:
        expected = None
    found = decoded(cls, data)
    assert bare(found) == bare(expected), data.hex()
    # The same bytes in the middle of a chunk: what lies around them changes nothing.
    around = b"\0\0\0\1" + data + b"\0\0\0\1" * 8
    assert bare(decoded(cls, around, 4, 4 + len(data))) == bare(expected), data.hex()
    return found


def lengths_in(cls: type[Record], data: bytes) -> list[tuple[int, int, bool]]:
    """Of each length or count in an encoding: offset, value, whether it may be null."""
    reader = Reader(data)
    reader.whole(cls)
    return reader.lengths


def bare(value: object) -> str:
    """All of a value, with what a record's repr hides."""
    return repr(tuple(map(bare, value))) if isinstance(value, tuple) else repr(value)


# For each layout word what it may be, and a sample.
VALUES: dict[str, tuple[st.SearchStrategy[Any], object]] = {
    "Bool": (st.booleans(), True),
    "Byte": (st.integers(-128, 127), -2),
    "Int": (st.integers(INT_MIN, INT_MAX), 0x01020304),
    "Long": (st.integers(-(2**63), 2**63 - 1), 0x0102030405060708),
    "Float": (st.floats(width=32, allow_nan=False), 1.5),
    "Double": (st.floats(allow_nan=False), -2.5),
    "Buffer": (st.binary(max_size=12), b"\x00\xff"),
    "Secret": (st.binary(max_size=12), b"pw"),
    "UString": (st.text(max_size=6), "/\u00e4\U0001f600"),
}


def values_of(field: Field) -> st.SearchStrategy[Any]:
    values = VALUES[field.word][0] if field.record is None else records_of(field.record)
    if field.vector:
        values = st.lists(values, max_size=3).map(tuple)
    return st.none() | values if field.nullable or field.tail else values


def records_of(cls: type[Record]) -> st.SearchStrategy[Any]:
    make: Any = cls
    return st.tuples(*map(values_of, cls.layout())).map(lambda values: make(*values))


def sample_of(cls: type[Record]) -> Any:
    """A record with something in every field, two of it in every vector."""
    make: Any = cls
    values = []
    for field in cls.layout():
        value = VALUES[field.word][1] if field.record is None else sample_of(field.record)
        values.append((value, value) if field.vector else value)
    return make(*values)


@every_record
@EXAMPLES
@given(st.data())
def test_round_trip(cls: type[Record], data: st.DataObject) -> None:
    record = data.draw(records_of(cls))
    encoded = record.encode()
    assert cls.pack(*record) == encoded
    assert outcome(cls, encoded) == record
    assert cls.unpack(b"?" + encoded + b"?", 1, 1 + len(encoded)) == (record, 1 + len(encoded))
    assert type(cls.decode(encoded)) is cls


@every_record
def test_no_byte_flipped_missing_or_added_does_harm(cls: type[Record]) -> None:
    encoded = sample_of(cls).encode()
    for at, byte in enumerate(encoded):
        if outcome(cls, encoded[:at]) is None:
            with pytest.raises(ProtocolError):
                cls.unpack(encoded, 0, at)
        others = {byte ^ (1 << bit) for bit in range(8)} | {0x00, 0x7F, 0x80, 0xFF, 0xED}
        for other in others - {byte}:
            outcome(cls, encoded[:at] + bytes([other]) + encoded[at + 1 :])
    for behind in (b"\0", b"\xff" * 9):
        assert outcome(cls, encoded + behind) is None
        assert cls.unpack(encoded + behind) == (cls.decode(encoded), len(encoded))


@every_record
@EXAMPLES
@given(st.data())
def test_no_bytes_do_harm(cls: type[Record], data: st.DataObject) -> None:
    """Any bytes, and an encoding in which any stretch has been replaced."""
    outcome(cls, data.draw(st.binary(max_size=80)))
    encoded = data.draw(records_of(cls)).encode()
    start = data.draw(st.integers(0, len(encoded)))
    stop = data.draw(st.integers(start, min(start + 9, len(encoded))))
    outcome(cls, encoded[:start] + data.draw(st.binary(max_size=9)) + encoded[stop:])


def peak_of_decoding(cls: type[Record], data: bytes) -> int:
    cls.decode(sample_of(cls).encode())  # compiles it
    tracemalloc.start()
    try:
        decoded(cls, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_record
def test_a_lying_length_costs_nothing(cls: type[Record]) -> None:
    """Whatever a length or a count claims, memory is taken only for bytes that are there."""
    encoded = sample_of(cls).encode()
    for at, _, _ in lengths_in(cls, encoded):
        for room in (0, 4, 60, 100 * KIB):
            # As many elements as there could be if they were empty, which they are not; too many.
            for claimed in (room // 4, room + 1, INT_MAX):
                data = encoded[:at] + struct.pack(">i", claimed) + b"\x7f" * room
                assert peak_of_decoding(cls, data) <= 3 * len(data) + 64 * KIB, (at, claimed)


# --- the codec, with records of this file ---------------------------------------------------------


def text_of(encoded: str) -> bytes:
    data = bytes.fromhex(encoded)
    return len(data).to_bytes(4, "big") + data


@settings(parent=EXAMPLES, max_examples=examples(200))
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


ILL_FORMED = {
    "a first half alone": "eda0bd",
    "a second half alone": "edb880",
    "in the wrong order": "edb880 eda0bd",
    "apart": "eda0bd 61 edb880",
    "one too many": "eda0bd eda0bd edb880",
    "cut": "eda0bd edb8",
    "a half before a whole": "eda0bd f09f9880",
    "NUL in two bytes": "c080",
    "'/' in three": "e080af",
    "beyond U+10FFFF": "f4908080",
    "no byte of a character": "61 c3 28",
}


@pytest.mark.parametrize("encoded", ILL_FORMED.values(), ids=ILL_FORMED)
def test_other_ill_formed_text_is_refused(encoded: str) -> None:
    for cls, before in ((Text, b""), (Texts, b"\0\0\0\1")):
        assert outcome(cls, before + text_of(encoded)) is None


@pytest.mark.parametrize(
    ("cls", "encoded", "message"),
    [
        (Text, "00000005 68656c6c", "Text is truncated"),
        (Text, "00000001 6800", "Text leaves 1 unknown trailing bytes"),
        (Text, "ffffffff", r"Text\.text is null"),
        (Tailed, "fffffffe", r"Tailed\.data has the length -2"),
        (Texts, "fffffffb", r"Texts\.texts has the length -5"),
        (Texts, "00000001 ffffffff", r"Texts\.texts is null"),
        (Texts, "00000001 fffffffb", r"Texts\.texts has the length -5"),
        (Texts, "7fffffff 00000000", r"Texts\.texts claims 2147483647 elements in 4 bytes"),
        (Nameds, "00000002" + "00" * 17, r"Nameds\.items claims 2 elements in 17 bytes"),
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
        *((Text, (text,)) for text in (b"bytes", 5, "\ud800")),
        *((Texts, (texts,)) for texts in (5, "text", b"bytes", ("a", 5), (None,), ("\udfff",))),
        *(
            (Nameds, (items,))
            for items in (("n",), 5, (None,), (Pair(1, 2),), (("n", None, True),))
        ),
        *((Tailed, values) for values in ((b"", "tail"), ("text", None), (["x"], None))),
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


if __name__ == "__main__":
    SCHEMA.write_text(schema())
