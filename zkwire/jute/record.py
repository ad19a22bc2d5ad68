"""Records of Jute, ZooKeeper's serialisation: a class body *is* the wire layout.

    class DeleteRequest(Record):
        path: UString
        version: Int

The annotations are read as text; what encodes and decodes is generated from them when the record is
first used (:mod:`zkwire.jute.codec`), so that importing fifty records is cheap.

Layout words: ``Bool Byte Int Long Float Double`` (fixed size, big-endian, signed), ``Buffer``
(bytes), ``Secret`` (a Buffer that ``repr`` hides), ``UString`` (text), ``Vector[x]``, the name of
another record, ``x | None`` for a value that may be null (length -1), and ``Tail[x]`` for a last
field that old peers do not send (None then).

This module decides, for every record alike, and must not know opcodes, xids or frames:

* null and empty differ; a null that the layout does not allow is an error in both directions;
* a length below -1, a length or count that the frame cannot hold, a truncated field and (in
  ``decode``) a trailing byte are a ProtocolError; no memory is used for a count that does not fit;
* text is UTF-8; the pairs of three-byte surrogates that Java writes for a character beyond U+FFFF
  (CESU-8) are joined on reading, other ill-formed text is a ProtocolError;
* vectors are tuples, so that a record is immutable and can be a key.
"""

from __future__ import annotations

from operator import itemgetter

from zkwire.jute.codec import Field, decoder, encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Optional, Self, TypeVar, dataclass_transform

    T = TypeVar("T")
    Vector = tuple[T, ...]
    Tail = Optional[T]  # noqa: UP045  (a generic alias)
else:
    Vector = Tail = tuple

    def dataclass_transform(**_):
        return lambda cls: cls


Bool = bool
Byte = int
Int = int
Long = int
Float = float
Double = float
Buffer = bytes
Secret = bytes
UString = str


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """Gives each record its field names and read-only attributes; compiles nothing."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> RecordType:
        words = dict(body.get("__annotations__", ())) if bases != (tuple,) else {}
        body["__slots__"] = ()
        body["__words__"] = words
        body["__fields__"] = body["__match_args__"] = tuple(words)
        body["__defaults__"] = {field: body[field] for field in words if field in body}
        for index, (field, word) in enumerate(words.items()):
            body[field] = property(itemgetter(index), doc=word)
        return super().__new__(mcs, name, bases, body)


class Record(tuple, metaclass=RecordType):  # type: ignore[type-arg]
    """An immutable value whose class body is its wire layout; see the module's docstring."""

    if TYPE_CHECKING:
        __fields__: ClassVar[tuple[str, ...]]
        __words__: ClassVar[dict[str, str]]

    else:

        def __new__(cls, *values, **named):
            if len(values) < len(cls.__fields__):
                missing = cls.__fields__[len(values) :]
                given = cls.__defaults__ | named
                values += tuple(given[f] for f in missing if f in given)
                named = {f: v for f, v in named.items() if f not in missing}
            if named or len(values) != len(cls.__fields__):
                raise TypeError(f"{cls.__name__} takes {', '.join(cls.__fields__) or 'nothing'}")
            return tuple.__new__(cls, values)

    def __getnewargs__(self) -> tuple[Any, ...]:
        # For copy and pickle; a plain tuple passes all values to __new__ as one.
        return tuple(self)  # pyright: ignore

    def _asdict(self) -> dict[str, Any]:
        """The fields by name, in their order, as of a ``NamedTuple``."""
        return dict(zip(self.__fields__, self.__getnewargs__(), strict=True))

    def _replace(self, **changes: Any) -> Self:
        """The same record with other values, as of a ``NamedTuple``; for ``copy.replace``, too."""
        return type(self)(**{**self._asdict(), **changes})

    __replace__ = _replace

    @classmethod
    def layout(cls) -> tuple[Field, ...]:
        """The fields in the order of the wire."""
        return tuple(Field(name, word, cls.__module__) for name, word in cls.__words__.items())

    @classmethod
    def pack(cls, *values: Any) -> bytes:
        """The bytes of a record with these field values, in the order of the layout.

        Raises ValueError for a value that does not fit its field.
        """
        encode = encoder(cls)
        cls.pack = staticmethod(encode)  # type: ignore[method-assign]
        return encode(*values)

    @classmethod
    def unpack(cls, data: bytes, at: int = 0, end: int | None = None) -> tuple[Self, int]:
        """The record that starts at ``data[at]``, and the offset behind it.

        Raises ProtocolError; reads no value from behind ``end``, where the frame ends.
        """
        unpack = decoder(cls, "unpack")
        cls.unpack = staticmethod(unpack)  # type: ignore[method-assign]
        return unpack(data, at, end)

    def encode(self) -> bytes:
        """The record's bytes."""
        return self.pack(*self)

    @classmethod
    def decode(cls, data: bytes, at: int = 0, end: int | None = None) -> Self:
        """The record that fills ``data[at:end]``; a byte too many is a ProtocolError."""
        decode = decoder(cls, "decode")
        cls.decode = staticmethod(decode)  # type: ignore[method-assign]
        return decode(data, at, end)

    @classmethod
    def values(cls, data: bytes, at: int = 0, end: int | None = None) -> tuple[Any, ...]:
        """The fields of :meth:`decode`'s record, for what reads them by position.

        A plain tuple, which takes half the time; of numbers alone, the record.
        """
        values = decoder(cls, "values")
        cls.values = staticmethod(values)  # type: ignore[method-assign]
        return values(data, at, end)

    def __repr__(self) -> str:
        values = self.__getnewargs__()
        shown = (
            f"{name}={'<hidden>' if word.startswith('Secret') else repr(value)}"
            for (name, word), value in zip(self.__words__.items(), values, strict=True)
        )
        return f"{type(self).__name__}({', '.join(shown)})"
