"""What services that hold locks do by themselves when their connection, or session, is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.connection_loss.clients import BLOCKING
from tests.connection_loss.recipe_calls import NOTHING, Call, Trial
from tests.connection_loss.services import provide_node
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll

# --- partitioner ----------------------------------------------------------------------------------

MEMBERS, LOCK = "members", "items/x"


def used_partitioner(trial: Trial) -> None:
    """What it needs is there."""
    share(trial)
    trial.do("close")


def share(trial: Trial) -> object:
    """Be a member; the first share with the item."""
    trial.make("Partitioner", trial.path, ["x"], name="one")
    return next_share(trial)


def next_share(trial: Trial) -> object:
    """The next share with the item: one may come without it."""

    def owned() -> object:
        share = trial.do("next", PATIENCE)
        return sorted(share) or None

    return poll("the item is its own", owned, PATIENCE)


def below(trial: Trial, place: str) -> list[str]:
    return trial.observer.get_children(f"{trial.path}/{place}")


def count(trial: Trial, place: str) -> str:
    """What there is of it."""
    return {0: "no node", 1: "its node"}[len(below(trial, place))]


def delete_below(trial: Trial, place: str) -> None:
    trial.observer.delete(f"{trial.path}/{place}/{below(trial, place)[0]}")


def owns(trial: Trial) -> str:
    """One node of its session stands for each; and none when it is closed."""
    for place in (MEMBERS, LOCK):
        (only,) = below(trial, place)
        stat = trial.observer.exists(f"{trial.path}/{place}/{only}")
        assert stat is not None
        assert stat.ephemeral_owner == trial.session_id
    trial.do("close")
    assert not below(trial, MEMBERS) + below(trial, LOCK)
    return "the item is its own, until it is closed"


def sharing(title: str, wire: str, place: str) -> Call:
    return Call(title, wire, share, partial(count, place=place), owns, prepare=used_partitioner,
                rival=partial(delete_below, place=place), rivals="this node deleted")  # fmt: skip


# --- leadership -----------------------------------------------------------------------------------


def lead(trial: Trial) -> object:
    """Run for leader; in a term."""
    terms = trial.notes["terms"] = []

    def work(lock: Any) -> None:
        terms.append(lock)
        lock.lost.wait()

    async def work_async(lock: Any) -> None:
        terms.append(lock)
        await asyncio.Event().wait()  # the end of the term cancels it

    function = work if trial.client_kind is BLOCKING else work_async
    trial.run(lambda: trial.home.lead(trial.path, function))
    return leads(trial)


def leads(trial: Trial) -> object:
    """A term is on; no caller waits for that."""
    terms = trial.notes["terms"]
    poll("it leads", lambda: (terms and terms[-1].held) or None, PATIENCE)
    return NOTHING


def leads_again(trial: Trial) -> object:
    """As leads, behind the end of the first term."""
    poll("a new term", lambda: len(trial.notes["terms"]) > 1 or None, PATIENCE)
    return leads(trial)


def candidates(trial: Trial) -> list[str]:
    return trial.nodes(trial.path)


def candidate(trial: Trial) -> str:
    return {0: "no node", 1: "its node"}[len(candidates(trial))]


def delete_candidate(trial: Trial) -> None:
    trial.observer.delete(candidates(trial)[0])


def leads_alone(trial: Trial) -> str:
    """One term is on, of this session."""
    leads(trial)
    (only,) = candidates(trial)
    stat = trial.observer.exists(only)
    assert stat is not None
    assert stat.ephemeral_owner == trial.session_id
    assert stat.czxid == trial.notes["terms"][-1].fence
    return "it leads, by one node"


CALLS = (
    sharing("`Partitioner`, the member's node", "create", MEMBERS),
    sharing("`Partitioner`, the item's lock", "create2", LOCK),
    Call("`Supervisor.lead`", "create2", lead, candidate, leads_alone, prepare=provide_node,
         rival=delete_candidate, rivals="its node deleted", wait=leads_again, alone=False),
)  # fmt: skip
