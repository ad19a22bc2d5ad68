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
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress

from tests.interop.chaos_cluster import Cluster
from tests.interop.chaos_ways import SESSION_TIMEOUT
from tests.support.installed_servers import InstalledServer
from tests.support.server_control import poll
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

FULL_SECONDS = 4.0
STORM = 50
WRITES = ("create2", "delete", "multi", "get_children", "get_data")


def _short_or_fatal(cluster: Cluster) -> None:
    """Wait for a while that sessions outlive, or for one that they do not."""
    fatal = cluster.rng.random() < 0.5
    least, most = (1.1 * SESSION_TIMEOUT, 1.5 * SESSION_TIMEOUT) if fatal else (0.2, 2.0)
    _pause(cluster, least, most)


def _pause(cluster: Cluster, least: float, most: float) -> None:
    time.sleep(cluster.rng.uniform(least, most))


# --- servers --------------------------------------------------------------------------------------


def _kill(cluster: Cluster, *members: InstalledServer) -> None:
    for member in members:
        member.kill()
    _pause(cluster, 0.0, 1.0)
    cluster.whole()


def leader_killed(cluster: Cluster) -> None:
    _kill(cluster, cluster.leader())


def follower_killed(cluster: Cluster) -> None:
    _kill(cluster, cluster.follower())


def majority_killed(cluster: Cluster) -> None:
    _kill(cluster, cluster.leader(), cluster.follower())


def leader_stopped(cluster: Cluster) -> None:
    cluster.leader().stop()
    _pause(cluster, 0.0, 0.5)
    cluster.whole()


def rolling_restart(cluster: Cluster) -> None:
    for member in cluster.members:
        member.stop()
        cluster.whole()


def _stand_still(cluster: Cluster, member: InstalledServer) -> None:
    member.pause()
    _pause(cluster, 0.2, 0.9 * SESSION_TIMEOUT)
    member.resume()
    cluster.whole()


def leader_paused(cluster: Cluster) -> None:
    _stand_still(cluster, cluster.leader())


def follower_paused(cluster: Cluster) -> None:
    _stand_still(cluster, cluster.follower())


def member_wiped(cluster: Cluster) -> None:
    member = cluster.follower()
    member.kill()
    shutil.rmtree(member.directory / "data" / "version-2", ignore_errors=True)
    cluster.whole()


def disk_full(cluster: Cluster) -> bool:
    """One member has no more room: the size of its process's files is limited.

    It fails as late and in the same place as with a full file system, with another error.  With the
    next piece of its log of transactions it stops serving, and says so only in its log: the process
    lives and keeps its ports.
    """
    member = cluster.rng.choice(cluster.members)
    log = member.directory / "log"
    logs = (member.directory / "data" / "version-2").glob("log.*")
    size, began = max((one.stat().st_size for one in logs), default=65536), log.stat().st_size
    resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (size, size))
    try:
        full = b"File too large"
        poll("full", lambda: full in log.read_bytes()[began:] or None, FULL_SECONDS)
        _pause(cluster, 0.0, 1.0)
    except TimeoutError:
        return False
    finally:
        member.kill()  # a new process has room again
        cluster.whole()
    return True


# --- links ----------------------------------------------------------------------------------------


def _struck_links(
    chosen: Sequence[FaultProxy],
    begin: Callable[[FaultProxy], object],
    end: Callable[[FaultProxy], object] | None = None,
    wait: Callable[[], object] = list,
) -> bool:
    """Do something to links, wait, and undo it; whether a client was connected there."""
    hit = any(proxy.connections for proxy in chosen)
    for proxy in chosen:
        begin(proxy)
    wait()
    for proxy in chosen if end is not None else ():
        end(proxy)  # type: ignore[misc]
    return hit


def _any_number(cluster: Cluster) -> list[FaultProxy]:
    return cluster.rng.sample(cluster.proxies, cluster.rng.randint(1, 3))


def links_cut(cluster: Cluster) -> bool:
    return _struck_links(_any_number(cluster), FaultProxy.cut_all)


def links_reset(cluster: Cluster) -> bool:
    return _struck_links(_any_number(cluster), FaultProxy.reset_all)


def _black_holes(
    cluster: Cluster, chosen: Sequence[FaultProxy], wait: Callable[[], object]
) -> bool:
    undo = lambda proxy: proxy.black_hole(False)  # noqa: E731
    return _struck_links(chosen, FaultProxy.black_hole, undo, wait)


def links_silent(cluster: Cluster) -> bool:
    """One member is out of the clients' reach; they do not hear of it."""
    one = [cluster.rng.choice(cluster.proxies)]
    return _black_holes(cluster, one, lambda: _pause(cluster, 0.3, 0.9 * SESSION_TIMEOUT))


def clients_cut_off(cluster: Cluster) -> bool:
    """All members are; now and then for longer than the sessions live."""
    return _black_holes(cluster, cluster.proxies, lambda: _short_or_fatal(cluster))


def member_refuses(cluster: Cluster) -> bool:
    """Two of three let nobody in, and throw out who is."""

    def shut(proxy: FaultProxy) -> None:
        proxy.refuse()
        proxy.cut_all()

    chosen = cluster.rng.sample(cluster.proxies, 2)
    wait = lambda: _pause(cluster, 0.2, 1.5)  # noqa: E731
    return _struck_links(chosen, shut, lambda proxy: proxy.refuse(False), wait)


class _Counted:
    """An action, and how many frames it was done to."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self.hits = 0

    def __call__(self, passing: Frame) -> Iterable[Step]:
        self.hits += 1
        return self._action(passing)


def _ruled(cluster: Cluster, action: Action, seconds: float, share: float = 1.0) -> bool:
    """Do this to a share of all frames behind the handshake, for a time."""
    counted = _Counted(action)

    def rule(passing: Frame) -> Action | None:
        return counted if passing.kind != "connect" and cluster.rng.random() < share else None

    for proxy in cluster.proxies:
        proxy.rule(rule)
    _pause(cluster, seconds, seconds)
    return counted.hits > 0


def links_slow(cluster: Cluster) -> bool:
    return _ruled(cluster, delay(cluster.rng.uniform(0.01, 0.1)), cluster.rng.uniform(0.5, 2.0))


def links_unsteady(cluster: Cluster) -> bool:
    """Some frames come late, and all behind them on the same connection."""
    return _ruled(
        cluster, delay(cluster.rng.uniform(0.1, 0.6)), cluster.rng.uniform(0.5, 2.0), 0.02
    )


def _struck(cluster: Cluster, action: Action) -> bool:
    """Do this to some of the next requests that matter."""
    counted = _Counted(action)
    for proxy in cluster.proxies:
        for _ in range(4):
            proxy.on(cluster.rng.choice(WRITES), nth=cluster.rng.randint(1, 8), action=counted)
    _pause(cluster, 0.4, 0.8)
    return counted.hits > 0


def requests_lost(cluster: Cluster) -> bool:
    return _struck(cluster, cut_before)


def replies_lost(cluster: Cluster) -> bool:
    return _struck(cluster, cut_after)


def requests_reset(cluster: Cluster) -> bool:
    return _struck(cluster, rst_before)


def requests_truncated(cluster: Cluster) -> bool:
    return _struck(cluster, truncate(cluster.rng.randint(1, 20)))


def replies_trickle(cluster: Cluster) -> bool:
    return _struck(cluster, drip(cluster.rng.uniform(0.1, 1.0)))


def connections_silent(cluster: Cluster) -> bool:
    """From one of the next requests on a connection says nothing more."""
    return _struck(cluster, black_hole)


def connection_storm(cluster: Cluster) -> None:
    """Many connections at once, to each member, that say nothing and go."""
    with ExitStack() as connections:
        for proxy in cluster.proxies:
            for _ in range(STORM):
                with suppress(OSError):
                    host, _, port = proxy.hosts.rpartition(":")
                    connections.enter_context(socket.create_connection((host, int(port)), 1.0))


# --- clients --------------------------------------------------------------------------------------


def client_killed(cluster: Cluster) -> None:
    cluster.replace(cluster.rng.choice(cluster.crews))


def client_paused(cluster: Cluster) -> None:
    crew = cluster.rng.choice(cluster.crews)
    os.kill(crew.process.pid, signal.SIGSTOP)
    try:
        _short_or_fatal(cluster)
    finally:
        os.kill(crew.process.pid, signal.SIGCONT)


Fault = Callable[[Cluster], bool | None]
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
ON_CLIENTS: tuple[Fault, ...] = (client_killed, client_paused)
ALL: tuple[Fault, ...] = (*ON_SERVERS, *ON_LINKS, *ON_CLIENTS)
