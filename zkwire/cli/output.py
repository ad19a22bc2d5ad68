"""What a command says: results, errors in words, and its exit status.

124 to 127 and 128 + n mean what they mean with timeout(1) and env(1).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO, TypeVar

import zkwire
from zkwire import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    T = TypeVar("T", bound=BaseException)


# What a command's exit status says, and which error is which.
#
# 124 to 127 and 128 + n mean what they mean with timeout(1) and env(1).

DONE = 0
REFUSED = 1  # the server said no, or the answer of a question is no
USAGE = 2
NOT_SENT = 3  # no server could be reached; nothing has been sent
UNKNOWN = 4  # sent, and the connection broke before an answer: perhaps done
EXPIRED = 5
BEHIND = 6  # all is copied, but a counter of sequential names is behind them
LOCK_LOST = 122
TIMED_OUT = 124
FAILED = 125  # the command itself failed: before the program that it was to run, or by a defect
NOT_EXECUTABLE = 126
NOT_FOUND = 127
BY_SIGNAL = 128  # and the number of the signal


def with_status(error: T, status: int) -> T:
    """The same error, which ends the command with this exit status."""
    error.__dict__["exit_status"] = status
    return error


def cannot_run(program: str, error: OSError) -> OSError:
    """What to raise if a program cannot be started, with the exit status for that."""
    status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    return with_status(OSError(f"cannot run {program}: {error.strerror or error}"), status)


def status_of(error: BaseException) -> int:
    """The exit status for an error that has ended a command."""
    chosen: int | None = error.__dict__.get("exit_status")
    if chosen is not None:
        return chosen
    if isinstance(error, KeyboardInterrupt):
        return BY_SIGNAL + 2
    if isinstance(error, BrokenPipeError):
        return BY_SIGNAL + 13
    if isinstance(error, errors.NotSentError):
        return NOT_SENT
    if isinstance(error, errors.OutcomeUnknownError):
        return UNKNOWN
    if isinstance(error, errors.SessionExpiredError):
        return EXPIRED
    if isinstance(error, errors.ServerError):
        return UNKNOWN if _is_uncertain(error) else REFUSED
    if isinstance(error, errors.ZooKeeperError) and error.maybe_applied:
        return UNKNOWN
    if isinstance(error, errors.OperationTimeoutError):
        return TIMED_OUT
    if isinstance(error, ValueError):
        return USAGE
    return REFUSED if is_foreseen(error) else FAILED


def is_foreseen(error: BaseException) -> bool:
    """Whether the outside world causes such errors; any other one is a defect of zkwire."""
    return isinstance(error, (errors.ZooKeeperError, ValueError, OSError))


def outcome_of(error: BaseException) -> str:
    """What a script may conclude: ``refused``, ``not_sent``, ``unknown`` or ``failed``."""
    if isinstance(error, errors.ServerError):
        return "unknown" if _is_uncertain(error) else "refused"
    maybe_applied = isinstance(error, errors.ZooKeeperError) and error.maybe_applied
    if maybe_applied or isinstance(error, errors.OutcomeUnknownError):
        return "unknown"
    if isinstance(error, errors.NotSentError):
        return "not_sent"
    if isinstance(error, errors.AuthFailedError | errors.ClientClosedError):
        return "refused"
    return "failed"


def _is_uncertain(refusal: errors.ServerError) -> bool:
    """Whether the request that was refused may be executed all the same.

    That steps before it were executed (also ``maybe_applied``) makes no refusal of it uncertain.
    """
    return refusal.maybe_applied and refusal.code in errors.UNCERTAIN


# --- advice ---------------------------------------------------------------------------------------
# The library's advice in the words of the command line: a flag, not a call or an argument.

# What a message of the library has, as a pattern, and what stands there on the command line.
WORDS = {
    r"; ensure_path\(.*\) creates it": "; `create -p` creates it",
    r"perhaps add_auth first": "perhaps --auth (in the shell: addauth) is missing",
    r"sasl=\.\.\., or auth=\[\.\.\.\] by one of": "--auth by one of",
    r"tls=ssl\.create_default_context\(\)": "--tls",
    r"for which read_only=True is": "for which --read-only is",
    r"; make a new Client, or ask the supervisor for its next$": "",
    r"^session_timeout must": "--session-timeout must",
    r"; for a longer session, .*timedelta\(.*\)$": "",
    r"^lease_margin must (.*) of session_timeout,": r"--lease-margin must \1 of --session-timeout,",
    r"^ttl must": "--ttl must",
    r"^auth cannot be sent": "--auth cannot be sent",
}


def in_flags(message: str) -> str:
    """The message of an error with advice for the command line."""
    import re

    for theirs, ours in WORDS.items():
        message = re.sub(theirs, ours, message)
    return message


# --- output ---------------------------------------------------------------------------------------
# How a command writes: results to standard output and nothing else there, the rest to the other.
#
# For people it writes lines, for scripts (``--json``) an object on each line.  Text from a server
# is shown so that it cannot control the terminal.  An object has ``v`` first, the version of its
# format; ids are strings of hexadecimal digits, since JavaScript and jq lose the last bits of such
# numbers.

VERSION = 1
MOST_CHARACTERS = 1000  # of an error or a note: a path in it may have a mebibyte
IDS = frozenset({"czxid", "mzxid", "pzxid", "ephemeral_owner"})
TIMES = frozenset({"ctime", "mtime"})
CHANGES: dict[int, str] = {1: "created", 2: "deleted", 3: "changed", 4: "children"}  # EventType
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

    def result(self, fields: Mapping[str, Any], lines: Iterable[str] = ()) -> None:
        """A result: its fields for scripts, or its lines for people."""
        if self.json:
            self.record(fields)
            return
        for line in lines:
            self.line(line)

    def bytes(self, data: bytes) -> None:
        """Exactly these bytes."""
        if sys.stdout is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)

    def note(self, text: str, patience: float | None = None) -> None:
        """A line for people that is no result, on standard error.

        ``patience``: seconds that the caller is delayed at most where nothing reads it; else that
        is :data:`zkwire.cli.messages.PATIENCE`.
        """
        if not self.quiet:
            tell(one_line(_short(text)) + "\n", patience)

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

    @staticmethod
    def is_full() -> bool:
        """Whether standard output is a pipe, or a terminal, that takes nothing now."""
        return _polled(0x04) == 0  # POLLOUT

    @staticmethod
    def check_reader() -> None:
        """BrokenPipeError if nothing reads the output any more."""
        if (_polled(0) or 0) & 0x28:  # POLLERR, POLLNVAL
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    @staticmethod
    def drop() -> None:
        """Drop what is buffered and what follows: Python would try to write it at its end."""
        try:
            number = sys.stdout.fileno()
        except (OSError, ValueError, AttributeError):  # it is no file
            return
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), number)


def printable(text: str, kept: str = "\n\t") -> str:
    """``text`` with each character that is neither printable nor ``kept`` as its number."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def only_ascii() -> bool:
    """Whether standard output takes no other characters."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return str(encoding).lower().replace("-", "") != "utf8"


def one_line(text: str) -> str:
    """``text`` with each character that is not printable as its number, new lines included."""
    return printable(text, "")


def describe(error: BaseException) -> str:
    """An error in words: the class where it says what the server said, and the message."""

    if isinstance(error, errors.ZooKeeperError):
        return f"{type(error).__name__.removesuffix('Error')}: {_message(error)}"
    return _message(error) or type(error).__name__


def _message(error: BaseException) -> str:
    """The message of an error with its notes; a defect of zkwire is called that."""

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


def stat_fields(stat: zkwire.Stat) -> dict[str, int | str]:
    """A stat as JSON: ids in hexadecimal digits, times in UTC as RFC 3339 writes them."""
    values = {name: getattr(stat, name) for name in stat.__fields__}
    values |= {name: hex_id(values[name]) for name in IDS}
    return values | {name: moment(values[name]) for name in TIMES}


def stat_lines(stat: zkwire.Stat) -> list[str]:
    """A stat for people, a field on each line."""
    return [f"{name} = {value}" for name, value in stat_fields(stat).items()]


def hex_id(number: int) -> str:
    """A zxid or a session's id as ZooKeeper's own tools write it: 64 bits, without a sign."""
    return f"{number & 0xFFFF_FFFF_FFFF_FFFF:#x}"


def host_port(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
    if isinstance(error, errors.ServerError):
        fields["code"] = error.code
    if isinstance(error, errors.ZooKeeperError) and error.path is not None:
        fields["path"] = error.path
    outcome = {"outcome": outcome_of(error), "exit": status_of(error)}
    return {**fields, "message": _short(_message(error)), **outcome}


def _as_json(fields: Mapping[str, Any]) -> str:
    from json import dumps

    return dumps({"v": VERSION, **fields})


def _polled(events: int) -> int | None:
    """What poll(2) says of standard output, asked for these; None where it cannot be asked."""
    import select

    if not hasattr(select, "poll"):
        return None
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), events)
    except (AttributeError, OSError, ValueError):  # it is no file
        return None
    return sum(found for _, found in poll.poll(0))


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # None: the process was started without it
        stream.write(text)


def tell(text: str, patience: float | None = None) -> None:
    """Write to standard error; see :mod:`zkwire.cli.messages`."""
    from zkwire.cli import messages

    messages.tell(text, messages.PATIENCE if patience is None else patience)


# --- access ---------------------------------------------------------------------------------------
# How an entry of an access list is written: ``scheme:id:perms``, as ``zkCli.sh`` takes it.
#
# An id may have colons, a scheme has none.

LETTERS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}  # in the order of ZooKeeper's own tools


def entry_text(entry: zkwire.ACL) -> str:
    """An entry in words."""
    perms = "".join(letter for letter, bit in LETTERS.items() if entry.perms & bit)
    return f"{entry.id.scheme}:{entry.id.id}:{perms}"


def entry_of(text: str) -> zkwire.ACL:
    """The opposite of :func:`entry_text`; ValueError if it is none."""
    scheme, _, rest = text.partition(":")
    name, colon, letters = rest.rpartition(":")
    if not (scheme and colon and set(letters) <= set(LETTERS)):
        form = "SCHEME:ID:PERMS with PERMS of the letters cdrwa"
        raise ValueError(f"{text!r} is not an entry of an access list: {form}")
    return zkwire.ACL(sum(LETTERS[letter] for letter in set(letters)), zkwire.Id(scheme, name))
