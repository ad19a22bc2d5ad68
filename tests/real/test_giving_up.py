"""Giving up: the request for it has left when the call returns, and an error only delays it."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.support.both_clients import done
from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage, requests, wait_until_waiting
from tests.support.recipe_samples import LOCKS, RECIPES, lock, made, rival
from tests.unit.test_recipe_steps import Nodes, client_of
from zkwire import AsyncClient, Client, ClientClosedError, MultiLock, SequentialLock, ZooKeeperError
from zkwire.blocking.sync import run
from zkwire.testing.proxy import Gate, hold

SOON = 0.2  # seconds: enough for a create, or its node has yet to be looked for

QUEUED = [kind for kind in LOCKS if kind not in {"NonBlockingLock", "BlockingLock", "Election"}]

# --- in its order ---------------------------------------------------------------------------------


@pytest.mark.since("3.5")
@pytest.mark.parametrize("kind", QUEUED)
@pytest.mark.parametrize("world", [Client, AsyncClient], ids=["threads", "asyncio"])
def test_hazard_B41_what_is_given_up_goes_before_all_that_is_asked_next(
    stage: Stage, kind: str, world: type[Any], fresh_path: str
) -> None:
    if kind == "MultiLock":  # or the first create finds no parent, and is repeated
        stage.observer.ensure_path(f"{fresh_path}/a")

    async def give_up() -> list[str]:
        client = world(stage.proxy.hosts)
        await done(client.connect())
        with rival(kind, stage.observer, fresh_path):
            assert not await done(lock(kind, client, fresh_path).acquire(SOON))
            await done(client.get_acl("/"))
        operations = [frame.op for frame in requests(stage.proxy.frames())]
        again = lock(kind, client, fresh_path)
        assert await done(again.acquire(0))
        await done(again.release())
        await done(client.close())
        return operations[: operations.index("get_acl")]

    before = asyncio.run(give_up())
    assert before.count("delete") == before.count("create2") > 0, before


# --- in time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_call_of_a_recipe_ends_in_time_without_a_server(
    stage: Stage, name: str, fresh_path: str
) -> None:
    """Each that needs no arguments."""
    recipe = made(name, stage.client(), fresh_path)
    stage.proxy.refuse()
    stage.proxy.cut_all()
    for _, call in inspect.getmembers_static(type(recipe), inspect.isfunction):
        _self, *given = inspect.signature(call).parameters.values()
        limited = "timeout" in [each.name for each in given]
        if limited and all(each.default is not each.empty for each in given):
            with suppress(ZooKeeperError, RuntimeError):  # as where there is nothing to leave
                Running(partial(call, recipe, timeout=SOON)).result(GRACE)


# --- when the interpreter ends --------------------------------------------------------------------


def test_the_end_of_the_interpreter_waits_for_what_is_owed(stage: Stage, fresh_path: str) -> None:
    client, answer = stage.client(), Gate()
    with SequentialLock(stage.observer, fresh_path):
        stage.proxy.on("delete", action=hold(answer), reply=True)
        assert not SequentialLock(client, fresh_path).acquire(SOON)
        answer.wait_reached()
        ending = Running(lambda: client._driver.wind_up(PATIENCE))
        assert not ending.ended
        answer.release()
        ending.result(GRACE)
        assert len(stage.nodes(fresh_path)) == 1
    client._driver.wind_up(0.0)


# --- errors where nobody expects them -------------------------------------------------------------


def full(*_: object) -> None:
    """What any call is when the stack is full."""
    raise RecursionError


class Full(Nodes):
    """A client that can do nothing for as long as ``full``."""

    full = False

    def _answer(self, name: str, *arguments: Any) -> Any:
        return full() if self.full else super()._answer(name, *arguments)

    def unhold(self, hold: object) -> None:
        if self.full:
            full()

    def spawn(self, work: Any) -> None:
        """Its first step, which is all of it, is taken at once."""
        run(work(self))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("then", ["release", "acquire", "_release_in_background"])
def test_hazard_B43_a_release_with_a_full_stack_is_made_good(several: bool, then: str) -> None:
    world: Any = Full()
    client = client_of(world)
    lock = SequentialLock(client, "/a")
    both: Any = MultiLock(lock, SequentialLock(client, "/b")) if several else lock
    assert both.acquire()
    world.full = True
    with pytest.raises(RecursionError):
        both.release()
    assert not both.held
    world.full = False
    getattr(both if hasattr(both, then) else both._algorithm, then)()
    assert len(world.nodes[1:]) == ((1 + several) if then == "acquire" else 0)
    assert both.held is (then == "acquire")


# --- a closed client ------------------------------------------------------------------------------


def test_hazard_B44_a_waiter_whose_client_is_being_closed_gets_no_lock(
    stage: Stage, fresh_path: str
) -> None:
    """Its turn comes when the server has not heard of the close yet."""
    client, request = stage.client(), Gate()
    with SequentialLock(stage.observer, fresh_path):
        waiting = Running(SequentialLock(client, fresh_path).acquire)
        wait_until_waiting(stage, op="get_children2")  # its guard
        stage.proxy.on("close_session", action=hold(request))
        closing = Running(client.close)
        request.wait_reached()
    with pytest.raises(ClientClosedError):
        waiting.result(GRACE)
    request.release()
    closing.result(GRACE)
