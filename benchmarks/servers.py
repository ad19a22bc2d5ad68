"""The two servers of a run, a real one and one that costs nothing; and the real one's nodes."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.jobs import NODES, SMALL
from benchmarks.processes import LineProcess
from benchmarks.programs import MissingError, build_c
from benchmarks.wire import Address, Bare, multi, request
from tests.support.installed_servers import find_installed
from tests.support.server_control import Settings

LOOPBACK = "127.0.0.1"
SETTINGS = Settings(
    tick_ms=2000,
    # Idle workers do not ping; see benchmarks.wire.SESSION_MS.
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


@contextmanager
def replay_server(directory: Path) -> Iterator[tuple[Address, str]]:
    """The server that costs nothing, and what it is written in."""
    try:
        command, language = [str(build_c(directory, "replay"))], "C"
    except MissingError as error:
        command = [sys.executable, "-m", "benchmarks.replay"]
        language = f"Python ({error})"
    with LineProcess(command) as process:
        yield (LOOPBACK, int(process.read())), language


def set_up(address: Address, sizes: Sequence[int], lists: Sequence[int]) -> None:
    """Create the nodes that the jobs expect, see `data_path` and `list_path`."""
    server = Bare(address)
    server.do_all([request("create", path) for path in ("/bench", "/bench/new", "/bench/locks")])
    for size in sizes:
        names = [f"/bench/d{size}/{n:02d}" for n in range(NODES if size <= SMALL else 1)]
        creates = [request("create", name, b"x" * size) for name in names]
        server.do_all([request("create", f"/bench/d{size}"), *creates])
    for names_count in lists:
        parent = f"/bench/n{names_count}"
        server.ask(request("create", parent))
        paths = [f"{parent}/n{n:09d}" for n in range(names_count)]
        for start in range(0, names_count, 1000):
            server.ask(multi("create", paths[start : start + 1000]))
    server.close()
