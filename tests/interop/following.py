"""Watching forever on an ensemble of three: ``python3 -m tests.interop.following [--seed N]``.

One client writes a node, version after version.  Another one watches it with ``watch_data`` through
a proxy before each server, in threads and then under asyncio.  Its connection is cut at random
frames, in either direction, and it is driven from server to server.  Printed is what must hold: the
last version was seen, none came behind a later one, ``skipped`` was False only where no version lay
between, and no server has a watch when the loop has been left.  Exit code 1 if anything was wrong.

The seed repeats the choice of the frames; which frames there are is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from random import Random

from tests.support.lock_helpers import Running, watch_count
from tests.support.real_servers import find_backend
from tests.support.server_control import Ensemble, poll
from zkwire import AsyncClient, Client, SeenData
from zkwire.testing.proxy import (
    Action,
    FaultProxy,
    Frame,
    cut_after,
    cut_before,
    rst_after,
    rst_before,
    truncate,
)

PATH = "/followed"
CUTS: tuple[Action, ...] = (cut_before, cut_after, rst_before, rst_after, truncate(9))
WITHIN = 6  # frames, of which one is cut
PATIENCE = 60.0
GRACE = 10.0  # for what the client tells the servers
SLOW = 0.002  # seconds that a reader may take for a state


@dataclass
class Seen:
    """What a reader has seen, and what of it was wrong."""

    count: int = 0
    last: int = -1
    back: int = 0
    lies: int = 0
    skipped: int = 0
    zxid: int = field(default=-1, repr=False)

    def add(self, seen: SeenData) -> None:
        assert seen.stat is not None
        self.count += 1
        self.skipped += seen.skipped
        self.back += seen.stat.mzxid <= self.zxid
        self.lies += self.last >= 0 and not seen.skipped and seen.stat.version != self.last + 1
        self.last, self.zxid = seen.stat.version, seen.stat.mzxid


class Network:
    """The way of the reader to the servers: one proxy before each."""

    def __init__(self, ensemble: Ensemble, seed: int) -> None:
        self.cuts = self.changes = 0
        self._random = Random(seed)
        self._countdown: int | None = None  # frames until the next cut
        self._exit = ExitStack()
        self.proxies = [
            self._exit.enter_context(FaultProxy(server.hosts)) for server in ensemble.servers
        ]
        for proxy in self.proxies:
            proxy.rule(self._choose)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def hosts(self) -> str:
        return ",".join(proxy.hosts for proxy in self.proxies)

    def _choose(self, _: Frame) -> Action | None:
        if self._countdown is None:
            return None
        self._countdown -= 1
        if self._countdown > 0:
            return None
        self._countdown = None
        self.cuts += 1
        return self._random.choice(CUTS)

    def cut_soon(self) -> None:
        """Cut the connection at one of the next frames."""
        self._countdown = self._random.randint(1, WITHIN)

    def settled(self) -> bool:
        """Whether the last cut has happened."""
        return self._countdown is None

    def change_server(self) -> None:
        """Drive the reader to another server."""
        left = next((proxy for proxy in self.proxies if proxy.connections), self.proxies[0])
        others = [proxy for proxy in self.proxies if proxy is not left]
        left.refuse()
        left.cut_all()
        poll("another server", lambda: any(p.connections for p in others) or None, PATIENCE)
        left.refuse(False)
        self.changes += 1


def write(client: Client, network: Network, versions: int, cuts: int, changes: int) -> None:
    """Write this many versions, with so many cuts and changes evenly among them."""
    for version in range(1, versions + 1):
        client.set_data(PATH, b"%d" % version)
        if version * cuts // versions > (version - 1) * cuts // versions:
            poll("the last cut", lambda: network.settled() or None, PATIENCE)
            network.cut_soon()
        if version * changes // versions > (version - 1) * changes // versions:
            network.change_server()


def watches_left(ensemble: Ensemble, client: Client | AsyncClient) -> int:
    """The watches that stay in a client that has left its loop, and at the servers."""

    def left() -> int:
        at_servers = sum(watch_count(server) for server in ensemble.servers)
        return client._session.watch_count + at_servers

    with suppress(TimeoutError):
        poll("no watch is left", lambda: left() == 0 or None, GRACE)
    return left()


def in_threads(hosts: str, last: int, seed: int, ensemble: Ensemble) -> tuple[Seen, int]:
    """Read until the last version; what was seen, and how many watches are left then."""
    seen, random = Seen(), Random(seed)
    with Client(hosts) as client:
        for one in client.watch_data(PATH):
            seen.add(one)
            if seen.last >= last:
                break
            time.sleep(random.random() * SLOW)
        return seen, watches_left(ensemble, client)


def under_asyncio(hosts: str, last: int, seed: int, ensemble: Ensemble) -> tuple[Seen, int]:
    """The same, with the other client."""

    async def read() -> tuple[Seen, int]:
        seen, random = Seen(), Random(seed)
        async with AsyncClient(hosts) as client:
            async for one in client.watch_data(PATH):
                seen.add(one)
                if seen.last >= last:
                    break
                await asyncio.sleep(random.random() * SLOW)
            return seen, await asyncio.to_thread(watches_left, ensemble, client)

    return asyncio.run(read())


READERS: dict[str, Callable[[str, int, int, Ensemble], tuple[Seen, int]]] = {
    "threads": in_threads,
    "asyncio": under_asyncio,
}


def follow(
    ensemble: Ensemble, name: str, versions: int, cuts: int, changes: int, seed: int
) -> bool:
    """One run; whether everything was right."""
    began = time.monotonic()
    with Network(ensemble, seed) as network, Client(ensemble.hosts) as client:
        client.create(PATH, b"0")
        read = READERS[name]
        reader = Running(lambda: read(network.hosts, versions, seed, ensemble))
        write(client, network, versions, cuts, changes)
        try:
            seen, left = reader.result(PATIENCE)
        except TimeoutError:
            print(f"{name}: WRONG: the last version was not seen; seed {seed}", flush=True)
            return False
        client.delete(PATH)
    right = seen.last == versions and not (seen.back or seen.lies or left)
    print(
        f"{name}: {'right' if right else 'WRONG'}: last value {seen.last} of {versions}, "
        f"{seen.back} times back, {seen.lies} times skipped without a word, {left} watches left; "
        f"{seen.count} states seen, {seen.skipped} of them behind skipped ones, {network.cuts} "
        f"cuts, {network.changes} changes of the server, {time.monotonic() - began:.1f} s, "
        f"seed {seed}",
        flush=True,
    )
    return right and network.cuts >= cuts - 1 and network.changes == changes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--versions", type=int, default=5000)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--reader", choices=sorted(READERS), action="append")
    asked = parser.parse_args(arguments)
    with find_backend().ensemble() as ensemble:
        outcomes = [
            follow(ensemble, name, asked.versions, asked.cuts, asked.changes, asked.seed)
            for name in asked.reader or READERS
        ]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
