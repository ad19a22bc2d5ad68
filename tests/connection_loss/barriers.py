"""What barriers do by themselves when their connection, or their session, is lost."""

from __future__ import annotations

from functools import partial

from tests.connection_loss.deeds import Deed, Play, Wait
from tests.support.lock_helpers import GRACE, PATIENCE, Running
from tests.support.server_control import poll
from zkwire import Barrier, DoubleBarrier, NoNodeError


def barrier(play: Play) -> None:
    play.make("Barrier", play.path)


def closed(play: Play) -> None:
    barrier(play)
    close(play)


def close(play: Play) -> object:
    return play.do("close", PATIENCE)


def open_it(play: Play) -> object:
    return play.do("open", PATIENCE)


def open_anew(play: Play) -> None:
    barrier(play)
    open_it(play)


def others_close(play: Play) -> None:
    Barrier(play.observer, play.path).close(GRACE)


def others_open(play: Play) -> None:
    Barrier(play.observer, play.path).open(GRACE)


def look(play: Play) -> object:
    """Whether it is open, without a wait."""
    return play.do("wait", 0)


def pass_through(play: Play) -> object:
    return play.do("wait", PATIENCE)


def state(play: Play) -> str:
    return "open" if play.observer.exists(play.path) is None else "closed"


def is_state(play: Play, expected: str) -> str:
    assert state(play) == expected
    return expected


def lets_through(play: Play) -> str:
    """It waits until the barrier is opened."""
    others_open(play)
    assert pass_through(play)
    return "let through when it is open"


def look_anew(play: Play) -> None:
    barrier(play)
    look(play)


# --- double barriers ------------------------------------------------------------------------------


def member(play: Play) -> None:
    """Of a double barrier of one member, which enters and leaves as soon as it asks."""
    play.make("DoubleBarrier", play.path, 1)


def used_barrier(play: Play) -> None:
    inside(play)
    leave(play)


def enter(play: Play) -> object:
    return play.do("enter", PATIENCE)


def enter_anew(play: Play) -> None:
    member(play)
    enter(play)


def inside(play: Play) -> None:
    member(play)
    enter(play)


def leave(play: Play) -> object:
    return play.do("leave", PATIENCE)


def enter_with_another(play: Play) -> object:
    play.make("DoubleBarrier", play.path, 2)
    return enter(play)


def another_enters(play: Play) -> None:
    play.notes["other"] = DoubleBarrier(play.observer, play.path, 2)
    assert play.notes["other"].enter(GRACE)


def own_node(play: Play) -> str:
    """What there is of this member."""
    try:
        names = play.observer.get_children(play.path)
    except NoNodeError:
        return "no node"
    stats = [play.observer.exists(f"{play.path}/{name}") for name in names]
    own = [stat for stat in stats if stat and stat.ephemeral_owner == play.session_id]
    return {0: "no node", 1: "its node"}[len(own)]


def both_inside(play: Play) -> str:
    assert own_node(play) == "its node"
    other = Running(lambda: play.notes["other"].leave(PATIENCE))
    assert leave(play)
    assert other.result()
    assert left(play) == "has left"
    return "both are inside, and leave"


def is_inside(play: Play) -> str:
    assert own_node(play) == "its node"
    assert leave(play)
    return f"is inside, and {left(play)}"


def left(play: Play) -> str:
    poll("nothing is left", lambda: own_node(play) == "no node" or None, PATIENCE)
    return "has left"


DEEDS = (
    Deed("`Barrier.close`", "create", close, state, partial(is_state, expected="closed"),
         prepare=barrier, rival=others_open, rivals="opened", again=closed, supervised=False),
    Deed("`Barrier.open`", "delete", open_it, state, partial(is_state, expected="open"),
         prepare=closed, rival=others_close, rivals="closed", again=open_anew, supervised=False),
    Deed("`Barrier.wait`", "get_data", look, state, lets_through, prepare=closed,
         again=look_anew, supervised=False,
         waits=Wait(pass_through, others_open, "opened", partial(is_state, expected="open"))),
    Deed("`DoubleBarrier.enter`", "create", enter, own_node, is_inside, prepare=used_barrier,
         again=enter_anew, supervised=False,
         waits=Wait(enter_with_another, another_enters, "the other member has entered",
                    both_inside)),
    Deed("`DoubleBarrier.leave`", "multi", leave, own_node, left, prepare=inside,
         again=lambda _: None, supervised=False),
)  # fmt: skip
