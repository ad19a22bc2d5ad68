"""What counters, queues and barriers do by themselves when connection or session is lost."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from tests.connection_loss.losses import HASTE, NODES, Act, Call, Look, Trial, Wait
from tests.support.lock_helpers import GRACE, PATIENCE, Running
from tests.support.server_control import poll
from zkwire import Barrier, Counter, DoubleBarrier, NoNodeError, Queue, QueueEmptyError

SENT = b"x"


def asks(verb: str, *arguments: Any) -> Act:
    """A call of the recipe's own method."""
    return lambda trial: trial.do(verb, *arguments)


def made(kind: str, *arguments: Any, then: Act = lambda _: None) -> Act:
    """A recipe of this kind; what it does next."""

    def make(trial: Trial) -> object:
        trial.make(kind, trial.path, *arguments)
        return then(trial)

    return make


# --- counter --------------------------------------------------------------------------------------


def add(trial: Trial, timeout: float = PATIENCE) -> object:
    return trial.do("add", 1, timeout)


def note_added(trial: Trial) -> None:
    """It has been changed before by the same client."""
    trial.notes["before"] = add(trial)


def number(trial: Trial) -> int:
    """What the server has."""
    with suppress(NoNodeError):
        return int(trial.observer.get_data(trial.path).data)
    return 0


def the_number(trial: Trial) -> str:
    return f"the number is {number(trial)}"


def add_ten(trial: Trial) -> None:
    trial.notes["others"] = 10
    Counter(trial.observer, trial.path).add(10, GRACE)


def without_it(trial: Trial) -> int:
    """What the number would be."""
    return int(trial.notes.get("before", 0) + trial.notes.get("others", 0))


def add_if_missing(trial: Trial) -> None:
    """As a caller can that knows what the number may be."""
    if trial.do("get", PATIENCE) == without_it(trial):
        add(trial)


def added_once(trial: Trial) -> str:
    assert number(trial) == without_it(trial) + 1, the_number(trial)
    return "added once"


def adding(title: str, prepare: Act) -> Call:
    look = "read the number, if it tells you whether it was added"
    return Call(title, "multi", add, the_number, added_once, prepare=prepare, rival=add_ten,
                rivals="10 added", again=made("Counter", then=add_if_missing),
                renew=f"make a new `Client`; {look}", hasty=partial(add, timeout=HASTE), late=look,
                supervised=False)  # fmt: skip


# --- queue ----------------------------------------------------------------------------------------


def others(trial: Trial) -> Queue:
    """The queue, of another client."""
    return Queue(trial.observer, trial.path)


def used_queue(trial: Trial) -> None:
    """A queue that has been used before by the same client."""
    trial.make("Queue", trial.path)
    trial.do("put", b"y")
    trial.do("get", PATIENCE)


def filled_queue(trial: Trial) -> None:
    used_queue(trial)
    others_put(trial)


def items(trial: Trial) -> str:
    """What the server has of the item, in words."""
    there = {0: "no item", 1: "the item"}[len(trial.children(f"{trial.path}/entries"))]
    return f"{there}, claimed" if trial.children(f"{trial.path}/taken") else there


def put(trial: Trial, timeout: float = PATIENCE) -> object:
    assert trial.do("put", SENT, timeout=timeout) > 0
    return "its zxid"


def got(trial: Trial, data: bytes) -> bytes:
    assert data == SENT
    trial.notes["got"] = trial.notes.get("got", 0) + 1
    return data


def others_get(trial: Trial) -> None:
    """Another consumer takes what there is."""
    with suppress(QueueEmptyError):
        while True:
            got(trial, others(trial).get(0).data)


def delivered(trial: Trial) -> int:
    """How often the item was delivered when the queue is empty."""
    others_get(trial)
    assert items(trial) == "no item"
    return int(trial.notes.get("got", 0))


def put_once(trial: Trial) -> str:
    times = delivered(trial)
    assert 1 <= times <= 1 + ("again" in trial.notes)
    return {1: "put once", 2: "put twice"}[times]


def put_again(trial: Trial) -> object:
    trial.notes["again"] = True
    return put(trial)


def get(trial: Trial) -> object:
    return got(trial, trial.do("get", PATIENCE).data)


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


def take(trial: Trial, timeout: float = PATIENCE) -> object:
    """Begin to work on the item."""
    block = trial.do("take", timeout)
    item = trial.run(getattr(block, "__aenter__", None) or block.__enter__)
    trial.notes["block"] = block
    return item.data


def end(trial: Trial) -> object:
    """The work has ended well."""
    block = trial.notes["block"]
    leave = getattr(block, "__aexit__", None) or block.__exit__
    return trial.run(lambda: leave(None, None, None)) or "no error"


def worked_on(trial: Trial) -> str:
    """No other consumer gets it; and its end removes it."""
    others_get(trial)
    assert "got" not in trial.notes, "two work on it"
    end(trial)
    assert items(trial) == "no item"
    return "claimed, and removed at its end"


def take_what_is_left(trial: Trial) -> None:
    """The item, if it was not removed."""
    with suppress(QueueEmptyError):
        take(trial, 0)
        end(trial)


def removed(trial: Trial) -> str:
    assert delivered(trial) == 0, "it is delivered again"
    return "removed"


def taking(trial: Trial) -> None:
    filled_queue(trial)
    take(trial)


# --- barriers -------------------------------------------------------------------------------------

close, open_it, look = asks("close", PATIENCE), asks("open", PATIENCE), asks("wait", 0)
pass_through = asks("wait", PATIENCE)
barrier, closed = made("Barrier"), made("Barrier", then=close)


def others_close(trial: Trial) -> None:
    Barrier(trial.observer, trial.path).close(GRACE)


def others_open(trial: Trial) -> None:
    Barrier(trial.observer, trial.path).open(GRACE)


def state(trial: Trial) -> str:
    return "open" if trial.observer.exists(trial.path) is None else "closed"


def is_state(expected: str) -> Look:
    def goal(trial: Trial) -> str:
        assert state(trial) == expected
        return expected

    return goal


def lets_through(trial: Trial) -> str:
    """It waits until the barrier is opened."""
    others_open(trial)
    assert pass_through(trial)
    return "let through when it is open"


enter, leave = asks("enter", PATIENCE), asks("leave", PATIENCE)
inside = made("DoubleBarrier", 1, then=enter)
"""Of a double barrier of one member, which enters and leaves as soon as it asks."""


def used_barrier(trial: Trial) -> None:
    inside(trial)
    leave(trial)


def another_enters(trial: Trial) -> None:
    trial.notes["other"] = DoubleBarrier(trial.observer, trial.path, 2)
    assert trial.notes["other"].enter(GRACE)


def own_node(trial: Trial) -> str:
    """What there is of this member."""
    return NODES[trial.own_of(f"{trial.path}/{name}" for name in trial.children(trial.path))]


def both_inside(trial: Trial) -> str:
    other = Running(lambda: trial.notes["other"].leave(PATIENCE))
    is_inside(trial)
    assert other.result()
    return "both are inside, and leave"


def is_inside(trial: Trial) -> str:
    assert own_node(trial) == "its node"
    assert leave(trial)
    return f"is inside, and {left(trial)}"


def left(trial: Trial) -> str:
    poll("nothing is left", lambda: own_node(trial) == "no node" or None, PATIENCE)
    return "has left"


# --- the list -------------------------------------------------------------------------------------

REPEAT = "put it again, with an id by which a consumer knows a second one"
TAKE = "make a new `Client`, and take again"


def of_client(
    title: str, wire: str, call: Act, seen: Look, goal: Look, prepare: Act, again: Act, **more: Any
) -> Call:
    return Call(title, wire, call, seen, goal, prepare, again=again, supervised=False, **more)


def of_queue(title: str, call: Act, goal: Look, prepare: Act, then: Act, **more: Any) -> Call:
    return of_client(title, "multi", call, items, goal, prepare,
                     made("Queue", then=then), rival=others_get, **more)  # fmt: skip


ASKS: dict[str, Any] = {"rivals": "another consumer asks"}
CALLS = (
    adding("`Counter.add`, the first", made("Counter")),
    adding("`Counter.add`", made("Counter", then=note_added)),
    of_queue("`Queue.put`", put, put_once, used_queue, put_again, rivals="the item consumed",
             renew=f"make a new `Client`; {REPEAT}", hasty=partial(put, timeout=HASTE),
             late=REPEAT),
    of_queue("`Queue.get`", get, got_once, filled_queue, lose, **ASKS,
             renew="make a new `Client`; the item may be lost: `take` loses none",
             waits=Wait(get_from_empty, others_put, "an item put", got_once)),
    of_queue("`Queue.take`, the beginning", take, worked_on, filled_queue, take, renew=TAKE,
             **ASKS),
    of_queue("`Queue.take`, the end", end, removed, taking, take_what_is_left, **ASKS,
             renew=f"{TAKE}: it comes again if it was not removed"),
    of_client("`Barrier.close`", "create", close, state, is_state("closed"), barrier, closed,
              rival=others_open, rivals="opened"),
    of_client("`Barrier.open`", "delete", open_it, state, is_state("open"), closed,
              made("Barrier", then=open_it), rival=others_close, rivals="closed"),
    of_client("`Barrier.wait`", "get_data", look, state, lets_through, closed,
              made("Barrier", then=look),
              waits=Wait(pass_through, others_open, "opened", is_state("open"))),
    of_client("`DoubleBarrier.enter`", "create", enter, own_node, is_inside, used_barrier, inside,
              waits=Wait(made("DoubleBarrier", 2, then=enter), another_enters,
                         "the other member has entered", both_inside)),
    of_client("`DoubleBarrier.leave`", "multi", leave, own_node, left, inside, lambda _: None),
)  # fmt: skip
