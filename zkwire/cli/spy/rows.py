"""Bytes as rows: each field of a frame with its offset, its size, its name and its value.

The layouts are those of :mod:`zkwire.jute`, so a row can be nothing that the client would read
otherwise.  Any bytes give rows: what cannot be read ends the reading as a MalformedError, with the
offset, and the rows before it stay.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from zkwire.jute.codec import FIXED
from zkwire.jute.records import Id
from zkwire.jute.values import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.jute.codec import Field
    from zkwire.jute.record import Record

    Value = int | str | bytes | None


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
        if kind is Id and self[-3].value == "digest":  # the hash of a password, without salt
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
            raise MalformedError(self.at, f"{name} is no UTF-8") from None
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
