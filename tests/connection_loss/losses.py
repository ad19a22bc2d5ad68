"""A call of any recipe, the request of it that is hit, and the points where the connection is lost.

The client's requests after the loss are read off the proxy, what is on the server is looked up by
an observer while the client is kept away, and each experiment ends with the question whether what
the call is for is true, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tests.connection_loss.case import (
    AT_ONCE,
    STEPS,
    Case,
    Row,
    Rows,
    Setting,
    let_run,
    repeat,
    run_each,
    told,
)
from tests.support.lock_helpers import (
    LONG,
    PATIENCE,
    Running,
    end_session,
    guards_at_once,
    meaning,
    requests,
)
from tests.support.server_control import poll
from zkwire import NoNodeError, ZooKeeperError
from zkwire.testing.proxy import Action, Frame, cut_after, cut_before

NOTHING = "nothing"
NODES = {0: "no node", 1: "its node"}
HASTE = 0.3  # seconds: a time limit that passes while the client is away
HEADS = ("point of failure", "on the server", "what it does by itself", "the caller gets",
         "what is safe next", "then")  # fmt: skip
WATCHING = {"exists", "get_data", "get_children", "get_children2"}
Act: TypeAlias = Callable[["Trial"], object]
Look: TypeAlias = Callable[["Trial"], str]
Point: TypeAlias = Callable[["Trial"], Row]


class Wait(NamedTuple):
    """A call that waits for another client."""

    call: Act
    release: Act
    """What the other client does."""
    words: str
    goal: Look


class Call(NamedTuple):
    """Something that a recipe does; each function is called with the trial."""

    title: str
    wire: str
    """The request that is hit."""
    call: Act
    """What the caller waits for; what it is told."""
    seen: Look
    """What the server has of it."""
    goal: Look
    """Raises unless what the call is for is true."""
    prepare: Act = lambda _: None
    """What comes before, with a connection."""
    rival: Act | None = None
    """What another client does while this one is away."""
    rivals: str = ""
    """The same in words."""
    wait: Act | None = None
    """What is told of the rival when the call has ended before."""
    again: Act | None = None
    """In a new session, if not the call."""
    waits: Wait | None = None
    renew: str = "make a new `Client`, and begin anew"
    hasty: Act | None = None
    """The call with a time limit that passes while the client is away."""
    late: str = NOTHING
    """What is safe next when it has passed; `again` does so unless it is nothing."""
    mend: Look = lambda _: NOTHING
    """What is safe next when the session lives, or the next one does; it is done."""
    supervised: bool = True
    """Whether it takes a supervisor."""
    alone: bool = True
    """Whether it takes a client."""
    nth: int = 1
    """Which of its requests with this name is hit."""
    named: str = ""
    """What it is for, where that is not always this request."""
    points: tuple[Callable[[Any], Row], ...] = ()
    """Where it is hit, if not where calls of its kind are."""
    world: Callable[[Setting, Call], Trial] | None = None
    """A trial of its own."""

    @property
    def hit(self) -> str:
        """The request in words."""
        return self.named or f"`{self.wire}`"


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
        self.session_id = self.present().session_id

    def prepare(self) -> None:
        """Do what comes before the call; the log begins behind it."""
        self.asked.prepare(self)
        self.flush()
        self._client = self.present()
        self._credentials = self._client.credentials
        self.proxy.reset()

    def _guard_at_once(self) -> None:
        """As each client of a case has the guards of its locks."""
        sessions = self.home._algorithm
        make = sessions.make_client

        def make_client() -> Any:
            client = make()
            guards_at_once(client, alone=False)
            return client

        guards_at_once(sessions._newest, alone=False)
        sessions.make_client = make_client

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

    def begin(self, call: Act) -> Running[object]:
        return Running(lambda: call(self))

    # --- what happens to it -----------------------------------------------------------------------

    def cut(self) -> None:
        """Keep the client away from now on, and wait until it has noticed."""
        self._connection = max([0, *(frame.connection for frame in self.proxy.frames())])
        self.keep_away(self._client)

    def wait_watching(self) -> None:
        """Wait until the call's watch is set, and the client has been told so."""
        self.proxy.wait_for(has_watch, PATIENCE)
        self.flush()

    def wait_cut(self) -> None:
        """Wait until the request has met its fate, and the client knows that."""

        def met(frames: list[Frame]) -> bool:
            sent = [f for f in frames if f.direction == "c2s"]
            hit = [f for f in sent if self.asked.wire in {f.op, meaning(f)}]
            return len(hit) >= self.asked.nth and not self.proxy.connections

        frames = self.proxy.wait_for(met, PATIENCE)
        self._connection = max(frame.connection for frame in frames)
        self.wait_noticed(self._client)

    def wait_waiting(self, call: Running[object]) -> None:
        """Wait until the call waits for a connection or has ended, and so does its service."""
        driver = self._client._driver
        waiting = driver._sleepers, driver.session.queue, getattr(driver, "_followers", ())
        poll("the call waits", lambda: any(waiting) or call.ended or None, PATIENCE)
        let_run(driver)

    def come_back(self) -> None:
        """Let the client connect again."""
        self.proxy.refuse(False)

    def end(self) -> None:
        """End its session, while it is away."""
        end_session(self.hosts, *self._credentials)

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

    def children(self, path: str) -> list[str]:
        """The names below a node, which may not be there."""
        with suppress(NoNodeError):
            return self.observer.get_children(path)
        return []

    def flush(self) -> None:
        """Wait until what has been asked so far is answered, and what that leads to."""
        client = self.present()
        driver = client._driver
        for _ in range(STEPS):
            repeat(lambda: self._aside(client.sync))
            let_run(driver)
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


def outcome(call: Running[object]) -> str:
    """What the caller gets: in words, if the call says it in words."""
    try:
        result = call.result()
    except ZooKeeperError as error:
        return told(error)
    return result if isinstance(result, str) else f"`{result}`"


# --- the points of failure ------------------------------------------------------------------------


def no_connection(trial: Trial) -> Row:
    """The first request waits for a connection."""
    trial.cut()
    call = trial.begin(trial.asked.call)
    trial.wait_waiting(call)
    server = trial.asked.seen(trial)
    trial.come_back()
    return trial.row("no connection", server, call)


def hit(trial: Trial, words: str, action: Action, rival: Act = lambda _: None) -> Row:
    """The request meets its fate; the other client comes before this one is back."""
    call, server = lost(trial, action)
    rival(trial)
    trial.come_back()
    return trial.row(f"{trial.asked.hit} {words}", server, call)


def not_received(trial: Trial) -> Row:
    """The request never arrives."""
    return hit(trial, "sent, not received", cut_before)


def reply_lost(trial: Trial) -> Row:
    """The request is carried out, and its sender does not know."""
    return hit(trial, "applied, reply lost", cut_after)


def overtaken(trial: Trial) -> Row:
    """Another client comes between the loss and the recovery."""
    assert trial.asked.rival
    words = f"applied, reply lost; {trial.asked.rivals} meanwhile"
    return hit(trial, words, cut_after, trial.asked.rival)


def later(trial: Trial) -> Row:
    """It has been done, and another client comes while the connection is lost."""
    trial.asked.call(trial)
    trial.flush()
    trial.cut()
    assert trial.asked.rival
    assert trial.asked.wait
    trial.asked.rival(trial)
    call = trial.begin(trial.asked.wait)
    server = trial.asked.seen(trial)
    trial.come_back()
    return trial.row(f"connection lost later; {trial.asked.rivals} meanwhile", server, call)


def expired(trial: Trial) -> Row:
    """The session ends before its client is back."""
    call, _ = lost(trial, cut_after)
    trial.end()
    server = trial.asked.seen(trial)
    trial.come_back()
    caller = outcome(call)
    did = trial.done_by_itself()
    advice = []
    if "Error" in caller:
        advice.append(trial.asked.renew)
        trial.begin_anew()
    if (more := trial.asked.mend(trial)) is not NOTHING or not advice:
        advice.append(more)
    point = f"{trial.asked.hit} applied, then the session expired"
    return point, server, did, caller, "; ".join(advice), trial.asked.goal(trial)


def while_waiting(trial: Trial) -> Row:
    """It waits, and is away when that ends."""
    wait = trial.asked.waits
    assert wait
    call = trial.begin(wait.call)
    trial.wait_watching()
    trial.cut()
    wait.release(trial)
    server = trial.asked.seen(trial)
    trial.come_back()
    caller = outcome(call)
    trial.flush()
    did = trial.done_by_itself()
    point = f"connection lost while it waits; {wait.words} meanwhile"
    return point, server, did, caller, NOTHING, wait.goal(trial)


def has_watch(frames: list[Frame]) -> bool:
    """Whether a read that sets a watch has been answered."""
    answered = [f.request for f in frames if f.direction == "s2c" and f.request is not None]
    return any(f.op in WATCHING and f.raw[-1] == 1 for f in answered)


def timed_out(trial: Trial) -> Row:
    """The client does not come back within the caller's time limit."""
    assert trial.asked.hasty
    call, server = lost(trial, cut_after, trial.asked.hasty)
    caller = outcome(call)
    trial.come_back()
    trial.flush()
    did = trial.done_by_itself()
    if trial.asked.late is not NOTHING and trial.asked.again:
        trial.asked.again(trial)
    point = f"{trial.asked.hit} applied, reply lost, and its time limit passes"
    return point, server, did, caller, trial.asked.late, trial.asked.goal(trial)


def succeeded(trial: Trial) -> Row:
    """The same, with a supervisor."""
    call, _ = lost(trial, cut_after)
    trial.end()
    server = trial.asked.seen(trial)
    trial.come_back()
    caller = outcome(call)
    trial.succeed()
    trial.flush()
    did = trial.done_by_itself()
    point = f"{trial.asked.hit} applied, then the session expired; with a `Supervisor`"
    return point, server, did, caller, trial.asked.mend(trial), trial.asked.goal(trial)


def lost(
    trial: Trial, action: Action, function: Callable[[Trial], object] | None = None
) -> tuple[Running[object], str]:
    """The call, and what the server has of it while the client is away."""

    def behind_the_step(frame: Frame) -> Iterable[Any]:
        """What a step of the recipe asks for together meets the same fate."""
        let_run(trial._client._driver)
        return action(frame)

    trial.proxy.refuse()
    trial.proxy.on(trial.asked.wire, nth=trial.asked.nth, action=behind_the_step)
    call = trial.begin(function or trial.asked.call)
    trial.wait_cut()
    trial.wait_waiting(call)
    return call, trial.asked.seen(trial)


# --- all of them ----------------------------------------------------------------------------------


def points_of(asked: Call) -> Iterable[tuple[Point, bool]]:
    """The points of a recipe's call, and whether each needs a supervisor."""
    if asked.points:
        yield from ((point, False) for point in asked.points)
        return
    needed = not asked.alone
    points = {
        no_connection: True,
        not_received: True,
        reply_lost: True,
        overtaken: asked.rival,
        later: asked.wait,
        while_waiting: asked.waits,
        timed_out: asked.hasty,
    }
    yield from ((point, needed) for point, wanted in points.items() if wanted)
    if asked.alone:
        yield expired, False
    if asked.supervised:
        yield succeeded, True


def run_all(setting: Setting, calls: Iterable[Call]) -> Rows:
    """Every recipe's call at every point."""
    cells = [(asked, *point) for asked in calls for point in points_of(asked)]
    return run_points(setting, cells, AT_ONCE)


def run_points(setting: Setting, cells: Iterable[tuple[Call, Point, bool]], at_once: int) -> Rows:
    """These calls at these points, each from the beginning."""

    def run(asked: Call, point: Point, supervised: bool) -> Row:
        world = asked.world or partial(Trial, supervised=supervised)
        with world(setting, asked) as trial:
            trial.prepare()
            return point(trial)

    return run_each(setting, [(cell[0].title, partial(run, *cell)) for cell in cells], at_once)
