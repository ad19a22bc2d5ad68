"""What counters and queues do by themselves when their connection, or their session, is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tests.connection_loss.deeds import Deed, Play, Wait
from tests.support.lock_helpers import GRACE, PATIENCE
from zkwire import Counter, NoNodeError, OncePer, Queue, QueueEmptyError

HASTE = 0.3  # seconds: a time limit that passes while the client is away
SENT = b"x"

# --- counter --------------------------------------------------------------------------------------


def counter(play: Play) -> None:
    play.make("Counter", play.path)


def counted(play: Play) -> None:
    """A counter that has been changed before by the same client."""
    counter(play)
    play.notes["before"] = add(play)


def add(play: Play, timeout: float = PATIENCE) -> object:
    return play.do("add", 1, timeout)


def number(play: Play) -> int:
    """What the server has."""
    try:
        return int(play.observer.get_data(play.path).data)
    except NoNodeError:
        return 0


def the_number(play: Play) -> str:
    return f"the number is {number(play)}"


def add_ten(play: Play) -> None:
    play.notes["others"] = 10
    Counter(play.observer, play.path).add(10, GRACE)


def add_if_missing(play: Play) -> None:
    """As a caller can that knows what the number may be."""
    counter(play)
    if play.do("get", PATIENCE) == play.notes.get("before", 0) + play.notes.get("others", 0):
        add(play)


def added_once(play: Play) -> str:
    expected = play.notes.get("before", 0) + play.notes.get("others", 0) + 1
    assert number(play) == expected, the_number(play)
    return "added once"


def adding(title: str, prepare: Callable[[Play], object]) -> Deed:
    look = "read the number, if it tells you whether it was added"
    return Deed(title, "multi", add, the_number, added_once, prepare=prepare, rival=add_ten,
                rivals="10 added", again=add_if_missing, renew=f"make a new `Client`; {look}",
                hasty=partial(add, timeout=HASTE), late=look, supervised=False)  # fmt: skip


# --- queue ----------------------------------------------------------------------------------------


def queue(play: Play) -> None:
    play.make("Queue", play.path)


def others(play: Play) -> Queue:
    """The queue, of another client."""
    return Queue(play.observer, play.path)


def used_queue(play: Play) -> None:
    """A queue that has been used before by the same client."""
    queue(play)
    play.do("put", b"y")
    play.do("get", PATIENCE)


def filled_queue(play: Play) -> None:
    used_queue(play)
    others_put(play)


def children(play: Play, below: str) -> list[str]:
    try:
        return play.observer.get_children(f"{play.path}/{below}")
    except NoNodeError:
        return []


def items(play: Play) -> str:
    """What the server has of the item, in words."""
    there = {0: "no item", 1: "the item"}[len(children(play, "entries"))]
    return f"{there}, claimed" if children(play, "taken") else there


def put(play: Play, timeout: float = PATIENCE) -> object:
    assert play.do("put", SENT, timeout=timeout) > 0
    return "its zxid"


def got(play: Play, data: bytes) -> None:
    assert data == SENT
    play.notes["got"] = play.notes.get("got", 0) + 1


def others_get(play: Play) -> None:
    """Another consumer takes what there is."""
    with suppress(QueueEmptyError):
        while True:
            got(play, others(play).get(0).data)


def delivered(play: Play) -> int:
    """How often the item was delivered when the queue is empty."""
    others_get(play)
    assert items(play) == "no item"
    return play.notes.get("got", 0)


def put_once(play: Play) -> str:
    times = delivered(play)
    assert 1 <= times <= 1 + ("again" in play.notes)
    return {1: "put once", 2: "put twice"}[times]


def put_again(play: Play) -> object:
    play.notes["again"] = True
    queue(play)
    return put(play)


def get(play: Play) -> object:
    data = play.do("get", PATIENCE).data
    got(play, data)
    return data


def get_from_empty(play: Play) -> object:
    """It waits for an item."""
    others(play).get(0)
    return get(play)


def others_put(play: Play) -> None:
    others(play).put(SENT)


def got_once(play: Play) -> str:
    times = delivered(play)
    assert times == 1 - ("lost" in play.notes)
    return "delivered once" if times else "delivered to no consumer"


def lose(play: Play) -> None:
    """What has removed the item was told nothing."""
    play.notes["lost"] = True
    queue(play)


def take(play: Play) -> object:
    """Begin to work on the item."""
    block = play.do("take", PATIENCE)
    play.notes["block"] = block
    return play.run(getattr(block, "__aenter__", None) or block.__enter__).data


def end(play: Play) -> object:
    """The work has ended well."""
    block = play.notes["block"]
    leave = getattr(block, "__aexit__", None) or block.__exit__
    return play.run(lambda: leave(None, None, None)) or "no error"


def take_anew(play: Play) -> None:
    queue(play)
    take(play)


def worked_on(play: Play) -> str:
    """No other consumer gets it; and its end removes it."""
    others_get(play)
    assert "got" not in play.notes, "two work on it"
    end(play)
    assert items(play) == "no item"
    return "claimed, and removed at its end"


def take_what_is_left(play: Play) -> None:
    """The item, if it was not removed."""
    queue(play)
    with suppress(QueueEmptyError):
        block = play.do("take", 0)
        play.run(getattr(block, "__aenter__", None) or block.__enter__)
        play.notes["block"] = block
        end(play)


def removed(play: Play) -> str:
    others_get(play)
    assert "got" not in play.notes, "it is delivered again"
    assert items(play) == "no item"
    return "removed"


def taking(play: Play) -> None:
    filled_queue(play)
    take(play)


# --- once per period ------------------------------------------------------------------------------

PERIOD = 3600.0


def due(play: Play) -> None:
    play.observer.create(play.path)
    play.make("OncePer", play.path, PERIOD)


def claim(play: Play, timeout: float = PATIENCE) -> object:
    claimed = play.do("claim", timeout)
    play.notes["claimed"] = claimed
    return claimed


def claim_anew(play: Play) -> None:
    play.make("OncePer", play.path, PERIOD)
    claim(play)


def claims(play: Play) -> str:
    return "claimed" if play.observer.get_data(play.path).data else "due"


def others_claim(play: Play) -> None:
    assert not OncePer(play.observer, play.path, PERIOD).claim(GRACE), "claimed twice"


def claimed_once(play: Play) -> str:
    others_claim(play)
    return "claimed once" if play.notes["claimed"] else "claimed, and not done in this period"


REPEAT = "put it again, with an id by which a consumer knows a second one"
ASKS = "another consumer asks"
DEEDS = (
    adding("`Counter.add`, the first", counter),
    adding("`Counter.add`", counted),
    Deed("`Queue.put`", "multi", put, items, put_once, prepare=used_queue, rival=others_get,
         rivals="the item consumed", again=put_again, renew=f"make a new `Client`; {REPEAT}",
         hasty=partial(put, timeout=HASTE), late=REPEAT, supervised=False),
    Deed("`Queue.get`", "multi", get, items, got_once, prepare=filled_queue, rival=others_get,
         rivals=ASKS, again=lose, supervised=False,
         renew="make a new `Client`; the item may be lost: `take` loses none",
         waits=Wait(get_from_empty, others_put, "an item put", got_once)),
    Deed("`Queue.take`, the beginning", "multi", take, items, worked_on, prepare=filled_queue,
         rival=others_get, rivals=ASKS, again=take_anew, supervised=False,
         renew="make a new `Client`, and take again"),
    Deed("`Queue.take`, the end", "multi", end, items, removed, prepare=taking, rival=others_get,
         rivals=ASKS, again=take_what_is_left, supervised=False,
         renew="make a new `Client`, and take again: it comes again if it was not removed"),
    Deed("`OncePer.claim`", "set_data", claim, claims, claimed_once, prepare=due,
         rival=others_claim, rivals="another client claims", again=claim_anew, supervised=False,
         hasty=partial(claim, timeout=HASTE), late="claim again: it was given back",
         renew="make a new `Client`; if it was claimed, the work waits for the next period"),
)  # fmt: skip
