"""``zkwire decode``: bytes explained field by field, whether they make sense or not."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator

from zkwire.cli.command import Command, arg, flag
from zkwire.cli.context import Context, standard_input
from zkwire.cli.output import DONE, REFUSED
from zkwire.cli.spy.message import NAMES, MalformedError, Message, operations
from zkwire.cli.spy.outputs import terminal
from zkwire.cli.spy.records import Privacy, cut, details, in_ascii, rows_of
from zkwire.jute.frames import RECEIVE_LIMIT
from zkwire.wire import ops
from zkwire.wire.ops import OPS

_DIGITS = frozenset("0123456789abcdefABCDEF")
_BETWEEN = frozenset(" \t\r\n:,_-")


def _decode(context: Context, asked: Namespace) -> int:
    """
    zkwire decode fffffffe0000000b                      # a ping
    zkwire decode --dir s2c --op getData reply.bin      # a reply, from a file
    tcpflow ... | zkwire decode --stream -   # all frames of a direction

    Passwords and tokens are hidden.  The exit status is 1 if something in the bytes
    cannot be: the line behind the fields says what, and where.
    """
    opcode = _opcode(asked.op) if asked.op else None
    data = _bytes_of(asked.what)
    if not data:
        raise ValueError("there are no bytes")
    pieces = frames_in(data, whole=not asked.stream)
    if pieces is None:
        messages = [(0, message_of(data, asked.dir, opcode, framed=False))]
    else:
        messages = messages_of(data, pieces, asked.dir, opcode)
    privacy = Privacy("hex", 32, asked.show_secrets)
    for number, (at, message) in enumerate(messages):
        lines = [*[""] * bool(number), *_lines(at, message, privacy)]
        context.output.result(_record(at, message, privacy), lines)
    return REFUSED if any(_problem(message) for _, message in messages) else DONE


def _opcode(word: str) -> int | None:
    names = operations(word)
    return next((op.opcode for op in OPS.values() if op.name == names[0]), None)


def _bytes_of(what: str) -> bytes:
    """The bytes that the argument means; ValueError if it means none."""
    found = _digits(what) if what else b""
    if found is not None:
        return found
    if what == "-":
        data = standard_input().buffer.read()
    elif os.path.exists(what):
        with open(what, "rb") as file:
            data = file.read()
    else:
        wrong = next((at for at, c in enumerate(what) if c not in _DIGITS | _BETWEEN), None)
        odd = "is an odd number of hexadecimal digits: half a byte is left"
        other = f"is no file, and no hexadecimal digits at offset {wrong}"
        raise ValueError(f"{cut(what, 40)!r} {odd if wrong is None else other}")
    found = _digits(data.decode("latin-1")) if len(data) > 1 else None
    return data if found is None else found


def _digits(text: str) -> bytes | None:
    """The bytes of a text of hexadecimal digits; None if it is none."""
    digits = "".join(c for c in text.strip().removeprefix("0x") if c not in _BETWEEN)
    if not digits or len(digits) % 2 or not _DIGITS.issuperset(digits):
        return None
    return bytes.fromhex(digits)


def _title(message: Message) -> str:
    values = message.values()
    kind = {"connect": "request" if message.direction == "c2s" else "response"}
    name = f"{message.op} {kind.get(message.kind, message.kind)}"
    if message.kind == "event":
        name = "watch event"
    elif message.kind == "reply" and message.opcode is None:
        name = "reply to some request (--op says which)"
    facts = [f"xid {values['xid']!r}"] if "xid" in values else []
    if message.kind == "request" and message.opcode is not None:
        facts.append(f"type {message.opcode}")
    return name + (f" ({', '.join(facts)})" if facts else "")


def _problem(message: Message) -> MalformedError | None:
    """What cannot be; an unknown operation is no problem on the wire, but is here."""
    if message.problem is None and message.kind == "request" and message.opcode not in NAMES:
        at = next(row.at for row in message.rows if row.name == "type")
        return MalformedError(at, f"there is no operation {message.opcode}")
    return message.problem


def _lines(at: int, message: Message, privacy: Privacy) -> Iterator[str]:
    width, plain = terminal(None)
    begin = f"offset {at}: " if at else ""
    sender = "from the client" if message.direction == "c2s" else "from the server"
    shown = [f"{begin}{_title(message)}, {len(message.rows.data)} bytes, {sender}"]
    for offset, data, name, value, note in rows_of(message, privacy):
        digits = data if len(data) <= 32 else data[:31] + "…"
        what = f"{name} = {value}" + (f"  {note}" if note else "")
        shown.append(f"{at + offset:6}  {digits:32}  {what}")
    problem = _problem(message)
    if problem is not None:
        shown.append(f"offset {at + problem.at}: {problem}")
    return (in_ascii(cut(line, width)) if plain else cut(line, width) for line in shown)


def _record(at: int, message: Message, privacy: Privacy) -> dict[str, object]:
    values = message.values()
    record: dict[str, object] = {"offset": at, "dir": message.direction, "kind": message.kind}
    record |= {"xid": values["xid"]} if "xid" in values else {}
    record |= {"op": message.op, **details(message, privacy)}
    record |= {"bytes": len(message.rows.data), "rows": rows_of(message, privacy)}
    problem = _problem(message)
    if problem is not None:
        record |= {"problem": str(problem), "problem_offset": at + problem.at}
    return record


# --- guess ----------------------------------------------------------------------------------------
# What bytes without their story are: one frame or several, from which side, which message.
#
# Decides by trying: of all that the bytes could be, it takes what leaves the least unexplained.

SHORTEST = 8  # the body of a ping
_REPLIES = {
    ops.PING_XID: ops.PING.opcode,
    ops.AUTH_XID: ops.AUTH.opcode,
    ops.SET_WATCHES_XID: ops.SET_WATCHES.opcode,
}


def frames_in(data: bytes, *, whole: bool = True) -> list[tuple[int, int]] | None:
    """Begin and end of each frame with its length in front; None if the bytes are no such frames.

    ``whole``: only if the lengths add up; otherwise the last frame may be cut off, or be garbage.
    """
    frames: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        end = at + 4 + length
        if len(data) - at < 4 or not SHORTEST <= length <= RECEIVE_LIMIT or end > len(data):
            if whole:
                return None
            end = len(data)
        frames.append((at, end))
        at = end
    return frames


def messages_of(
    data: bytes, frames: list[tuple[int, int]], direction: str | None, opcode: int | None
) -> list[tuple[int, Message]]:
    """The messages of a stream, with their offsets; all go in one direction."""

    def cost(messages: list[tuple[int, Message]]) -> tuple[int, ...]:
        return tuple(map(sum, zip(*(_cost(message) for _, message in messages), strict=True)))

    sides = [direction] if direction else ["c2s", "s2c"]
    found = [
        [(begin, message_of(data[begin:end], side, opcode, framed=True)) for begin, end in frames]
        for side in sides
    ]
    return min(found, key=cost)


def message_of(data: bytes, direction: str | None, opcode: int | None, *, framed: bool) -> Message:
    """The message that these bytes are."""
    found = [
        Message(data, side, kind, code, framed=framed)
        for side in ([direction] if direction else ["c2s", "s2c"])
        for kind, code in _kinds(data[4:] if framed else data, side, opcode)
    ]
    return min(found, key=_cost)


def _kinds(body: bytes, side: str, opcode: int | None) -> list[tuple[str, int | None]]:
    """What a message from this side could be; the likeliest first."""
    xid = int.from_bytes(body[:4], "big", signed=True) if len(body) >= 4 else 0
    if len(body) < SHORTEST:
        return [("request", None)] if side == "c2s" else [("reply", opcode)]
    if side == "c2s":
        return [("connect", None), ("request", None)] if xid == 0 else [("request", None)]
    if xid == ops.NOTIFICATION_XID:
        return [("event", None)]
    reply = ("reply", _REPLIES.get(xid, opcode))
    return [("connect", None), reply] if xid == 0 else [reply]


def _cost(message: Message) -> tuple[int, int]:
    """How badly a reading fits: what is wrong, what is not known, what is unlikely."""
    values = message.values()
    wrong = int(message.problem is not None)
    unlikely = 2 * (message.kind == "request" and message.opcode not in NAMES)
    unlikely += bool(message.rows) and message.rows[-1].name == "body"
    if message.kind == "connect":
        unlikely += values.get("protocol_version") != 0
    if message.kind == "reply":
        error = values.get("err")
        wrong += not isinstance(error, int) or not -1000 < error <= 0
    left = message.rows[-1].size if message.problem is not None and message.rows else 0
    return (wrong * 3 + unlikely, left)


# fmt: off
COMMANDS = {
    "decode": Command(_decode,
        arg("what", nargs="?", default="-", metavar="HEX|FILE|-",
            help="hexadecimal digits, or a file with bytes or such digits (- is standard input)"),
        arg("--dir", choices=("c2s", "s2c"),
            help="the sender: the client (c2s) or the server (s2c); else it is guessed"),
        arg("--op", metavar="OP", help="what a reply answers, which no reply says"),
        flag("--stream",
             "a stream of frames with their lengths, perhaps cut off; else it is guessed"),
        flag("--show-secrets", "passwords and tokens, too"),
        connects=False),
}
