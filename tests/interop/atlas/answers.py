"""Situations 3, 6 and 7: a watch; frames that no server sends; the list of servers."""

from __future__ import annotations

import itertools
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.driver import LOGS, Answer
from tests.interop.atlas.stage import LONG, SOON, Missing, Trial
from tests.support.server_control import free_port
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import cut_before, duplicate, rewrite, truncate
from zkwire.testing.proxy.faults import Action, forward
from zkwire.testing.proxy.frames import Frame
from zkwire.testing.proxy.proxy import resolve
from zkwire.testing.proxy.relay import Relay

# --- a watch --------------------------------------------------------------------------------------

KINDS = {
    "data": "one-shot, of data",
    "children": "one-shot, of children",
    "persistent": "persistent",
    "recursive": "persistent, recursive",
    "follow": "the library's helper that follows data",
}
WAYS = {
    "none": "nothing breaks",
    "away": "the node changes while the client is away",
    "lost": "the frame of the event is lost",
    "moved": "the session moves to another server, then the node changes",
}
EVENT_SECONDS = 4.0
BACK_SECONDS = 40.0


def watch(kind: str, way: str, trial: Trial) -> Seen:
    """Set a watch, break the connection, change the node."""
    if way == "moved":
        trial.move_to(trial.stage.ensemble.servers[0])
    trial.connect(timeout=LONG)
    trial.make(trial.path)
    trial.ask("watch", kind, trial.path)
    if not trial.set_watches():
        raise Missing(f"no {kind} watch")
    armed = since = time.monotonic()
    if way == "away":
        trial.away()
        time.sleep(SOON)
        change(kind, trial, 1)
        time.sleep(SOON)
        trial.proxy.refuse(False)
    elif way == "lost":
        trial.proxy.on("notification", action=cut_before)
        change(kind, trial, 1)
    elif way == "none":
        change(kind, trial, 1)
    else:
        trial.proxy.upstream = trial.stage.ensemble.servers[1].hosts
        trial.proxy.cut_all()
        if not trial.back(BACK_SECONDS).good:
            return Seen(cells.HUNG, f"does not come back within {BACK_SECONDS:g} s")
        time.sleep(SOON)
        since = time.monotonic()
        change(kind, trial, 1)
    return watch_judged(kind, trial, armed, since)


def change(kind: str, trial: Trial, number: int) -> None:
    """One that the watch is for; another client makes it."""
    if kind in ("children", "recursive"):
        trial.observer.create(f"{trial.path}/c{number}", b"")
    else:
        trial.observer.set_data(trial.path, b"%d" % number)


def watch_judged(kind: str, trial: Trial, armed: float, since: float) -> Seen:
    """Whether the watch has told; if not, whether it tells of the next change."""
    event = trial.wait_event(EVENT_SECONDS, since)
    if event is None:
        trial.back(BACK_SECONDS)
        event = trial.wait_event(0.0, since)
    if event is not None:
        return Seen(cells.TRUTH, f"event {event.words.split(' ')[0]}", event.at - since)
    again = time.monotonic()
    change(kind, trial, 2)
    later = trial.wait_event(EVENT_SECONDS / 2, again)
    states = trial.states(armed)
    watch_told = [state for state in states if state.startswith("watch:")]
    down = [state for state in states if state in trial.client.down | trial.client.lost]
    told = (watch_told or down)[:1]
    then = "the next change is told" if later else "nor of the next change"
    words = f"no event, {then}; {''.join(told) or 'no state'}"
    return Seen(cells.LESS if told else cells.NOTHING, words)


# --- frames that no server sends ------------------------------------------------------------------

DATA = "right"
RECOVERY = 10.0
OTHER_SESSION = 0x7EADBEEF


def other_xid(raw: bytes) -> bytes:
    return raw[:4] + struct.pack(">i", struct.unpack_from(">i", raw, 4)[0] + 1000) + raw[8:]


def short_body(raw: bytes) -> bytes:
    """A whole frame whose record ends too early."""
    return struct.pack(">i", 18) + raw[4:22]


def with_length(number: int, raw: bytes) -> bytes:
    return struct.pack(">i", number) + raw[4:]


def other_session(raw: bytes) -> bytes:
    """The answer to a connect, with the id of a session of nobody."""
    return raw[:12] + struct.pack(">q", OTHER_SESSION) + raw[20:]


def lie(action: Action, trial: Trial) -> Seen:
    """The first answer to a get is this."""
    begin(trial)
    trial.proxy.on("get_data", action=action, reply=True)
    answer = trial.ask("get", trial.path, limit=8.0)
    return lie_judged(trial, answer)


def reconnected(trial: Trial) -> Seen:
    """The connection is lost, and the next server gives another session id."""
    begin(trial)
    left = itertools.count()

    def rule(frame: Frame) -> Action | None:
        answers = frame.direction == "s2c" and frame.op == "connect"
        return rewrite(other_session) if answers and next(left) == 0 else None

    trial.proxy.rule(rule)
    trial.proxy.cut_all()
    time.sleep(2.0)
    first = trial.ask("get", trial.path, limit=8.0)
    if cells.meaning(first.words) == cells.ENDED:
        return Seen(cells.TRUTH, f"takes it as the end of its session: {first.words}")
    trial.proxy.cut_all()
    trial.back(RECOVERY)
    requests = [f for f in trial.proxy.frames() if f.direction == "c2s" and f.op == "connect"]
    shown = {int.from_bytes(f.body[16:24], "big", signed=True) for f in requests}
    call = f"call: {first.said}"
    if OTHER_SESSION in shown:
        return Seen(cells.NOTHING, f"{call}; goes on under the other id")
    if first.words is None:
        return Seen(cells.HUNG, call)
    return Seen(cells.TRUTH, f"{call}; goes on under its own id or with a new session")


def begin(trial: Trial) -> None:
    trial.make(trial.path, DATA.encode())
    trial.connect(timeout=LONG)
    trial.second("other", "connect", limit=30.0)


def lie_judged(trial: Trial, answer: Answer) -> Seen:
    """What the call was told, and what goes on: the connection, the client, the process."""
    first = trial.greetings()[0]
    until, later = time.monotonic() + RECOVERY, Answer(None, 0.0)
    while time.monotonic() < until and trial.driver.ended_at is None:
        later = trial.ask("get", trial.path, limit=3.0)
        if later.good:
            break
        time.sleep(0.2)
    other = trial.second("other", "get", trial.path, limit=3.0)
    said = f"call: {answer.words or 'no answer'}"
    if trial.driver.ended_at is not None:
        return Seen(cells.NOTHING, f"{said}; the process ends")
    same = trial.greetings()[-1].session_id == first.session_id
    whose = "the session goes on" if same else "a new session"
    then = whose if later.good else f"the client does not recover: {later.words or 'no answer'}"
    if not other.good:
        then += "; nor does another client of this process"
    if {one.text for one in (answer, later) if one.good} - {DATA}:
        return Seen(cells.WRONG, f"{said}; wrong data; {then}", answer.seconds)
    if answer.words is None:
        return Seen(cells.HUNG, f"{said}; {then}")
    return Seen(cells.TRUTH if later.good else cells.LESS, f"{said}; {then}", answer.seconds)


# --- the list of servers --------------------------------------------------------------------------

START = 30.0
NAME = "atlas.test"
ADDRESS_SECONDS = 45.0
LONGEST = 60.0
"""The session timeout that outlives the cache of names of a Java machine (30 s)."""


def first_of_two(trial: Trial, address: str) -> Seen:
    """A list of this address and the good one."""
    trial.make(trial.path, b"right")
    hosts, milliseconds = f"{address},{trial.proxy.hosts}", round(LONG * 1000)
    answer = trial.ask("connect", hosts, milliseconds, limit=START)
    if answer.words is None:
        return Seen(cells.HUNG, f"not connected within {START:g} s")
    if not answer.good:
        return Seen(cells.LESS, answer.words, answer.seconds)
    got = trial.ask("get", trial.path, limit=START)
    if got.words != "ok right":
        return Seen(cells.LESS, f"connected; then {got.words}", answer.seconds)
    return Seen(cells.TRUTH, "connected", answer.seconds)


def dead(trial: Trial) -> Seen:
    return first_of_two(trial, f"127.0.0.1:{free_port()}")


def silent(trial: Trial) -> Seen:
    """It takes connections and says nothing."""
    with FaultProxy(trial.server.hosts) as hole:
        hole.black_hole()
        return first_of_two(trial, hole.hosts)


def read_only(trial: Trial) -> Seen:
    """A server without its quorum; the client has not asked for that."""
    return first_of_two(trial, trial.stage.read_only.hosts)


def behind(trial: Trial) -> Seen:
    """The next server has not seen what the client has; the first one is back after 2 s."""
    node = f"{trial.path}-e"
    trial.make(trial.path, b"right")
    with FaultProxy(trial.stage.empty.hosts) as other:
        other.refuse(True)
        trial.connect(f"{trial.proxy.hosts},{other.hosts}", LONG)
        trial.ask("ephemeral", node, "mine")
        session, since = trial.greetings()[-1].session_id, time.monotonic()
        other.refuse(False)
        trial.away()
        time.sleep(2.0)
        trial.proxy.refuse(False)
        back = trial.back(START)
        refused = any(frame.op == "connect" for frame in other.frames())
    lost = trial.wait_state(trial.client.lost, 0.0, since)
    same = trial.greetings()[-1].session_id == session
    there = trial.stat(node) is not None
    tried = "" if refused else "; the server that is behind was not tried"
    if not back.good:
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
    if not back.good:
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


LIES = {
    "xid": ("an answer with another xid", rewrite(other_xid)),
    "twice": ("an answer that comes twice", duplicate),
    "cut": ("a connection that ends within the answer", truncate(10)),
    "short": ("an answer whose record ends too early", rewrite(short_body)),
    "minus": ("length -1", rewrite(partial(with_length, -1))),
    "huge": ("length 2,147,483,647", rewrite(partial(with_length, 2**31 - 1))),
}
LISTS = {
    "dead": ("one of two refuses connections", dead, 6),
    "silent": ("one of two takes connections and is silent", silent, 6),
    "read-only": ("one of two is read-only", read_only, 6),
    "behind": ("one of two is behind, the other away for 2 s", behind, 5),
    "renamed": ("a name whose address changes", renamed, 2),
}
WATCHES = Situation(
    3,
    "A watch",
    [
        Point(f"watch-{kind}-{way}", f"{title}: {where}", partial(watch, kind, way))
        for way, where in WAYS.items()
        for kind, title in KINDS.items()
    ],
)
FRAMES = Situation(
    6,
    "Frames that no server sends",
    [
        *(
            Point(f"lie-{key}", title, partial(lie, action), 5, alone=True)
            for key, (title, action) in LIES.items()
        ),
        Point("lie-session", "another session id when the client reconnects", reconnected, 5, True),
    ],
)
SERVERS = Situation(
    7, "The list of servers", [Point(f"list-{key}", *row) for key, row in LISTS.items()]
)
