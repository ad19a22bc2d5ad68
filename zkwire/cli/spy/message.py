"""One message: what it is, its rows, and what is wrong with it.

Decides which layout which bytes have; must not know connections or records.  A ``Message`` is made
of any bytes and never raises: what cannot be read is its last row, and ``problem`` says why.
"""

from __future__ import annotations

from zkwire.cli.spy.meaning import NAMES
from zkwire.cli.spy.rows import MalformedError, Rows
from zkwire.jute.multi import RESULTS
from zkwire.jute.record import Record
from zkwire.jute.records import (
    ConnectRequest,
    ConnectResponse,
    MultiHeader,
    ReplyHeader,
    RequestHeader,
    WatcherEvent,
)
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.spy.rows import Row, Value

# Their bytes hide secrets, wherever the reading stops.
SECRET = frozenset({"connect", "auth", "sasl"})
MULTIS = frozenset({"multi", "multi_read"})


class Message:
    """One message; ``rows``, ``op``, ``kind`` and ``problem`` are what was found in its bytes.

    ``kind`` is connect, request, reply or event.  ``opcode`` of a reply is that of the request that
    it answers, None if that is not known.  ``framed``: a length is in front.
    """

    def __init__(
        self, data: bytes, direction: str, kind: str, opcode: int | None, *, framed: bool = True
    ) -> None:
        self.kind = kind
        self.direction = direction
        self.op = "connect" if kind == "connect" else "watch" if kind == "event" else "unknown"
        self.opcode = opcode
        self.rows: Rows = Rows(data)
        self.problem: MalformedError | None = None
        try:
            if framed:
                self.rows.number("length")
            self._read()
            if self.rows.left:
                raise MalformedError(self.rows.at, f"{self.rows.left} bytes too many")
        except MalformedError as problem:
            self.problem = problem
            secret = self.op in SECRET or (kind == "reply" and self.opcode is None)
            self.rows.rest("unknown", secret=secret)

    def values(self) -> dict[str, Value]:
        """The values by the name of their field; of fields of one name, the last."""
        return {row.name: row.value for row in self.rows}

    def parts(self) -> list[list[Row]]:
        """The rows of each operation of a multi, or of each result."""
        parts: list[list[Row]] = []
        for row in self.rows:
            if row.name.startswith("["):
                index = int(row.name[1 : row.name.index("]")])
                parts += [[] for _ in range(index + 1 - len(parts))]
                parts[index].append(row)
        return parts

    def _read(self) -> None:
        rows, request = self.rows, self.direction == "c2s"
        if self.kind == "connect":
            rows.record(ConnectRequest if request else ConnectResponse)
        elif request:
            rows.record(RequestHeader)
            self.opcode = int(rows[-1].value or 0)
            self._name()
            self._body(request)
        else:
            rows.record(ReplyHeader)
            failed = rows[-1].value
            if self.kind == "event":
                rows.record(WatcherEvent)
                return
            self._name()
            if not failed or self.op in MULTIS:
                self._body(request)

    def _name(self) -> None:
        if self.opcode is not None:
            self.op = NAMES.get(self.opcode, "unknown")

    def _body(self, request: bool) -> None:
        op = ops.OPS.get(self.opcode) if self.opcode is not None else None
        if op is None:  # an operation that zkwire does not know, or a reply without its request
            self.rows.rest("body", secret=not request and self.opcode is None)
        elif op.name in MULTIS:
            if self.rows.left:
                self._multi(request)
        elif request and op.request is not None:
            self.rows.record(op.request)
        elif not request and op.reply is not None and issubclass(op.reply, Record):
            self.rows.record(op.reply)

    def _multi(self, request: bool) -> None:
        index = 0
        while True:
            begin, prefix = self.rows.at, f"[{index}]."
            self.rows.record(MultiHeader, prefix)
            kind, done = self.rows[-3].value, self.rows[-2].value
            if done:
                return
            if request:
                op = ops.OPS.get(int(kind or 0))
                body = op.request if op is not None else None
            elif kind in RESULTS:
                body = RESULTS[int(kind or 0)]
            else:
                raise MalformedError(begin, f"a result of type {kind!r}")
            if body is None and request:
                raise MalformedError(begin, f"an operation of type {kind!r}")
            if body is not None:
                self.rows.record(body, prefix)
            index += 1
