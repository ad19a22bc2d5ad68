"""Four-letter words: what a server says of itself, asked in place of a greeting.

Since 3.4.10 and 3.5.3 a server answers those of ``4lw.commands.whitelist`` only, by default
``srvr`` alone.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from zkwire.cli.context import Context
from zkwire.cli.output import host_port
from zkwire.net.dial import resolve
from zkwire.session import hosts as known

T = TypeVar("T")
MOST_BYTES = 64 << 20
PIECE = 1 << 16
NOT_ALLOWED = "is not executed because it is not in the whitelist"
NOT_SERVING = "not currently serving requests"
SETTING = "4lw.commands.whitelist"


def dialled(address: known.Address, until: float, tls: Any = None, name: str = "") -> socket.socket:
    """A connection to the address, or OSError (an ssl.SSLError is one) by ``until`` at the latest.

    ``name``: what the server's certificate must be for.
    """
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(until))
        sock.connect(where)
        if tls is None:
            return sock
        sock.settimeout(_left(until))
        return tls.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def ask(word: str, address: known.Address, until: float, tls: Any = None, name: str = "") -> str:
    """What the server answers to a word; "" if it says nothing.  Raises OSError."""
    answer = bytearray()
    with dialled(address, until, tls, name) as sock:
        sock.settimeout(_left(until))
        sock.sendall(word.encode())
        while len(answer) < MOST_BYTES:
            sock.settimeout(_left(until))
            try:
                piece = sock.recv(PIECE)
            except ConnectionResetError:  # behind the answer, from a server that has read less
                break
            if not piece:
                break
            answer += piece
    return answer.decode(errors="replace")


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.001)


class Srvr:
    """What ``srvr`` has told; None for what it has not.  ``serving``: False without a quorum."""

    def __init__(self, text: str) -> None:
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        self.serving: bool = NOT_SERVING not in text
        self.mode: str | None = fields.get("Mode")
        version = fields.get("Zookeeper version", "").partition("-")[0].partition(",")[0]
        self.version: str | None = version or None
        nodes = fields.get("Node count", "")
        self.nodes: int | None = int(nodes) if nodes.isascii() and nodes.isdigit() else None
        self.latency: str | None = fields.get("Latency min/avg/max")


# --- parallel -------------------------------------------------------------------------------------
# Does the same for every server at the same time, and waits no longer than until a moment.

LATE = "cannot resolve the name in time"


def resolved(
    servers: list[tuple[str, int]], until: float
) -> list[tuple[tuple[str, int], list[known.Address] | str]]:
    """The addresses of each server, or in words why there are none; each server once."""
    names = list(dict.fromkeys(servers))
    found = all_at_once([partial(_addresses, *server) for server in names], until)
    return [(server, each or LATE) for server, each in zip(names, found, strict=True)]


def _addresses(host: str, port: int) -> list[known.Address] | str:
    try:
        return resolve(host, port)
    except (OSError, ValueError) as error:
        return re.sub(r"\[Errno -?\d+\] ", "", f"cannot resolve the name: {error}")


def all_at_once(works: Sequence[Callable[[], T]], until: float) -> list[T | None]:
    """The result of each; None for one that has none by then.  None of them may raise."""
    results: list[T | None] = [None] * len(works)

    def run(number: int, work: Callable[[], T]) -> None:
        results[number] = work()

    threads = [
        threading.Thread(target=run, args=numbered, name="zkwire-ask", daemon=True)
        for numbered in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return results


# --- target ---------------------------------------------------------------------------------------
# What is examined: one address of one server.


class Target(NamedTuple):
    """One address of a server of the list, and the chroot that clients have there."""

    server: tuple[str, int]
    chroot: str
    address: known.Address
    context: Context

    @property
    def name(self) -> str:
        """The server as the list names it."""
        return host_port(*self.server)

    @property
    def where(self) -> str:
        """The address and the port."""
        return host_port(*self.address[1][:2])
