"""The line of a history for one step of a simulation.

It must not change anything: a run with a history and a run without one have the same steps.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from zkwire.testing.simulation.stale_reads import event_in
from zkwire.wire import ops

if TYPE_CHECKING:
    from zkwire.testing.simulation.client import Client, Link, Step

_HEADER: Final = struct.Struct(">iii")  # length, xid, and opcode or the zxid's upper half


def describe(step: Step, client: Client | None) -> str:
    """The step with the frames that it moves; ``client`` is the client of the step."""
    if client is None or client.link is None:
        return str(step)
    if step.kind in ("up", "up1"):
        frames = client.link.up[0][: 1 if step.kind == "up1" else None]
        return f"{step}: {', '.join(_request(frame, client.link) for frame in frames)}"
    if step.kind in ("down", "down1"):
        frames = list(client.link.down)[: 1 if step.kind == "down1" else None]
        replies = map(_reply, frames) if client.session.usable else ("handshake",)
        return f"{step}: {', '.join(replies)}"
    return str(step)


def _request(frame: bytes, link: Link) -> str:
    if not link.connection.greeted:
        return "connect"
    _, xid, opcode = _HEADER.unpack_from(frame)
    op = ops.OPS.get(opcode)
    length = int.from_bytes(frame[12:16], "big")
    path = frame[16 : 16 + length].decode("utf-8", "replace") if length < len(frame) else ""
    return f"{op.name if op else opcode}#{xid} {path}".rstrip()


def _reply(frame: bytes) -> str:
    event = event_in(frame)
    if event is not None:
        return f"{event[0].name} {event[1]}"
    _, xid, _ = _HEADER.unpack_from(frame)
    code = int.from_bytes(frame[16:20], "big", signed=True)
    return f"#{xid}" + (f" error {code}" if code else "")
