"""Lesson 9: a client in 40 lines."""

from __future__ import annotations

from struct import pack, unpack_from

from zkwire.cli.lessons.events import error_name
from zkwire.cli.lessons.lesson import Flag, Lesson
from zkwire.cli.lessons.stage import Stage


def frame(body: bytes) -> bytes:
    """A length of four bytes, and so many bytes."""
    return pack(">i", len(body)) + body


def text(words: str) -> bytes:
    """A string: its length in bytes, and the bytes in UTF-8.  Data are written the same way."""
    return frame(words.encode())


def connect(milliseconds: int) -> bytes:
    """Protocol 0, no zxid seen, a timeout, session 0, a password of 16 zeros, not read-only."""
    return frame(pack(">iqiq", 0, 0, milliseconds, 0) + frame(bytes(16)) + b"\0")


def create(xid: int, path: str, mistake: str = "") -> bytes:
    """Number and type, path, data, a list of one entry (all rights, the world), flags."""
    opcode = 99 if mistake == "opcode" else 1
    name = pack(">i", 1000) + path.encode() if mistake == "length" else text(path)
    acl = pack(">ii", 1, 31) + text("world") + text("anyone")
    whole = frame(pack(">ii", xid, opcode) + name + text("") + acl + pack(">i", 0))
    return whole[:-1] if mistake == "short" else whole


def get_children(xid: int, path: str) -> bytes:
    """Number and type, path, no watch."""
    return frame(pack(">ii", xid, 8) + text(path) + b"\0")


async def lesson(stage: Stage) -> None:
    """A handshake, a create and a list, typed by hand."""
    mistake = stage.flags.mistake
    stage.ask("Three frames will do: a handshake, a create, a list. How many bytes has each?")
    you = stage.wire("you")
    (answer,) = you.send(connect(10_000))
    timeout, session = unpack_from(">iq", answer, 8)
    stage.say(f"A greeting of {len(connect(10_000))} bytes, and an answer of {len(answer)}: "
              f"session {session:#x} for {timeout} ms.")  # fmt: skip
    asked = create(1, f"{stage.root}/typed", mistake)
    answers = you.send(asked)
    if mistake:
        codes = [unpack_from(">i", answer, 16)[0] for answer in answers]
        said = error_name(codes[0]) if codes else "nothing: it waits for the rest of the frame"
        stage.say(f"With a wrong {mistake} the server says {said}.")
        expected = {"opcode": "Unimplemented", "length": "Marshalling"}.get(mistake, "nothing")
        stage.expect(said.startswith(expected), "one wrong byte is enough")
        return
    xid, zxid, error = unpack_from(">iqi", answers[0], 4)
    stage.say(f"The create has {len(asked)} bytes, its answer {len(answers[0])}: xid "
              f"{xid}, zxid {zxid:#x}, error {error}.")  # fmt: skip
    stage.expect((xid, error) == (1, 0), "the server has created the node")
    names = get_children(2, stage.root or "/")
    (listed,) = you.send(names)
    stage.expect(b"typed" in listed, "the list has the new name")
    stage.ask("zkwire asks for the same. Are its bytes the same?")
    a = stage.client("A")
    await a.create("/zkwire")
    await a.get_children("/")
    own = [stage.frames(a, op, "c2s")[0].raw for op in ("connect", "create", "get_children")]
    typed = [connect(10_000), create(1, f"{stage.root}/zkwire"), names]
    stage.expect(own == typed, "zkwire sends the same bytes")


LESSON = Lesson(
    title="a client in 40 lines",
    cast="you, with nothing but struct.pack; a server; A, zkwire's client",
    run=lesson,
    remember="the protocol is lengths, numbers and strings; whatever else there is, is its order.",
    in_code="zkwire.jute, and zkwire.session for all that follows from a frame.",
    flags=(Flag("--mistake", "a mistake in the create", None, "", ("opcode", "length", "short")),),
)
