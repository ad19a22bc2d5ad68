"""How a request is refused, and with which error codes a server may do that.

A code is plausible for a request if a correct server can answer with it whatever the client has
seen before.  What says how the nodes are is no refusal in this sense but an answer, and a sweep
would lie with it: NoNode for a read or a delete, BadVersion, NodeExists for a sequential create.
(A simulation changes the nodes, and so tells it truthfully.)  NodeExists and NoNode for any other
create are tried: what they speak of may have changed again before the client looks.

A request is refused on its way: in its place a read goes to the server that changes nothing, and
the answer to that is rewritten.  So the order of answers and their zxids are the server's own, and
any server can be made to refuse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from zkwire.errors import (
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
    RuntimeInconsistencyError,
    error_for,
)
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing.proxy.faults import Action, Send, Step
from zkwire.testing.proxy.frames import OPCODES, Frame

UNKNOWN: Final = -9999
"""A code that no client knows."""

_ANY = (NoAuthError.code, UNKNOWN)
_CREATE = (
    *_ANY,
    QuotaExceededError.code,
    NoNodeError.code,
    NodeExistsError.code,
    NoChildrenForEphemeralsError.code,
)
PLAUSIBLE: Final[dict[str, tuple[int, ...]]] = {
    "create": _CREATE,
    "create2": _CREATE,
    "create_container": _CREATE,
    "create_ttl": _CREATE,
    "delete": (*_ANY, NotEmptyError.code),
    "set_data": (*_ANY, QuotaExceededError.code),
    "sync": (UNKNOWN,),
    "remove_watches": (),
    "close_session": (),
    "set_watches": (),
    "set_watches2": (),
}
"""The codes for each operation; for all others NoAuth and the one that no client knows.

``set_watches``, ``remove_watches`` and ``close_session`` are the client's own, and no recipe's.
"""

_RECORDS: Final[dict[int, type[Record]]] = {
    OPCODES["create"]: r.CreateRequest,
    OPCODES["create2"]: r.CreateRequest,
    OPCODES["create_container"]: r.CreateRequest,
    OPCODES["create_ttl"]: r.CreateTTLRequest,
    OPCODES["delete"]: r.DeleteRequest,
    OPCODES["set_data"]: r.SetDataRequest,
    OPCODES["check"]: r.CheckVersionRequest,
}
_NAMES: Final = {opcode: name for name, opcode in OPCODES.items()}
_HEADER, _REPLY_HEADER = 12, 20  # bytes: the length, and what stands before the body
_ROOT: Final = r.ExistsRequest("/", False)
_ERROR = -1
_SEQUENTIAL = {2, 3, 6}  # CreateMode.java
_ID = re.compile(r"[0-9a-f]{16}(?:-?[0-9a-f]{8,})*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d{10}")


class Part(NamedTuple):
    """One operation of a request, as far as it decides on refusals."""

    op: str
    path: str
    sequential: bool = False

    @property
    def codes(self) -> tuple[int, ...]:
        """What a server may refuse it with."""
        codes = PLAUSIBLE.get(self.op, _ANY)
        return tuple(c for c in codes if not (self.sequential and c == NodeExistsError.code))


class Refusal(NamedTuple):
    """The ``nth`` request of this name, from 0, is refused with this code; of a multi the ``part``.

    ``request`` is the operation and the path, without ids: a life that is lived again sends its
    requests in another order, to other nodes.
    """

    request: str
    nth: int
    code: int
    part: int = 0

    def describe(self) -> str:
        """For people."""
        error = type(error_for(self.code, "", None)).__name__
        return f"{self.request} (number {self.nth}) refused with {self.code} ({error})"


def names(frame: Frame, base: str) -> list[str]:
    """What the request, or each part of a multi, is called, with paths relative to ``base``."""
    multi = "multi: " * (frame.op == "multi")
    return [f"{multi}{part.op} {masked(part.path, base)}" for part in parts(frame)]


def parts(frame: Frame) -> list[Part]:
    """The operation of a request; of a multi all."""
    if frame.op != "multi":
        kind = _RECORDS.get(frame.opcode or 0)
        if kind is None:
            return [Part(frame.op, frame.path or "")]
        return [_part(frame.op, kind.unpack(frame.raw, _HEADER)[0])]
    found: list[Part] = []
    header, at = r.MultiHeader.unpack(frame.raw, _HEADER)
    while not header.done:
        request, at = _RECORDS[header.type].unpack(frame.raw, at)
        found.append(_part(_NAMES[header.type], request))
        header, at = r.MultiHeader.unpack(frame.raw, at)
    return found


def _part(op: str, request: Any) -> Part:
    return Part(op, request.path, getattr(request, "flags", 0) in _SEQUENTIAL)


def refusals(requests: Iterable[Frame], base: str) -> list[Refusal]:
    """Every plausible refusal of each of these requests; of parts alike the first and the last."""
    found: list[Refusal] = []
    seen: Counter[str] = Counter()
    for frame in requests:
        called, all_parts = names(frame, base), parts(frame)
        for name in dict.fromkeys(called):
            alike = [index for index, other in enumerate(called) if other == name]
            found += [
                Refusal(name, seen[name], code, index)
                for index in sorted({alike[0], alike[-1]})
                for code in all_parts[index].codes
            ]
            seen[name] += 1
    return found


def refuse(refusal: Refusal) -> Action:
    """The action that refuses the request."""

    def act(frame: Frame) -> Iterable[Step]:
        body = r.RequestHeader(frame.xid or 0, OPCODES["exists"]).encode() + _ROOT.encode()
        harmless = len(body).to_bytes(4, "big") + body
        count = len(parts(frame)) if frame.op == "multi" else 0

        def rewritten(reply: Frame) -> Iterable[Step]:
            return (Send(_refused(reply.raw, refusal, count)),)

        return (Send(harmless, reply=rewritten),)

    return act


def _refused(reply: bytes, refusal: Refusal, count: int) -> bytes:
    """The answer: for a multi of ``count`` parts a code for each, as servers do."""
    head = reply[4 : _REPLY_HEADER - 4]
    if not count:
        return _framed(head + refusal.code.to_bytes(4, "big", signed=True))
    later = RuntimeInconsistencyError.code
    codes = [0] * refusal.part + [refusal.code] + [later] * (count - refusal.part - 1)
    errors = [r.MultiHeader.pack(_ERROR, False, c) + r.ErrorResponse.pack(c) for c in codes]
    return _framed(head + bytes(4) + b"".join(errors) + r.MultiHeader.pack(_ERROR, True, -1))


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def masked(path: str, base: str) -> str:
    """The path relative to ``base``, without ids and numbers that are others each time."""
    if path.startswith(base):
        path = "PATH" + path[len(base) :]
    return _NUMBER.sub("<n>", _ID.sub("<id>", path))
