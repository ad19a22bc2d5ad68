"""The byte tables of the spy: frames are explained; what cannot be read is a row that says so."""

from __future__ import annotations

import pytest

from tests.unit.test_jute_records import GOLDEN, sample_of
from zkwire.cli.spy.message import HIDDEN, Message
from zkwire.cli.spy.records import Privacy, rows_of
from zkwire.jute.frames import frame
from zkwire.jute.records import ReplyHeader, RequestHeader
from zkwire.wire.ops import OPS, Op

EVENT = [
    [0, "0000001e", "length", "30", ""],
    [4, "ffffffff", "xid", "-1", "a watch event"],
    [8, "ffffffffffffffff", "zxid", "0xffffffffffffffff", "none"],
    [16, "00000000", "err", "0", "ok"],
    [20, "00000002", "type", "2", "deleted"],
    [24, "00000003", "state", "3", "sync_connected"],
    [28, "00000002", "length of path", "2", ""],
    [32, "2f61", "path", "/a", ""],
]


def golden(name: str) -> bytes:
    return bytes.fromhex(GOLDEN[name][0])


def test_fields_have_offsets_and_meanings() -> None:
    message = Message(golden("notification"), "s2c", "event", None)
    assert rows_of(message, Privacy("hex", 32)) == EVENT
    message = Message(golden("ping"), "c2s", "request", None)
    assert [row[4] for row in rows_of(message, Privacy())] == ["", "a ping", "ping"]


@pytest.mark.parametrize("op", list(OPS.values()), ids=lambda op: op.name)
def test_every_operation_is_explained_to_its_last_byte(op: Op) -> None:
    """A sample of each record, as request and as reply: one row for each byte, none unknown."""
    sides = [("c2s", RequestHeader.pack(7, op.opcode), op.request)]
    if op.name not in ("multi", "multi_read"):
        sides.append(("s2c", ReplyHeader.pack(7, 1, 0), op.reply))  # type: ignore[arg-type]
    for side, header, record in sides:
        body = b"" if record is None else sample_of(record).encode()
        kind = "request" if side == "c2s" else "reply"
        message = Message(frame(header + body), side, kind, op.opcode)
        assert (message.op, message.problem) == (op.name, None)
        at = 0
        for row in message.rows:
            assert row.at == at
            at += row.size
        assert at == len(message.rows.data)


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
        ("000000010000000400000001ff01", 16, "path is no UTF-8"),
        ("000000010000000b00", 12, "1 bytes too many"),
        ("000000010000000e0000000e00ffffffff", 12, "an operation of type 14"),
        (
            "00000001000000650000000000000000000000ff",
            20,
            "data_watches claims 255 elements in 0 bytes",
        ),
    ],
)
def test_bytes_that_cannot_be_read_are_the_last_row(digits: str, at: int, problem: str) -> None:
    message = Message(frame(bytes.fromhex(digits)), "c2s", "request", None)
    assert message.problem is not None
    assert (message.problem.at, str(message.problem)) == (at, problem)
    assert sum(row.size for row in message.rows) == len(message.rows.data)
