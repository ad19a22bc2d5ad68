"""Recipes that are given a supervisor, or stand in a loop over its sessions: they outlive one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from tests.support.aio_helpers import blocking, eventually
from tests.support.both_clients import Side, both, done, each, entered, using
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.recipe_samples import MADE_BY_OTHERS, NO_RECIPES, RECIPES, used
from tests.support.supervisor_helpers import for_ever, kill, next_session
from zkwire import (
    Client,
    Counter,
    LockLostError,
    SessionExpiredError,
    State,
    Supervisor,
)
from zkwire.testing import Server
from zkwire.testing.proxy import FaultProxy, Frame
from zkwire.testing.proxy.faults import Cut, Step


def test_no_recipe_is_left_out() -> None:
    both = {name for name in zkwire.__all__ if f"Async{name}" in zkwire.__all__}
    assert set(RECIPES) == both - NO_RECIPES - MADE_BY_OTHERS


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


def test_a_call_is_not_continued_in_the_next_session(server: Server) -> None:
    """Its mark is gone there, by which it could tell that the change was made."""
    with FaultProxy(server.hosts) as proxy, Supervisor(proxy.hosts) as supervisor:
        counter = Counter(supervisor, "/count")
        assert counter.add() == 1
        session = supervisor.client().session_id

        def end(_: Frame) -> list[Step]:
            server.expire(session)
            return [Cut()]

        proxy.on("multi", action=end, reply=True)
        with pytest.raises(SessionExpiredError) as caught:
            counter.add()
        assert caught.value.maybe_applied
        assert counter.get() == 2
        assert counter.add() == 3


def test_a_call_between_two_sessions_waits_for_the_next(server: Server) -> None:
    with Supervisor(server.hosts) as supervisor:
        counter = Counter(supervisor, "/count")
        for number in range(1, 4):
            assert Running(counter.add).result(PATIENCE) == number
            client = supervisor.client(PATIENCE)
            kill(server, client.session_id)
            client.wait_for_state(State.EXPIRED, timeout=PATIENCE)


# --- a lock inside a loop over sessions -----------------------------------------------------------


def delete_its_node(server: Server) -> None:
    """An outsider does it."""
    with Client(server.hosts) as outsider:
        (name,) = outsider.get_children("/lock")
        outsider.delete(f"/lock/{name}")


def outlast_its_lease(server: Server) -> None:
    """No server is reached for a session timeout; then one is, and mostly the session lives."""
    server.stop()


@pytest.mark.parametrize("end", [delete_its_node, outlast_its_lease])
@both
async def test_a_turn_follows_one_that_has_lost_its_lock(
    side: Side, server: Server, end: Callable[[Server], None]
) -> None:
    """Its loss is the end of a turn, and never of the program."""
    sessions, fences = list[int](), list[int]()
    async with using(side.Supervisor(server.hosts, session_timeout=1.0)) as supervisor:
        async for session in each(supervisor):
            async with (
                entered(session) as client,
                entered(side.SequentialLock(client, "/lock")) as lock,
            ):
                sessions.append(client.session_id)
                fences.append(lock.fence)
                if len(fences) == 2:
                    break
                if side.asyncio:
                    lock.lost.add_callback(lambda _: server.start())
                    async with lock.cancel_on_loss():
                        await blocking(end, server)
                        await for_ever()
                end(server)
                assert lock.lost.wait(PATIENCE)
                server.start()
                lock.check()
    assert len(set(sessions)) == 1 or end is outlast_its_lease
    assert fences[0] < fences[1]
