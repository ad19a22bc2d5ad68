"""Situation 7: the list of servers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.driver import LOGS
from tests.interop.atlas.stage import LONG, Trial
from tests.support.server_control import free_port
from zkwire.testing import FaultProxy
from zkwire.testing.proxy.faults import forward
from zkwire.testing.proxy.proxy import resolve
from zkwire.testing.proxy.relay import Relay

START = 30.0
NAME = "atlas.test"
ADDRESS_SECONDS = 45.0
LONGEST = 60.0
"""The session timeout that outlives the cache of names of a Java machine (30 s)."""


def first(trial: Trial, address: str) -> Seen:
    """A list of this address and the good one."""
    trial.make(trial.path, b"right")
    hosts, milliseconds = f"{address},{trial.proxy.hosts}", round(LONG * 1000)
    answer = trial.ask("connect", hosts, milliseconds, limit=START)
    if answer.words is None:
        return Seen(cells.HUNG, f"not connected within {START:g} s")
    if not answer.words.startswith("ok"):
        return Seen(cells.LESS, answer.words, answer.seconds)
    got = trial.ask("get", trial.path, limit=START)
    if got.words != "ok right":
        return Seen(cells.LESS, f"connected; then {got.words}", answer.seconds)
    return Seen(cells.TRUTH, "connected", answer.seconds)


def dead(trial: Trial) -> Seen:
    return first(trial, f"127.0.0.1:{free_port()}")


def silent(trial: Trial) -> Seen:
    """It takes connections and says nothing."""
    with FaultProxy(trial.server.hosts) as hole:
        hole.black_hole()
        return first(trial, hole.hosts)


def read_only(trial: Trial) -> Seen:
    """A server without its quorum; the client has not asked for that."""
    return first(trial, trial.stage.read_only.hosts)


def behind(trial: Trial) -> Seen:
    """The next server has not seen what the client has; the first one is back after 2 s."""
    node = f"{trial.path}-e"
    trial.make(trial.path, b"right")
    with FaultProxy(trial.stage.empty.hosts) as other:
        other.refuse(True)
        trial.connect(f"{trial.proxy.hosts},{other.hosts}", LONG)
        trial.ask("ephemeral", node, "mine")
        session, since = trial.session_id(), time.monotonic()
        other.refuse(False)
        trial.away()
        time.sleep(2.0)
        trial.proxy.refuse(False)
        back = trial.back(START)
        refused = any(frame.op == "connect" for frame in other.frames())
    lost = trial.wait_state(trial.client.lost, 0.0, since)
    same = trial.session_id() == session
    there = trial.stat(node) is not None
    tried = "" if refused else "; the server that is behind was not tried"
    if not back.startswith("ok"):
        return Seen(cells.HUNG, f"does not come back within {START:g} s{tried}")
    if lost and same:
        return Seen(cells.WRONG, f"{lost.words} of a session that goes on{tried}")
    words = "goes on" if same and there else "goes on without its node" if same else "is another"
    return Seen(cells.TRUTH if same and there else cells.LESS, f"the session {words}{tried}")


def renamed(trial: Trial) -> Seen:
    """The address behind a name changes; the old one refuses."""
    trial.make(trial.path, b"right")
    port = free_port()
    with ExitStack() as stack, tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        point_to(Path(hosts.name), "127.0.0.2")
        mount = f'mount --bind {hosts.name} /etc/hosts && exec "$@"'
        prefix = ("unshare", "-m", "sh", "-c", mount, "sh")
        trial.driver = stack.enter_context(trial.client.drive(LOGS, prefix))
        with relay(trial, "127.0.0.2", port):
            trial.connect(f"{NAME}:{port}", LONGEST)
        point_to(Path(hosts.name), "127.0.0.3")
        since = time.monotonic()
        with relay(trial, "127.0.0.3", port):
            back = trial.back(ADDRESS_SECONDS)
            took = time.monotonic() - since
        trial.driver.kill()
    if not back.startswith("ok"):
        return Seen(cells.HUNG, f"does not find the new address within {ADDRESS_SECONDS:g} s")
    return Seen(cells.TRUTH, "finds the new address", took)


def point_to(hosts: Path, address: str) -> None:
    with hosts.open("w") as file:  # the same file, for it is mounted
        file.write(f"127.0.0.1 localhost\n{address} {NAME}\n")


@contextmanager
def relay(trial: Trial, host: str, port: int) -> Iterator[None]:
    """All connections to this address go to the server."""

    def steps(arrivals: object) -> list[object]:
        return [(frame, tuple(forward(frame))) for frame, _ in arrivals]  # type: ignore[attr-defined]

    upstream = resolve(trial.server.hosts)
    one = Relay(upstream, steps, lambda: None, listen=(host, port))  # type: ignore[arg-type]
    try:
        yield
    finally:
        one.close()


SITUATIONS = (
    Situation(
        7,
        "The list of servers",
        "The seconds are from the call that connects to its end, in the last row from the change of"
        " the address to the first answer. A client that begins at a random place of the list has"
        " the other server first in half of the runs.",
        [
            Point("list-dead", "one of two refuses connections", dead, times=6),
            Point("list-silent", "one of two takes connections and is silent", silent, times=6),
            Point("list-read-only", "one of two is read-only", read_only, times=6),
            Point("list-behind", "one of two is behind, the other away for 2 s", behind, times=5),
            Point("list-renamed", "a name whose address changes", renamed, times=2),
        ],
    ),
)  # fmt: skip
