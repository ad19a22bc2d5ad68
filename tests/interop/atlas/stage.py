"""What a trial works with: a server, a proxy of its own, a session of the client, an observer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.interop.atlas.cells import LACKS, Seen
from tests.interop.atlas.clients import Client
from tests.interop.atlas.driver import Answer, Call, Driver, Told
from tests.support.server_control import Ensemble, ZooKeeperServer
from zkwire import Client as Observer
from zkwire import Credentials, EventType, NodeExistsError, Stat, Watch, ZooKeeperError
from zkwire.jute.records import ConnectResponse
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
    """The client has no such operation; the message is what is said of it."""


@dataclass
class Stage:
    """The servers, shared by all trials; `empty` stays behind all others."""

    server: ZooKeeperServer
    ensemble: Ensemble
    read_only: ZooKeeperServer
    empty: ZooKeeperServer

    def __post_init__(self) -> None:
        self.observer = Observer(self.server.hosts, session_timeout=30.0)


class Trial:
    """One run of one point with one client."""

    def __init__(self, stage: Stage, client: Client, driver: Driver) -> None:
        number = next(_numbers)
        self.stage, self.client, self.driver = stage, client, driver
        self.session = f"s{number}"
        self.path = f"/atlas-{number}"
        self.server = stage.server
        self.proxy = FaultProxy(self.server.hosts)
        self.observer = stage.observer
        self._calls: list[Call] = []
        self._closed = False

    def move_to(self, server: ZooKeeperServer) -> None:
        """Use another server than that of most trials."""
        self.server = server
        self.proxy.upstream = server.hosts
        self.observer = Observer(server.hosts, session_timeout=30.0, operation_timeout=20.0)

    def close(self) -> None:
        """End the session, if nothing has ended it and no call of it is left, and the proxy."""
        if self.observer is not self.stage.observer:
            self.observer.close()
        idle = all(call.ended is not None for call in self._calls)
        if self.driver.ended_at is None and idle and self._calls and not self._closed:
            self.driver.start(self.session, "close").wait(0.5)
        self.proxy.close()

    # --- the client ---

    def connect(self, hosts: str | None = None, timeout: float = TIMEOUT) -> None:
        """Connect the client; RuntimeError if it cannot."""
        milliseconds = round(timeout * 1000)
        answer = self.ask("connect", hosts or self.proxy.hosts, milliseconds, limit=30.0)
        if not answer.good:
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
            raise Missing
        return answer

    def second(self, name: str, *words: object, limit: float = LIMIT) -> Answer:
        """A call of another session of the same process, which is connected without the proxy."""
        if words == ("connect",):
            words = ("connect", self.server.hosts, round(LONG * 1000))
        return self.driver.ask(f"{self.session}-{name}", *words, limit=limit)

    def back(self, limit: float) -> Answer:
        """Wait until its requests are answered again; the last answer in time."""
        until, answer = time.monotonic() + limit, Answer(None, 0.0)
        while time.monotonic() < until:
            answer = self.ask("get", self.path, limit=5.0)
            if answer.good:
                break
            time.sleep(0.1)
        return answer

    def set_watches(self) -> bool:
        """Whether the client has set a watch: one that it refuses to set it has not."""

        def told(frames: list[Frame]) -> bool:
            return any(f.direction == "s2c" and f.op in WATCHING for f in frames)

        with suppress(TimeoutError):
            return bool(self.proxy.wait_for(told, 3.0))
        return False

    def is_mine(self, one: Told, what: str, since: float) -> bool:
        return (one.session, one.what) == (self.session, what) and one.at >= since

    def states(self, since: float) -> list[str]:
        """Those that it has told by itself."""
        return [one.words for one in self.driver.told if self.is_mine(one, "state", since)]

    def wait_event(self, limit: float, since: float) -> Told | None:
        """Of a watch."""
        return self.driver.wait_told(lambda one: self.is_mine(one, "event", since), limit)

    def wait_state(self, names: frozenset[str], limit: float, since: float) -> Told | None:
        """One of these states."""
        return self.driver.wait_told(
            lambda one: self.is_mine(one, "state", since) and one.words in names, limit
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

    def sent(self) -> int:
        """How many changes the client has sent."""
        return sum(f.direction == "c2s" and f.op in CHANGES for f in self.proxy.frames())

    def away(self) -> None:
        """Close the connections, and refuse new ones."""
        self.proxy.refuse(True)
        self.proxy.cut_all()

    def greetings(self) -> list[ConnectResponse]:
        """What the server has answered to each handshake."""
        replies = [f for f in self.proxy.frames() if f.direction == "s2c" and f.op == "connect"]
        return [ConnectResponse.decode(reply.body) for reply in replies]

    def end_session(self) -> None:
        """Close the client's session from another connection; the client waits for that."""
        known = self.greetings()[-1]
        resumed = Credentials(known.session_id, known.passwd or b"")
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

        def told(event: object) -> None:
            if getattr(event, "type", None) is EventType.NODE_DELETED:
                self.at = time.monotonic()

        trial.observer.exists(path, watch=Watch(told))

    def wait(self, seconds: float) -> None:
        """A server deletes the nodes of a session a moment after it has ended it."""
        until = time.monotonic() + seconds
        while self.at is None and time.monotonic() < until:
            time.sleep(0.02)


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
    except Missing as error:
        return Seen(LACKS, str(error))
    finally:
        with suppress(ZooKeeperError, RuntimeError):
            trial.close()
