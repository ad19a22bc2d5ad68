"""Every record against ZooKeeper's own Java class: the same bytes for the same values.

A Java program (`tests/unit/java/JuteText.java`) reads bytes with the classes of the installed
ZooKeeper, tells the values and writes them again. Comparing the values and not only the bytes
catches two fields of one type in the wrong order, too.
"""

from __future__ import annotations

import re
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import unavailable
from tests.support.examples import examples
from tests.support.installed_servers import find_installed
from tests.support.server_control import JAVA_FLAGS, NoBackendError
from tests.unit.test_jute_records import records_of
from zkwire.jute import records as r
from zkwire.jute.multi import MultiResponse, pack_multi
from zkwire.jute.record import Record
from zkwire.jute.records import RECORDS
from zkwire.wire import ops

PROGRAM = Path(__file__).parent / "java" / "JuteText.java"
COMPILE_SECONDS = 120.0
ANSWER_SECONDS = 60.0

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
@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(st.data())
def test_java_reads_what_zkwire_writes_and_the_reverse(
    java: Java, cls: type[Record], data: st.DataObject
) -> None:
    """Java writes a character beyond the first plane as two surrogates, in six bytes."""
    record = data.draw(records_of(cls))
    for field in cls.layout():
        if field.tail and camel(field.name) not in java.fields[cls.__name__]:
            record = record._replace(**{field.name: None})
    encoded = record.encode()
    again, text = java.read(cls.__name__, encoded)
    assert text == described(cls.__name__, record)
    assert cls.decode(again) == record
    assert again == encoded or len(again) > len(encoded)


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


def in_a_row(parts: Parts) -> bytes:
    """The records of a multi as they go over the wire, each behind its header."""
    pairs = [(r.MultiHeader(opcode, False, code), record) for opcode, code, record in parts]
    whole = [*pairs, (r.MultiHeader(-1, True, -1), None)]
    return b"".join(one.encode() for pair in whole for one in pair if one is not None)


@pytest.mark.parametrize("parts", [[], WRITES, READS], ids=["nothing", "writes", "reads"])
def test_the_body_of_a_multi_is_its_records_in_a_row(java: Java, parts: Parts) -> None:
    packed = pack_multi((opcode, record.encode()) for opcode, _, record in parts if record)
    assert packed == in_a_row(parts)
    assert java.read("MultiOperationRecord", packed)[0] == packed


@pytest.mark.parametrize("parts", [[], WRITTEN, READ], ids=["nothing", "writes", "reads"])
def test_javas_results_of_a_multi_are_read(java: Java, parts: Parts) -> None:
    """What holds a stat and nothing else is read as that stat."""
    written = in_a_row(parts)
    assert java.read("MultiResponse", written)[0] == written
    expected = [one.stat if isinstance(one, r.SetDataResponse) else one for *_, one in parts]
    assert MultiResponse.decode(written, 0, len(written)) == tuple(expected)
