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
from zkwire import Credentials, Event, EventType, NodeExistsError, Stat, Watch, ZooKeeperError
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import Frame, drop
from zkwire.testing.proxy.faults import Action

TIMEOUT = 3.0
"""The session timeout of all trials, in seconds."""
LONG = 10.0
"""The session timeout where none is to expire, in seconds."""
LIMIT = 15.0
"""A call without an answer after so long counts as hung; the connection is back long before."""
SOON = 0.3
WATCHING = frozenset({"get_data", "get_children", "get_children2", "exists", "add_watch"})
CHANGES = frozenset({"create", "create2", "set_data", "delete", "multi"})

_numbers = itertools.count()


class Missing(Exception):
    """The client has no such operation."""


class Stage:
    """The servers, shared by all trials; `empty` stays behind all others."""

    def __init__(
        self,
        server: ZooKeeperServer,
        restarting: ZooKeeperServer,
        ensemble: Ensemble,
        read_only: ZooKeeperServer,
        empty: ZooKeeperServer,
    ) -> None:
        self.server = server
        self.restarting = restarting
        self.ensemble = ensemble
        self.read_only = read_only
        self.empty = empty
        self.restarts = Restarts(restarting)
        self.observer = Observer(server.hosts, session_timeout=30.0)

    def close(self) -> None:
        self.observer.close()


class Restarts:
    """One restart of a server for all trials that wait for it, and none while they look."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._changed = threading.Condition()
        self._waiting = self._done = self._looking = 0
        self._latest = 0.0

    def wait(self) -> None:
        """Return after a restart that began after this call; `release` follows."""
        with self._changed:
            mine = self._done + 1
            self._waiting += 1
            self._latest = time.monotonic()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= mine)

    def release(self) -> None:
        """The trial has seen what it came for."""
        with self._changed:
            self._looking -= 1
            self._changed.notify_all()

    def run(self, over: Callable[[], bool]) -> None:
        """Restart it when trials wait and no other has come for a second, until it is over."""
        while not over():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting > 0 and not self._looking, 0.5)
                still = time.monotonic() - self._latest < 1.5
                if not self._waiting or self._looking:
                    continue
            if still:
                time.sleep(0.2)
                continue
            with self._changed:
                self._waiting, self._looking = 0, self._waiting
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
        self._own: list[Observer] = []
        self._calls: list[Call] = []
        self._closed = self._restarted = False

    def move_to(self, server: ZooKeeperServer) -> None:
        """Use another server than that of most trials."""
        self.server = server
        self.proxy.upstream = server.hosts
        self.observer = Observer(server.hosts, session_timeout=30.0, operation_timeout=20.0)
        self._own.append(self.observer)

    def restart(self) -> None:
        """Have the restarting server restarted, and not again before the end of the trial."""
        self.stage.restarts.wait()
        self._restarted = True

    def close(self) -> None:
        """End the session, if nothing has ended it and no call of it is left, and the proxy."""
        if self._restarted:
            self.stage.restarts.release()
        for own in self._own:
            own.close()
        idle = all(call.ended is not None for call in self._calls)
        if self.driver.ended_at is None and idle and self._calls and not self._closed:
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
        self._closed = self._closed or words[0] == "close" or words[-1] == "close"
        call = self.driver.start(self.session, *words)
        self._calls.append(call)
        return call

    def ask(self, *words: object, limit: float = LIMIT) -> Answer:
        """A call; `Missing` if the client has no such thing."""
        answer = self.start(*words).wait(limit)
        if answer.lacks:
            raise Missing(str(words[0]))
        return answer

    def direct(self, name: str, command: str) -> None:
        """A second session of the same process, without the proxy."""
        words = (self.server.hosts, round(LONG * 1000))
        self.driver.ask(f"{self.session}-{name}", command, *words, limit=30.0)

    def back(self, limit: float) -> str:
        """Wait until its requests are answered again: "ok ...", or the last words in time."""
        until, words = time.monotonic() + limit, None
        while time.monotonic() < until:
            words = self.ask("get", self.path, limit=5.0).words
            if (words or "").startswith("ok"):
                break
            time.sleep(0.1)
        return words or "no answer"

    def set_watches(self) -> bool:
        """Whether the client has set a watch: one that it refuses to set it has not."""

        def told(frames: list[Frame]) -> bool:
            return any(f.direction == "s2c" and f.op in WATCHING for f in frames)

        with suppress(TimeoutError):
            return bool(self.proxy.wait_for(told, 3.0))
        return False

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

    def drop_answers(self, first: int) -> None:
        """From this answer to a change on, none comes; until the connection ends."""
        count = itertools.count(1)

        def rule(frame: Frame) -> Action | None:
            answers = frame.direction == "s2c" and frame.op in CHANGES and frame.connection == 0
            return drop if answers and next(count) >= first else None

        self.proxy.rule(rule)

    def sent(self, ops: frozenset[str] = CHANGES) -> int:
        """How many requests of these operations the client has sent."""
        return sum(f.direction == "c2s" and f.op in ops for f in self.proxy.frames())

    def away(self) -> None:
        """Close the connections, and refuse new ones."""
        self.proxy.refuse(True)
        self.proxy.cut_all()

    def session_ids(self) -> list[int]:
        """Of the sessions that the server has given, one for each connection."""
        replies = [f for f in self.proxy.frames() if f.direction == "s2c" and f.op == "connect"]
        return [int.from_bytes(reply.body[8:16], "big", signed=True) for reply in replies]

    def session_id(self) -> int:
        """The latest one."""
        return self.session_ids()[-1]

    def end_session(self) -> None:
        """Close the client's session from another connection; the client waits for that."""
        reply = [f for f in self.proxy.frames() if f.direction == "s2c" and f.op == "connect"][-1]
        size = int.from_bytes(reply.body[16:20], "big")
        password = bytes(reply.body[20 : 20 + size])
        resumed = Credentials(self.session_id(), password)
        self.proxy.refuse(True)
        with Observer(self.server.hosts, resume=resumed, session_timeout=TIMEOUT) as other:
            other.exists("/")
        self.proxy.refuse(False)

    # --- the server ---

    def make(self, path: str, data: bytes = b"") -> None:
        with suppress(NodeExistsError):
            self.observer.create(path, data)

    def stat(self, path: str) -> Stat | None:
        return self.observer.exists(path)

    def children(self, path: str) -> list[str]:
        return list(self.observer.get_children(path))


class Gone:
    """When an ephemeral node has gone; `at` is None as long as it is there."""

    def __init__(self, trial: Trial, path: str) -> None:
        self.at: float | None = None
        trial.observer.exists(path, watch=Watch(self._told))

    def wait(self, seconds: float) -> None:
        """A server deletes the nodes of a session a moment after it has ended it."""
        until = time.monotonic() + seconds
        while self.at is None and time.monotonic() < until:
            time.sleep(0.02)

    def _told(self, event: Event) -> None:
        if event.type is EventType.NODE_DELETED:
            self.at = time.monotonic()


def run(
    trial_of: Callable[[Trial], Seen], stage: Stage, client: Client, driver: Driver, *, shared: bool
) -> Seen:
    """One trial; what the client has none of is said so.

    RuntimeError if the process ends that it shares with other trials.
    """
    trial = Trial(stage, client, driver)
    try:
        seen = trial_of(trial)
        if shared and driver.ended_at is not None:
            raise RuntimeError(f"the process of {client.name} has ended")
        return seen
    except Missing:
        return Seen(LACKS, "")
    finally:
        with suppress(ZooKeeperError, RuntimeError):
            trial.close()
