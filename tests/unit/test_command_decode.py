"""``zkwire decode``: known frames are explained, any other bytes get a line with the offset."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.unit.test_jute_records import GOLDEN, sample_of
from zkwire.cli.main import main
from zkwire.cli.spy.decode import frames_in, message_of, messages_of
from zkwire.cli.spy.message import Message
from zkwire.cli.spy.records import Privacy, details, rows_of
from zkwire.jute.frames import frame
from zkwire.jute.records import RemoveWatchesRequest, ReplyHeader, RequestHeader
from zkwire.wire.ops import OPS, Op

TITLES = {
    "connect request": "connect request, 49 bytes, from the client",
    "ping": "ping request (xid -2, type 11), 12 bytes, from the client",
    "exists": "exists request (xid 1, type 3), 19 bytes, from the client",
    "create": "create request (xid 2, type 1), 54 bytes, from the client",
    "auth": "auth request (xid -4, type 100), 33 bytes, from the client",
    "set watches": "set_watches request (xid -8, type 101), 38 bytes, from the client",
    "multi": "multi request (xid 3, type 14), 40 bytes, from the client",
    "close session": "close_session request (xid 4, type -11), 12 bytes, from the client",
    "notification": "watch event (xid -1), 34 bytes, from the server",
    "no node": "reply to some request (--op says which) (xid 1), 20 bytes, from the server",
    "session gone": "connect response, 41 bytes, from the server",
    "session gone, from a 3.3 server": "connect response, 40 bytes, from the server",
}
PING = """\
ping request (xid -2, type 11), 8 bytes, from the client
     0  fffffffe                          xid = -2  a ping
     4  0000000b                          type = 11  ping
"""
EVENT = """\
watch event (xid -1), 34 bytes, from the server
     0  0000001e                          length = 30
     4  ffffffff                          xid = -1  a watch event
     8  ffffffffffffffff                  zxid = 0xffffffffffffffff  none
    16  00000000                          err = 0  ok
    20  00000002                          type = 2  deleted
    24  00000003                          state = 3  sync_connected
    28  00000002                          length of path = 2
    32  2f61                              path = /a
"""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frames_are_recognised(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    digits = GOLDEN[name][0]
    assert main(["decode", digits]) == 0
    framed = capsys.readouterr().out.splitlines()
    assert framed[0] == TITLES[name]
    assert main(["decode", digits.replace(" ", "")[8:]]) == 0
    bare = capsys.readouterr().out.splitlines()
    assert [line[8:] for line in bare[1:]] == [line[8:] for line in framed[2:]]


def test_fields_have_offsets_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    main(["decode", "fffffffe0000000b"])
    assert capsys.readouterr().out == PING
    main(["decode", GOLDEN["notification"][0]])
    assert capsys.readouterr().out == EVENT
    main(["decode", (RequestHeader.pack(1, 18) + RemoveWatchesRequest.pack("/a", 2)).hex()])
    shown = capsys.readouterr().out
    assert "type = 18  remove_watches\n" in shown
    assert "type = 2  data\n" in shown


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


def test_a_stream_is_taken_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("connect request", "create", "ping", "close session")
    stream = b"".join(bytes.fromhex(GOLDEN[name][0]) for name in names)
    (tmp_path / "stream").write_bytes(stream)
    assert main(["decode", str(tmp_path / "stream")]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if "from the client" in line]
    assert [title.partition(" ")[2] for title in titles[1:]] == [
        f"{at}: {TITLES[name]}"
        for at, name in ((49, "create"), (103, "ping"), (115, "close session"))
    ]
    (tmp_path / "stream").write_bytes(stream[:-2])
    assert main(["decode", "--stream", str(tmp_path / "stream")]) == 1
    assert (
        capsys.readouterr().out.splitlines()[-1] == "offset 123: type needs 4 bytes, and 2 are left"
    )


def test_a_reply_is_read_as_the_answer_to_its_operation(capsys: pytest.CaptureFixture[str]) -> None:
    reply = (ReplyHeader.pack(1, 7, 0) + sample_of(OPS[4].reply).encode()).hex()  # type: ignore[arg-type]
    assert main(["decode", "--json", "--op", "getData", reply]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["op"], record["zxid"], record["version"]) == ("get_data", "0x7", 0x01020304)
    assert record["data"] == {"size": 2, "hex": "00ff"}


def test_secrets_are_hidden_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name, secret in (("auth", b"u:p"), ("connect request", bytes(16))):
        main(["decode", GOLDEN[name][0]])
        shown = capsys.readouterr().out
        assert "•••" in shown
        assert secret.hex() not in shown
        main(["decode", "--show-secrets", GOLDEN[name][0]])
        assert secret.hex() in capsys.readouterr().out


@pytest.mark.parametrize(("words", "problem"), [
    (["zz"], "'zz' is no file, and no hexadecimal digits at offset 0"),
    (["00zz"], "'00zz' is no file, and no hexadecimal digits at offset 2"),
    ([""], "there are no bytes"),
    (["abc"], "'abc' is an odd number of hexadecimal digits: half a byte is left"),
    (["--op", "nonsense", "00"], "there is no operation 'nonsense'"),
])  # fmt: skip
def test_words_that_are_no_bytes(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"zkwire: {problem}")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("digits", "problem"),
    [
        ("fffffffe", "offset 4: type needs 4 bytes, and 0 are left"),
        ("0000000100000004000000ff", "offset 12: path needs 255 bytes, and 0 are left"),
        ("0000000100000004fffffffe", "offset 8: path has the length -2"),
        ("00000001000000040000000101", "offset 13: watch needs 1 bytes, and 0 are left"),
        ("000000010000000400000001ff01", "offset 12: path is no UTF-8"),
        ("000000010000000b00", "offset 8: 1 bytes too many"),
        ("0000000112345678", "offset 4: there is no operation 305419896"),
        ("000000010000000e0000000e00ffffffff", "offset 8: an operation of type 14"),
        (
            "00000001000000650000000000000000000000ff",
            "offset 16: data_watches claims 255 elements in 0 bytes",
        ),
    ],
)
def test_bytes_that_cannot_be(
    digits: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", "--dir", "c2s", digits]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == problem


ANY = st.one_of(
    st.binary(max_size=80),
    st.tuples(st.sampled_from(sorted(OPS)), st.binary(max_size=60)).map(
        lambda pair: RequestHeader.pack(1, pair[0]) + pair[1]
    ),
    st.tuples(st.sampled_from([-8, -4, -2, -1, 0, 5]), st.sampled_from([0, -101]), st.binary()).map(
        lambda parts: ReplyHeader.pack(parts[0], 1, parts[1]) + parts[2]
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(ANY, st.sampled_from([None, "c2s", "s2c"]), st.sampled_from([None, *sorted(OPS)]))
@example(b"", None, None)
def test_no_bytes_do_harm(data: bytes, side: str | None, opcode: int | None) -> None:
    """Nothing raises, and each byte is in exactly one row."""
    privacy = Privacy("hex", 8)
    pieces = frames_in(data, whole=False)
    messages = messages_of(data, pieces or [], side, opcode)
    assert b"".join(bytes(message.rows.data) for _, message in messages) == data
    for message in [message_of(data, side, opcode, framed=False), *(m for _, m in messages)]:
        assert sum(row.size for row in message.rows) == len(message.rows.data)
        json.dumps([details(message, privacy), rows_of(message, privacy)])


def test_bytes_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed in (b"fffffffe\n0000000b\n", bytes.fromhex("fffffffe0000000b")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed)))
        assert main(["decode"]) == 0
        assert capsys.readouterr().out == PING


def test_the_page_shows_what_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "command-watching.md").read_text()
    command, *lines = (
        page.split("<!-- recording: decode -->\n```\n")[1].split("\n```")[0].split("\n")
    )
    assert main(command.removeprefix("$ zkwire ").split()) == 0
    assert capsys.readouterr().out.splitlines() == lines
