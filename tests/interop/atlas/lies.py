"""Situation 6: frames that no server sends."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.driver import Answer
from tests.interop.atlas.stage import LONG, Trial
from zkwire.testing.proxy import duplicate, rewrite, truncate
from zkwire.testing.proxy.faults import Action
from zkwire.testing.proxy.frames import Frame

DATA = "right"
RECOVERY = 10.0
OTHER_SESSION = 0x7EADBEEF


def other_xid(raw: bytes) -> bytes:
    return raw[:4] + struct.pack(">i", struct.unpack_from(">i", raw, 4)[0] + 1000) + raw[8:]


def short_body(raw: bytes) -> bytes:
    """A whole frame whose record ends too early."""
    return struct.pack(">i", 18) + raw[4:22]


def length(number: int) -> Action:
    return rewrite(lambda raw: struct.pack(">i", number) + raw[4:])


def other_session(raw: bytes) -> bytes:
    """The answer to a connect, with the id of a session of nobody."""
    return raw[:12] + struct.pack(">q", OTHER_SESSION) + raw[20:]


def reply(action: Action) -> Callable[[Trial], Seen]:
    """The first answer to a get is this."""

    def lie(trial: Trial) -> Seen:
        begin(trial)
        trial.proxy.on("get_data", action=action, reply=True)
        answer = trial.ask("get", trial.path, limit=8.0)
        return judged(trial, answer)

    return lie


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
    said = "ok" if (first.words or "").startswith("ok") else first.words or "no answer"
    if OTHER_SESSION in shown:
        return Seen(cells.NOTHING, f"call: {said}; goes on under the other id")
    if first.words is None:
        return Seen(cells.HUNG, f"call: {said}")
    return Seen(cells.TRUTH, f"call: {said}; goes on under its own id or with a new session")


def begin(trial: Trial) -> None:
    trial.make(trial.path, DATA.encode())
    trial.connect(timeout=LONG)
    trial.direct("other", "connect")


def judged(trial: Trial, answer: Answer) -> Seen:
    """What the call was told, and what goes on: the connection, the client, the process."""
    first = trial.session_ids()
    until, later = time.monotonic() + RECOVERY, Answer(None, 0.0)
    while time.monotonic() < until and trial.driver.ended_at is None:
        later = trial.ask("get", trial.path, limit=3.0)
        if (later.words or "").startswith("ok"):
            break
        time.sleep(0.2)
    other = trial.driver.ask(f"{trial.session}-other", "get", trial.path, limit=3.0)
    said = f"call: {answer.words or 'no answer'}"
    if trial.driver.ended_at is not None:
        return Seen(cells.NOTHING, f"{said}; the process ends")
    recovered = (later.words or "").startswith("ok")
    same = trial.session_ids()[-1] == first[0]
    whose = "the session goes on" if same else "a new session"
    then = whose if recovered else f"the client does not recover: {later.words or 'no answer'}"
    if not (other.words or "").startswith("ok"):
        then += "; nor does another client of this process"
    wrong = {one.text for one in (answer, later) if (one.words or "").startswith("ok")} - {DATA}
    if wrong:
        return Seen(cells.WRONG, f"{said}; wrong data; {then}", answer.seconds)
    if answer.words is None:
        return Seen(cells.HUNG, f"{said}; {then}")
    return Seen(cells.TRUTH if recovered else cells.LESS, f"{said}; {then}", answer.seconds)


SITUATIONS = (
    Situation(
        6,
        "Frames that no server sends",
        "A `get` is answered by such a frame. What does its caller get, and what goes on?"
        " *Told the truth*: the call has ended with the right data or an error, and the client goes"
        " on by itself. *Told less*: the call has ended, and the client does not.",
        [
            Point(f"lie-{key}", title, trial, 5, alone=True)
            for key, title, trial in (
                ("xid", "an answer with another xid", reply(rewrite(other_xid))),
                ("twice", "an answer that comes twice", reply(duplicate)),
                ("cut", "a connection that ends within the answer", reply(truncate(10))),
                ("short", "an answer whose record ends too early", reply(rewrite(short_body))),
                ("minus", "length -1", reply(length(-1))),
                ("huge", "length 2,147,483,647", reply(length(2**31 - 1))),
                ("session", "another session id when the client reconnects", reconnected),
            )
        ],
    ),
)
