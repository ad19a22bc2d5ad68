"""Recipes that are given a supervisor, or stand in a loop over its sessions: they outlive one."""

from __future__ import annotations

from typing import Any

import pytest

import zkwire
from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, both, done, entered, using
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.recipe_samples import RECIPES, used
from tests.support.supervisor_helpers import kill, next_session
from zkwire import Client, Counter, LockLostError, State, Supervisor
from zkwire.testing import Server


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_takes_a_supervisor_in_each_of_its_sessions(
    server: Server, recipe: str
) -> None:
    with Supervisor(server.hosts, session_timeout=5.0) as supervisor:
        used(recipe, supervisor, "/a")
        with Client(server.hosts) as outsider:
            outsider.delete_tree("/a")
        next_session(server, supervisor)
        used(recipe, supervisor, "/a")


async def end_of_session(server: Server, supervisor: Any) -> None:
    session = (await done(supervisor.client(PATIENCE))).session_id
    kill(server, session)
    await eventually(
        "the next", lambda: supervisor._algorithm._newest.session_id not in (0, session)
    )


@both
async def test_recipes_outlive_a_session_and_what_is_held_is_lost_with_it(
    side: Side, server: Server
) -> None:
    async with using(side.Supervisor(server.hosts, session_timeout=5.0)) as supervisor:
        lock, queue, counter = (
            getattr(side, name)(supervisor, f"/{name}")
            for name in ("SequentialLock", "Queue", "Counter")
        )
        assert await done(counter.add()) == 1
        await done(queue.put(b"work"))
        with pytest.raises(LockLostError):  # noqa: PT012 - how a scope ends is what this is about
            async with entered(lock) as inside, entered(queue.take(PATIENCE)) as item:
                assert inside is lock
                fence = lock.fence
                await end_of_session(server, supervisor)
                await eventually("the item is lost", item.lost.is_set)
                assert not lock.held
                assert lock.lost.reason is not None
        assert await done(counter.add()) == 2
        assert (await done(queue.get(PATIENCE))).data == b"work"
        async with entered(lock.within(PATIENCE)):
            assert lock.held
            assert lock.fence > fence
    with pytest.raises(zkwire.ClientClosedError):
        await done(counter.get())


def test_a_call_between_two_sessions_waits_for_the_next(server: Server) -> None:
    with Supervisor(server.hosts) as supervisor:
        counter = Counter(supervisor, "/count")
        for number in range(1, 4):
            assert Running(counter.add).result(PATIENCE) == number
            client = supervisor.client(PATIENCE)
            kill(server, client.session_id)
            client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
