"""A frame in a few words: what it asks for or says, and the numbers that lessons are about."""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import ProtocolError, error_for
from zkwire.jute.records import ConnectRequest, ConnectResponse, WatcherEvent
from zkwire.wire import ops
from zkwire.wire.model import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.testing.proxy.frames import Frame

_HEADER = 20  # of a reply: length, xid, zxid, error


def described(frame: Frame) -> tuple[str, str]:
    """What the frame says, and its numbers."""
    size = f"{len(frame.raw) - 4} B"
    if frame.kind == "connect":
        return _greeting(frame), size
    if frame.kind == "notification":
        event, _ = WatcherEvent.unpack(frame.raw[_HEADER:])
        kind = EventType(event.type).name.removeprefix("NODE_").lower()
        return f"watch event: {event.path} {kind}", f"xid {frame.xid}  {size}"
    if frame.direction == "c2s":
        return f"{frame.op} {frame.path or ''}".rstrip(), f"xid {frame.xid}  {size}"
    zxid = f"zxid {frame.zxid:#x}  {size}" if frame.zxid and frame.zxid > 0 else size
    return f"{frame.op}: {_answer(frame)}", zxid


def _greeting(frame: Frame) -> str:
    body = frame.raw[4:]
    if frame.direction == "c2s":
        request, _ = ConnectRequest.unpack(body)
        session = f"session {request.session_id:#x}" if request.session_id else "a new session"
        seen = f", seen zxid {request.last_zxid_seen:#x}" if request.last_zxid_seen else ""
        return f"ConnectRequest: {session}{seen}"
    answer, _ = ConnectResponse.unpack(body)
    if not answer.session_id:
        return "ConnectResponse: session 0, timeout 0"
    return f"ConnectResponse: {answer.session_id:#x}, {answer.time_out} ms"


def error_name(code: int) -> str:
    """The name of a server's error."""
    return type(error_for(code, None, None)).__name__.removesuffix("Error")


def _answer(frame: Frame) -> str:
    if frame.error:
        return error_name(frame.error)
    op = ops.OPS.get(frame.opcode or 0)
    record: Any = None
    with suppress(ProtocolError):
        record = op.decode_reply(frame.raw, _HEADER, len(frame.raw)) if op else None
    if frame.op in {"create", "create2"}:
        return str(record[0])
    if frame.op in {"get_children", "get_children2"}:
        return f"{len(record[0])} name{'s' * (len(record[0]) != 1)}"
    if frame.op == "get_data":
        return f"{record[0].decode('utf-8', 'replace')!r}, version {record[1].version}"
    if frame.op in {"set_data", "exists"}:
        return f"version {record.version}"
    return "ok"
