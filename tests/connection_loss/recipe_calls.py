"""A call of any recipe, and the request of it that is hit; and the world it happens in.

`losses.py` has the points at which the connection is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from tests.connection_loss.case import Case, Setting, repeat
from tests.connection_loss.points import told
from tests.support.lock_helpers import (
    LONG,
    PATIENCE,
    Running,
    end_session,
    greeting,
    guards_at_once,
    requests,
)
from tests.support.server_control import poll
from zkwire import ZooKeeperError
from zkwire.testing.proxy.frames import Frame

NOTHING = "nothing"
STEPS = 4  # requests in the background that follow one another


class Wait(NamedTuple):
    """A call that waits for another client."""

    call: Callable[[Trial], object]
    release: Callable[[Trial], object]
    """What the other client does."""
    words: str
    goal: Callable[[Trial], str]


class Call(NamedTuple):
    """Something that a recipe does; each function is called with the trial."""

    title: str
    wire: str
    """The request that is hit."""
    call: Callable[[Trial], object]
    """What the caller waits for; what it is told."""
    seen: Callable[[Trial], str]
    """What the server has of it."""
    goal: Callable[[Trial], str]
    """Raises unless what the call is for is true."""
    prepare: Callable[[Trial], object] = lambda _: None
    """What comes before, with a connection."""
    rival: Callable[[Trial], object] | None = None
    """What another client does while this one is away."""
    rivals: str = ""
    """The same in words."""
    wait: Callable[[Trial], object] | None = None
    """What is told of the rival when the call has ended before."""
    again: Callable[[Trial], object] | None = None
    """In a new session, if not the call."""
    waits: Wait | None = None
    renew: str = "make a new `Client`, and begin anew"
    hasty: Callable[[Trial], object] | None = None
    """The call with a time limit that passes while the client is away."""
    late: str = NOTHING
    """What is safe next when it has passed; `again` does so unless it is nothing."""
    mend: Callable[[Trial], str] = lambda _: NOTHING
    """What is safe next when the session lives, or the next one does; it is done."""
    supervised: bool = True
    """Whether it takes a supervisor."""
    alone: bool = True
    """Whether it takes a client."""


class Trial(Case):
    """One recipe of one client, or of one supervisor, behind the proxy."""

    def __init__(self, setting: Setting, asked: Call, *, supervised: bool = False) -> None:
        super().__init__(setting)
        self.asked = asked
        self.run = self._exit.enter_context(self.client_kind.owner())
        self._aside = self._exit.enter_context(self.client_kind.owner())
        self._supervised = supervised
        self._connection = 0
        self.home: Any = getattr(self.subject, "real", self.subject)
        if supervised:
            self.subject.close()
            supervisor = self.client_kind.recipes.Supervisor
            self.home = self.run(lambda: supervisor(self.proxy.hosts, session_timeout=LONG))
            self._guard_at_once()
            self._exit.callback(self._aside, self.home.close)
        self.session_id: int = self.present().session_id

    def prepare(self) -> None:
        """Do what comes before the call; the log begins behind it."""
        self.asked.prepare(self)
        self.flush()
        self._greeting = greeting(self.proxy, self.session_id)
        self.proxy.reset()

    def _guard_at_once(self) -> None:
        """As each client of a case has the guards of its locks."""
        backend = self.home._backend
        make = backend.make_client

        def make_client() -> Any:
            client = make()
            guards_at_once(client, alone=False)
            return client

        guards_at_once(self.home._algorithm._newest, alone=False)
        backend.make_client = make_client

    def present(self) -> Any:
        """The client whose session there is."""
        if self._supervised:
            return self._aside(lambda: self.home.client(PATIENCE))
        return self.home

    def make(self, kind: str, /, *arguments: Any, **named: Any) -> Any:
        """Make a recipe, which is what the trial is about from now on."""
        made = self.run(
            lambda: getattr(self.client_kind.recipes, kind)(self.home, *arguments, **named)
        )
        self.notes["it"] = made
        return made

    def do(self, verb: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of it."""
        return self.run(lambda: getattr(self.notes["it"], verb)(*arguments, **named))

    def begin(self, call: Callable[[Trial], object]) -> Running[object]:
        return Running(lambda: call(self))

    # --- what happens to it -----------------------------------------------------------------------

    def cut(self) -> None:
        """Keep the client away from now on, and wait until it has noticed."""
        client = self.present()
        self.proxy.refuse()
        self._connection = max([0, *(frame.connection for frame in self.proxy.frames())])
        self.proxy.cut_all()
        poll("it notices", lambda: not client.state.usable or None, PATIENCE)

    def wait_cut(self) -> None:
        """Wait until the request has met its fate, and the connection is gone."""

        def met(frames: list[Frame]) -> bool:
            sent = any(f.direction == "c2s" and f.op == self.asked.wire for f in frames)
            return sent and not self.proxy.connections

        frames = self.proxy.wait_for(met, PATIENCE)
        self._connection = max(frame.connection for frame in frames)

    def come_back(self) -> None:
        """Let the client connect again."""
        self.proxy.refuse(False)

    def end(self) -> None:
        """End its session, while it is away."""
        end_session(self.hosts, self._greeting)

    def succeed(self) -> None:
        """Wait for the supervisor's next session; a client may be shown that has just ended."""

        def another() -> int | None:
            session_id: int = self.present().session_id
            return session_id if session_id not in {0, self.session_id} else None

        self.session_id = poll("there is another session", another, PATIENCE)

    def begin_anew(self) -> None:
        """In a new session, as the advice says."""
        client = self.fresh_client()
        self.home = getattr(client, "real", client)
        self.session_id = self.home.session_id
        (self.asked.again or self.asked.call)(self)

    # --- what is seen -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until what has been asked so far is answered, and what that leads to."""
        client = self.present()
        driver = client._driver
        for _ in range(STEPS):
            repeat(lambda: self._aside(client.sync))
            done = threading.Event()  # behind what the answers have made ready
            assert not driver.call_soon(done.set) or done.wait(PATIENCE)
        background = driver.background_tasks
        poll("what is left to do is done", lambda: not background or None, PATIENCE)

    def done_by_itself(self) -> str:
        """The requests since the loss; the tests' own are those about the root.

        A watch that is needed no longer is removed in the background, sooner or later.
        """
        sent = requests(self.proxy.frames())
        ops = [
            f.op
            for f in sent
            if f.connection > self._connection and f.path != "/" and f.op != "remove_watches"
        ]
        return ", ".join(f"`{op}`" for op in ops) or NOTHING

    def row(self, point: str, server: str, call: Running[object]) -> Row:
        """What comes of it, behind a loss through which the session lives."""
        caller = outcome(call)
        self.flush()
        did = self.done_by_itself()
        return point, server, did, caller, self.asked.mend(self), self.asked.goal(self)


Row: TypeAlias = tuple[str, ...]


def outcome(call: Running[object]) -> str:
    """What the caller gets: in words, if the call says it in words."""
    try:
        result = call.result()
    except ZooKeeperError as error:
        return told(error)
    return result if isinstance(result, str) else f"`{result}`"
