"""How a number stands in a node: as kazoo's Counter writes it, or Curator's two."""

from __future__ import annotations

_WIDTHS = {"text": 0, "int32": 4, "int64": 8}
"""How many bytes a number has; 0: as many digits as it takes."""
_SHOWN_BYTES = 40  # of what others have written


class NumberFormat:
    """``text``: decimal digits; ``int32``, ``int64``: big-endian, signed.  No bytes are 0."""

    __slots__ = ("_name", "_width")

    def __init__(self, name: str) -> None:
        if name not in _WIDTHS:
            raise ValueError(f"format must be one of {', '.join(_WIDTHS)}, not {name!r}")
        self._name = name
        self._width = _WIDTHS[name]

    def decode(self, data: bytes) -> int:
        """The number; ValueError if it is none of this format."""
        try:
            if not data:
                return 0
            # Not all that int() takes, such as b"5_0" and b" 5": no counter writes that.
            if not self._width and data.removeprefix(b"-").isdigit():
                return int(data)
            if self._width and len(data) == self._width:
                return int.from_bytes(data, "big", signed=True)
        except ValueError:
            pass
        raise ValueError(f"no number of the format {self._name}: {data[:_SHOWN_BYTES]!r}")

    def encode(self, value: int) -> bytes:
        """The number as bytes; OverflowError if it does not fit."""
        if not self._width:
            return b"%d" % value
        try:
            return value.to_bytes(self._width, "big", signed=True)
        except OverflowError:
            raise OverflowError(f"{value} does not fit into {self._name}") from None


def check_number(value: int) -> None:
    """TypeError for what is no int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a counter takes an int, not {type(value).__name__}")
