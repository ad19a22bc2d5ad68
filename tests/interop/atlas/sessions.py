"""Situation 4: the session expires, and the network is silent."""

from __future__ import annotations

import time
from functools import partial

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.driver import Answer
from tests.interop.atlas.stage import LIMIT, TIMEOUT, Gone, Trial

TELL_SECONDS = 6.0


def begun(trial: Trial) -> Gone:
    """A session with an ephemeral node; when that is gone."""
    trial.connect()
    node = f"{trial.path}-e"
    trial.ask("ephemeral", node, "mine")
    trial.make(trial.path)
    return Gone(trial, node)


def closed_elsewhere(trial: Trial) -> Seen:
    """Another connection closes the session."""
    gone = begun(trial)
    since = time.monotonic()
    trial.end_session()
    return expiry(trial, gone, since)


def kept_away(trial: Trial) -> Seen:
    """The server has expired the session before it takes connections again."""
    gone = begun(trial)
    since = time.monotonic()
    trial.away()
    time.sleep(2 * TIMEOUT)
    trial.proxy.refuse(False)
    return expiry(trial, gone, since)


def silent(timeouts: float, trial: Trial) -> Seen:
    """The network is silent for so many session timeouts."""
    gone = begun(trial)
    since = time.monotonic()
    trial.proxy.black_hole()
    time.sleep(timeouts * TIMEOUT)
    trial.proxy.black_hole(False)
    return expiry(trial, gone, since)


def expiry(trial: Trial, gone: Gone, since: float) -> Seen:
    """What was told of the session's end, if it has ended; the seconds are from that end."""
    lost = trial.wait_state(trial.client.lost, TELL_SECONDS, since)
    answer = trial.ask("get", trial.path)
    lost = lost or trial.wait_state(trial.client.lost, 0.5, since)
    then = f"then a call ends with {said(answer)}"
    down = trial.wait_state(trial.client.down, 0.0, since)
    gone.wait(2.0 if lost or cells.meaning(answer.words) == cells.ENDED else 0.0)
    if gone.at is None:
        words = f"{down.words}; {then}" if down else then
        if lost:
            return Seen(cells.WRONG, f"{lost.words} of a session that lives; {then}")
        return Seen(
            cells.HUNG if answer.words is None else cells.TRUTH, f"the session lives; {words}"
        )
    if lost:
        return Seen(cells.TRUTH, f"{lost.words}; {then}", lost.at - gone.at)
    if cells.meaning(answer.words) == cells.ENDED:
        return Seen(cells.TRUTH, f"no state; {then}")
    if answer.words is None:
        return Seen(cells.HUNG, f"{down.words if down else 'no state'}; no answer")
    return Seen(
        cells.LESS if down else cells.NOTHING, f"{down.words if down else 'no state'}; {then}"
    )


def said(answer: Answer) -> str:
    return "no answer" if answer.words is None else meaning_or_name(answer.words)


def meaning_or_name(words: str) -> str:
    return "ok" if words.startswith("ok") else words


def for_good(trial: Trial) -> Seen:
    """The network does not come back; the seconds are from its end to the word."""
    begun(trial)
    since = time.monotonic()
    trial.proxy.black_hole()
    lost = trial.wait_state(trial.client.lost, 4 * TIMEOUT, since)
    told = list(dict.fromkeys(trial.states(since)))
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
    return Seen(cells.HUNG if answer.words is None else cells.TRUTH, said(answer), answer.seconds)


SITUATIONS = (
    Situation(
        4,
        "The session expires; the network is silent",
        "When is the application told, and by what: a state, or the end of its next call? The"
        " session timeout is 3 s. The seconds are from the end of the session on the server to the"
        " word, unless the row says otherwise. A negative one: the client tells it before.",
        [
            Point("session-closed", "another connection has closed the session", closed_elsewhere),
            Point("session-away", "no connection for two session timeouts", kept_away),
            Point(
                "session-half", "silence of half a session timeout", partial(silent, 0.5), times=5
            ),
            Point("session-one", "silence of one session timeout", partial(silent, 1.0), times=20),
            Point("session-three", "silence of three session timeouts", partial(silent, 3.0)),
            Point("session-good", "silence for good: the state (seconds from its begin)", for_good),
            Point(
                "session-request",
                f"silence for good: a read under way (an end within {LIMIT:g} s)",
                request_in_silence,
            ),
        ],
    ),
)
