"""The functions that encode and decode a record, generated from its layout when first used.

    class DeleteRequest(Record):
        path: UString
        version: Int

The class above becomes what follows; ``unpack``, for a record inside another one, returns the
offset behind it, too.

    def pack(path, version):
        try:
            b_path = path.encode()
            return b''.join((pack_i(len(b_path)), b_path, pack_i(version),))
        except misfits as error:
            raise blame((path, version,), error) from None

    def decode(data, at=0, end=None):
        if end is None: end = len(data)
        try:
            n, = unpack_from_i(data, at)
            at += 4
            if n >= 0: f_path = read_text(data[at : (at := at + n)])
            else: raise bad_length(n, 'DeleteRequest.path')
            f_version, = unpack_from_i(data, at)
            at += 4
        except malformed as error:
            raise ProtocolError(f'DeleteRequest: {error}') from None
        if at != end: raise wrong_end('DeleteRequest', end - at)
        return new(cls, (f_path, f_version,))

This module decides how a layout becomes straight-line Python.  It must not know the class
``Record``: it asks a record for its layout, names and codecs alone.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache, partial

from zkwire.errors import ProtocolError
from zkwire.jute import values as v

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Codec = Callable[..., Any]  # a generated function
    Coded = Any  # a class of records: to name it would close a circle of imports


FIXED = {"Bool": "?", "Byte": "b", "Int": "i", "Long": "q", "Float": "f", "Double": "d"}
_new: Callable[..., Any] = tuple.__new__  # pyright: ignore


# --- layouts --------------------------------------------------------------------------------------


class Field:
    """One field of a layout: its name, its word, whether it may be null, the record it holds."""

    __slots__ = ("name", "nullable", "record", "tail", "vector", "word")

    def __init__(self, name: str, layout: str, module: str) -> None:
        self.name: str = name
        self.nullable: bool = layout.endswith("| None")
        word = layout.removesuffix("| None").strip()
        self.tail: bool = word.startswith("Tail[")
        self.vector: bool = word.startswith("Vector[")
        if self.tail or self.vector:
            word = word[word.index("[") + 1 : -1]
        self.word: str = word
        known = word in FIXED or word in {"Buffer", "Secret", "UString"}
        self.record: Coded | None = None if known else getattr(sys.modules[module], word)
        if self.tail and word not in FIXED:
            raise TypeError(f"{name}: only a field of fixed size can be a tail")

    @property
    def fixed(self) -> bool:
        """Whether the field is one value that always takes the same number of bytes."""
        return self.word in FIXED and not (self.vector or self.tail or self.nullable)

    @property
    def least(self) -> int:
        """The smallest number of bytes that the field, or one element of a vector, can take."""
        if self.word in FIXED:
            return struct.calcsize(">" + FIXED[self.word])
        if self.record is None:
            return 4
        return sum(4 if f.vector else f.least for f in self.record.layout() if not f.tail)


_CALLED = (
    ProtocolError, v.bad_length, v.wrong_end, v.read_text, v.read_count, v.read_strings,
    v.write_strings,
)  # fmt: skip


class _Writer:
    """Collects generated lines; the fields in ``run``, of fixed size, share one struct."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"new": _new} | {each.__name__: each for each in _CALLED}
        self.run: list[tuple[str, str]] = []

    def struct(self, method: str, codes: str) -> str:
        """The generated code's name of one method of a precompiled struct."""
        name = f"{method}_{codes.replace('?', 'z')}"
        self.names[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def helper(self, name: str, value: Any) -> str:
        self.names[name] = value
        return name


def _flat(record: Coded) -> bool:
    """Whether one struct reads the whole record."""
    return all(field.fixed for field in record.layout())


def _read_flat(record: Coded, out: _Writer) -> str:
    """The expression of a flat record, a quarter faster than with a name for each value."""
    codes = "".join(FIXED[field.word] for field in record.layout())
    name = out.helper(record.__name__, record)
    size = struct.calcsize(">" + codes)
    return f"new({name}, {out.struct('unpack_from', codes)}(data, at)); at += {size}"


# --- decoding -------------------------------------------------------------------------------------


def _end_run(out: _Writer) -> None:
    if out.run:
        codes = "".join(code for code, _ in out.run)
        targets = ", ".join(name for _, name in out.run)
        out.lines.append(f"{targets}, = {out.struct('unpack_from', codes)}(data, at)")
        out.lines.append(f"at += {struct.calcsize('>' + codes)}")
        out.run = []


def _decode_field(cls: Coded, field: Field, out: _Writer) -> str:
    """Emit the lines that read one field; returns the name of its value."""
    local, what = f"f_{field.name}", f"{cls.__name__}.{field.name}"
    if field.fixed:
        out.run.append((FIXED[field.word], local))
        return local
    if not (field.vector or field.tail or field.record):
        out.run.append(("i", "n"))
    _end_run(out)
    if field.vector:
        _decode_vector(field, local, what, out)
    elif field.tail:
        read = out.struct("unpack_from", FIXED[field.word])
        out.lines.append(f"if at < end: {local}, = {read}(data, at); at += {field.least}")
        out.lines.append(f"else: {local} = None")
    elif field.record is not None and _flat(field.record):
        out.lines.append(f"{local} = {_read_flat(field.record, out)}")
    elif field.record is not None:
        record = out.helper(field.record.__name__, field.record)
        out.lines.append(f"{local}, at = {record}.unpack(data, at, end)")
    else:
        piece = "data[at : (at := at + n)]"
        value = f"read_text({piece})" if field.word == "UString" else piece
        out.lines.append(f"if n >= 0: {local} = {value}")
        if field.nullable:
            out.lines.append(f"elif n == -1: {local} = None")
        out.lines.append(f"else: raise bad_length(n, {what!r})")
    return local


def _decode_vector(field: Field, local: str, what: str, out: _Writer) -> None:
    if field.word == "UString":
        out.lines.append(f"{local}, at = read_strings(data, at, end, {what!r}, {field.nullable})")
        return
    if field.record is None:
        raise TypeError(f"{what}: a vector holds strings or records")
    record = out.helper(field.record.__name__, field.record)
    out.lines += [
        f"n = read_count(data, at, end, {field.least}, {what!r}, {field.nullable}); at += 4",
        f"{local} = None if n < 0 else []",
        "for _ in range(n):",
        f"    item, at = {record}.unpack(data, at, end)",
        f"    {local}.append(item)",
        f"if n >= 0: {local} = tuple({local})",
    ]


def decoder(cls: Coded, name: str) -> Codec:
    """``decode``, ``values`` or ``unpack``; the first two are for the whole of the bytes."""
    out = _Writer()
    out.helper("cls", cls)
    out.helper("malformed", (struct.error, UnicodeError))
    if _flat(cls):
        out.lines.append(f"record = {_read_flat(cls, out)}")
        record = "record"
    else:
        values = [_decode_field(cls, field, out) for field in cls.layout()]
        _end_run(out)
        record = f"({', '.join(values)},)"
        if name != "values":
            record = f"new(cls, {record})"
    body = "".join(f"        {line}\n" for line in out.lines)
    whole = name != "unpack"
    source = (
        f"def {name}(data, at=0, end=None):\n"
        "    if end is None: end = len(data)\n"
        "    try:\n"
        f"{body}"
        "    except malformed as error:\n"
        f"        raise ProtocolError(f'{cls.__name__}: {{error}}') from None\n"
        f"    if at {'!=' if whole else '>'} end: raise wrong_end({cls.__name__!r}, end - at)\n"
        f"    return {record if whole else f'{record}, at'}\n"
    )
    return _compile(cls, name, source, out.names)


# --- encoding -------------------------------------------------------------------------------------


def _encode_field(field: Field, out: _Writer, parts: list[str]) -> None:
    """Emit the lines that write one field; its pieces of bytes go to ``parts`` in order."""
    name = field.name
    if field.fixed:
        out.run.append((FIXED[field.word], name))
        return
    if field.tail:
        _end_pieces(out, parts)
        code = out.struct("pack", FIXED[field.word])
        parts.append(f"(b'' if {name} is None else {code}({name}))")
        return
    if field.record is not None and not field.vector:
        _end_pieces(out, parts)
        parts.append(f"{out.helper(field.record.__name__, field.record)}.pack(*{name})")
        return
    size = f"len({name})" if field.vector else f"len(b_{name})"
    if field.vector and field.record is not None:
        value = f"{out.helper(f'write_{name}', _records_writer(field.record))}(tuple({name}))"
    elif field.vector:
        value = f"write_strings({name})"
    else:
        value = f"{name}.encode()" if field.word == "UString" else name
    if field.nullable:
        value, size = f"b'' if {name} is None else {value}", f"-1 if {name} is None else {size}"
    out.lines.append(f"b_{name} = {value}")
    out.run.append(("i", size))
    _end_pieces(out, parts)
    parts.append(f"b_{name}")


def _end_pieces(out: _Writer, parts: list[str]) -> None:
    if out.run:
        codes = "".join(code for code, _ in out.run)
        values = ", ".join(value for _, value in out.run)
        parts.append(f"{out.struct('pack', codes)}({values})")
        out.run = []


def _records_writer(record: Coded) -> Callable[..., bytes]:
    """A function that writes the elements of a vector of records, without the count.

    The last 64 are remembered: encoding an access list takes as long as the rest of a create.
    """

    @lru_cache(maxsize=64)
    def write(items: tuple[Any, ...]) -> bytes:
        return b"".join([record.pack(*item) for item in items])

    return write


# What packing a wrong value raises; any other exception, as of a signal handler, passes.
_MISFITS = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def encoder(cls: Coded) -> Codec:
    out, parts = _Writer(), list[str]()
    for field in cls.layout():
        _encode_field(field, out, parts)
    _end_pieces(out, parts)
    fields = ", ".join(cls.__fields__)
    out.helper("blame", partial(_blame, cls))
    out.helper("misfits", _MISFITS)
    body = "".join(f"        {line}\n" for line in out.lines)
    joined = f"b''.join(({', '.join(parts)},))" if len(parts) > 1 else (parts or ["b''"])[0]
    source = (
        f"def pack({fields}):\n"
        "    try:\n"
        f"{body}"
        f"        return {joined}\n"
        "    except misfits as error:\n"
        f"        raise blame(({fields}{',' if fields else ''}), error) from None\n"
    )
    return _compile(cls, "pack", source, out.names)


def _blame(cls: Coded, values: tuple[Any, ...], error: Exception) -> Exception:
    """Turn the generated encoder's error into one that names the record and shows no value."""
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return error
    pairs = zip(cls.__fields__, values, strict=False)
    shown = ", ".join(f"{field}: {type(value).__name__}" for field, value in pairs)
    return ValueError(f"{cls.__name__}({shown}) does not fit its layout: {error}")


class _Source:
    """Where tracebacks and debuggers find a generated line, if one needs it (PEP 302)."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, _: str) -> str:
        return self._source


def _compile(cls: Coded, function: str, source: str, names: dict[str, Any]) -> Codec:
    filename = f"<jute {cls.__name__}>.{function}"  # linecache looks up no name in <brackets>
    names |= {"__name__": filename, "__loader__": _Source(source)}
    exec(compile(source, filename, "exec"), names)
    names[function].__doc__ = getattr(cls, function).__doc__
    return names[function]
