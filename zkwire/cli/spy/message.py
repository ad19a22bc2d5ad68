"""One message: its bytes as rows, what it is, what its numbers mean, and what is wrong with it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from zkwire.cli.output import IDS, TIMES, hex_id, moment
from zkwire.errors import SERVER_ERRORS, error_for
from zkwire.jute import records
from zkwire.jute.codec import FIXED, Field
from zkwire.jute.multi import RESULTS
from zkwire.jute.record import Record
from zkwire.jute.values import read_text
from zkwire.testing.proxy.frames import OPCODES
from zkwire.wire import ops
from zkwire.wire.model import EventType, Perms, WatchType

Value = int | str | bytes | None


# What the numbers of the protocol mean, in words: opcodes, errors, flags, events, special xids.

HIDDEN = "•••"
NAMES = {opcode: name for name, opcode in OPCODES.items()}
XIDS = {
    ops.NOTIFICATION_XID: "a watch event",
    ops.PING_XID: "a ping",
    ops.AUTH_XID: "an authentication",
    ops.SET_WATCHES_XID: "watches set again",
}
STATES = {0: "disconnected", 3: "sync_connected", 5: "connected_read_only", -112: "expired"}
FLAGS = ("persistent", "ephemeral", "sequential", "ephemeral sequential", "container", "ttl",
         "ttl sequential")  # fmt: skip
MODES = {0: "persistent", 1: "persistent_recursive"}
# Other spellings of operations, and all operations that a word stands for.
FAMILIES = {
    "create": ("create", "create2", "create_container", "create_ttl"),
    "get_children": ("get_children", "get_children2"),
    "set_watches": ("set_watches", "set_watches2"),
    "notification": ("watch",),
}
_EVENTS = {1: "created", 2: "deleted", 3: "data_changed", 4: "children_changed"}
_IDS = IDS | {"session_id", "zxid", "last_zxid_seen", "relative_zxid", "cur_config_id"}


def operations(word: str) -> tuple[str, ...]:
    """The operations that a word means: ``getData``, ``get_data``, ``create`` and its kinds.

    Raises ValueError for a word that names none.
    """
    words = word.replace("TTL", "Ttl").replace("ACL", "Acl")
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in words)
    if name not in OPCODES and name not in {"connect", "watch", "notification"}:
        known = ", ".join(sorted(set(OPCODES) | {"connect", "watch"}))
        raise ValueError(f"there is no operation {word!r}; there are {known}")
    return FAMILIES.get(name, (name,))


def error_name(code: int) -> str:
    """``ok``, ``NoNode`` and so on; the number of an error that zkwire does not know."""
    if code == 0:
        return "ok"
    name = type(error_for(code, None, None)).__name__.removesuffix("Error")
    return name if name != "Server" or code in SERVER_ERRORS else str(code)


def _named(kind: type[EventType | WatchType], number: int) -> str:
    """The name of a number, or the number."""
    known = number in kind.__members__.values()
    return kind(number).name.lower() if known else str(number)


def shown(row: Row) -> str:
    """The value of a row for people: ids in hexadecimal digits, times in UTC."""
    value, last = row.value, row.name.rpartition(".")[2]
    if row.secret:
        return HIDDEN
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, int) and last in _IDS:
        return hex_id(value)
    if last in TIMES and isinstance(value, int):
        return moment(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


# Of the fields whose numbers have names.
_NOTES: dict[str, Callable[[int], str]] = {
    "err": error_name,
    "flags": lambda code: FLAGS[code] if 0 <= code < len(FLAGS) else "",
    "mode": lambda code: MODES.get(code, ""),
    "state": lambda code: STATES.get(code, ""),
    "perms": lambda code: " ".join(
        perm.name.lower() for perm in Perms if code & perm and perm.name
    ),
    "version": lambda code: "any" if code == -1 else "",
    "zxid": lambda code: "none" if code == -1 else "",
    "time_out": lambda code: "milliseconds" if code else "",
    "ttl": lambda _: "milliseconds",
}


def note(row: Row, *, event: bool) -> str:
    """What the value of a row says, in a few words; "" where the value says it all."""
    value, last = row.value, row.name.rpartition(".")[2]
    if not isinstance(value, int):
        return ""
    if last == "xid":
        return XIDS.get(value, "")
    if last == "type" and event:
        return _EVENTS.get(value) or _named(EventType, value)
    if last == "type" and (row.at <= 8 or row.name.startswith("[")):  # of a header
        return NAMES.get(value, "")
    if last == "type":
        return _named(WatchType, value) if value else ""
    say = _NOTES.get(last)
    text = say(value) if say is not None else ""
    return "" if text == str(value) else text


# --- rows -----------------------------------------------------------------------------------------
# Bytes as rows: each field of a frame with its offset, its size, its name and its value.
#
# The layouts are those of :mod:`zkwire.jute`, so a row can be nothing that the client would read
# otherwise.  Any bytes give rows: what cannot be read ends the reading as a MalformedError, with
# the offset, and the rows before it stay.


class Row(NamedTuple):
    """One field: ``at`` counts from the beginning of the frame, ``word`` is that of its layout."""

    at: int
    size: int
    name: str
    value: Value
    word: str
    secret: bool = False


class MalformedError(ValueError):
    """The bytes at the offset ``at`` are not what the layout says."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at: int = at


class Rows(list[Row]):
    """The rows of one frame, read from ``at`` on; the methods add rows and raise MalformedError."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        super().__init__()
        self.data = data
        self.at: int = at

    @property
    def left(self) -> int:
        """How many bytes have no row yet."""
        return len(self.data) - self.at

    def record(self, kind: type[Record], prefix: str = "") -> None:
        """All fields of a record; ``prefix`` is put before their names."""
        for field in kind.layout():
            self._field(field, prefix + field.name)
        if (
            kind is records.Id and self[-3].value == "digest"
        ):  # the hash of a password, without salt
            self[-1] = self[-1]._replace(secret=True)

    def rest(self, name: str, *, secret: bool = False) -> None:
        """All bytes that are left, as one row; none if there are none."""
        if self.left:
            data = self.data[self.at :]
            self._add(len(data), name, data, "Buffer", secret)

    def number(self, name: str, word: str = "Int") -> int:
        """A value of fixed size; no layout of the protocol has one that is no whole number."""
        layout = struct.Struct(">" + FIXED[word])
        self._need(layout.size, name)
        (value,) = layout.unpack_from(self.data, self.at)
        self._add(layout.size, name, value, word)
        return int(value)

    # ----------------------------------------------------------------------------------------------

    def _add(
        self, size: int, name: str, value: Value, word: str = "Int", secret: bool = False
    ) -> None:
        self.append(Row(self.at, size, name, value, word, secret))
        self.at += size

    def _need(self, size: int, name: str) -> None:
        if size > self.left:
            raise MalformedError(self.at, f"{name} needs {size} bytes, and {self.left} are left")

    def _field(self, field: Field, name: str) -> None:
        if field.tail and not self.left:
            return
        if field.vector:
            self._vector(field, name)
        elif field.record is not None:
            self.record(field.record, name + ".")
        elif field.word in FIXED:
            self.number(name, field.word)
        else:
            self._bytes(field.word, name, nullable=field.nullable)

    def _bytes(self, word: str, name: str, *, nullable: bool) -> None:
        begin = self.at
        size = self.number(f"length of {name}")
        if size == -1 and nullable:
            self.pop()
            self.at = begin
            self._add(4, name, None, word)
            return
        if size < 0:
            raise MalformedError(begin, f"{name} has the length {size}")
        self._need(size, name)
        data = self.data[self.at : self.at + size]
        if word != "UString":
            self._add(size, name, data, word, secret=word == "Secret")
            return
        try:
            text = read_text(data)
        except UnicodeError:
            raise MalformedError(self.at, f"{name} is not UTF-8") from None
        self._add(size, name, text, word)

    def _vector(self, field: Field, name: str) -> None:
        begin = self.at
        count = self.number(f"count of {name}")
        if count == -1 and field.nullable:
            return
        least = field.least
        if count < 0 or count * least > self.left:
            raise MalformedError(begin, f"{name} claims {count} elements in {self.left} bytes")
        for index in range(count):
            if field.record is not None:
                self.record(field.record, f"{name}[{index}].")
            else:
                self._bytes(field.word, f"{name}[{index}]", nullable=False)


# --- message --------------------------------------------------------------------------------------
# One message: what it is, its rows, and what is wrong with it.
#
# Decides which layout which bytes have; must not know connections or records.  A ``Message`` is
# made of any bytes and never raises: what cannot be read is its last row, and ``problem`` says why.

# Their bytes hide secrets, wherever the reading stops.
SECRET = frozenset({"connect", "auth", "sasl"})
MULTIS = frozenset({"multi", "multi_read"})


class Message:
    """One message; ``rows``, ``op``, ``kind`` and ``problem`` are what was found in its bytes.

    ``kind`` is connect, request, reply or event.  ``opcode`` of a reply is that of the request that
    it answers, None if that is not known.
    """

    def __init__(self, data: bytes, direction: str, kind: str, opcode: int | None) -> None:
        self.kind = kind
        self.direction = direction
        self.op = "connect" if kind == "connect" else "watch" if kind == "event" else "unknown"
        self.opcode = opcode
        self.rows: Rows = Rows(data)
        self.problem: MalformedError | None = None
        try:
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
            rows.record(records.ConnectRequest if request else records.ConnectResponse)
        elif request:
            rows.record(records.RequestHeader)
            self.opcode = int(rows[-1].value or 0)
            self._name()
            self._body(request)
        else:
            rows.record(records.ReplyHeader)
            failed = rows[-1].value
            if self.kind == "event":
                rows.record(records.WatcherEvent)
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
            self.rows.record(records.MultiHeader, prefix)
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
