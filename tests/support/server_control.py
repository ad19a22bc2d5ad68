"""What every way of having real ZooKeeper servers shares: settings, ports, control, ensembles.

Nothing here knows where servers come from; `tests/support/real_servers.py` does.
"""

from __future__ import annotations

import functools
import re
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

START_SECONDS = 60.0
FOUR_LETTER_SECONDS = 15.0
PROBE_SECONDS = 0.5
POLL_SECONDS = 0.02
PORT_ATTEMPTS = 3

JAVA_FLAGS = (
    "-Xmx160m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.extendedTypesEnabled=true",
    # A killed process loses nothing that the kernel has; only a power cut would.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.jmx.log4j.disable=true",  # of which 3.4 makes a condition
    # For Debian's choice of a logger. Each four-letter word is worth a line to ZooKeeper.
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
)


class NoBackendError(Exception):
    """Real servers cannot be had this way, or in no way at all; the message says why."""


class ServerStartError(Exception):
    """A server did not come to serve; the message ends with the tail of its log."""


class UncontrollableError(Exception):
    """The server must not, or cannot, be killed, paused or stopped."""


class PortTakenError(ServerStartError):
    """Somebody else took a port between its choice and the server's start."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a test may ask of its servers."""

    tick_ms: int = 200
    """ZooKeeper's unit of time; session timeouts start at two ticks."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further lines for `zoo.cfg`; they win over the ones made here."""
    java_flags: tuple[str, ...] = ()

    def config(self) -> dict[str, str]:
        """The lines of `zoo.cfg` that do not depend on where the server runs."""
        return {
            "tickTime": str(self.tick_ms),
            "initLimit": "50",
            "syncLimit": "10",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            # A server alone is no ensemble of one: that stalls now and then under a deep pipeline
            # (seen on 3.8.0: CommitProcessor waits while a write is outstanding). But it takes
            # connections before it has its database, and then forgets them without closing them;
            # hence the short limit of a probe.
            "standaloneEnabled": "true",
            "4lw.commands.whitelist": "*",
            **self.options,
        }


DEFAULT_SETTINGS = Settings()


def poll(what: str, probe: Callable[[], T | None], seconds: float) -> T:
    """The first answer of `probe` that is not None; `TimeoutError` if there is none in time.

    Only for what happens in other processes and offers no event to wait for.
    """
    deadline = time.monotonic() + seconds
    while (answer := probe()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(POLL_SECONDS)
    return answer


_handed_out: set[int] = set()


def free_port() -> int:
    """A free loopback port, below the range from which the kernel takes ports for clients.

    Inside that range any client could take the port while a killed server is down; one that keeps
    calling the dead server could even end up connected to itself.
    """
    try:
        first_for_clients = int(
            Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
        )
    except OSError:
        first_for_clients = 32768
    candidates = range(min(10_000, first_for_clients // 2), first_for_clients)
    for _ in range(1000):
        port = secrets.choice(candidates)
        if port not in _handed_out and _can_bind(port):
            _handed_out.add(port)
            return port
    raise OSError("no free loopback port found")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


class ZooKeeperServer:
    """One ZooKeeper server: its address, its four-letter words, and power over its life.

    As it stands here it is somebody else's: it always runs, and cannot be controlled.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @property
    def hosts(self) -> str:
        """The connect string."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        raise UncontrollableError(f"{self} is no process of the tests' own")

    @property
    def running(self) -> bool:
        """Whether the server's process exists and is not paused."""
        return True

    def start(self, *, wait: bool = True) -> None:
        """Start, or start again with the data of the last run; then wait until it serves."""
        if wait:
            self.wait_serving()

    def stop(self) -> None:
        """End the process politely."""
        raise UncontrollableError(f"{self} is not the tests' to control")

    def kill(self) -> None:
        """End the process with SIGKILL, and return when it is gone."""
        self.stop()

    def pause(self) -> None:
        """Freeze the process: its connections stay open and silent."""
        raise UncontrollableError(f"{self} cannot be paused")

    def resume(self) -> None:
        """Let a paused process go on; nothing happens to one that is not paused."""

    def discard(self) -> None:
        """End the process, however it stands, and remove its data."""

    def log_tail(self) -> str:
        """The last lines of the server's log, for error messages."""
        return "(its log is not known)"

    def restore(self) -> None:
        """Serve again, whatever a test has done to the server."""
        self.resume()
        if not self.running:
            self.start()

    def four_letter(self, word: str, seconds: float = FOUR_LETTER_SECONDS) -> str:
        """The answer to a four-letter word; `OSError` if there is none."""
        with socket.create_connection((self.host, self.port), seconds) as connection:
            connection.settimeout(seconds)
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    @functools.cached_property
    def release(self) -> tuple[int, int]:
        """The line of its release, such as (3, 8): what it knows, and does in its own way."""
        answer = self.four_letter("srvr")
        found = re.match(r"Zookeeper version: (\d+)\.(\d+)", answer)
        if found is None:
            raise ValueError(f"{self} does not tell its release: {answer!r}")
        return int(found[1]), int(found[2])

    def mode(self) -> str | None:
        """`standalone`, `leader`, `follower`; None while the server does not serve."""
        try:
            answer = self.four_letter("srvr", PROBE_SECONDS)
        except OSError:
            return None
        found = re.search(r"^Mode: (\S+)", answer, re.MULTILINE)
        return found[1] if found else None

    def wait_serving(self, seconds: float = START_SECONDS) -> str:
        """Wait until the server serves clients; its mode."""

        def probe() -> str | None:
            mode = self.mode()
            if mode is None and not self.running:
                raise self._start_error("is not running")
            return mode

        try:
            return poll(f"{self} serves", probe, seconds)
        except TimeoutError as error:
            raise self._start_error(str(error)) from error

    def _start_error(self, reason: str) -> ServerStartError:
        tail = self.log_tail()
        kind = PortTakenError if "Address already in use" in tail else ServerStartError
        return kind(f"{self} {reason}; the end of its log:\n{tail}")

    def __str__(self) -> str:
        return f"ZooKeeper at {self.hosts}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def skip_older(server: ZooKeeperServer, needed: str) -> None:
    """End the test unless the server is of this release, such as "3.6", or a later one."""
    import pytest  # check.py, which has none, reads this file, too

    if server.release < tuple(map(int, needed.split("."))):
        there = ".".join(map(str, server.release))
        pytest.skip(
            f"needs ZooKeeper {needed} or newer, this is {there}: ZKWIRE_TEST_RELEASE chooses"
        )


class Ensemble:
    """Servers that form one ZooKeeper."""

    def __init__(
        self, servers: Sequence[ZooKeeperServer], cleanup: Callable[[], object] = lambda: None
    ) -> None:
        self.servers = tuple(servers)
        self._cleanup = cleanup

    @property
    def hosts(self) -> str:
        """The connect string, with every member."""
        return ",".join(server.hosts for server in self.servers)

    def start(self) -> None:
        """Have every member run and serve; none does before a majority runs."""
        for server in self.servers:
            server.resume()
            if not server.running:
                server.start(wait=False)
        self.wait_serving()

    def discard(self) -> None:
        """End every member and remove its data."""
        for server in self.servers:
            server.discard()
        self._cleanup()

    restore = start
    """Whatever a test has done to the members."""

    def wait_serving(self, seconds: float = START_SECONDS) -> ZooKeeperServer:
        """Wait until every running member serves under one leader; the leader."""
        deadline = time.monotonic() + seconds
        while True:
            running = [server for server in self.servers if server.running]
            modes = [s.wait_serving(max(0.0, deadline - time.monotonic())) for s in running]
            # A member that was alone goes on being read-only until it has heard of the leader.
            if modes.count("leader") == 1 and "read-only" not in modes:
                return running[modes.index("leader")]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.hosts}: no leader within {seconds:g} s")
            time.sleep(POLL_SECONDS)

    def leader(self) -> ZooKeeperServer:
        """The member that leads now; waits while there is none."""
        return self.wait_serving()

    def leave_read_only(self) -> ZooKeeperServer:
        """Kill all members but the first; that one, as soon as it knows and is read-only."""
        last, *others = self.servers
        for server in others:
            server.kill()
        read_only = f"{last} is read-only"
        poll(read_only, lambda: last.mode() == "read-only" or None, START_SECONDS)
        return last

    def server_for_session(self, session_id: int) -> ZooKeeperServer | None:
        """The member that a session's client is connected to; asks every running member."""
        mark = f"sid=0x{session_id & 0xFFFF_FFFF_FFFF_FFFF:x},"
        for server in self.servers:
            if server.running and mark in server.four_letter("cons"):
                return server
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class Backend(ABC):
    """One way of having real servers."""

    name: str

    @abstractmethod
    def make_standalone(self, settings: Settings) -> ZooKeeperServer:
        """A server alone, not started."""

    @abstractmethod
    def make_ensemble(self, settings: Settings) -> Ensemble:
        """Three servers together, not started."""

    def standalone(self, settings: Settings = DEFAULT_SETTINGS) -> ZooKeeperServer:
        """A server alone, serving."""
        return started(lambda: self.make_standalone(settings))

    def ensemble(self, settings: Settings = DEFAULT_SETTINGS) -> Ensemble:
        """Three servers together, serving."""
        return started(lambda: self.make_ensemble(settings))


ServerOrEnsemble = TypeVar("ServerOrEnsemble", ZooKeeperServer, Ensemble)


def started(make: Callable[[], ServerOrEnsemble]) -> ServerOrEnsemble:
    """What `make` makes, started; made anew, with other ports, when a port was taken meanwhile."""
    for attempt in range(1, PORT_ATTEMPTS + 1):
        made = make()
        try:
            made.start()
        except BaseException as error:
            made.discard()
            if not isinstance(error, PortTakenError) or attempt == PORT_ATTEMPTS:
                raise
        else:
            return made
    raise AssertionError("the last attempt returns or raises")
