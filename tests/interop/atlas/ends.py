"""Situation 8: close, fork, and the end of the process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.changes import FLOOD, SIZE, flood_judged
from tests.interop.atlas.sessions import begun
from tests.interop.atlas.stage import LIMIT, LONG, TIMEOUT, Trial

AT_ONCE = TIMEOUT / 2


def close_in_flight(trial: Trial) -> Seen:
    """A thousand sets, and `close` at once."""
    trial.connect(timeout=LONG)
    trial.make(trial.path)
    answer = trial.ask("flood", trial.path, FLOOD, SIZE, "close", limit=2 * LIMIT)
    time.sleep(1.0)
    stat = trial.stat(trial.path)
    return flood_judged(answer, stat.version if stat else 0)


def close_away(trial: Trial) -> Seen:
    """`close` without a connection; the seconds are of the call."""
    gone = begun(trial)
    trial.away()
    time.sleep(1.0)
    answer = trial.ask("close")
    time.sleep(0.2)
    if answer.words is None:
        return Seen(cells.HUNG, f"no end within {LIMIT:g} s")
    there = "the session stays" if gone.at is None else "the session has ended"
    words = "returns" if answer.words.startswith("ok") else answer.words
    return Seen(
        cells.LESS if words == "returns" else cells.TRUTH, f"{words}; {there}", answer.seconds
    )


def fork(trial: Trial) -> Seen:
    """A forked child uses the client; then its parent does."""
    if not trial.client.forks:
        return trial.missing("fork")
    trial.make(trial.path, b"right")
    trial.connect(timeout=LONG)
    answer = trial.ask("fork", trial.path)
    later = trial.ask("get", trial.path, limit=5.0)
    if answer.words is None:
        return Seen(cells.HUNG, "no answer")
    child = answer.text or answer.words
    parent = "goes on" if later.words == "ok right" else f"then gets {later.words or 'no answer'}"
    words = f"child: {child}; the parent {parent}"
    if "goes on" not in parent:
        return Seen(cells.WRONG, words)
    return Seen(cells.HUNG if child.startswith("no answer") else cells.TRUTH, words)


def ended(end: Callable[[Trial], None], trial: Trial) -> Seen:
    """How long an ephemeral node stays after the end of the process."""
    gone = begun(trial)
    since = time.monotonic()
    end(trial)
    while gone.at is None and time.monotonic() < since + 3 * TIMEOUT:
        time.sleep(0.05)
    if gone.at is None:
        return Seen(cells.WRONG, f"the node stays for more than {3 * TIMEOUT:g} s")
    stays = gone.at - since
    if stays < AT_ONCE:
        return Seen(cells.TRUTH, "the session ends at once", stays)
    return Seen(cells.NOTHING, "the node stays until the session times out", stays)


def leave(trial: Trial) -> None:
    """The program returns from its main function."""
    trial.start("exit")


def kill(trial: Trial) -> None:
    trial.driver.signal(signal.SIGKILL)


def terminate(trial: Trial) -> None:
    trial.driver.signal(signal.SIGTERM)


SITUATIONS = (
    Situation(
        8,
        "Close, fork, and the end of the process",
        "In the last three rows it is the server that is told: *told the truth* means that the"
        " session ends at once, *told nothing* that its ephemeral nodes stay until it times out (3"
        " s). *Returns* means that `close` says nothing of the session, which has not ended.",
        [
            Point("end-flight", "close with 1,000 sets in flight", close_in_flight, 20),
            Point("end-away", "close while there is no connection", close_away),
            Point("end-fork", "a forked child uses the client", fork, alone=True),
            Point("end-exit", "the program ends without close", partial(ended, leave), 2, True),
            Point("end-term", "SIGTERM", partial(ended, terminate), 2, True),
            Point("end-kill", "SIGKILL", partial(ended, kill), 2, True),
        ],
    ),
)
