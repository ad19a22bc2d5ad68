"""Situation 5: the lock of the client, or of its recipe library."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from functools import partial

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation, Try
from tests.interop.atlas.driver import LOGS
from tests.interop.atlas.stage import CHANGES, LIMIT, LONG, TIMEOUT, Missing, Trial
from zkwire import NoNodeError
from zkwire.testing.proxy import cut_after, cut_before
from zkwire.testing.proxy.faults import Action

LISTS = frozenset({"get_children", "get_children2"})
DELETES = frozenset({"delete", "multi"})
WAIT = 8000
LOCKS = 10
"""In one process that is stopped."""


def begin(trial: Trial, timeout: float = LONG, *, held: bool = False) -> None:
    """A session, and a path for the lock, which it may hold."""
    trial.make(trial.path)
    trial.connect(timeout=timeout)
    if held:
        trial.ask("lock", trial.path, WAIT)


def acquire(action: Action | None, ops: frozenset[str], trial: Trial) -> Seen:
    """A free lock; the connection breaks under a request of the acquisition."""
    begin(trial)
    if action is not None:
        trial.at_change(action, ops=ops)
    answer = trial.ask("lock", trial.path, WAIT)
    nodes = len(trial.children(trial.path))
    stays = f"; {nodes} of its nodes there" if nodes != (answer.text == "held") else ""
    if answer.words is None:
        return Seen(cells.HUNG, f"no answer{stays}")
    if answer.text == "held":
        return Seen(cells.WRONG if stays else cells.TRUTH, f"held{stays}", answer.seconds)
    if answer.text == "not held":
        why = "waits for its own first node, " if nodes else ""
        return Seen(cells.WRONG, f"{why}not held{stays}", answer.seconds)
    return Seen(cells.LESS, f"{answer.words}{stays}", answer.seconds)


def give_up(action: Action, trial: Trial) -> Seen:
    """A waiter's time is over; the connection breaks under the deletion of its node."""
    begin(trial)
    trial.second("holder", "connect", limit=30.0)
    if trial.second("holder", "lock", trial.path, WAIT).lacks:
        raise Missing
    trial.at_change(action, ops=DELETES)
    answer = trial.ask("trylock", trial.path, 1500)
    time.sleep(2.0)
    nodes = len(trial.children(trial.path))
    others = {1: "", 2: "; its node stays, and nobody waits"}
    stays = others.get(nodes, f"; {nodes}")
    if answer.words is None:
        return Seen(cells.HUNG, f"no answer{stays}")
    words = answer.text if answer.good else answer.words
    kind = cells.TRUTH if not stays else cells.WRONG if answer.good else cells.LESS
    return Seen(kind, words + stays, answer.seconds)


def release(action: Action, trial: Trial) -> Seen:
    """The connection breaks under the deletion of the holder's node."""
    begin(trial, held=True)
    trial.at_change(action, ops=DELETES)
    answer = trial.ask("unlock", trial.path)
    time.sleep(2.0)
    stays = "; the node stays" if trial.children(trial.path) else ""
    if answer.words is None:
        return Seen(cells.HUNG, f"no answer{stays}")
    if answer.good:
        return Seen(cells.WRONG if stays else cells.TRUTH, f"released{stays}", answer.seconds)
    return Seen(cells.LESS, f"{answer.words}{stays}", answer.seconds)


def partitioned(trial: Trial) -> Seen:
    """The holder's network is silent until the next one holds; how long do both?"""
    trial.make(trial.path)
    trial.connect()
    trial.second("next", "connect", limit=30.0)
    trial.ask("lock", trial.path, WAIT)
    waiting = trial.driver.start(f"{trial.session}-next", "lock", trial.path, 30_000)
    time.sleep(0.5)
    since = time.monotonic()
    trial.proxy.black_hole()
    last, stopped = last_claim(trial, since + 3 * TIMEOUT)
    answer = waiting.wait(5.0)
    if answer.text != "held":
        return Seen(cells.HUNG, f"the next one does not hold: {answer.words}")
    return claims(trial, since, waiting.started + answer.seconds, last, stopped)


def last_claim(trial: Trial, until: float) -> tuple[float | None, bool]:
    """When it was asked for the last time and said that it is held, and whether it has stopped.

    None if it has no method that says so.
    """
    last = None
    while (asked := time.monotonic()) < until:
        answer = trial.driver.ask(trial.session, "held", trial.path, limit=1.0)
        if answer.lacks:
            time.sleep(max(0.0, until - time.monotonic()))
            return None, False
        if answer.words != "ok yes":
            return last, True
        last = asked
        time.sleep(0.02)
    return last, False


def claims(trial: Trial, since: float, held_at: float, last: float | None, stopped: bool) -> Seen:
    """Whether it has stopped in time, or was told in time to stop."""
    first = trial.wait_state(trial.client.down | trial.client.lost, 0.0, since)
    warned = first is not None and first.at < held_at
    named = f"; {first.words} told {'before' if warned else 'after'}" if first else "; no state"
    if last is None:
        says, kind = "no method says whether it holds", cells.LESS if warned else cells.NOTHING
        last = time.monotonic()
    elif stopped and last < held_at:
        return Seen(cells.TRUTH, "stops before the next one holds", last - held_at)
    else:
        says, kind = "says held while the next one holds", cells.LESS if warned else cells.WRONG
    return Seen(kind, says + named, last - held_at)


def deleted(trial: Trial) -> Seen:
    """Somebody deletes the holder's node."""
    begin(trial, held=True)
    since = time.monotonic()
    for name in trial.children(trial.path):
        with suppress(NoNodeError):
            trial.observer.delete(f"{trial.path}/{name}")
    last, stopped = last_claim(trial, since + 3.0)
    if stopped:
        return Seen(cells.TRUTH, "says not held", (last or since) - since)
    states = ", ".join(trial.states(since))
    kind = cells.LESS if states else cells.NOTHING
    return Seen(kind, f"goes on as holder; {states or 'told nothing'}")


def stopped_process(trial: Trial) -> Seen:
    """Holders in a process that is stopped for two session timeouts, and then goes on.

    The work that a lock protects is somewhere else than in ZooKeeper: here a line to this process.
    """
    pairs = [(f"{trial.session}-{n}", f"{trial.path}-{n}") for n in range(LOCKS)]
    with trial.client.drive(LOGS) as second:
        for name, path in pairs:
            trial.make(path)
            for driver in (trial.driver, second):
                driver.ask(name, "connect", trial.server.hosts, round(TIMEOUT * 1000), limit=30.0)
            if trial.driver.ask(name, "lock", path, WAIT, limit=LIMIT).lacks:
                raise Missing
            trial.driver.start(name, "work", path)
        waiting = [second.start(name, "lock", path, 30_000) for name, path in pairs]
        time.sleep(0.5)
        trial.driver.signal(signal.SIGSTOP)
        try:
            held = [call.wait(4 * TIMEOUT).text == "held" for call in waiting]
            time.sleep(0.5)  # what it has written before is read
        finally:
            goes_on = time.monotonic()
            trial.driver.signal(signal.SIGCONT)
        time.sleep(3.0)
        writes = [one.at for one in trial.driver.told if one.words.startswith("wrote")]
        stale = [at for at in writes if at > goes_on]
        name, path = pairs[0]
        fence = trial.driver.ask(name, "fence", path, limit=2.0)
        target = f"{trial.path}-target"
        trial.make(target)
        guard = trial.driver.ask(name, "guarded", path, target, "x", limit=5.0)
    if not all(held):
        return Seen(cells.HUNG, "the next one does not hold")
    fenced = "no fence" if fence.lacks else f"has a fence; a guarded write is {guard.text}"
    if len(stale) > LOCKS:
        words = f"goes on while the next one holds; {fenced}"
        return Seen(cells.WRONG, words, max(stale) - goes_on)
    one = "at most one write is late" if stale else "no write is late"
    return Seen(cells.TRUTH, f"{one}; {fenced}")


BEFORE, AFTER = "cut before the delete", "the delete executed, its answer lost"
TITLES = {
    "none": "acquire: nothing breaks",
    "create-before": "acquire: cut before the create",
    "create-after": "acquire: the create executed, its answer lost",
    "list": "acquire: the answer to the list of children lost",
    "giveup-before": f"give up after 1.5 s: {BEFORE}",
    "giveup-after": f"give up after 1.5 s: {AFTER}",
    "release-before": f"release: {BEFORE}",
    "release-after": f"release: {AFTER}",
    "partition": "the holder's network is silent"
    " (seconds for which both hold; negative: none does)",
    "deleted": "somebody deletes the holder's node (3 s)",
    "stopped": "SIGSTOP for two session timeouts, 10 locks at a time"
    " (seconds for which the old holder goes on, of 3)",
}
TRIALS: dict[str, Try] = {
    "none": partial(acquire, None, CHANGES),
    "create-before": partial(acquire, cut_before, CHANGES),
    "create-after": partial(acquire, cut_after, CHANGES),
    "list": partial(acquire, cut_after, LISTS),
    "giveup-before": partial(give_up, cut_before),
    "giveup-after": partial(give_up, cut_after),
    "release-before": partial(release, cut_before),
    "release-after": partial(release, cut_after),
    "partition": partitioned,
    "deleted": deleted,
    "stopped": stopped_process,
}
TIMES = {"none": 3, "partition": 20, "deleted": 3, "stopped": 2}
LOCK = Situation(
    5,
    "A lock",
    [
        Point(f"lock-{key}", title, TRIALS[key], TIMES.get(key, 5), alone=key == "stopped")
        for key, title in TITLES.items()
    ],
)
