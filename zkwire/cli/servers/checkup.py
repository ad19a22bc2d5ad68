"""Whether one address of a server can be used: it connects, and has a session for a moment.

Nothing is changed but for that session.  All of it is over when the time limit is.
"""

from __future__ import annotations

import time

from zkwire.cli.advice import in_flags
from zkwire.cli.servers.hints import SECONDS, for_failure
from zkwire.cli.servers.words import NOT_ALLOWED, Srvr, ask, dialled
from zkwire.errors import ServerError, ZooKeeperError
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire import Client
    from zkwire.cli.servers.target import Target
    from zkwire.session.hosts import Address

PINGS = 3


class Checkup:
    """What is known of one address; ``problem`` says in words why it cannot be used.

    ``where``: the address and the port, None for a name that has no address.
    """

    def __init__(self, name: str, where: str | None, problem: str | None = None) -> None:
        self.name: str = name
        self.where: str | None = where
        self.problem: str | None = problem
        self.hints: list[str] = []
        self.mode: str | None = None
        self.version: str | None = None
        self.nodes: int | None = None
        self.latency: str | None = None
        self.connect: float | None = None  # seconds, as the next two
        self.ping: float | None = None
        self.session_timeout: float | None = None

    def fields(self) -> dict[str, Any]:
        """What ``--json`` shows."""
        return {
            "server": self.name,
            "address": self.where,
            "usable": self.problem is None,
            "mode": self.mode,
            "version": self.version,
            "connect_ms": _milliseconds(self.connect),
            "ping_ms": _milliseconds(self.ping),
            "session_timeout": self.session_timeout,
            "nodes": self.nodes,
            "latency": self.latency,
            "problem": self.problem,
            "hints": self.hints,
        }


def examine(target: Target, until: float) -> Checkup:
    """Connect, ask, and have a session, until then at the latest."""
    checkup = Checkup(target.name, target.where)
    begin = time.monotonic()
    try:
        dialled(target.address, until).close()
    except OSError as error:
        checkup.problem = "no answer" if isinstance(error, TimeoutError) else _words(error)
        checkup.hints = for_failure(target, checkup.problem, connected=False)
        return checkup
    checkup.connect = time.monotonic() - begin
    _ask_srvr(target, checkup, until)
    _have_session(target, checkup, until)
    if checkup.problem is not None:
        checkup.hints += for_failure(target, checkup.problem, connected=True)
    return checkup


def _ask_srvr(target: Target, checkup: Checkup, until: float) -> None:
    """Take what ``srvr`` tells, if it is allowed; the session is to have most of the time.

    A port for TLS waits for more than four letters.
    """
    now = time.monotonic()
    limit = now + min(SECONDS, (until - now) / 2)
    try:
        text = ask("srvr", target.address, limit, target.context.tls, target.server[0])
    except OSError:
        return
    if NOT_ALLOWED in text:
        return
    told = Srvr(text)
    checkup.mode, checkup.version = told.mode, told.version
    checkup.nodes, checkup.latency = told.nodes, told.latency
    if not told.serving:
        checkup.mode = "no quorum"


def _have_session(target: Target, checkup: Checkup, until: float) -> None:
    """One attempt: the client's second one would tell nothing new."""

    def resolver(_host: str, _port: int) -> list[Address]:
        return [target.address]

    client = target.context.unconnected(
        target.name + target.chroot, read_only=True, _resolver=resolver
    )
    try:
        left = max(until - time.monotonic(), 0.0)
        states = (State.CONNECTED, State.CONNECTED_READ_ONLY, State.DISCONNECTED)
        state = client.wait_for_state(*states, timeout=left)
        if state is None or not state.usable:
            why = list(client._session.failures.values())
            refused = "the server rejected the credentials"
            words = in_flags("".join(why[-1:]))
            checkup.problem = refused if state is State.AUTH_FAILED else words
            checkup.problem = checkup.problem or "no answer to the greeting"
            return
        checkup.session_timeout = client.session_timeout
        _use(target, client, checkup, until)
        if state is State.CONNECTED_READ_ONLY:
            checkup.mode = "read-only"
            if not target.context.options.read_only:
                checkup.problem = "it is read-only: it has lost its ensemble"
    finally:
        client.close()


def _use(target: Target, client: Client, checkup: Checkup, until: float) -> None:
    """Time some requests; the first one also tells whether the chroot is there."""
    try:
        for _ in range(PINGS):
            begin = time.monotonic()
            try:
                stat = client.pipeline.exists("/").result(max(until - begin, 0.001))
                if stat is None:
                    checkup.problem = f"the chroot {target.chroot} does not exist"
            except ServerError:
                pass  # it may not be read; the server has answered
            took = time.monotonic() - begin
            checkup.ping = min(took, checkup.ping or took)
    except ZooKeeperError as error:
        checkup.problem = in_flags(str(error))


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
