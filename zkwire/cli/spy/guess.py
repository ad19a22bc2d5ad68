"""What bytes without their story are: one frame or several, from which side, which message.

Decides by trying: of all that the bytes could be, it takes what leaves the least unexplained.
"""

from __future__ import annotations

from zkwire.cli.spy.meaning import NAMES
from zkwire.cli.spy.message import Message
from zkwire.jute.frames import RECEIVE_LIMIT
from zkwire.wire import ops

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
    sides = [direction] if direction else ["c2s", "s2c"]
    found: list[tuple[tuple[int, int], list[tuple[int, Message]]]] = []
    for side in sides:
        messages = [
            (begin, message_of(data[begin:end], side, opcode, framed=True)) for begin, end in frames
        ]
        costs = [_cost(message) for _, message in messages]
        found.append(((sum(c[0] for c in costs), sum(c[1] for c in costs)), messages))
    return min(found, key=lambda pair: pair[0])[1]


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
