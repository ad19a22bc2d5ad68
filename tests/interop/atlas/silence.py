"""Situations 4 and 8: the session expires, the network is silent; close, fork, end of a process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation, Try
from tests.interop.atlas.changes import FLOOD, SIZE, flood_seen
from tests.interop.atlas.stage import LIMIT, LONG, TIMEOUT, Gone, Missing, Trial

TELL_SECONDS = 6.0
AT_ONCE = TIMEOUT / 2


def begun(trial: Trial) -> tuple[Gone, float]:
    """A session with an ephemeral node; when that is gone, and the time at which it begins."""
    trial.connect()
    node = f"{trial.path}-e"
    trial.ask("ephemeral", node, "mine")
    trial.make(trial.path)
    return Gone(trial, node), time.monotonic()


# --- the session expires, the network is silent ---------------------------------------------------


def closed_elsewhere(trial: Trial) -> Seen:
    """Another connection closes the session."""
    gone, since = begun(trial)
    trial.end_session()
    return expiry(trial, gone, since)


def kept_away(trial: Trial) -> Seen:
    """The server has expired the session before it takes connections again."""
    gone, since = begun(trial)
    trial.away()
    time.sleep(2 * TIMEOUT)
    trial.proxy.refuse(False)
    return expiry(trial, gone, since)


def silent(timeouts: float, trial: Trial) -> Seen:
    """The network is silent for so many session timeouts."""
    gone, since = begun(trial)
    trial.proxy.black_hole()
    time.sleep(timeouts * TIMEOUT)
    trial.proxy.black_hole(False)
    return expiry(trial, gone, since)


def expiry(trial: Trial, gone: Gone, since: float) -> Seen:
    """What was told of the session's end, if it has ended; the seconds are from that end."""
    lost = trial.wait_state(trial.client.lost, TELL_SECONDS, since)
    answer = trial.ask("get", trial.path)
    lost = lost or trial.wait_state(trial.client.lost, 0.5, since)
    ended = cells.meaning(answer.words) == cells.ENDED
    then = f"then a call ends with {answer.said}"
    down = trial.wait_state(trial.client.down, 0.0, since)
    gone.wait(2.0 if lost or ended else 0.0)
    if gone.at is None:
        if lost:
            return Seen(cells.WRONG, f"{lost.words} of a session that lives; {then}")
        kind = cells.HUNG if answer.words is None else cells.TRUTH
        return Seen(kind, f"the session lives; {f'{down.words}; ' if down else ''}{then}")
    if lost:
        return Seen(cells.TRUTH, f"{lost.words}; {then}", lost.at - gone.at)
    if ended:
        return Seen(cells.TRUTH, f"no state; {then}")
    state = down.words if down else "no state"
    if answer.words is None:
        return Seen(cells.HUNG, f"{state}; no answer")
    return Seen(cells.LESS if down else cells.NOTHING, f"{state}; {then}")


def for_good(trial: Trial) -> Seen:
    """The network does not come back; the seconds are from its end to the word."""
    _, since = begun(trial)
    trial.proxy.black_hole()
    lost = trial.wait_state(trial.client.lost, 4 * TIMEOUT, since)
    told = dict.fromkeys(trial.states(since))
    if lost:
        return Seen(cells.TRUTH, lost.words, lost.at - since)
    if down := trial.wait_state(trial.client.down, 0.0, since):
        return Seen(cells.LESS, f"only {down.words}", down.at - since)
    return Seen(cells.NOTHING, ", ".join(told) or "nothing")


def request_in_silence(trial: Trial) -> Seen:
    """A read; the network does not come back."""
    begun(trial)
    trial.proxy.black_hole()
    answer = trial.ask("get", trial.path)
    return Seen(cells.HUNG if answer.words is None else cells.TRUTH, answer.said, answer.seconds)


# --- close, fork, and the end of the process ------------------------------------------------------


def close_in_flight(trial: Trial) -> Seen:
    """A thousand sets, and `close` at once."""
    trial.connect(timeout=LONG)
    trial.make(trial.path)
    answer = trial.ask("flood", trial.path, FLOOD, SIZE, "close", limit=2 * LIMIT)
    return flood_seen(trial, answer, 1.0)


def close_away(trial: Trial) -> Seen:
    """`close` without a connection; the seconds are of the call."""
    gone, _ = begun(trial)
    trial.away()
    time.sleep(1.0)
    answer = trial.ask("close")
    time.sleep(0.2)
    if answer.words is None:
        return Seen(cells.HUNG, f"no end within {LIMIT:g} s")
    there = "the session stays" if gone.at is None else "the session has ended"
    if answer.good:
        return Seen(cells.LESS, f"returns; {there}", answer.seconds)
    return Seen(cells.TRUTH, f"{answer.words}; {there}", answer.seconds)


def fork(trial: Trial) -> Seen:
    """A forked child uses the client; then its parent does."""
    if not trial.client.forks:
        raise Missing("no fork")
    trial.make(trial.path, b"right")
    trial.connect(timeout=LONG)
    answer = trial.ask("fork", trial.path)
    later = trial.ask("get", trial.path, limit=5.0)
    if answer.words is None:
        return Seen(cells.HUNG, "no answer")
    child = answer.text or answer.words
    parent = "goes on" if later.words == "ok right" else f"then gets {later.words or 'no answer'}"
    words = f"child: {child}; the parent {parent}"
    if parent != "goes on":
        return Seen(cells.WRONG, words)
    return Seen(cells.HUNG if child.startswith("no answer") else cells.TRUTH, words)


def ended(end: Callable[[Trial], object], trial: Trial) -> Seen:
    """How long an ephemeral node stays after the end of the process."""
    gone, since = begun(trial)
    end(trial)
    gone.wait(3 * TIMEOUT)
    if gone.at is None:
        return Seen(cells.WRONG, f"the node stays for more than {3 * TIMEOUT:g} s")
    stays = gone.at - since
    if stays < AT_ONCE:
        return Seen(cells.TRUTH, "the session ends at once", stays)
    return Seen(cells.NOTHING, "the node stays until the session times out", stays)


SILENCES: dict[str, tuple[str, Try, int]] = {
    "closed": ("another connection has closed the session", closed_elsewhere, 3),
    "away": ("no connection for two session timeouts", kept_away, 3),
    "half": ("silence of half a session timeout", partial(silent, 0.5), 5),
    "one": ("silence of one session timeout", partial(silent, 1.0), 20),
    "three": ("silence of three session timeouts", partial(silent, 3.0), 3),
    "good": ("silence for good: the state (seconds from its begin)", for_good, 3),
    "request": ("silence for good: a read under way (an end within 15 s)", request_in_silence, 3),
}
# A program that returns from its main function, and two signals.
ENDS: dict[str, tuple[str, Try, int, bool]] = {
    "flight": ("close with 1,000 sets in flight", close_in_flight, 20, False),
    "away": ("close while there is no connection", close_away, 3, False),
    "fork": ("a forked child uses the client", fork, 3, True),
    "exit": ("the program ends without close", partial(ended, lambda t: t.start("exit")), 2, True),
    "term": ("SIGTERM", partial(ended, lambda t: t.driver.signal(signal.SIGTERM)), 2, True),
    "kill": ("SIGKILL", partial(ended, lambda t: t.driver.signal(signal.SIGKILL)), 2, True),
}
EXPIRY = Situation(
    4,
    "The session expires; the network is silent",
    [Point(f"session-{key}", *row) for key, row in SILENCES.items()],
)
END = Situation(
    8,
    "Close, fork, and the end of the process",
    [Point(f"end-{key}", *row) for key, row in ENDS.items()],
)
