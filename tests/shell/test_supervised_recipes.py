"""Recipes that are given a supervisor, or stand in a loop over sessions; the page's examples."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import zkwire
from tests.support.aio_helpers import blocking, eventually
from tests.support.both_clients import Side, both, done, each, entered, using
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.recipe_samples import MADE_BY_OTHERS, NO_RECIPES, RECIPES, used
from tests.support.server_control import poll
from tests.support.snippets import blocks
from tests.support.supervisor_helpers import for_ever, kill, next_session
from zkwire import (
    Client,
    Counter,
    LockLostError,
    NodeExistsError,
    Queue,
    SessionExpiredError,
    Supervisor,
)
from zkwire.testing import Server
from zkwire.testing.proxy import FaultProxy, Frame
from zkwire.testing.proxy.faults import Cut, Step

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "hold-a-lock.md"


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


def test_the_page_about_a_lock_for_ever_holds_it_for_ever(server: Server) -> None:
    """Its node is deleted, its session ends, and at last its work fails."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    fences: SimpleQueue[int] = SimpleQueue()
    ended = threading.Event()

    def work(_: str, fence: int) -> None:
        fences.put(fence)
        if ended.is_set():
            raise KeyError("the program's own")

    code = block.replace("127.0.0.1:2181", server.hosts).replace("wait(1.0)", "wait(0.01)")
    program = Running(lambda: exec(code.replace("/locks/report", "/lock"), {"print": work}))

    def later(fence: int) -> int:
        while (newer := fences.get(timeout=PATIENCE)) <= fence:
            pass
        return newer

    fence = later(0)
    delete_its_node(server)
    fence = later(fence)
    kill(server, next(iter(server.sessions)).session_id)
    later(fence)
    ended.set()
    with pytest.raises(KeyError, match="the program's own"):
        program.result()


# --- the examples of docs/supervisor.md -----------------------------------------------------------

LONGEST = 10
"""Lines of an example, without imports and blank ones."""


class EndError(Exception):
    """Raised by an example's print, to end it."""


class Program:
    """An example that runs, and what it has printed."""

    def __init__(self, block: str) -> None:
        self.printed = defaultdict[str, list[Any]](list)
        self.end = threading.Event()
        names = {"print": self.print, "input": lambda _: self.end.wait()}
        self.running = Running(lambda: exec(block, names))

    def print(self, words: str, value: object) -> None:
        self.printed[words].append(value)
        if self.end.is_set():
            raise EndError


def until(what: str, look: Callable[[], object]) -> None:
    poll(what, lambda: look() or None, PATIENCE)


def kill_the_others(server: Server, mine: Client) -> None:
    for session in list(server.sessions):
        if session.session_id != mine.session_id:
            kill(server, session.session_id)


def registered(program: Program, server: Server, client: Client) -> None:
    def owner() -> Any:
        stat = client.exists("/services/db")
        return stat and stat.ephemeral_owner

    until("the node", owner)
    before = owner()
    kill_the_others(server, client)
    until("another node", lambda: owner() not in (None, before))


def numbered(what: str) -> Callable[[Program, Server, Client], None]:
    """It prints a number, another one after its session is killed."""

    def check(program: Program, server: Server, client: Client) -> None:
        printed = program.printed[what]
        until(f"{what} the first", lambda: printed)
        kill_the_others(server, client)
        until(f"{what} another", lambda: len(set(printed)) == 2)
        program.end.set()
        kill_the_others(server, client)

    return check


def told(what: str, tell: Callable[[Client, bytes], object]) -> Callable[..., None]:
    """It prints what it is told, also after its session is killed."""

    def check(program: Program, server: Server, client: Client) -> None:
        printed = program.printed[what]
        for data in (b"1", b"2"):
            tell(client, data)
            until("it is seen", lambda data=data: printed[-1:] == [data])  # type: ignore[misc]
            kill_the_others(server, client)
        program.end.set()
        tell(client, b"3")

    return check


def configure(client: Client, data: bytes) -> None:
    with suppress(NodeExistsError):
        client.create("/config", data)
    client.set_data("/config", data)


leading, each_session = numbered("leading, with the fence"), numbered("a new session:")
working = told("working on", lambda client, data: Queue(client, "/jobs").put(data))


def configured(program: Program, server: Server, client: Client) -> None:
    until("no node", lambda: None in program.printed["the configuration is"])
    told("the configuration is", configure)(program, server, client)


def all_of_them(program: Program, server: Server, client: Client) -> None:
    terms = program.printed["leading, with the fence"]
    registered(program, server, client)
    until("another term", lambda: len(set(terms)) > 1)
    configured(program, server, client)


CHECKS = (registered, leading, configured, working, all_of_them, each_session)


@pytest.mark.parametrize(("number", "check"), [*enumerate(CHECKS)])
def test_an_example_survives_a_killed_session(
    number: int, check: Callable[[Program, Server, Client], None], server: Server
) -> None:
    program = Program(blocks("supervisor", server.hosts)[number])
    with Client(server.hosts) as client:
        check(program, server, client)
        program.end.set()
        with nullcontext() if check is registered else pytest.raises(EndError):
            program.running.result()
    lines = [
        line for line in blocks("supervisor")[number].splitlines() if line and "import" not in line
    ]
    assert number > 2 or len(lines) <= LONGEST
