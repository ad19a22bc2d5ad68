"""Requests that a server has read, but not executed, when their session expires."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.support.embedded import multi_body
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE

CHECK = r.CheckVersionRequest("/", -1)


def queued_requests(path: str) -> bytes:
    """The frames: some of each kind, one that would make the node, and a close with one behind."""
    requests = [
        (10, ops.SET_DATA, r.SetDataRequest(path, b"x", -1).encode()),
        (11, ops.EXISTS, r.ExistsRequest("/", False).encode()),
        (-2, ops.PING, b""),
        (13, ops.SYNC, r.SyncRequest("/").encode()),
        (16, ops.MULTI, multi_body((ops.CHECK, CHECK), (ops.CHECK, CHECK))),
        (17, ops.MULTI_READ, multi_body((ops.GET_DATA, r.GetDataRequest("/", False)))),
        (18, ops.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0).encode()),
        (22, ops.CLOSE_SESSION, b""),
        (23, ops.EXISTS, r.ExistsRequest("/", False).encode()),
    ]
    return b"".join(frame(r.RequestHeader(x, op.opcode).encode() + b) for x, op, b in requests)


def refused_in_the_queue(answers: Sequence[bytes]) -> bool:
    """Whether they are those of an expired session; False if the requests came before its end."""
    headers = [r.ReplyHeader.decode(raw, 0, 16) for raw in answers]
    codes = [(header.xid, header.err) for header in headers]
    if (10, -112) not in codes:
        return False
    assert codes[:7] == [
        *((xid, -112) for xid in (10, 11, -2, 13)),
        (16, 0),
        (17, -112),
        (18, -112),
    ]
    # The end of the session ends the connection too, which may come before these.
    assert codes[7:] in ([], [(22, 0)], [(22, 0), (23, -112)])
    results = [struct.pack(">ibii", -1, 0, code, code) for code in (-112, -2)]
    assert answers[4][16:] == b"".join(results) + struct.pack(">ibi", -1, 1, -1)
    return True
