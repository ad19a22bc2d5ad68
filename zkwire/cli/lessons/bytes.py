"""Lesson 9: a client in 40 lines."""

from __future__ import annotations

from inspect import getsource
from struct import pack, unpack_from

from zkwire.cli.lessons.lesson import Flag, Lesson
from zkwire.cli.lessons.stage import Stage, Wire
from zkwire.cli.spy.message import error_name


def frame(body: bytes) -> bytes:
    """A length of four bytes, and so many bytes."""
    return pack(">i", len(body)) + body


def text(words: str) -> bytes:
    """A string, or data: its length, and its bytes in UTF-8."""
    return frame(words.encode())


def connect(milliseconds: int) -> bytes:
    """Protocol, no zxid seen, a timeout, session 0, a password of zeros."""
    read_only = b"\0"
    fields = pack(">iqiq", 0, 0, milliseconds, 0)
    return frame(fields + frame(bytes(16)) + read_only)


def create(xid: int, path: str) -> bytes:
    """Number and type, path, data, a list of one entry, flags."""
    everything = 31  # for all the world
    acl = pack(">ii", 1, everything) + text("world") + text("anyone")
    head, flags = pack(">ii", xid, 1), pack(">i", 0)
    return frame(head + text(path) + text("") + acl + flags)


def get_children(xid: int, path: str) -> bytes:
    """Number and type, path, no watch."""
    return frame(pack(">ii", xid, 8) + text(path) + b"\0")


CLIENT = (frame, text, connect, create, get_children)
# Where a mistake is made in the create, and what stands there then.
MISTAKES = {"opcode": (8, 99), "length": (12, 1000)}


def typed(stage: Stage, you: Wire, mistake: str) -> bool:
    """A create, perhaps with a mistake; whether the list can follow."""
    asked = create(1, "/typed")
    if mistake == "short":
        asked = asked[:-1]
    elif mistake:
        at, number = MISTAKES[mistake]
        asked = asked[:at] + pack(">i", number) + asked[at + 4 :]
    answers = you.send(asked)
    if mistake:
        codes = [unpack_from(">i", answer, 16)[0] for answer in answers]
        said = error_name(codes[0]) if codes else "nothing: it waits for the rest of the frame"
        stage.say(f"With the mistake {mistake!r} the server says {said}.")
        expected = {"opcode": "Unimplemented", "length": "Marshalling"}.get(mistake, "nothing")
        stage.expect(said.startswith(expected), "one wrong byte is enough")
        return False
    xid, zxid, error = unpack_from(">iqi", answers[0], 4)
    stage.say(f"The create has {len(asked)} bytes, its answer {len(answers[0])}: xid "
              f"{xid}, zxid {zxid:#x}, error {error}.")  # fmt: skip
    stage.expect((xid, error) == (1, 0), "the server has created the node")
    return True


async def lesson(stage: Stage) -> None:
    """A handshake, a create and a list, typed by hand."""
    lines = "\n".join([getsource(part) for part in CLIENT]).splitlines()
    stage.say(f"All that you need are these {len(lines)} lines, and a socket to send what they "
              "make.  Below each frame stand its bytes.")  # fmt: skip
    stage.code("\n".join(lines))
    stage.expect(len(lines) <= 40, "a client in 40 lines")
    stage.ask("Three frames will do: a handshake, a create, a list. How many bytes has each?")
    you = stage.wire("you")
    greeting = connect(10_000)
    (answer,) = you.send(greeting)
    timeout, session = unpack_from(">iq", answer, 8)
    stage.say(f"You have sent {len(greeting)} bytes, and the row says {len(greeting) - 4} B: the "
              "first four are the length of what follows, and do not count themselves.  Offset 0 "
              f"has that {len(greeting) - 4}.  The answer has {len(answer)}, with its own four: "
              f"session {session:#x} for {timeout} ms.")  # fmt: skip
    stage.expect(unpack_from(">i", greeting)[0] == len(greeting) - 4, "a length is in front")
    if not typed(stage, you, stage.flags.mistake):
        return
    names = get_children(2, "/")
    (listed,) = you.send(names)
    stage.expect(b"typed" in listed, "the list has the new name")
    stage.ask("zkwire asks for the same. Are its bytes the same?")
    a = stage.client("A")
    await a.create("/zkwire")
    await a.get_children("/")
    own = [stage.frames(a, op, "c2s")[0].raw for op in ("connect", "create", "get_children")]
    by_hand = [greeting, create(1, "/zkwire"), names]
    stage.expect(own == by_hand, "zkwire sends the same bytes")


LESSON = Lesson(
    title="a client in 40 lines",
    cast="you, with nothing but struct.pack; a server; A, zkwire's client",
    run=lesson,
    remember="the protocol is lengths, numbers and strings; whatever else there is, is its order.",
    in_code="zkwire.jute, and zkwire.session for all that follows from a frame.",
    flags=(Flag("--mistake", "a mistake in the create", None, "", (*MISTAKES, "short")),),
    bytes_of="you",
)
