"""The spy without a socket: what frames say, byte for byte, and every form of a recording."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.unit.test_jute_records import GOLDEN
from zkwire.cli.main import main
from zkwire.cli.spy.message import HIDDEN, Message
from zkwire.cli.spy.records import Privacy, Recorder, as_svg, line, rows_of, table
from zkwire.cli.spy.spy import Filter
from zkwire.cli.spy.tap import Event, Faults
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.testing.proxy.frames import Direction
from zkwire.testing.proxy.relay import Conversation
from zkwire.wire.ops import OPS

Record = dict[str, Any]

PASSWORD = b"\xc3\x28pass<word>&\x00\x01\x02\x03"
SECRET = b"user:geheim-4711"
SESSION = 0x1000_0000_0000_0007
HASH = "user:L3hdNjIlkGRcZMoYZZ8YXTJSkYU="
DEEP = "/" + "/".join(["departement"] * 20) + "/leaf"
ACL = (r.ACL(31, r.Id("digest", HASH)),)
STAT = r.Stat(1, 2, 1_700_000_000_000, 1_700_000_000_000, 3, 0, 0, 0, 5, 0, 1)


def request(xid: int, op: str, body: bytes = b"") -> bytes:
    opcode = next(each.opcode for each in OPS.values() if each.name == op)
    return frame(r.RequestHeader.pack(xid, opcode) + body)


def reply(xid: int, body: bytes = b"", *, zxid: int = 9, error: int = 0) -> bytes:
    return frame(r.ReplyHeader.pack(xid, zxid, error) + body)


# A connection's life, in the order of the wire: direction and bytes.
STORY: list[tuple[Direction, bytes]] = [
    ("c2s", frame(r.ConnectRequest.pack(0, 0, 10_000, SESSION, PASSWORD, False))),
    ("s2c", frame(r.ConnectResponse.pack(0, 10_000, SESSION, PASSWORD, False))),
    ("c2s", request(-4, "auth", r.AuthPacket.pack(0, "digest", SECRET))),
    ("s2c", reply(-4)),
    ("c2s", request(1, "sasl", r.GetSASLRequest.pack(SECRET))),
    ("s2c", reply(1, r.SetSASLResponse.pack(SECRET))),
    ("c2s", request(2, "create", r.CreateRequest.pack("/a", b"hello", ACL, 3))),
    ("s2c", reply(2, r.CreateResponse.pack("/a0000000001"))),
    ("c2s", request(3, "get_acl", r.GetACLRequest.pack("/a"))),
    ("s2c", reply(3, r.GetACLResponse.pack(ACL, STAT))),
    ("c2s", request(-2, "ping")),
    ("s2c", reply(-2)),
    ("c2s", request(4, "delete", r.DeleteRequest.pack(DEEP, 5))),
    ("s2c", reply(4, error=-101)),
    ("s2c", reply(-1, r.WatcherEvent.pack(2, 3, "/a;b#<c>\x1b[1m\n"), zxid=-1)),
    ("c2s", frame(r.RequestHeader.pack(5, 4242) + b"what is this")),
    ("s2c", reply(5, b"an answer")),
    ("c2s", request(6, "auth", b"\xff\xff\xff\xf0" + SECRET)),
]


def events_of(story: list[tuple[Direction, bytes]]) -> Iterator[Event]:
    yield Event(1, 0.0, 1, "open", "127.0.0.1:4711")
    conversation, number = Conversation(1), 1
    for direction, data in story:
        for found, action in conversation.receive(direction, data, number / 1000):
            number += 1
            passed = found._replace(number=number)
            if direction == "c2s":
                conversation.expect(passed, passed.raw, action)
            yield Event(number, passed.time, 1, "frame", "", passed)
    yield Event(number + 1, 1.5, 1, "fault", "cut-after:set_data")
    yield Event(number + 2, 1.6, 1, "close", "client")


def records_with(privacy: Privacy, story: list[tuple[Direction, bytes]] = STORY) -> list[Record]:
    recorder = Recorder(0.0, privacy, rows=True)
    return [recorder.record(event) for event in events_of(story)]


def forms(records: list[Record]) -> dict[str, str]:
    """Every form that a recording can take."""
    text = [line(record, width) for record in records for width in (80, 120)]
    tables = [row for record in records for row in table(record)]
    jsonl = "".join(json.dumps(record) + "\n" for record in records)
    return {"text": "\n".join(text + tables), "jsonl": jsonl, "svg": as_svg(records)}


def spellings(secret: bytes) -> list[str]:
    """How a secret could get into a text."""
    raw = secret.decode("latin-1")
    return [raw, secret.hex(), repr(secret)[2:-1], secret.hex(" ", 4), raw.replace("<", "&lt;")]


def asked(**given: Any) -> argparse.Namespace:
    plain = {"pings": False, "op": [], "path": None, "session": None, "errors_only": False}
    return argparse.Namespace(**plain | given)


@pytest.mark.parametrize("data", ["none", "size", "text", "hex"])
def test_no_form_shows_a_secret(data: str) -> None:
    for name, text in forms(records_with(Privacy(data, 4096))).items():
        for secret in (PASSWORD, SECRET, SECRET[5:], HASH[5:].encode()):
            assert [s for s in spellings(secret) if s in text] == [], name


def test_data_is_shown_as_asked() -> None:
    def data(privacy: Privacy) -> object:
        record = records_with(privacy)[7]
        hexed = next(row[1] for row in record["rows"] if row[2] == "data")
        return record.get("data"), hexed

    assert data(Privacy("none")) == (None, "…")
    assert data(Privacy()) == ({"size": 5}, "…")
    assert data(Privacy("text")) == ({"size": 5, "text": "hello"}, "68656c6c6f")
    assert data(Privacy("hex", 2)) == ({"size": 5, "hex": "6865", "cut": True}, "6865…")


def test_a_drawing_is_plain_xml_and_says_what_is_left_out() -> None:
    records = records_with(Privacy())
    text = forms(records)["svg"]
    root = ElementTree.fromstring(text)
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}
    keys = [key for element in root.iter() for key in element.attrib]
    assert not any("href" in key or key.startswith("on") for key in keys)
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") == 1
    assert "prefers-color-scheme:dark" in text
    assert "17 more are left out" in as_svg(records, 17)
    assert "left out" not in text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, "open connect connect auth auth sasl sasl create create get_acl get_acl delete delete "
             "watch unknown unknown fault close"),
        ({"pings": True, "op": ["ping,create"]}, "create create ping ping fault"),
        ({"op": ["getAcl", "open"]}, "open get_acl get_acl fault"),
        ({"path": "/a*"}, "create create get_acl get_acl watch fault"),
        ({"errors_only": True}, "delete fault"),
        ({"session": "0x1"}, "fault"),
    ],
)  # fmt: skip
def test_filters(given: Record, shown: str) -> None:
    chosen = Filter(asked(**given))
    found = [record["op"] for record in records_with(Privacy())[:-3] if chosen.shows(record)]
    found += [record["op"] for record in records_with(Privacy())[-2:] if chosen.shows(record)]
    assert " ".join(found) == shown


WRONG = ["", "127.0.0.1:1 -o x.unknown", "127.0.0.1:1 -f nonsense", "127.0.0.1:1 -n 0"]
WRONG += ["127.0.0.1:1 --op nonsense", "127.0.0.1:1 --session nonsense", "127.0.0.1:x"]
WRONG += ["127.0.0.1:1 --listen nonsense"]
WRONG += [
    f"127.0.0.1:1 --for 0 --fault={fault}"
    for fault in (
        *("", "nonsense", "drop-reply", "drop-reply:", "drop-reply:nonsense", "cut-after:create#0"),
        *("cut-after:create#x", "delay", "delay:-1s", "split", "split:0", "split:x", "blackhole"),
        *("expire:create#", "drop-reply:watch", "delay@3s", "expire@x"),
    )
]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_words_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spy", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    fault = words.partition("--fault=")[2]
    assert err.startswith(f"zkwire: --fault {fault}: " if "--fault" in words else "zkwire: ")
    assert main(["spy", *words.split(), "--", "true"]) == 2


def test_a_time_of_a_fault_is_seconds_or_at_once() -> None:
    Faults(["delay:200", "blackhole:5s@"])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["c2s", "s2c"]), st.binary(max_size=60)), max_size=4))
def test_no_bytes_do_harm_to_the_spy(pieces: list[tuple[Direction, bytes]]) -> None:
    """Any bytes behind a handshake, framed or not, are recorded and drawn."""
    framed = [(side, frame(data)) for side, data in pieces]
    records = records_with(Privacy("text"), [*STORY[:2], *framed, *pieces])
    assert max(len(line(record, 80)) for record in records) <= 80
    ElementTree.fromstring(forms(records)["svg"])


def test_the_page_shows_the_recording() -> None:
    """The text and the picture are made of ``docs/spy.jsonl``, which a test of the shell makes."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    records = [json.loads(text) for text in (docs / "spy.jsonl").read_text().splitlines()]
    assert as_svg(records) == (docs / "spy.svg").read_text()
    page = (docs / "command-watching.md").read_text()
    shown = page.split("<!-- recording: spy -->\n```\n")[1].split("\n```")[0].splitlines()[1:]
    assert [line(record) for record in records if record["op"] != "ping"] == shown


# --- the bytes of a frame -------------------------------------------------------------------------


def golden(name: str) -> bytes:
    return bytes.fromhex(GOLDEN[name][0])


@pytest.mark.parametrize(("name", "kind", "secret"), [
    ("auth", "request", b"u:p"), ("connect request", "connect", bytes(16)),
])  # fmt: skip
def test_secrets_are_hidden(name: str, kind: str, secret: bytes) -> None:
    shown = rows_of(Message(golden(name), "c2s", kind, None), Privacy("hex", 99))
    assert HIDDEN in {row[1] for row in shown} & {row[3] for row in shown}
    assert not any(secret.hex() in row[1] for row in shown)


@pytest.mark.parametrize(
    ("digits", "at", "problem"),
    [
        ("fffffffe", 8, "type needs 4 bytes, and 0 are left"),
        ("0000000100000004000000ff", 16, "path needs 255 bytes, and 0 are left"),
        ("0000000100000004fffffffe", 12, "path has the length -2"),
        ("00000001000000040000000101", 17, "watch needs 1 bytes, and 0 are left"),
        ("000000010000000400000001ff01", 16, "path is not UTF-8"),
        ("000000010000000b00", 12, "1 bytes too many"),
        ("000000010000000e0000000e00ffffffff", 12, "an operation of type 14"),
        ("00000001000000650000000000000000000000ff", 20, "data_watches claims 255 elements in 0"),
    ],
)
def test_bytes_that_cannot_be_read_are_the_last_row(digits: str, at: int, problem: str) -> None:
    message = Message(frame(bytes.fromhex(digits)), "c2s", "request", None)
    assert message.problem is not None
    assert message.problem.at == at
    assert str(message.problem).startswith(problem)
    assert sum(row.size for row in message.rows) == len(message.rows.data)
