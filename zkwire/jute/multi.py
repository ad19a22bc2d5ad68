"""The bodies of multi and multi_read: requests or results in a row, each behind a header.

Decides how they are packed and which record a result is (Java's ``MultiOperationRecord`` and
``MultiResponse``).  It must not know which operations a multi may hold.  The header in the *reply*
tells which record follows, not the request: 3.8.0 answers a create2 in a multi as a create
(ZOOKEEPER-4695), and an error may answer any operation.
"""

from __future__ import annotations

from zkwire.errors import ProtocolError
from zkwire.jute.record import Record
from zkwire.jute.records import (
    Create2Response,
    CreateResponse,
    ErrorResponse,
    GetChildrenResponse,
    GetDataResponse,
    MultiHeader,
    Stat,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_UNKNOWN = -1  # a result's error code, which only a server knows
_ERROR = -1

# By opcode, as in Java's MultiResponse.deserialize; None: nothing follows the header.
RESULTS: dict[int, type[Record] | None] = {
    1: CreateResponse,
    2: None,
    4: GetDataResponse,
    5: Stat,
    8: GetChildrenResponse,
    13: None,
    15: Create2Response,
    19: Create2Response,
    21: Create2Response,
    _ERROR: ErrorResponse,
}


def pack_multi(operations: Iterable[tuple[int, bytes]]) -> bytes:
    """The body of a multi: for each operation its opcode and its request's bytes."""
    parts: list[bytes] = []
    for opcode, body in operations:
        parts.append(MultiHeader.pack(opcode, False, _UNKNOWN))
        parts.append(body)
    parts.append(MultiHeader.pack(_ERROR, True, _UNKNOWN))
    return b"".join(parts)


class MultiResponse(tuple[Record | None, ...]):
    """The results in the order of the operations; an ErrorResponse for each that failed."""

    __slots__ = ()

    @classmethod
    def decode(cls, data: bytes, at: int, end: int) -> MultiResponse:
        """The results that fill ``data[at:end]``; raises ProtocolError."""
        results: list[Record | None] = []
        while True:
            header, at = MultiHeader.unpack(data, at, end)
            if header.done:
                break
            if header.type not in RESULTS:
                raise ProtocolError(f"a multi reply holds a result of type {header.type}")
            kind, result = RESULTS[header.type], None
            if kind is not None:
                result, at = kind.unpack(data, at, end)
            results.append(result)
        if at != end:
            raise ProtocolError(f"MultiResponse leaves {end - at} unknown trailing bytes")
        return cls(results)
