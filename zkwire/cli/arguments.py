"""Kinds of arguments: durations, and the options that each command has.

Such an option may stand before the command, and behind it in its long form: the command may use the
letter for something else.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


DEFAULT_SERVER = "127.0.0.1:2181"
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 100 * 365 * 86400.0  # three times that is more than Python waits for anything


def server_of(asked: Namespace) -> str:
    """The servers that ``--server`` names, or the environment, or the default."""
    if asked.server is not None:  # an empty one, from an empty variable, is refused by the client
        return str(asked.server)
    return os.environ.get("ZKWIRE_SERVER") or DEFAULT_SERVER


def wrong_word(message: str) -> Exception:
    """The error for a word that is no value of its argument, whose name the parser puts before."""
    return ArgumentTypeError(message)


def duration(text: str) -> float:
    """Seconds, from ``5``, ``5s``, ``500ms``, ``2m`` or ``1h``."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0.0 <= seconds <= LONGEST:
        raise wrong_word(f"{text!r} is no duration, such as 5, 500ms, 5s or 2m")
    return seconds


def version(text: str) -> int:
    """A version of a node, from 0 on."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise wrong_word(f"{text!r} is no version, a number from 0 on")
    return number


def limit(text: str) -> int:
    """A number of bytes that a client takes for ``send_limit``."""
    if not (text.isascii() and text.isdecimal() and 1024 <= int(text) < 1 << 31):
        raise wrong_word(f"{text!r} is no number of bytes, from 1024 on")
    return int(text)


class Option:
    """An option that each command has; ``kind`` are the other arguments of ``add_argument``."""

    def __init__(
        self, letter: str, name: str, does: str, default: object = None, **kind: Any
    ) -> None:
        self.names = [letter, name] if letter else [name]
        self.dest = kind.get("dest") or name.removeprefix("--").replace("-", "_")
        self.default = default
        self.kind: dict[str, Any] = {**kind, "help": does}


def _flag(letter: str, name: str, does: str) -> Option:
    return Option(letter, name, does, False, action="store_true")


SERVER = f"HOST:PORT[,...][/CHROOT] (else ZKWIRE_SERVER, or {DEFAULT_SERVER})"
AUTH = "credentials: the file has the secret (or SCHEME:SECRET in ZKWIRE_AUTH)"
TLS = (
    _flag("", "--tls", "connect with TLS"),
    Option("", "--cafile", "the CA certificates of the servers (PEM)", metavar="FILE"),
    Option("", "--cert", "the client's certificate (PEM)", metavar="FILE"),
    Option("", "--key", "the private key of --cert", metavar="FILE"),
)
CONNECTION = (
    Option("-s", "--server", SERVER, metavar="HOSTS"),
    Option("", "--connect-timeout", "how long to look for a server (10)", 10.0,
            type=duration, metavar="SECS"),
    Option("", "--session-timeout", "the timeout of the session (10)", 10.0,
            type=duration, metavar="SECS"),
    Option("", "--send-limit", "the longest request (1048575, see jute.maxbuffer)",
            type=limit, metavar="BYTES"),
    Option("", "--auth", AUTH, metavar="SCHEME:FILE"),
    *TLS,
    _flag("", "--read-only", "a server without its ensemble will do"),
    Option("", "--trace", "show each frame on the wire on standard error",
            action="store_const", const="-"),
    Option("", "--trace-file", "write each frame to this file", dest="trace", metavar="FILE"),
)  # fmt: skip
OUTPUT = (
    _flag("", "--json", "write JSON, an object for each result"),
    _flag("-q", "--quiet", "no notes on standard error"),
    Option("", "--color", "when to use colours", "auto", choices=("auto", "always", "never")),
    _flag("", "--debug", "show where in the program an error comes from"),
)


def defaults() -> dict[str, object]:
    """What the options of all commands are where none is given."""
    values = {option.dest: option.default for option in (*CONNECTION, *OUTPUT)}
    return {**values, "auth": os.environ.get("ZKWIRE_AUTH")}


def add_options(parser: ArgumentParser, title: str, options: tuple[Option, ...]) -> None:
    """Add these options to a parser, for what stands before the command."""
    group = parser.add_argument_group(title)
    for option in options:
        group.add_argument(*option.names, **option.kind)
