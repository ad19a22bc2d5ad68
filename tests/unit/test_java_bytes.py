"""Every record against ZooKeeper's own Java class: the same bytes for the same values.

A Java program (`tests/unit/java/JuteText.java`) turns bytes into text and text into bytes with the
classes of the installed ZooKeeper. Comparing the text and not only the bytes catches two fields of
one type in the wrong order, too.
"""

from __future__ import annotations

import random
import re
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.support.installed_servers import find_installed
from tests.support.server_control import JAVA_FLAGS, NoBackendError
from zkwire.errors import ProtocolError
from zkwire.jute import records as r
from zkwire.jute.codec import Field
from zkwire.jute.multi import MultiResponse, pack_multi
from zkwire.jute.record import Record
from zkwire.jute.records import RECORDS
from zkwire.wire import ops

PROGRAM = Path(__file__).parent / "java" / "JuteText.java"
COMPILE_SECONDS = 120.0
ANSWER_SECONDS = 60.0
VALUES = 200

NOT_THE_CLIENTS = {"StatPersisted": "how a server keeps a Stat on its disk"}

every_record = pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)


class Java:
    """The program, running; one question at a time."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.fields = {}
        for kind in self.ask("fields").split():
            name, _, fields = kind.partition(":")
            self.fields[name] = fields.split(",")

    def ask(self, question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        # An answer is one line in one write, so nothing of it waits in the reader's buffer.
        assert select.select([self._process.stdout], [], [], ANSWER_SECONDS)[0], question
        answer = self._process.stdout.readline().rstrip("\n")
        if answer == "" or answer.startswith("error"):
            raise RuntimeError(f"{question!r} is answered {answer!r}")
        return answer

    def read(self, name: str, data: bytes) -> tuple[bytes, str]:
        """What the Java class makes of bytes: the bytes as it writes them again, and the values."""
        again, _, text = self.ask(f"read {name} {hexed(data)}").partition(" ")
        return bytes.fromhex(again[1:]), text

    def write(self, text: str) -> bytes:
        """The bytes of a record with the values that the text describes."""
        return bytes.fromhex(self.ask(f"write {text}")[1:])

    def close(self) -> None:
        """End the program: it ends with its input."""
        self._process.communicate(timeout=ANSWER_SECONDS)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    try:
        installed = find_installed()
    except NoBackendError as error:
        unavailable(str(error))
    compiler = shutil.which("javac")
    if compiler is None:
        unavailable("no `javac` on the path (Debian's package `default-jdk-headless`)")
    classes = tmp_path_factory.mktemp("java")
    subprocess.run(
        [compiler, "-cp", installed.classpath, "-d", classes, PROGRAM],
        check=True,
        timeout=COMPILE_SECONDS,
    )
    classpath = f"{installed.classpath}:{classes}"
    running = Java([installed.java, *JAVA_FLAGS, "-cp", classpath, PROGRAM.stem])
    yield running
    running.close()


# --- the text of a record; JuteText.java says how it looks ----------------------------------------


def hexed(data: bytes) -> str:
    return "#" + data.hex()


def quoted(text: str) -> str:
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(encoded[i : i + 2], "big") for i in range(0, len(encoded), 2)]
    shown = (chr(u) if 0x20 < u < 0x7F and u != 0x5C else f"\\u{u:04x}" for u in units)
    return '"' + "".join(shown) + '"'


def camel(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)


def described(tag: str, value: Any) -> str:
    """A value as the Java program writes it; a tail that is absent is left out."""
    if isinstance(value, Record):
        fields = zip(value.layout(), value.__getnewargs__(), strict=True)
        words = (described(camel(f.name), v) for f, v in fields if not (f.tail and v is None))
        return " ".join([tag + "={", *words, "}"])
    if isinstance(value, tuple):
        return " ".join([tag + "=[", *(described("e1", item) for item in value), "]"])
    shown = {type(None): lambda _: "null", bool: lambda b: str(b).lower(), bytes: hexed}
    return f"{tag}={shown.get(type(value), quoted if isinstance(value, str) else str)(value)}"


def text_of(record: Record) -> str:
    return described(type(record).__name__, record)


# --- random records -------------------------------------------------------------------------------

CHARACTERS = '/a-0 \\"#=[]{}\n\0\x7f\x80é\u07ff\u0800日\ud7ff\ue000\ufeff\uffff'
EDGES = (0, 1, -1, 127, 128, 255, 256, 65535, 65536)


def number(rng: random.Random, bits: int) -> int:
    edge = (1 << (bits - 1)) - 1
    return rng.choice((*EDGES, edge, -edge - 1, rng.getrandbits(bits) - edge - 1))


def any_value(rng: random.Random, field: Field, known: list[str]) -> Any:
    """A value for a field; none for a tail that the Java class does not know."""
    if field.tail and camel(field.name) not in known:
        return None
    if field.nullable and rng.random() < 0.2:
        return None
    if field.vector:
        return tuple(one_value(rng, field) for _ in range(rng.choice((0, 1, 2, 5))))
    return one_value(rng, field)


def one_value(rng: random.Random, field: Field) -> Any:
    if field.record is not None:
        return any_record(rng, field.record, [])
    match field.word:
        case "Bool":
            return rng.random() < 0.5
        case "Int":
            return number(rng, 32)
        case "Long":
            return number(rng, 64)
        case "UString":
            return "".join(rng.choices(CHARACTERS, k=rng.choice((0, 1, 3, 20))))
        case "Buffer" | "Secret":
            return rng.randbytes(rng.choice((0, 1, 16, 100)))
    raise TypeError(f"no values for {field.word}")


def any_record(rng: random.Random, cls: type[Record], known: list[str]) -> Record:
    return cls(**{field.name: any_value(rng, field, known) for field in cls.layout()})


def some_records(cls: type[Record], seed: int, java: Java) -> Iterator[Record]:
    rng = random.Random(f"{seed} {cls.__name__}")
    for _ in range(VALUES):
        yield any_record(rng, cls, java.fields[cls.__name__])


# --- records --------------------------------------------------------------------------------------


def test_no_class_is_missing(java: Java) -> None:
    """The fields are compared by their names too, in the order in which the classes declare them.

    The tail of the connect records is in the classes from 3.9 on.
    """
    ours = {}
    for cls in RECORDS:
        theirs = java.fields.get(cls.__name__, [])
        names = [camel(field.name) for field in cls.layout()]
        ours[cls.__name__] = [n for n in names if n in theirs or n != "readOnly"]
    assert ours.keys().isdisjoint(NOT_THE_CLIENTS)
    assert {**ours, **{name: java.fields[name] for name in NOT_THE_CLIENTS}} == java.fields


@every_record
def test_java_reads_what_zkwire_writes(java: Java, cls: type[Record], seed: int) -> None:
    for record in some_records(cls, seed, java):
        again, text = java.read(cls.__name__, record.encode())
        assert text == text_of(record)
        assert again == record.encode()


@every_record
def test_zkwire_reads_what_java_writes(java: Java, cls: type[Record], seed: int) -> None:
    for record in some_records(cls, seed, java):
        written = java.write(text_of(record))
        assert cls.decode(written) == record
        assert written == record.encode()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "record",
    [r.ConnectRequest(0, 7, 10_000, -5, bytes(16), None), r.ConnectResponse(0, 10, 5, b"", None)],
    ids=lambda record: type(record).__name__,
)
def test_read_only_is_one_byte_behind_the_rest(java: Java, record: Record, read_only: bool) -> None:
    """Where the class does not know it, Java's client and server write it behind the record."""
    name = type(record).__name__
    whole = type(record)(**dict(zip(record.__fields__, (*record[:-1], read_only), strict=True)))
    if "readOnly" in java.fields[name]:
        assert java.write(text_of(whole)) == whole.encode()
    else:
        assert java.write(text_of(record)) + bytes([read_only]) == whole.encode()


# --- characters beyond U+FFFF ---------------------------------------------------------------------

BEYOND = r.Id("a😀b", "\U00010000\U0010ffff")


def test_java_reads_characters_beyond_the_first_plane(java: Java) -> None:
    """zkwire writes them in four bytes, as UTF-8 has it."""
    _, text = java.read("Id", BEYOND.encode())
    assert text == text_of(BEYOND)


def test_zkwire_reads_javas_surrogates(java: Java) -> None:
    """Java writes each of them as two surrogates, in six bytes."""
    written = java.write(text_of(BEYOND))
    assert len(written) == len(BEYOND.encode()) + 3 * 2
    assert r.Id.decode(written) == BEYOND


@pytest.mark.parametrize("text", ["a\ud83d", "\ude00b", "\ude00\ud83d"])
def test_half_a_character_is_refused_on_both_sides(java: Java, text: str) -> None:
    """Java writes it without a word."""
    with pytest.raises(ValueError, match="surrogates not allowed"):
        r.SyncRequest(text).encode()
    written = java.write(text_of(r.SyncRequest(text)))
    with pytest.raises(ProtocolError):
        r.SyncRequest.decode(written)


# --- multi ----------------------------------------------------------------------------------------

# What stands in a multi, or in the answer to one: for each operation its opcode, the code it ended
# with and its record, if it has one.
Parts = list[tuple[int, int, Record | None]]

OK, REQUEST, ERROR = 0, -1, -1
ACLS = (r.ACL(31, r.Id("world", "anyone")),)
STAT = r.Stat(*range(1, 12))

# No create2: a server before 3.8.2 takes it for a create (ZOOKEEPER-4026).
WRITES: Parts = [
    (ops.CREATE.opcode, REQUEST, r.CreateRequest("/a", b"x", ACLS, 3)),
    (ops.CREATE_CONTAINER.opcode, REQUEST, r.CreateRequest("/b", None, ACLS, 4)),
    (ops.CREATE_TTL.opcode, REQUEST, r.CreateTTLRequest("/c", b"", ACLS, 5, 2**40)),
    (ops.DELETE.opcode, REQUEST, r.DeleteRequest("/a", -1)),
    (ops.SET_DATA.opcode, REQUEST, r.SetDataRequest("/b", b"y", 0)),
    (ops.CHECK.opcode, REQUEST, r.CheckVersionRequest("/b", 1)),
]
WRITTEN: Parts = [
    (ops.CREATE.opcode, OK, r.CreateResponse("/a")),
    (ops.CREATE2.opcode, OK, r.Create2Response("/b", STAT)),
    (ops.DELETE.opcode, OK, None),
    (ops.SET_DATA.opcode, OK, r.SetDataResponse(STAT)),
    (ops.CHECK.opcode, OK, None),
    (ERROR, -101, r.ErrorResponse(-101)),
]
READS: Parts = [
    (ops.GET_DATA.opcode, REQUEST, r.GetDataRequest("/a", False)),
    (ops.GET_CHILDREN.opcode, REQUEST, r.GetChildrenRequest("/", False)),
]
READ: Parts = [
    (ops.GET_DATA.opcode, OK, r.GetDataResponse(b"x", STAT)),
    (ops.GET_CHILDREN.opcode, OK, r.GetChildrenResponse(("a", "b"))),
    (ERROR, -101, r.ErrorResponse(-101)),
]


def multi_records(parts: Parts) -> list[Record]:
    """The records of a multi as they go over the wire, each behind its header."""
    pairs = [(r.MultiHeader(opcode, False, code), record) for opcode, code, record in parts]
    whole = [*pairs, (r.MultiHeader(-1, True, -1), None)]
    return [record for pair in whole for record in pair if record is not None]


def multi_text(name: str, records: list[Record]) -> str:
    """The text of the Java class; it gives its own name to every record in it."""
    return " ".join([name + "={", *(described(name, record) for record in records), "}"])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        pytest.param("MultiOperationRecord", [], id="no request"),
        pytest.param("MultiOperationRecord", WRITES, id="writes"),
        pytest.param("MultiOperationRecord", READS, id="reads"),
        pytest.param("MultiResponse", [], id="no result"),
        pytest.param("MultiResponse", WRITTEN, id="results of writes"),
        pytest.param("MultiResponse", READ, id="results of reads"),
    ],
)
def test_a_multi_is_its_records_in_a_row(java: Java, name: str, parts: Parts) -> None:
    records = multi_records(parts)
    expected = b"".join(record.encode() for record in records)
    assert java.write(multi_text(name, records)) == expected
    assert java.read(name, expected) == (expected, multi_text(name, records))


@pytest.mark.parametrize("parts", [[], WRITES, READS], ids=["nothing", "writes", "reads"])
def test_the_body_of_a_multi_is_javas(java: Java, parts: Parts) -> None:
    packed = pack_multi((opcode, record.encode()) for opcode, _, record in parts if record)
    assert java.write(multi_text("MultiOperationRecord", multi_records(parts))) == packed


@pytest.mark.parametrize("parts", [[], WRITTEN, READ], ids=["nothing", "writes", "reads"])
def test_javas_results_of_a_multi_are_read(java: Java, parts: Parts) -> None:
    written = java.write(multi_text("MultiResponse", multi_records(parts)))
    assert MultiResponse.decode(written, 0, len(written)) == tuple(read(part[2]) for part in parts)


def read(record: Record | None) -> Record | None:
    """What a reply is read as: one that holds a stat and nothing else, as that stat."""
    return record.stat if isinstance(record, r.SetDataResponse) else record
