"""The bodies of multi and multi_read: requests or results in a row, each behind a header.

Decides how they are packed and which record a result is (Java's ``MultiOperationRecord`` and
``MultiResponse``).  It must not know which operations a multi may hold.  The header in the *reply*
tells which record follows, not the request: 3.8.0 answers a create2 in a multi as a create
(ZOOKEEPER-4695), and an error may answer any operation.
"""

from __future__ import annotations

from struct import Struct

from zkwire.errors import ProtocolError
from zkwire.jute import records as r
from zkwire.jute.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_UNKNOWN = -1  # a result's error code, which only a server knows
_ERROR = -1

# The record MultiHeader: without a function for each it is twice as fast.
_HEADER = Struct(">i?i")
_pack_header = _HEADER.pack

# By opcode, as in Java's MultiResponse.deserialize; None: nothing follows the header.
RESULTS: dict[int, type[Record] | None] = {
    1: r.CreateResponse,
    2: None,
    4: r.GetDataResponse,
    5: r.Stat,
    8: r.GetChildrenResponse,
    13: None,
    15: r.Create2Response,
    19: r.Create2Response,
    21: r.Create2Response,
    _ERROR: r.ErrorResponse,
}


def pack_multi(operations: Iterable[tuple[int, bytes]]) -> bytes:
    """The body of a multi: for each operation its opcode and its request's bytes."""
    parts: list[bytes] = []
    for opcode, body in operations:
        parts += _pack_header(opcode, False, _UNKNOWN), body
    parts.append(_pack_header(_ERROR, True, _UNKNOWN))
    return b"".join(parts)


class MultiResponse(tuple[Record | None, ...]):
    """The results in the order of the operations; an ErrorResponse for each that failed."""

    __slots__ = ()

    @classmethod
    def decode(cls, data: bytes, at: int, end: int) -> MultiResponse:
        """The results that fill ``data[at:end]``; raises ProtocolError."""
        results: list[Record | None] = []
        while at + _HEADER.size <= end:
            opcode, done, _ = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            if done:
                break
            if opcode not in RESULTS:
                raise ProtocolError(f"a multi reply holds a result of type {opcode}")
            kind, result = RESULTS[opcode], None
            if kind is not None:
                result, at = kind.unpack(data, at, end)
            results.append(result)
        else:
            raise ProtocolError("MultiResponse ends within a header")
        if at != end:
            raise ProtocolError(f"MultiResponse leaves {end - at} unknown trailing bytes")
        return cls(results)

    values = decode
