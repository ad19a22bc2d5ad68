"""The kinds of trouble of a chaos run, by name; each makes one and heals it again.

What happens to servers ends with all three serving, so that no two of these faults together can
lose what ZooKeeper has promised to keep: a wiped member must find the other two whole.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from tests.interop.chaos_cluster import Cluster
from tests.interop.chaos_ways import SESSION_TIMEOUT
from tests.support.installed_servers import InstalledServer
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

STORM = 50
WRITES = ("create2", "delete", "multi", "get_children", "get_data")


Fault = Callable[[Cluster], bool | None]
"""False if it came to nothing: there was nobody there to suffer it."""


def _pause(cluster: Cluster, least: float, most: float) -> None:
    time.sleep(cluster.rng.uniform(least, most))


def _short_or_fatal(cluster: Cluster) -> None:
    """Wait for a while that sessions outlive, or for one that they do not."""
    fatal = cluster.rng.random() < 0.5
    least, most = (1.1 * SESSION_TIMEOUT, 1.5 * SESSION_TIMEOUT) if fatal else (0.2, 2.0)
    _pause(cluster, least, most)


# --- servers --------------------------------------------------------------------------------------


def _kill(cluster: Cluster, *members: InstalledServer) -> None:
    for member in members:
        member.kill()
    _pause(cluster, 0.0, 1.0)
    cluster.whole()


def _stop(cluster: Cluster, *members: InstalledServer) -> None:
    for member in members:
        member.stop()
        _pause(cluster, 0.0, 0.5)
        cluster.whole()


def _stand_still(cluster: Cluster, member: InstalledServer) -> None:
    member.pause()
    _pause(cluster, 0.2, 0.9 * SESSION_TIMEOUT)
    member.resume()
    cluster.whole()


def _wipe(cluster: Cluster) -> None:
    member = cluster.follower()
    member.kill()
    shutil.rmtree(member.directory / "data" / "version-2", ignore_errors=True)
    cluster.whole()


ON_SERVERS: dict[str, Fault] = {
    "leader_killed": lambda cluster: _kill(cluster, cluster.leader()),
    "follower_killed": lambda cluster: _kill(cluster, cluster.follower()),
    "majority_killed": lambda cluster: _kill(cluster, cluster.leader(), cluster.follower()),
    "leader_stopped": lambda cluster: _stop(cluster, cluster.leader()),
    "rolling_restart": lambda cluster: _stop(cluster, *cluster.members),
    "leader_paused": lambda cluster: _stand_still(cluster, cluster.leader()),
    "follower_paused": lambda cluster: _stand_still(cluster, cluster.follower()),
    "member_wiped": _wipe,
}


# --- links ----------------------------------------------------------------------------------------


def _struck_links(
    cluster: Cluster,
    number: int,
    begin: Callable[[FaultProxy], object],
    wait: Callable[[], object] = list,
) -> bool:
    """Do something to so many links, wait, and undo it; whether a client was connected there."""
    chosen = cluster.rng.sample(cluster.proxies, number)
    hit = any(proxy.connections for proxy in chosen)
    for proxy in chosen:
        begin(proxy)
    wait()
    cluster.heal()
    return hit


def _shut(proxy: FaultProxy) -> None:
    """Let nobody in, and throw out who is."""
    proxy.refuse()
    proxy.cut_all()


class _Counted:
    """An action, and how many frames it was done to."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self.hits = 0

    def __call__(self, passing: Frame) -> Iterable[Step]:
        self.hits += 1
        return self._action(passing)


def _ruled(cluster: Cluster, action: Action, share: float = 1.0) -> bool:
    """Do this to a share of all frames behind the handshake, for a time."""
    counted = _Counted(action)

    def rule(passing: Frame) -> Action | None:
        return counted if passing.kind != "connect" and cluster.rng.random() < share else None

    for proxy in cluster.proxies:
        proxy.rule(rule)
    _pause(cluster, 0.5, 2.0)
    return counted.hits > 0


def _struck(cluster: Cluster, action: Action) -> bool:
    """Do this to some of the next requests that matter."""
    counted = _Counted(action)
    for proxy in cluster.proxies:
        for _ in range(4):
            proxy.on(cluster.rng.choice(WRITES), nth=cluster.rng.randint(1, 8), action=counted)
    _pause(cluster, 0.4, 0.8)
    return counted.hits > 0


def _storm(cluster: Cluster) -> None:
    """Many connections at once, to each member, that say nothing and go."""
    with ExitStack() as connections:
        for proxy in cluster.proxies:
            for _ in range(STORM):
                with suppress(OSError):
                    host, _, port = proxy.hosts.rpartition(":")
                    connections.enter_context(socket.create_connection((host, int(port)), 1.0))


ON_LINKS: dict[str, Fault] = {
    "links_cut": lambda c: _struck_links(c, c.rng.randint(1, 3), FaultProxy.cut_all),
    "links_reset": lambda c: _struck_links(c, c.rng.randint(1, 3), FaultProxy.reset_all),
    # One member is out of the clients' reach, and they do not hear of it; all members are, now and
    # then for longer than the sessions live; two of three let nobody in.
    "links_silent": lambda c: _struck_links(
        c, 1, FaultProxy.black_hole, lambda: _pause(c, 0.3, 0.9 * SESSION_TIMEOUT)
    ),
    "clients_cut_off": lambda c: _struck_links(
        c, 3, FaultProxy.black_hole, lambda: _short_or_fatal(c)
    ),
    "member_refuses": lambda c: _struck_links(c, 2, _shut, lambda: _pause(c, 0.2, 1.5)),
    "links_slow": lambda c: _ruled(c, delay(c.rng.uniform(0.01, 0.1))),
    # Some frames come late, and all behind them on the same connection.
    "links_unsteady": lambda c: _ruled(c, delay(c.rng.uniform(0.1, 0.6)), 0.02),
    "requests_lost": lambda c: _struck(c, cut_before),
    "replies_lost": lambda c: _struck(c, cut_after),
    "requests_reset": lambda c: _struck(c, rst_before),
    "requests_truncated": lambda c: _struck(c, truncate(c.rng.randint(1, 20))),
    "replies_trickle": lambda c: _struck(c, drip(c.rng.uniform(0.1, 1.0))),
    # From one of the next requests on a connection says nothing more.
    "connections_silent": lambda c: _struck(c, black_hole),
    "connection_storm": _storm,
}


# --- clients --------------------------------------------------------------------------------------


def _pause_client(cluster: Cluster) -> None:
    crew = cluster.rng.choice(cluster.crews)
    os.kill(crew.process.pid, signal.SIGSTOP)
    try:
        _short_or_fatal(cluster)
    finally:
        os.kill(crew.process.pid, signal.SIGCONT)


ON_CLIENTS: dict[str, Fault] = {
    "client_killed": lambda cluster: cluster.replace(cluster.rng.choice(cluster.crews)),
    "client_paused": _pause_client,
}
ALL = {**ON_SERVERS, **ON_LINKS, **ON_CLIENTS}
