"""What barriers do by themselves when their connection, or their session, is lost."""

from __future__ import annotations

from functools import partial

from tests.connection_loss.recipe_calls import Call, Trial, Wait
from tests.support.lock_helpers import GRACE, PATIENCE, Running
from tests.support.server_control import poll
from zkwire import Barrier, DoubleBarrier, NoNodeError


def barrier(trial: Trial) -> None:
    trial.make("Barrier", trial.path)


def closed(trial: Trial) -> None:
    barrier(trial)
    close(trial)


def close(trial: Trial) -> object:
    return trial.do("close", PATIENCE)


def open_it(trial: Trial) -> object:
    return trial.do("open", PATIENCE)


def open_anew(trial: Trial) -> None:
    barrier(trial)
    open_it(trial)


def others_close(trial: Trial) -> None:
    Barrier(trial.observer, trial.path).close(GRACE)


def others_open(trial: Trial) -> None:
    Barrier(trial.observer, trial.path).open(GRACE)


def look(trial: Trial) -> object:
    """Whether it is open, without a wait."""
    return trial.do("wait", 0)


def pass_through(trial: Trial) -> object:
    return trial.do("wait", PATIENCE)


def state(trial: Trial) -> str:
    return "open" if trial.observer.exists(trial.path) is None else "closed"


def is_state(trial: Trial, expected: str) -> str:
    assert state(trial) == expected
    return expected


def lets_through(trial: Trial) -> str:
    """It waits until the barrier is opened."""
    others_open(trial)
    assert pass_through(trial)
    return "let through when it is open"


def look_anew(trial: Trial) -> None:
    barrier(trial)
    look(trial)


# --- double barriers ------------------------------------------------------------------------------


def member(trial: Trial) -> None:
    """Of a double barrier of one member, which enters and leaves as soon as it asks."""
    trial.make("DoubleBarrier", trial.path, 1)


def used_barrier(trial: Trial) -> None:
    inside(trial)
    leave(trial)


def enter(trial: Trial) -> object:
    return trial.do("enter", PATIENCE)


def enter_anew(trial: Trial) -> None:
    member(trial)
    enter(trial)


def inside(trial: Trial) -> None:
    member(trial)
    enter(trial)


def leave(trial: Trial) -> object:
    return trial.do("leave", PATIENCE)


def enter_with_another(trial: Trial) -> object:
    trial.make("DoubleBarrier", trial.path, 2)
    return enter(trial)


def another_enters(trial: Trial) -> None:
    trial.notes["other"] = DoubleBarrier(trial.observer, trial.path, 2)
    assert trial.notes["other"].enter(GRACE)


def own_node(trial: Trial) -> str:
    """What there is of this member."""
    try:
        names = trial.observer.get_children(trial.path)
    except NoNodeError:
        return "no node"
    stats = [trial.observer.exists(f"{trial.path}/{name}") for name in names]
    own = [stat for stat in stats if stat and stat.ephemeral_owner == trial.session_id]
    return {0: "no node", 1: "its node"}[len(own)]


def both_inside(trial: Trial) -> str:
    assert own_node(trial) == "its node"
    other = Running(lambda: trial.notes["other"].leave(PATIENCE))
    assert leave(trial)
    assert other.result()
    assert left(trial) == "has left"
    return "both are inside, and leave"


def is_inside(trial: Trial) -> str:
    assert own_node(trial) == "its node"
    assert leave(trial)
    return f"is inside, and {left(trial)}"


def left(trial: Trial) -> str:
    poll("nothing is left", lambda: own_node(trial) == "no node" or None, PATIENCE)
    return "has left"


CALLS = (
    Call("`Barrier.close`", "create", close, state, partial(is_state, expected="closed"),
         prepare=barrier, rival=others_open, rivals="opened", again=closed, supervised=False),
    Call("`Barrier.open`", "delete", open_it, state, partial(is_state, expected="open"),
         prepare=closed, rival=others_close, rivals="closed", again=open_anew, supervised=False),
    Call("`Barrier.wait`", "get_data", look, state, lets_through, prepare=closed,
         again=look_anew, supervised=False,
         waits=Wait(pass_through, others_open, "opened", partial(is_state, expected="open"))),
    Call("`DoubleBarrier.enter`", "create", enter, own_node, is_inside, prepare=used_barrier,
         again=enter_anew, supervised=False,
         waits=Wait(enter_with_another, another_enters, "the other member has entered",
                    both_inside)),
    Call("`DoubleBarrier.leave`", "multi", leave, own_node, left, prepare=inside,
         again=lambda _: None, supervised=False),
)  # fmt: skip
