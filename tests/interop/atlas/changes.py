"""Situations 1 and 2: a change that the connection breaks under, and a thousand at once."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

from tests.interop.atlas import cells
from tests.interop.atlas.cells import Point, Seen, Situation
from tests.interop.atlas.driver import Answer
from tests.interop.atlas.stage import LIMIT, LONG, SOON, TIMEOUT, Missing, Trial
from zkwire.testing.proxy import Gate, cut_after, cut_before, hold

OPERATIONS = {
    "create": "create",
    "set": "set with a version",
    "delete": "delete with a version",
    "sequential": "sequential create",
    "multi": "multi of a create and a set",
    "retried": "create, repeated by the library's helper",
    "protected": "sequential create, protected by the library",
}
NUMBERED, HELPED = ("sequential", "protected"), ("retried", "protected")
WAYS = {
    "before": "cut before the server has it",
    "after": "executed, the answer lost",
    "refused": "refused, the answer lost",
    "down": "asked while there is no connection, which is back after 2.5 s",
}
FLOOD = 1000
HELD = 100
"""This one of them does not reach the server."""
SIZE = 16 * 1024
"""Of the data of each set: so that not all fit into the buffers of the operating system."""


class Change:
    """One operation, and how often the server has executed it."""

    def __init__(self, trial: Trial, operation: str, *, refused: bool) -> None:
        self.operation, self.trial, self.refused = operation, trial, refused
        parent = f"{trial.path}/none" if refused and operation in NUMBERED else trial.path
        self.node = f"{parent}/n"
        trial.make(trial.path)
        if operation in ("set", "delete") or (refused and operation in ("create", "retried")):
            trial.make(self.node, b"other")
        if refused and operation in ("set", "delete", "multi"):
            trial.observer.set_data(trial.path if operation == "multi" else self.node, b"other")

    def words(self) -> tuple[object, ...]:
        """The call."""
        more = {"set": ("mine", 0), "delete": (0,), "multi": (self.trial.path, 0)}
        return self.operation, self.node, *more.get(self.operation, ("mine",))

    def times(self) -> int:
        """How often it was executed."""
        if self.refused:
            return 0
        if self.operation in NUMBERED:
            return len(self.trial.children(self.trial.path))
        stat = self.trial.stat(self.node)
        if self.operation == "set":
            return stat.version if stat else 0
        return int((stat is None) == (self.operation == "delete"))


def change(operation: str, way: str, trial: Trial) -> Seen:
    """What the caller is told of one change, against what is true."""
    trial.connect(timeout=LONG)
    made = Change(trial, operation, refused=way == "refused")
    if way == "down":
        trial.away()
        time.sleep(SOON)
        call = trial.start(*made.words())
        time.sleep(2.5)
        trial.proxy.refuse(False)
        answer = call.wait(LIMIT)
        if answer.lacks:
            raise Missing(f"no {operation}")
    else:
        trial.at_change(cut_before if way == "before" else cut_after)
        answer = trial.ask(*made.words())
    time.sleep(SOON)  # for what a client repeats by itself
    return judged(answer, way, made.times(), trial.sent())


def judged(answer: Answer, way: str, times: int, sent: int) -> Seen:
    """The same for all clients: the truth is what can be known at the client's end."""
    said = cells.meaning(answer.words)
    words = "no answer" if answer.words is None else said if said == cells.OK else answer.words
    repeated = f"; sent {sent} times" if sent > 1 else ""
    many = f"; done {times} times" if times > 1 else ""
    if said == cells.NO_ANSWER:
        kind = cells.HUNG
    elif said == cells.OK:
        kind = cells.TRUTH if times == 1 else cells.LESS if times else cells.WRONG
    elif said == cells.REFUSED:
        kind = cells.TRUTH if way == "refused" else cells.WRONG
    elif said == cells.NOT_DONE:
        kind = cells.WRONG if times else cells.TRUTH
    elif times > 1:
        kind = cells.LESS
    else:  # in doubt; before it was ever sent that is less than can be known
        kind = cells.TRUTH if said == cells.DOUBT and way != "down" else cells.LESS
    return Seen(kind, f"{words}{repeated}{many}", answer.seconds)


def points() -> list[Point]:
    return [
        Point(
            f"{operation}-{way}",
            f"{title}: {where}",
            partial(change, operation, way),
            20 if way == "down" else 5,
        )
        for operation, title in OPERATIONS.items()
        for way, where in WAYS.items()
        if operation not in HELPED or way in ("before", "after")
    ]


# --- a thousand at once ---------------------------------------------------------------------------


def flood(way: str, trial: Trial) -> Seen:
    """A thousand sets; the server gets the first of them, and the rest waits when it breaks."""
    trial.connect()
    trial.make(trial.path)
    gate = Gate()
    trial.at_change(hold(gate), nth=HELD)
    if way == "after":
        trial.drop_answers(HELD // 2)
    call = trial.start("flood", trial.path, FLOOD, SIZE)
    gate.wait_reached()
    if way == "hole":
        trial.proxy.black_hole()
        time.sleep(2 * TIMEOUT)
        trial.proxy.black_hole(False)
        gate.release()
    else:
        time.sleep(1.0)
        trial.proxy.cut_all()
    answer = call.wait(2 * LIMIT)
    if answer.lacks:
        raise Missing("no flood")
    return flood_seen(trial, answer, SOON)


def flood_seen(trial: Trial, answer: Answer, pause: float) -> Seen:
    time.sleep(pause)
    stat = trial.stat(trial.path)
    return flood_judged(answer, stat.version if stat else 0)


def flood_judged(answer: Answer, executed: int) -> Seen:
    """Told apart are those that were certainly not executed and those in doubt."""
    if answer.words is None:
        return Seen(cells.HUNG, "no answer", answer.seconds)
    groups = [part.partition("*")[::2] for part in answer.text.split(", ")]
    counts = Counter[str]()
    for number, words in groups:
        counts[words] += int(number)
    good = counts["ok"]
    ordered = "" if len(groups) == len(counts) else "; not in the order of the calls"
    names = ", ".join(sorted(counts.keys() - ({"ok"} if len(counts) > 1 else set()))) + ordered
    meanings = {cells.meaning(words) for words in counts}
    kept = "ok" in [words for _, words in groups[1:]]  # some were sent on the next connection
    if counts["no answer"]:
        kind = cells.HUNG
    elif good > executed:
        kind = cells.WRONG
    elif executed > FLOOD:
        kind = cells.LESS
    elif {cells.DOUBT, cells.NOT_DONE} <= meanings or good == FLOOD or kept:
        kind = cells.TRUTH
    else:
        kind = cells.LESS
    more = "; some executed twice" if executed > FLOOD else ""
    return Seen(kind, f"{names}{more}", answer.seconds)


FLOODS = {"before": "cut", "after": "the answers from the 50th on lost, cut"}
FLOODS["hole"] = "silence for two session timeouts"
SITUATIONS = (
    Situation(1, "A change, and the connection breaks", points()),
    Situation(
        2,
        "A thousand sets in flight",
        [
            Point(f"flood-{way}", title, partial(flood, way), 10 if way == "hole" else 20)
            for way, title in FLOODS.items()
        ],
    ),
)
