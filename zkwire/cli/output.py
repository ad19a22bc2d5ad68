"""How a command writes: results to standard output and nothing else there, the rest to the other.

For people it writes lines, for scripts (``--json``) an object on each line.  Text from a server is
shown so that it cannot control the terminal.  An object has ``v`` first, the version of its format;
ids are strings of hexadecimal digits, since JavaScript and jq lose the last bits of such numbers.
"""

from __future__ import annotations

import os
import sys

from zkwire.cli.exits import is_foreseen, outcome_of, status_of
from zkwire.errors import ServerError, ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TextIO

    from zkwire import Stat

VERSION = 1
MOST_CHARACTERS = 1000  # of an error or a note: a path in it may have a mebibyte
IDS = frozenset({"czxid", "mzxid", "pzxid", "ephemeral_owner"})
TIMES = frozenset({"ctime", "mtime"})
COLOURS = {"green": "32", "yellow": "33", "red": "31", "bold": "1", "dim": "2"}


class Output:
    """Standard output and standard error, for people or (``json``) for scripts.

    ``quiet``: :meth:`note` writes nothing.  ``colour``: ``auto``, ``always`` or ``never``.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, colour: str = "auto") -> None:
        self.json = json
        self.quiet = quiet
        self.terminal: bool = sys.stdout is not None and sys.stdout.isatty()
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._colour = colour == "always" or (colour == "auto" and self.terminal and not plain)

    def line(self, text: str, *, colour: str = "", flush: bool = False) -> None:
        """One line of a result, for people, in one of ``COLOURS`` if that is wanted.

        ``flush`` is for what is read as it comes.
        """
        text = one_line(text)
        _write(sys.stdout, (self.paint(text, colour) if colour else text) + "\n")
        if flush:
            self.flush()

    @staticmethod
    def text(text: str) -> None:
        """A result that may have several lines, for people."""
        _write(sys.stdout, printable(text) + "\n")

    def record(self, fields: Mapping[str, Any], *, flush: bool = False) -> None:
        """One object of a result, for scripts, on a line of its own."""
        _write(sys.stdout, _as_json(fields) + "\n")
        if flush:
            self.flush()

    def bytes(self, data: bytes) -> None:
        """Exactly these bytes."""
        if sys.stdout is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)

    def note(self, text: str) -> None:
        """A line for people that is no result, on standard error."""
        if not self.quiet:
            tell(one_line(_short(text)) + "\n")

    def error(self, error: BaseException, hint: str = "", line: int = 0) -> None:
        """One line about the error that has ended a command, on standard error.

        ``hint`` is for people: it stands behind the error.  ``line``: that of a script, from 1 on.
        """
        if self.json:
            tell(_as_json(_error_fields(error) | ({"line": line} if line else {})) + "\n")
        else:
            where = f"line {line}: " if line else ""
            tell(f"zkwire: {where}{one_line(_short(describe(error)))}{hint}\n")

    def paint(self, text: str, colour: str) -> str:
        """``text`` in one of ``COLOURS``, if that is wanted; after :func:`printable`."""
        return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if self._colour else text

    @staticmethod
    def flush() -> None:
        """Write what is buffered."""
        if sys.stdout is not None:
            sys.stdout.flush()


def printable(text: str, kept: str = "\n\t") -> str:
    """``text`` with each character that is neither printable nor ``kept`` as its number."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """``text`` with each character that is not printable as its number, new lines included."""
    return printable(text, "")


def describe(error: BaseException) -> str:
    """An error in words: the class where it says what the server said, and the message."""

    if isinstance(error, ZooKeeperError):
        return f"{type(error).__name__.removesuffix('Error')}: {_message(error)}"
    return _message(error) or type(error).__name__


def _message(error: BaseException) -> str:
    """The message of an error with its notes; a defect of zkwire is called that."""
    from zkwire.cli.advice import in_flags

    text, notes = in_flags(str(error)), getattr(error, "__notes__", ())
    if notes:
        text = "; ".join([text.removesuffix("."), *notes])
    if is_foreseen(error):
        return text
    return f"a defect of zkwire, {type(error).__name__}: {text} (--debug shows where)"


def _short(text: str) -> str:
    """``text``, without its middle if it is so long that nobody reads it."""
    left_out = len(text) - MOST_CHARACTERS
    if left_out <= 0:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]} ... ({left_out} characters) ... {text[-half:]}"


def data_fields(data: bytes | None) -> dict[str, str] | None:
    """A node's data as JSON: ``{"text": ...}`` if it is UTF-8, else ``{"base64": ...}``."""
    if data is None:
        return None
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(data).decode()}


def stat_fields(stat: Stat) -> dict[str, int | str]:
    """A stat as JSON: ids in hexadecimal digits, times in UTC as RFC 3339 writes them."""
    return {name: _stat_field(name, getattr(stat, name)) for name in stat.__fields__}


def stat_lines(stat: Stat) -> list[str]:
    """A stat for people, a field on each line."""
    return [f"{name} = {value}" for name, value in stat_fields(stat).items()]


def _stat_field(name: str, value: int) -> int | str:
    if name in IDS:
        return hex_id(value)
    return moment(value) if name in TIMES else value


def hex_id(number: int) -> str:
    """A zxid or a session's id as ZooKeeper's own tools write it: 64 bits, without a sign."""
    return f"{number & 0xFFFF_FFFF_FFFF_FFFF:#x}"


def moment(milliseconds: int) -> str:
    """A server's time, in milliseconds since 1970, in UTC as RFC 3339 writes it."""
    from datetime import UTC, datetime, timedelta

    try:
        then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now() -> str:
    """This moment, in UTC as RFC 3339 writes it."""
    from time import time_ns

    return moment(time_ns() // 1_000_000)


def _error_fields(error: BaseException) -> dict[str, Any]:

    fields: dict[str, Any] = {"error": type(error).__name__.removesuffix("Error")}
    if isinstance(error, ServerError):
        fields["code"] = error.code
    if isinstance(error, ZooKeeperError) and error.path is not None:
        fields["path"] = error.path
    fields |= {
        "message": _short(_message(error)),
        "outcome": outcome_of(error),
        "exit": status_of(error),
    }
    return fields


def _as_json(fields: Mapping[str, Any]) -> str:
    from json import dumps

    return dumps({"v": VERSION, **fields})


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # None: the process was started without it
        stream.write(text)


def tell(text: str) -> None:
    """Write to standard error; where nothing can be written, the exit status says what it says."""
    try:
        _write(sys.stderr, text)
    except OSError:
        sys.stderr = None  # else Python tries again at its end, and then has a status of its own
