"""What a trial works with: a server, a proxy of its own, a session of the client, an observer."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tests.interop.atlas.cells import LACKS, Seen
from tests.interop.atlas.clients import Client
from tests.interop.atlas.driver import Answer, Call, Driver, Told
from tests.support.server_control import Ensemble, ZooKeeperServer
from zkwire import Client as Observer
from zkwire import NodeExistsError, Stat, ZooKeeperError
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import Frame
from zkwire.testing.proxy.faults import Action

TIMEOUT = 3.0
"""The session timeout of all trials, in seconds."""
LIMIT = 15.0
"""A call without an answer after so long counts as hung; the connection is back long before."""
SOON = 0.3
CHANGES = frozenset({"create", "create2", "set_data", "delete", "multi"})

_numbers = itertools.count()


class Missing(Exception):
    """The client has no such operation."""


class Stage:
    """The servers, shared by all trials; those of `restarting` and `ensemble` one at a time."""

    def __init__(
        self, server: ZooKeeperServer, restarting: ZooKeeperServer, ensemble: Ensemble
    ) -> None:
        self.server = server
        self.restarting = restarting
        self.ensemble = ensemble
        self.restarts = Restarts(restarting)
        self.observer = Observer(server.hosts, session_timeout=30.0)

    def close(self) -> None:
        self.observer.close()


class Restarts:
    """The restarting server, which all trials that wait for it share: one restart for all."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._changed = threading.Condition()
        self._waiting = self._done = 0
        self._latest = 0.0

    def wait(self) -> None:
        """Return after a restart that began after this call."""
        with self._changed:
            mine = self._done + 1
            self._waiting += 1
            self._latest = time.monotonic()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= mine)

    def run(self, over: Callable[[], bool]) -> None:
        """Restart it when trials wait and no other has come for a second, until it is over."""
        while not over():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting > 0, 0.5)
                still = self._waiting and time.monotonic() - self._latest < 1.5
            if not self._waiting:
                continue
            if still:
                time.sleep(0.2)
                continue
            with self._changed:
                self._waiting = 0
            self._server.kill()
            self._server.start()
            with self._changed:
                self._done += 1
                self._changed.notify_all()


class Trial:
    """One run of one point with one client."""

    def __init__(
        self, stage: Stage, client: Client, driver: Driver, server: ZooKeeperServer | None = None
    ) -> None:
        number = next(_numbers)
        self.stage = stage
        self.client = client
        self.driver = driver
        self.session = f"s{number}"
        self.path = f"/atlas-{number}"
        self.server = server or stage.server
        self.proxy = FaultProxy(self.server.hosts)
        self.observer = stage.observer

    def close(self) -> None:
        """End the session, if it can be ended, and the proxy."""
        if self.driver.ended_at is None:
            self.driver.start(self.session, "close").wait(0.5)
        self.proxy.close()

    # --- the client ---

    def connect(self, hosts: str | None = None, timeout: float = TIMEOUT) -> None:
        """Connect the client; RuntimeError if it cannot."""
        milliseconds = round(timeout * 1000)
        answer = self.ask("connect", hosts or self.proxy.hosts, milliseconds, limit=30.0)
        if not (answer.words or "").startswith("ok"):
            raise RuntimeError(f"{self.client.name} does not connect: {answer}")

    def start(self, *words: object) -> Call:
        return self.driver.start(self.session, *words)

    def ask(self, *words: object, limit: float = LIMIT) -> Answer:
        """A call; `Missing` if the client has no such thing."""
        answer = self.start(*words).wait(limit)
        if answer.lacks:
            raise Missing(str(words[0]))
        return answer

    def missing(self, word: object) -> Seen:
        """The result where the client has no such operation."""
        return Seen(LACKS, f"no {word}")

    def states(self, since: float = 0.0) -> list[str]:
        """The states that it has told."""
        return [one.words for one in self.told("state", since)]

    def told(self, what: str, since: float = 0.0) -> list[Told]:
        mine = [one for one in self.driver.told if one.session == self.session]
        return [one for one in mine if one.what == what and one.at >= since]

    def wait_event(self, limit: float, since: float) -> Told | None:
        """Of a watch."""
        return self.driver.wait_told(
            lambda one: (one.session, one.what) == (self.session, "event") and one.at >= since,
            limit,
        )

    def wait_state(self, names: frozenset[str], limit: float, since: float) -> Told | None:
        """One of these states."""
        return self.driver.wait_told(
            lambda one: (
                (one.session, one.what) == (self.session, "state")
                and one.at >= since
                and one.words in names
            ),
            limit,
        )

    # --- the proxy ---

    def at_change(self, action: Action, *, ops: frozenset[str] = CHANGES, nth: int = 1) -> None:
        """Do this to the nth request of these operations from now on."""
        left = itertools.count(1)

        def rule(frame: Frame) -> Action | None:
            chosen = frame.direction == "c2s" and frame.op in ops
            return action if chosen and next(left) == nth else None

        self.proxy.rule(rule)

    def sent(self, ops: frozenset[str] = CHANGES) -> int:
        """How many requests of these operations the client has sent."""
        return sum(f.direction == "c2s" and f.op in ops for f in self.proxy.frames())

    def away(self) -> None:
        """Close the connections, and refuse new ones."""
        self.proxy.refuse(True)
        self.proxy.cut_all()

    def session_id(self) -> int:
        """Of the latest session that a server has given."""
        replies = [f for f in self.proxy.frames() if f.direction == "s2c" and f.op == "connect"]
        return int.from_bytes(replies[-1].body[8:16], "big", signed=True)

    # --- the server ---

    def make(self, path: str, data: bytes = b"") -> None:
        with suppress(NodeExistsError):
            self.observer.create(path, data)

    def stat(self, path: str) -> Stat | None:
        return self.observer.exists(path)

    def children(self, path: str) -> list[str]:
        return list(self.observer.get_children(path))


def run(
    trial_of: Callable[[Trial], Seen], stage: Stage, client: Client, driver: Driver
) -> Seen:
    """One trial; what the client has none of is said so."""
    trial = Trial(stage, client, driver)
    try:
        return trial_of(trial)
    except Missing:
        return Seen(LACKS, "")
    finally:
        with suppress(ZooKeeperError, RuntimeError):
            trial.close()
