"""What counters and queues do by themselves when their connection, or their session, is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tests.connection_loss.recipe_calls import Call, Trial, Wait
from tests.support.lock_helpers import GRACE, PATIENCE
from zkwire import Counter, NoNodeError, OncePer, Queue, QueueEmptyError

HASTE = 0.3  # seconds: a time limit that passes while the client is away
SENT = b"x"

# --- counter --------------------------------------------------------------------------------------


def counter(trial: Trial) -> None:
    trial.make("Counter", trial.path)


def counted(trial: Trial) -> None:
    """A counter that has been changed before by the same client."""
    counter(trial)
    trial.notes["before"] = add(trial)


def add(trial: Trial, timeout: float = PATIENCE) -> object:
    return trial.do("add", 1, timeout)


def number(trial: Trial) -> int:
    """What the server has."""
    try:
        return int(trial.observer.get_data(trial.path).data)
    except NoNodeError:
        return 0


def the_number(trial: Trial) -> str:
    return f"the number is {number(trial)}"


def add_ten(trial: Trial) -> None:
    trial.notes["others"] = 10
    Counter(trial.observer, trial.path).add(10, GRACE)


def add_if_missing(trial: Trial) -> None:
    """As a caller can that knows what the number may be."""
    counter(trial)
    if trial.do("get", PATIENCE) == trial.notes.get("before", 0) + trial.notes.get("others", 0):
        add(trial)


def added_once(trial: Trial) -> str:
    expected = trial.notes.get("before", 0) + trial.notes.get("others", 0) + 1
    assert number(trial) == expected, the_number(trial)
    return "added once"


def adding(title: str, prepare: Callable[[Trial], object]) -> Call:
    look = "read the number, if it tells you whether it was added"
    return Call(title, "multi", add, the_number, added_once, prepare=prepare, rival=add_ten,
                rivals="10 added", again=add_if_missing, renew=f"make a new `Client`; {look}",
                hasty=partial(add, timeout=HASTE), late=look, supervised=False)  # fmt: skip


# --- queue ----------------------------------------------------------------------------------------


def queue(trial: Trial) -> None:
    trial.make("Queue", trial.path)


def others(trial: Trial) -> Queue:
    """The queue, of another client."""
    return Queue(trial.observer, trial.path)


def used_queue(trial: Trial) -> None:
    """A queue that has been used before by the same client."""
    queue(trial)
    trial.do("put", b"y")
    trial.do("get", PATIENCE)


def filled_queue(trial: Trial) -> None:
    used_queue(trial)
    others_put(trial)


def children(trial: Trial, below: str) -> list[str]:
    try:
        return trial.observer.get_children(f"{trial.path}/{below}")
    except NoNodeError:
        return []


def items(trial: Trial) -> str:
    """What the server has of the item, in words."""
    there = {0: "no item", 1: "the item"}[len(children(trial, "entries"))]
    return f"{there}, claimed" if children(trial, "taken") else there


def put(trial: Trial, timeout: float = PATIENCE) -> object:
    assert trial.do("put", SENT, timeout=timeout) > 0
    return "its zxid"


def got(trial: Trial, data: bytes) -> None:
    assert data == SENT
    trial.notes["got"] = trial.notes.get("got", 0) + 1


def others_get(trial: Trial) -> None:
    """Another consumer takes what there is."""
    with suppress(QueueEmptyError):
        while True:
            got(trial, others(trial).get(0).data)


def delivered(trial: Trial) -> int:
    """How often the item was delivered when the queue is empty."""
    others_get(trial)
    assert items(trial) == "no item"
    return trial.notes.get("got", 0)


def put_once(trial: Trial) -> str:
    times = delivered(trial)
    assert 1 <= times <= 1 + ("again" in trial.notes)
    return {1: "put once", 2: "put twice"}[times]


def put_again(trial: Trial) -> object:
    trial.notes["again"] = True
    queue(trial)
    return put(trial)


def get(trial: Trial) -> object:
    data = trial.do("get", PATIENCE).data
    got(trial, data)
    return data


def get_from_empty(trial: Trial) -> object:
    """It waits for an item."""
    others(trial).get(0)
    return get(trial)


def others_put(trial: Trial) -> None:
    others(trial).put(SENT)


def got_once(trial: Trial) -> str:
    times = delivered(trial)
    assert times == 1 - ("lost" in trial.notes)
    return "delivered once" if times else "delivered to no consumer"


def lose(trial: Trial) -> None:
    """What has removed the item was told nothing."""
    trial.notes["lost"] = True
    queue(trial)


def take(trial: Trial) -> object:
    """Begin to work on the item."""
    block = trial.do("take", PATIENCE)
    trial.notes["block"] = block
    return trial.run(getattr(block, "__aenter__", None) or block.__enter__).data


def end(trial: Trial) -> object:
    """The work has ended well."""
    block = trial.notes["block"]
    leave = getattr(block, "__aexit__", None) or block.__exit__
    return trial.run(lambda: leave(None, None, None)) or "no error"


def take_anew(trial: Trial) -> None:
    queue(trial)
    take(trial)


def worked_on(trial: Trial) -> str:
    """No other consumer gets it; and its end removes it."""
    others_get(trial)
    assert "got" not in trial.notes, "two work on it"
    end(trial)
    assert items(trial) == "no item"
    return "claimed, and removed at its end"


def take_what_is_left(trial: Trial) -> None:
    """The item, if it was not removed."""
    queue(trial)
    with suppress(QueueEmptyError):
        block = trial.do("take", 0)
        trial.run(getattr(block, "__aenter__", None) or block.__enter__)
        trial.notes["block"] = block
        end(trial)


def removed(trial: Trial) -> str:
    others_get(trial)
    assert "got" not in trial.notes, "it is delivered again"
    assert items(trial) == "no item"
    return "removed"


def taking(trial: Trial) -> None:
    filled_queue(trial)
    take(trial)


# --- once per period ------------------------------------------------------------------------------

PERIOD = 3600.0


def due(trial: Trial) -> None:
    trial.observer.create(trial.path)
    trial.make("OncePer", trial.path, PERIOD)


def claim(trial: Trial, timeout: float = PATIENCE) -> object:
    claimed = trial.do("claim", timeout)
    trial.notes["claimed"] = claimed
    return claimed


def claim_anew(trial: Trial) -> None:
    trial.make("OncePer", trial.path, PERIOD)
    claim(trial)


def claims(trial: Trial) -> str:
    return "claimed" if trial.observer.get_data(trial.path).data else "due"


def others_claim(trial: Trial) -> None:
    assert not OncePer(trial.observer, trial.path, PERIOD).claim(GRACE), "claimed twice"


def claimed_once(trial: Trial) -> str:
    others_claim(trial)
    return "claimed once" if trial.notes["claimed"] else "claimed, and not done in this period"


REPEAT = "put it again, with an id by which a consumer knows a second one"
ASKS = "another consumer asks"
CALLS = (
    adding("`Counter.add`, the first", counter),
    adding("`Counter.add`", counted),
    Call("`Queue.put`", "multi", put, items, put_once, prepare=used_queue, rival=others_get,
         rivals="the item consumed", again=put_again, renew=f"make a new `Client`; {REPEAT}",
         hasty=partial(put, timeout=HASTE), late=REPEAT, supervised=False),
    Call("`Queue.get`", "multi", get, items, got_once, prepare=filled_queue, rival=others_get,
         rivals=ASKS, again=lose, supervised=False,
         renew="make a new `Client`; the item may be lost: `take` loses none",
         waits=Wait(get_from_empty, others_put, "an item put", got_once)),
    Call("`Queue.take`, the beginning", "multi", take, items, worked_on, prepare=filled_queue,
         rival=others_get, rivals=ASKS, again=take_anew, supervised=False,
         renew="make a new `Client`, and take again"),
    Call("`Queue.take`, the end", "multi", end, items, removed, prepare=taking, rival=others_get,
         rivals=ASKS, again=take_what_is_left, supervised=False,
         renew="make a new `Client`, and take again: it comes again if it was not removed"),
    Call("`OncePer.claim`", "set_data", claim, claims, claimed_once, prepare=due,
         rival=others_claim, rivals="another client claims", again=claim_anew, supervised=False,
         hasty=partial(claim, timeout=HASTE), late="claim again: it was given back",
         renew="make a new `Client`; if it was claimed, the work waits for the next period"),
)  # fmt: skip
