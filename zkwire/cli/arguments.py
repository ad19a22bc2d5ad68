"""Kinds of arguments: durations, and the options that each command has.

Such an option may stand before the command, and behind it in its long form: the command may use the
letter for something else.
"""

from __future__ import annotations

import argparse
import os

DEFAULT_SERVER = "127.0.0.1:2181"
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def server_of(asked: argparse.Namespace) -> str:
    """The servers that ``--server`` names, or the environment, or the default."""
    return asked.server or os.environ.get("ZKWIRE_SERVER") or DEFAULT_SERVER


def duration(text: str) -> float:
    """Seconds, from ``5``, ``5s``, ``500ms``, ``2m`` or ``1h``."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration, such as 5, 500ms, 5s or 2m")
    return seconds


def version(text: str) -> int:
    """A version of a node, from 0 on."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no version, a number from 0 on")
    return number


class _Group:
    """Adds options to a group; ``again``: behind the command, not shown, and without letters."""

    def __init__(self, parser: argparse.ArgumentParser, title: str, *, again: bool) -> None:
        self._add = parser.add_argument_group(title).add_argument
        self._again = again

    def option(
        self, letter: str, name: str, does: str, default: object = None, **kind: object
    ) -> None:
        names = [name] if self._again or not letter else [letter, name]
        if self._again:  # what stands before the command counts, and its help is in one place
            default = does = argparse.SUPPRESS
        self._add(*names, default=default, help=does, **kind)  # type: ignore[arg-type]


def add_connection(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """The options of a client; ``again`` behind the command."""
    option = _Group(parser, "the connection", again=again).option
    does = f"HOST:PORT[,...][/CHROOT] (else ZKWIRE_SERVER, or {DEFAULT_SERVER})"
    option("-s", "--server", does, metavar="HOSTS")
    does = "how long to look for a server (10)"
    option("", "--connect-timeout", does, 10.0, type=duration, metavar="SECS")
    does = "the timeout of the session (10)"
    option("", "--session-timeout", does, 10.0, type=duration, metavar="SECS")
    does = "credentials: the file has the secret (or SCHEME:SECRET in ZKWIRE_AUTH)"
    option("", "--auth", does, os.environ.get("ZKWIRE_AUTH"), metavar="SCHEME:FILE")
    option("", "--tls", "connect with TLS", default=False, action="store_true")
    option("", "--cafile", "the CA certificates of the servers (PEM)", metavar="FILE")
    option("", "--cert", "the client's certificate (PEM)", metavar="FILE")
    option("", "--key", "the private key of --cert", metavar="FILE")
    does = "a server without its ensemble will do"
    option("", "--read-only", does, default=False, action="store_true")
    does = "show each frame on the wire on standard error"
    option("", "--trace", does, default=None, action="store_const", const="-")
    option("", "--trace-file", "write each frame to this file", dest="trace", metavar="FILE")


def add_output(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """The options that say how a command writes; ``again`` behind the command."""
    option = _Group(parser, "the output", again=again).option
    does = "write JSON, an object for each result"
    option("", "--json", does, default=False, action="store_true")
    option("-q", "--quiet", "no notes on standard error", default=False, action="store_true")
    option("", "--color", "when to use colours", "auto", choices=("auto", "always", "never"))
    does = "show where in the program an error comes from"
    option("", "--debug", does, default=False, action="store_true")
