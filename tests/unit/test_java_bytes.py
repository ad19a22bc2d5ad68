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
from zkwire.jute.record import Record
from zkwire.jute.records import RECORDS

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
