"""The kinds of trouble of a chaos run; each function makes one and heals it again.

What happens to servers ends with all three serving, so that no two of these faults together can
lose what ZooKeeper has promised to keep: a wiped member must find the other two whole.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from tests.interop.chaos_log import Disowned
from tests.interop.chaos_stage import Stage
from tests.interop.chaos_ways import clock
from tests.interop.chaos_workers import KEYS, ROOT, SESSION_TIMEOUT
from tests.support.installed_servers import InstalledServer
from tests.support.lock_helpers import close_session, read_frame
from tests.support.server_control import poll
from zkwire import Client, NoNodeError, ZooKeeperError
from zkwire.jute.frames import frame
from zkwire.jute.records import ConnectRequest, ConnectResponse
from zkwire.testing.proxy import (
    Action,
    FaultProxy,
    Frame,
    black_hole,
    cut_after,
    cut_before,
    delay,
    drip,
    rst_before,
    truncate,
)
from zkwire.testing.proxy.faults import Step

SOCKET_SECONDS = 5.0
FULL_SECONDS = 4.0
STORM = 50
HOLDER_LOOKS = 40
HOLDER_SECONDS = 0.05
QUEUES = ("sq", "el", "re", "rw", *KEYS["multi"])
"""Whose nodes are deleted. Those of single-node locks are not: `AsyncBlockingLock` says why."""

WRITES = ("create2", "delete", "multi", "get_children", "get_data")


def _short_or_fatal(stage: Stage) -> None:
    """Wait for a while that sessions outlive, or for one that they do not."""
    fatal = stage.rng.random() < 0.5
    least, most = (1.1 * SESSION_TIMEOUT, 1.5 * SESSION_TIMEOUT) if fatal else (0.2, 2.0)
    _pause(stage, least, most)


def _pause(stage: Stage, least: float, most: float) -> None:
    time.sleep(stage.rng.uniform(least, most))


# --- servers --------------------------------------------------------------------------------------


def _kill(stage: Stage, *members: InstalledServer) -> None:
    for member in members:
        member.kill()
    _pause(stage, 0.0, 1.0)
    stage.whole()


def leader_killed(stage: Stage) -> None:
    _kill(stage, stage.leader())


def follower_killed(stage: Stage) -> None:
    _kill(stage, stage.follower())


def majority_killed(stage: Stage) -> None:
    _kill(stage, stage.leader(), stage.follower())


def leader_stopped(stage: Stage) -> None:
    stage.leader().stop()
    _pause(stage, 0.0, 0.5)
    stage.whole()


def rolling_restart(stage: Stage) -> None:
    for member in stage.members:
        member.stop()
        stage.whole()


def _stand_still(stage: Stage, member: InstalledServer) -> None:
    member.pause()
    _pause(stage, 0.2, 0.9 * SESSION_TIMEOUT)
    member.resume()
    stage.whole()


def leader_paused(stage: Stage) -> None:
    _stand_still(stage, stage.leader())


def follower_paused(stage: Stage) -> None:
    _stand_still(stage, stage.follower())


def member_wiped(stage: Stage) -> None:
    member = stage.follower()
    member.kill()
    shutil.rmtree(member.directory / "data" / "version-2", ignore_errors=True)
    stage.whole()


def disk_full(stage: Stage) -> bool:
    """One member has no more room: the size of its process's files is limited.

    It fails as late and in the same place as with a full file system, with another error.  With the
    next piece of its log of transactions it stops serving, and says so only in its log: the process
    lives and keeps its ports.
    """
    member = stage.rng.choice(stage.members)
    log = member.directory / "log"
    logs = (member.directory / "data" / "version-2").glob("log.*")
    size, began = max((one.stat().st_size for one in logs), default=65536), log.stat().st_size
    resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (size, size))
    try:
        full = b"File too large"
        poll("full", lambda: full in log.read_bytes()[began:] or None, FULL_SECONDS)
        _pause(stage, 0.0, 1.0)
    except TimeoutError:
        return False
    finally:
        member.kill()  # a new process has room again
        stage.whole()
    return True


# --- links ----------------------------------------------------------------------------------------


def _some(stage: Stage) -> FaultProxy:
    return stage.rng.choice(stage.proxies)


def _anybody(proxies: Iterable[FaultProxy]) -> bool:
    """Whether a client is connected there."""
    return any(proxy.connections for proxy in proxies)


def links_cut(stage: Stage) -> bool:
    chosen = stage.rng.sample(stage.proxies, stage.rng.randint(1, 3))
    hit = _anybody(chosen)
    for proxy in chosen:
        proxy.cut_all()
    return hit


def links_reset(stage: Stage) -> bool:
    chosen = stage.rng.sample(stage.proxies, stage.rng.randint(1, 3))
    hit = _anybody(chosen)
    for proxy in chosen:
        proxy.reset_all()
    return hit


def links_silent(stage: Stage) -> bool:
    """One member is out of the clients' reach; they do not hear of it."""
    proxy = _some(stage)
    hit = _anybody([proxy])
    proxy.black_hole()
    _pause(stage, 0.3, 0.9 * SESSION_TIMEOUT)
    proxy.black_hole(False)
    return hit


def clients_cut_off(stage: Stage) -> bool:
    """All members are; now and then for longer than the sessions live."""
    hit = _anybody(stage.proxies)
    for proxy in stage.proxies:
        proxy.black_hole()
    _short_or_fatal(stage)
    for proxy in stage.proxies:
        proxy.black_hole(False)
    return hit


def member_refuses(stage: Stage) -> bool:
    """Two of three let nobody in, and throw out who is."""
    chosen = stage.rng.sample(stage.proxies, 2)
    hit = _anybody(chosen)
    for proxy in chosen:
        proxy.refuse()
        proxy.cut_all()
    _pause(stage, 0.2, 1.5)
    for proxy in chosen:
        proxy.refuse(False)
    return hit


class _Counted:
    """An action, and how many frames it was done to."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self.hits = 0

    def __call__(self, passing: Frame) -> Iterable[Step]:
        self.hits += 1
        return self._action(passing)


def _ruled(stage: Stage, action: Action, seconds: float, share: float = 1.0) -> bool:
    """Do this to a share of all frames behind the handshake, for a time."""
    counted = _Counted(action)

    def rule(passing: Frame) -> Action | None:
        return counted if passing.kind != "connect" and stage.rng.random() < share else None

    for proxy in stage.proxies:
        proxy.rule(rule)
    _pause(stage, seconds, seconds)
    return counted.hits > 0


def links_slow(stage: Stage) -> bool:
    return _ruled(stage, delay(stage.rng.uniform(0.01, 0.1)), stage.rng.uniform(0.5, 2.0))


def links_unsteady(stage: Stage) -> bool:
    """Some frames come late, and all behind them on the same connection."""
    return _ruled(stage, delay(stage.rng.uniform(0.1, 0.6)), stage.rng.uniform(0.5, 2.0), 0.02)


def _struck(stage: Stage, action: Action) -> bool:
    """Do this to some of the next requests that matter."""
    counted = _Counted(action)
    for proxy in stage.proxies:
        for _ in range(4):
            proxy.on(stage.rng.choice(WRITES), nth=stage.rng.randint(1, 8), action=counted)
    _pause(stage, 0.4, 0.8)
    return counted.hits > 0


def requests_lost(stage: Stage) -> bool:
    return _struck(stage, cut_before)


def replies_lost(stage: Stage) -> bool:
    return _struck(stage, cut_after)


def requests_reset(stage: Stage) -> bool:
    return _struck(stage, rst_before)


def requests_truncated(stage: Stage) -> bool:
    return _struck(stage, truncate(stage.rng.randint(1, 20)))


def replies_trickle(stage: Stage) -> bool:
    return _struck(stage, drip(stage.rng.uniform(0.1, 1.0)))


def connections_silent(stage: Stage) -> bool:
    """From one of the next requests on a connection says nothing more."""
    return _struck(stage, black_hole)


def connection_storm(stage: Stage) -> None:
    """Many connections at once, to each member, that say nothing and go."""
    with ExitStack() as connections:
        for proxy in stage.proxies:
            for _ in range(STORM):
                with suppress(OSError):
                    host, _, port = proxy.hosts.rpartition(":")
                    connections.enter_context(socket.create_connection((host, int(port)), 1.0))


# --- clients --------------------------------------------------------------------------------------


def client_killed(stage: Stage) -> None:
    stage.replace(stage.rng.choice(stage.crews))


def client_paused(stage: Stage) -> None:
    crew = stage.rng.choice(stage.crews)
    os.kill(crew.process.pid, signal.SIGSTOP)
    try:
        _short_or_fatal(stage)
    finally:
        os.kill(crew.process.pid, signal.SIGCONT)


def _resumed(stage: Stage, *, close: bool) -> bool:
    """Go on with somebody's session on a connection of one's own."""
    chosen = stage.some_session()
    if chosen is None:
        return False
    member = stage.rng.choice(stage.members)
    session, passwd = chosen
    request = ConnectRequest(0, 0, round(SESSION_TIMEOUT * 1000), session, passwd, False)
    with suppress(OSError, EOFError, ZooKeeperError):
        address = (member.host, member.port)
        with socket.create_connection(address, SOCKET_SECONDS) as connection:
            connection.settimeout(SOCKET_SECONDS)
            connection.sendall(frame(request.encode()))
            answer = ConnectResponse.decode(read_frame(connection))
            if answer.session_id == session and close:
                taking = Disowned(clock(), session=session)
                stage.takings.append(taking)
                if close_session(connection):
                    taking.answered = clock()
            return answer.session_id == session
    return False


def session_expired(stage: Stage) -> bool:
    return _resumed(stage, close=True)


def session_moved(stage: Stage) -> bool:
    return _resumed(stage, close=False)


def _queue(client: Client, key: str) -> list[str]:
    """The paths of those who stand there, in order."""
    try:
        names = sorted(client.get_children(f"{ROOT}/{key}"), key=lambda name: name[-10:])
    except NoNodeError:
        return []
    return [f"{ROOT}/{key}/{name}" for name in names]


def _long_holders(client: Client) -> list[str]:
    """Those who are first for a while: most hold for so short a time that no delete hits them."""
    before: set[str] = set()
    for _ in range(HOLDER_LOOKS):
        now = {path for key in QUEUES for path in _queue(client, key)[:1]}
        if both := sorted(before & now):
            return both
        before = now
        time.sleep(HOLDER_SECONDS)
    return []


def _delete(stage: Stage, client: Client, paths: list[str]) -> bool:
    """Delete one of these nodes."""
    path = stage.rng.choice(paths) if paths else ""
    stat = client.exists(path) if path else None
    if stat is None:
        return False
    taking = Disowned(clock(), fence=stat.czxid)
    stage.takings.append(taking)
    client.delete(path)
    taking.answered = clock()
    return True


def holders_node_deleted(stage: Stage) -> bool:
    with suppress(ZooKeeperError), stage.outsider() as client:
        return _delete(stage, client, _long_holders(client))
    return False


def waiters_node_deleted(stage: Stage) -> bool:
    with suppress(ZooKeeperError), stage.outsider() as client:
        return _delete(stage, client, _queue(client, stage.rng.choice(QUEUES))[1:])
    return False


Fault = Callable[[Stage], bool | None]
"""False if it came to nothing: there was nobody there to suffer it."""

ON_SERVERS: tuple[Fault, ...] = (
    leader_killed, follower_killed, majority_killed, leader_stopped, leader_paused,
    follower_paused, rolling_restart, member_wiped, disk_full,
)  # fmt: skip
ON_LINKS: tuple[Fault, ...] = (
    links_cut, links_reset, links_silent, clients_cut_off, member_refuses, links_slow,
    links_unsteady, requests_lost, replies_lost, requests_reset, requests_truncated,
    replies_trickle, connections_silent, connection_storm,
)  # fmt: skip
ON_CLIENTS: tuple[Fault, ...] = (
    client_killed, client_paused, session_expired, session_moved, holders_node_deleted,
    waiters_node_deleted,
)  # fmt: skip
ALL: tuple[Fault, ...] = (*ON_SERVERS, *ON_LINKS, *ON_CLIENTS)
