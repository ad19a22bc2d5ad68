"""The real server of a run."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.wire import Address
from tests.support.installed_servers import find_installed
from tests.support.server_control import Settings

SETTINGS = Settings(
    tick_ms=2000,
    # Idle sides do not ping; see benchmarks.wire.SESSION_MS.
    options={"maxSessionTimeout": "3600000", "snapCount": "10000000"},
    java_flags=("-Xmx1g",),
)


@contextmanager
def real_server() -> Iterator[Address]:
    """A ZooKeeper of our own; `NoBackendError` says why there is none."""
    with find_installed().standalone(SETTINGS) as server:
        yield server.host, server.port


def version_of(address: Address) -> str:
    """Which ZooKeeper it is; servers answer this word without a session."""
    with socket.create_connection(address, timeout=10.0) as connection:
        connection.sendall(b"srvr")
        said = connection.recv(4096).decode(errors="replace")
    found = re.search(r"version: ([0-9][0-9.]*)", said)
    return found[1] if found else "of an unknown version"
