"""What services that hold locks do by themselves when their connection, or session, is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.connection_loss.clients import BLOCKING
from tests.connection_loss.deeds import NOTHING, Deed, Play
from tests.connection_loss.services import provide_node
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll

# --- partitioner ----------------------------------------------------------------------------------

MEMBERS, LOCK = "members", "items/x"


def used_partitioner(play: Play) -> None:
    """What it needs is there."""
    share(play)
    play.do("close")


def share(play: Play) -> object:
    """Be a member; the first share with the item."""
    play.make("Partitioner", play.path, ["x"], name="one")
    return next_share(play)


def next_share(play: Play) -> object:
    """The next share with the item: one may come without it."""

    def owned() -> object:
        share = play.do("next", PATIENCE)
        return sorted(share) or None

    return poll("the item is its own", owned, PATIENCE)


def below(play: Play, place: str) -> list[str]:
    return play.observer.get_children(f"{play.path}/{place}")


def count(play: Play, place: str) -> str:
    """What there is of it."""
    return {0: "no node", 1: "its node"}[len(below(play, place))]


def delete_below(play: Play, place: str) -> None:
    play.observer.delete(f"{play.path}/{place}/{below(play, place)[0]}")


def owns(play: Play) -> str:
    """One node of its session stands for each; and none when it is closed."""
    for place in (MEMBERS, LOCK):
        (only,) = below(play, place)
        stat = play.observer.exists(f"{play.path}/{place}/{only}")
        assert stat is not None
        assert stat.ephemeral_owner == play.session_id
    play.do("close")
    assert not below(play, MEMBERS) + below(play, LOCK)
    return "the item is its own, until it is closed"


def sharing(title: str, wire: str, place: str) -> Deed:
    return Deed(title, wire, share, partial(count, place=place), owns, prepare=used_partitioner,
                rival=partial(delete_below, place=place), rivals="this node deleted")  # fmt: skip


# --- leadership -----------------------------------------------------------------------------------


def lead(play: Play) -> object:
    """Run for leader; in a term."""
    terms = play.notes["terms"] = []

    def work(lock: Any) -> None:
        terms.append(lock)
        lock.lost.wait()

    async def work_async(lock: Any) -> None:
        terms.append(lock)
        await asyncio.Event().wait()  # the end of the term cancels it

    function = work if play.way is BLOCKING else work_async
    play.run(lambda: play.home.lead(play.path, function))
    return leads(play)


def leads(play: Play) -> object:
    """A term is on; no caller waits for that."""
    terms = play.notes["terms"]
    poll("it leads", lambda: (terms and terms[-1].held) or None, PATIENCE)
    return NOTHING


def leads_again(play: Play) -> object:
    """As leads, behind the end of the first term."""
    poll("a new term", lambda: len(play.notes["terms"]) > 1 or None, PATIENCE)
    return leads(play)


def candidates(play: Play) -> list[str]:
    return play.nodes(play.path)


def candidate(play: Play) -> str:
    return {0: "no node", 1: "its node"}[len(candidates(play))]


def delete_candidate(play: Play) -> None:
    play.observer.delete(candidates(play)[0])


def leads_alone(play: Play) -> str:
    """One term is on, of this session."""
    leads(play)
    (only,) = candidates(play)
    stat = play.observer.exists(only)
    assert stat is not None
    assert stat.ephemeral_owner == play.session_id
    assert stat.czxid == play.notes["terms"][-1].fence
    return "it leads, by one node"


DEEDS = (
    sharing("`Partitioner`, the member's node", "create", MEMBERS),
    sharing("`Partitioner`, the item's lock", "create2", LOCK),
    Deed("`Supervisor.lead`", "create2", lead, candidate, leads_alone, prepare=provide_node,
         rival=delete_candidate, rivals="its node deleted", wait=leads_again, alone=False),
)  # fmt: skip
