"""Recipes that are given a supervisor: each call has one session, and the object outlives it."""

from __future__ import annotations

# ruff: noqa: PT012 - how a scope ends is what these tests are about
import pytest

import zkwire
from tests.support.lock_helpers import PATIENCE
from tests.support.recipe_samples import MADE_BY_OTHERS, NO_RECIPES, RECIPES, used
from zkwire import (
    AsyncCounter,
    AsyncQueue,
    AsyncSequentialLock,
    AsyncSupervisor,
    Counter,
    LockLostError,
    Queue,
    SequentialLock,
    SessionExpiredError,
    Supervisor,
)
from zkwire.testing import Server
from zkwire.testing.proxy import FaultProxy, Frame
from zkwire.testing.proxy.faults import Cut, Step

TIMEOUT = 5.0


def test_no_recipe_is_left_out() -> None:
    both = {name for name in zkwire.__all__ if f"Async{name}" in zkwire.__all__}
    assert set(RECIPES) == both - NO_RECIPES - MADE_BY_OTHERS


def expire(server: Server, supervisor: Supervisor) -> None:
    """End the present session, and wait for the next."""
    session = supervisor.client(PATIENCE).session_id
    server.expire(session)
    for scope in supervisor:
        with scope as client:
            if client.session_id != session:
                return


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_takes_a_supervisor_in_each_of_its_sessions(
    server: Server, recipe: str
) -> None:
    with Supervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        used(recipe, supervisor, "/a")
        with zkwire.Client(server.hosts) as outsider:
            outsider.delete_tree("/a")
        expire(server, supervisor)
        used(recipe, supervisor, "/a")


def test_a_lock_is_lost_with_its_session_and_acquired_again(server: Server) -> None:
    with Supervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        lock = SequentialLock(supervisor, "/lock")
        with pytest.raises(LockLostError), lock as entered_lock:
            assert entered_lock is lock
            fence = lock.fence
            expire(server, supervisor)
            assert not lock.held
            assert lock.lost.reason is not None
        with lock.within(PATIENCE):
            assert lock.held
            assert lock.fence > fence


def test_a_call_is_not_continued_in_the_next_session(server: Server) -> None:
    """Its mark is gone there, by which it could tell that the change was made."""
    with (
        FaultProxy(server.hosts) as proxy,
        Supervisor(proxy.hosts, session_timeout=TIMEOUT) as supervisor,
    ):
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


def test_an_item_that_is_taken_is_lost_with_its_session(server: Server) -> None:
    with Supervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        queue = Queue(supervisor, "/queue")
        queue.put(b"work")
        with pytest.raises(LockLostError), queue.take(PATIENCE) as item:
            expire(server, supervisor)
            assert item.lost is not None
            assert item.lost.is_set()
        assert queue.get(PATIENCE).data == b"work"


async def test_under_asyncio_recipes_outlive_a_session(server: Server) -> None:
    async with AsyncSupervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        lock = AsyncSequentialLock(supervisor, "/lock")
        counter, queue = AsyncCounter(supervisor, "/count"), AsyncQueue(supervisor, "/queue")
        assert await counter.add() == 1
        assert await queue.put(b"work")
        session = (await supervisor.client(PATIENCE)).session_id
        with pytest.raises(LockLostError):
            async with lock:
                server.expire(session)
                await lock.lost
                async for scope in supervisor:
                    async with scope as client:
                        if client.session_id != session:
                            break
        assert await counter.add() == 2
        assert (await queue.get(PATIENCE)).data == b"work"
        assert await lock.acquire(PATIENCE)
        await lock.release()


def test_a_recipe_of_a_closed_supervisor_says_so(server: Server) -> None:
    with Supervisor(server.hosts, session_timeout=TIMEOUT) as supervisor:
        counter = Counter(supervisor, "/count")
    with pytest.raises(zkwire.ClientClosedError):
        counter.get()
