"""Situation 3: what happens to a watch."""

from __future__ import annotations

import time
from functools import partial

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.stage import LONG, SOON, Trial
from zkwire.testing.proxy import cut_before

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
    "restart": "the server is restarted, then the node changes",
    "moved": "the session moves to another server, then the node changes",
}
EVENT_SECONDS = 4.0
BACK_SECONDS = 40.0


def watch(kind: str, way: str, trial: Trial) -> Seen:
    """Set a watch, break the connection, change the node."""
    if way == "restart":
        trial.move_to(trial.stage.restarting)
    elif way == "moved":
        trial.move_to(trial.stage.ensemble.servers[0])
    trial.connect(timeout=LONG)
    trial.make(trial.path)
    if trial.ask("watch", kind, trial.path).lacks or not trial.set_watches():
        return trial.missing(f"{kind} watch")
    armed = since = time.monotonic()
    match way:
        case "away":
            trial.away()
            time.sleep(SOON)
            change(kind, trial, 1)
            time.sleep(SOON)
            trial.proxy.refuse(False)
        case "lost":
            trial.proxy.on("notification", action=cut_before)
            change(kind, trial, 1)
        case "none":
            change(kind, trial, 1)
        case _:
            if way == "restart":
                trial.restart()
            else:
                trial.proxy.upstream = trial.stage.ensemble.servers[1].hosts
                trial.proxy.cut_all()
            if not trial.back(BACK_SECONDS).startswith("ok"):
                return Seen(cells.HUNG, f"does not come back within {BACK_SECONDS:g} s")
            trial.stat(trial.path)  # the observer is back, too
            time.sleep(SOON)
            since = time.monotonic()
            change(kind, trial, 1)
    return judged(kind, trial, armed, since)


def change(kind: str, trial: Trial, number: int) -> None:
    """One that the watch is for; another client makes it."""
    if kind in ("children", "recursive"):
        trial.observer.create(f"{trial.path}/c{number}", b"")
    else:
        trial.observer.set_data(trial.path, b"%d" % number)


def judged(kind: str, trial: Trial, armed: float, since: float) -> Seen:
    """Whether the watch has told; if not, whether it tells of the next change."""
    event = trial.wait_event(EVENT_SECONDS, since)
    if event is not None:
        return Seen(cells.TRUTH, f"event {event.words.split(' ')[0]}", event.at - since)
    trial.back(BACK_SECONDS)
    if event := trial.wait_event(0.0, since):
        return Seen(cells.TRUTH, f"event {event.words.split(' ')[0]}", event.at - since)
    again = time.monotonic()
    change(kind, trial, 2)
    later = trial.wait_event(EVENT_SECONDS / 2, again)
    states = [one.words for one in trial.told("state", armed)]
    watch_told = [state for state in states if state.startswith("watch:")]
    down = [state for state in states if state in trial.client.down | trial.client.lost]
    told = (watch_told or down)[:1]
    then = "the next change is told" if later else "nor of the next change"
    return Seen(
        cells.LESS if told else cells.NOTHING, f"no event, {then}; {''.join(told) or 'no state'}"
    )


SITUATIONS = (
    Situation(
        3,
        "A watch",
        "Is the application told of the change? *Told less*: it is told that the connection was"
        " lost and not that something has changed. The seconds are from the break, or in the last"
        " two groups from the change, to the event. The helpers: `watch_data` (zkwire), `DataWatch`"
        " (kazoo), `DataWatcher` (aiozk), `CuratorCache` (Curator).",
        [
            Point(f"watch-{kind}-{way}", f"{title}: {where}", partial(watch, kind, way), 3)
            for way, where in WAYS.items()
            for kind, title in KINDS.items()
        ],
    ),
)
