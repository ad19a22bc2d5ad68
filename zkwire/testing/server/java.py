"""Records as a Java server decodes and encodes them, where it differs from zkwire's codec.

Decides how invalid text and invalid lengths are decoded; must not know operations.
A Java server decodes ill-formed UTF-8 as U+FFFD, and a vector of less than -1 elements as empty; it
encodes a character beyond U+FFFF as two three-byte surrogates (CESU-8).  One difference is left: a
pair of surrogates is decoded here as the character that it encodes.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Final, TypeVar

from zkwire.errors import ProtocolError
from zkwire.jute.codec import FIXED, Field
from zkwire.jute.record import Record
from zkwire.jute.records import Id

_R = TypeVar("_R", bound=Record)


class NullIdError(ProtocolError):
    """A Java server decodes the record, and fails later, when it uses the null id."""


_INT: Final = struct.Struct(">i")
_BEYOND: Final = re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}")
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACED: Final = "\ufffd".encode()

# With any other scheme a server ignores the id, or refuses the entry anyway.
_LOOK_AT_IDS: Final = ("world", "digest", "ip")


def read(kind: type[_R], data: bytes, at: int = 0) -> tuple[_R, int]:
    """The record at ``data[at]`` and the offset after it; ProtocolError if it is invalid."""
    try:
        return kind.unpack(data, at)
    except ProtocolError:
        pass
    try:
        return _read(kind, data, at)
    except struct.error as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from None


def write(record: Record) -> bytes:
    """The record's bytes.  The record must have no null field."""
    data = record.encode()
    return _write(record) if _BEYOND.search(data) else data


def _read(kind: type[_R], data: bytes, at: int) -> tuple[_R, int]:
    values: list[Any] = []
    for field in kind.layout():
        if not field.vector:
            value, at = _read_one(field, data, at)
            values.append(value)
            continue
        (count,) = _INT.unpack_from(data, at)
        at += _INT.size
        if count == -1 and not field.nullable:
            raise ProtocolError(f"{field.name} is null")
        items: list[Any] = []
        for _ in range(count):
            item, at = _read_one(field, data, at)
            items.append(item)
        values.append(None if count == -1 else tuple(items))
    return kind(*values), at


def _read_one(field: Field, data: bytes, at: int) -> tuple[Any, int]:
    """A field, or an element of a vector."""
    if field.record is Id:
        return _read_id(data, at)
    if field.record is not None:
        return _read(field.record, data, at)
    if field.word in FIXED:
        code = struct.Struct(">" + FIXED[field.word])
        return code.unpack_from(data, at)[0], at + code.size
    piece, at = _read_piece(data, at)
    if piece is None:
        if not field.nullable:
            raise ProtocolError(f"{field.name} is null")
        return None, at
    return _text(piece) if field.word == "UString" else piece, at


def _read_id(data: bytes, at: int) -> tuple[Id, int]:
    """An id; a null part counts as empty, unless the scheme makes the server use it."""
    scheme, at = _read_piece(data, at)
    name, at = _read_piece(data, at)
    found = Id(_text(scheme or b""), _text(name or b""))
    if name is None and found.scheme in _LOOK_AT_IDS:
        raise NullIdError(f"a null id of the scheme {found.scheme}")
    return found, at


def _read_piece(data: bytes, at: int) -> tuple[bytes | None, int]:
    """The bytes after their length; None is null."""
    (length,) = _INT.unpack_from(data, at)
    at += _INT.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(data) - at:
        raise ProtocolError(f"a length of {length} in {len(data) - at} bytes")
    return data[at : at + length], at + length


def _text(data: bytes) -> str:
    return _SURROGATE.sub(_REPLACED, data).decode("utf-8", "replace")


def _write(record: Record) -> bytes:
    parts: list[bytes] = []
    for field in record.layout():
        value: Any = getattr(record, field.name)
        if field.vector:
            parts.append(_INT.pack(len(value)))
        parts += (_write_one(field, item) for item in (value if field.vector else (value,)))
    return b"".join(parts)


def _write_one(field: Field, value: Any) -> bytes:
    if field.record is not None:
        return _write(value)
    if field.word in FIXED:
        return struct.pack(">" + FIXED[field.word], value)
    if field.word == "UString":
        value = _cesu8(value)
    return _INT.pack(len(value)) + bytes(value)


def _cesu8(text: str) -> bytes:
    """Each unit of UTF-16 encoded on its own, as Java does it."""
    units = text.encode("utf-16-be")
    halves = map(chr, struct.unpack(f">{len(units) // 2}H", units))
    return "".join(halves).encode("utf-8", "surrogatepass")
