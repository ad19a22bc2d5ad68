"""What the generated code of records calls: counts, text, vectors of strings, and their errors.

A length below -1, and a length or count that the frame cannot hold, are a ProtocolError, and no
memory is used for a count that does not fit.  Ill-formed text is a UnicodeDecodeError here; the
generated code turns that into a ProtocolError.
"""

from __future__ import annotations

import struct

from zkwire.errors import ProtocolError

_read_int = struct.Struct(">i").unpack_from
MANY_STRINGS = 8  # from here on a look whether they are of equal length is worth its time


def bad_length(n: int, what: str) -> ProtocolError:
    """The error for a length that is negative, or for a null that the layout does not allow."""
    return ProtocolError(f"{what} is null" if n == -1 else f"{what} has the length {n}")


def wrong_end(name: str, left: int) -> ProtocolError:
    """The error for a record that is too short, or with ``left`` bytes behind it."""
    wrong = f"leaves {left} unknown trailing bytes" if left > 0 else "is truncated"
    return ProtocolError(f"{name} {wrong}")


def read_text(data: bytes) -> str:
    """Text as Java writes it: UTF-8, and beyond U+FFFF in pairs of three-byte surrogates."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        halves = data.decode("utf-8", "surrogatepass")
        return halves.encode("utf-16", "surrogatepass").decode("utf-16")


def read_count(data: bytes, at: int, end: int, least: int, what: str, nullable: bool) -> int:
    """The count of a vector whose elements take at least ``least`` bytes; -1 for null."""
    (count,) = _read_int(data, at)
    if count < 0 and not (nullable and count == -1):
        raise bad_length(count, what)
    if count * least > end - at - 4:
        raise ProtocolError(f"{what} claims {count} elements in {max(end - at - 4, 0)} bytes")
    return int(count)


def read_strings(
    data: bytes, at: int, end: int, what: str, nullable: bool
) -> tuple[tuple[str, ...] | None, int]:
    """A vector of strings and the offset behind it."""
    count = read_count(data, at, end, 4, what, nullable)
    at += 4
    if count < 0:
        return None, at
    if count >= MANY_STRINGS and (
        many := _read_equal_strings(data, at, end, count)
        or _read_short_strings(data, at, end, count)
    ):
        return many
    strings: list[str] = []
    for _ in range(count):
        (n,) = _read_int(data, at)
        at += 4
        if n < 0:
            raise bad_length(n, what)
        strings.append(read_text(data[at : at + n]))
        at += n
    return tuple(strings), at


def _read_equal_strings(
    data: bytes, at: int, end: int, count: int
) -> tuple[tuple[str, ...], int] | None:
    """The same for strings of equal length, in ASCII; None for others.

    Such are the names of a lock's contenders and of a queue's items; it takes a seventh of the
    time.
    """
    (size,) = _read_int(data, at)
    step = 4 + size
    behind = at + count * step
    chunk = data[at:behind]
    if size <= 0 or behind > end or not chunk.isascii():
        return None
    if any(chunk[i::step] != chunk[i : i + 1] * count for i in range(4)):
        return None
    text = chunk.decode("ascii")
    first, *strings = text.split(text[:4])
    if first or len(strings) != count:
        return None  # what looks like a length stands in one of them
    return tuple(strings), behind


def _read_short_strings(
    data: bytes, at: int, end: int, count: int
) -> tuple[tuple[str, ...], int] | None:
    """The same for strings below 128 bytes in ASCII: their lengths begin with three zero bytes.

    It takes two thirds of the time.
    """
    first, *parts = data[at:end].decode("latin-1").split("\0\0\0", count)
    if first or len(parts) < count or not all(parts):
        return None
    parts[-1] = parts[-1][: 1 + ord(parts[-1][0])]  # there may be more behind it
    strings = [part[1:] for part in parts]
    if [*map(len, strings)] != [ord(part[0]) for part in parts]:
        return None
    text = "".join(strings)
    return (tuple(strings), at + 4 * count + len(text)) if text.isascii() else None


def write_strings(strings: tuple[str, ...]) -> bytes:
    """The elements of a vector of strings, without the count."""
    if isinstance(strings, str):
        raise TypeError("a str is no vector of strings")
    parts: list[bytes] = []
    for text in strings:
        encoded = text.encode()
        parts.append(struct.pack(">i", len(encoded)))
        parts.append(encoded)
    return b"".join(parts)
