"""Supervisors for threads and for asyncio: sessions that are killed, and what goes on in them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count as count_up
from typing import Any

import pytest

from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, both, done, each, entered, using
from tests.support.lock_helpers import PATIENCE, Running, assert_strictly_rising
from tests.support.server_control import poll
from tests.support.supervisor_helpers import Probe, Terms, for_ever, kill, spin
from zkwire import (
    AsyncClient,
    AsyncSupervisor,
    ClientClosedError,
    ConnectionLossError,
    LockLostError,
    SessionExpiredError,
    State,
    Supervisor,
    UnreachableError,
)
from zkwire.blocking.supervisor import SessionScope
from zkwire.blocking.sync import run
from zkwire.testing import Server

# --- sessions that are killed ---------------------------------------------------------------------


@both
async def test_services_and_leaderships_are_begun_again_in_each_session(
    side: Side, server: Server
) -> None:
    terms, seen = Terms(side), list[bytes | None]()

    async def callback(state: Any) -> None:
        seen.append(state.data)

    async with using(side.Supervisor(server.hosts)) as supervisor:
        supervisor.lead("/election", terms.lead, "me")
        supervisor.watch_data("/config", side.function(callback))
        for number in range(1, 4):
            await terms.wait(number)
            client = await done(supervisor.client(PATIENCE))
            await done(client.ensure_path("/config"))
            await done(client.set_data("/config", b"%d" % number))
            await eventually("the change", lambda: b"%d" % len(terms.fences) in seen)
            kill(server, client.session_id)
            await eventually("its end", lambda: client.state is State.EXPIRED)  # noqa: B023
            with pytest.raises(SessionExpiredError):
                await done(client.get_data("/config"))
        await terms.wait(4)
    assert_strictly_rising(terms.fences)
    assert (terms.most, terms.leading) == (1, 0)


# --- the scope of a session -----------------------------------------------------------------------


@both
async def test_the_scope_of_a_session_swallows_its_end_alone(side: Side, server: Server) -> None:
    clients = list[Any]()
    group = ExceptionGroup("tasks", [SessionExpiredError("another's"), KeyError("x")])
    async with using(side.Supervisor(server.hosts)) as supervisor:
        async for session in each(supervisor):
            async with entered(session) as client:
                clients.append(client)
                if len(clients) < 3:
                    kill(server, client.session_id)
                    await spin(side, client)
            if len(clients) == 3:
                break
        assert len({client.session_id for client in clients}) == 3
        lost = ConnectionLossError("of another client"), LockLostError("deleted")
        for error in (KeyError("x"), *lost, group):
            session = await anext(each(supervisor))
            with pytest.raises(type(error)):
                async with entered(session):
                    raise error


def test_a_scope_that_begins_behind_the_end_swallows_it(server: Server) -> None:
    with Supervisor(server.hosts) as supervisor:
        client = supervisor.client(PATIENCE)
        kill(server, client.session_id)
        client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
        with SessionScope(client), client:
            pytest.fail("it has ended")


async def in_a_group(client: AsyncClient) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(spin(Side("Async"), client))
        group.create_task(for_ever())


@pytest.mark.parametrize("body", [for_ever, in_a_group])
async def test_the_end_of_a_session_cancels_its_scope_and_a_term(
    server: Server, body: Callable[[AsyncClient], Awaitable[None]]
) -> None:
    sessions, fences = list[int](), list[int]()

    async def work(lock: Any) -> None:
        fences.append(lock.fence)
        await body(await supervisor.client())

    async with AsyncSupervisor(server.hosts) as supervisor:
        supervisor.lead("/election", work)
        async for session in supervisor:
            async with session as client:
                sessions.append(client.session_id)
                await eventually("a term", lambda: len(fences) == len(sessions))
                if len(sessions) == 3:
                    break
                kill(server, client.session_id)
                await body(client)
    assert len(set(sessions)) == 3
    assert_strictly_rising(fences)


async def test_a_scope_that_begins_behind_the_end_is_left_without_a_trace(server: Server) -> None:
    """A cancellation that a task is given while it runs would come at a later await."""
    async with AsyncSupervisor(server.hosts) as supervisor:
        session = await anext(aiter(supervisor))
        kill(server, (await supervisor.client()).session_id)
        await eventually("another", lambda: supervisor._algorithm._present[0] == 2)
        async with session:
            pass
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_cancellation_stays_one_while_the_session_ends(server: Server) -> None:
    async with AsyncSupervisor(server.hosts) as supervisor:
        inside, ended = asyncio.Event(), list[str]()

        async def work() -> None:
            async for session in supervisor:
                async with session as client:
                    inside.set()
                    try:
                        await for_ever()
                    finally:
                        ended.append("cleaned")
                        with pytest.raises(SessionExpiredError):
                            await client.exists("/")

        task = asyncio.create_task(work())
        await inside.wait()
        client = await supervisor.client()
        client.add_state_listener(lambda state: task.cancel() if state.terminal else None)
        kill(server, client.session_id)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cleaned"]


# --- no server, and one that refuses --------------------------------------------------------------


@both
async def test_without_a_server_it_keeps_trying_and_closes_at_once(
    side: Side, server: Server
) -> None:
    server.stop()
    supervisor = side.Supervisor(server.hosts)
    with pytest.raises(UnreachableError, match=r"no session within 0\.05 s"):
        await done(supervisor.client(0.05))
    assert not await done(supervisor.wait(0))
    server.start()
    assert await done((await done(supervisor.client(PATIENCE))).exists("/"))
    server.stop()
    other = side.Supervisor(server.hosts)
    with pytest.raises(UnreachableError):
        await done(other.client(0))
    for one in (supervisor, other):
        begun = time.monotonic()
        await done(one.close())
        assert time.monotonic() < begun + 3.0
        assert await done(one.wait())
        with pytest.raises(ClientClosedError):
            one.watch_data("/", print)


# --- callbacks ------------------------------------------------------------------------------------


async def test_a_callback_is_not_lost_between_two_sessions(server: Server) -> None:
    """What a service has seen in its last step goes to the callback, whatever session is next."""
    called = list[int]()
    async with AsyncSupervisor(server.hosts) as supervisor:
        client = await supervisor.client(PATIENCE)
        supervisor._algorithm._newest = AsyncClient(server.hosts)  # as right behind the end of one
        supervisor._sessions.dispatch(lambda: called.append(1))
        await eventually("the call", lambda: called)
        supervisor._algorithm._newest = client


def test_a_callback_that_raises_is_reported_and_called_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))

    def callback(state: object) -> None:
        raise KeyError("mine")

    with Supervisor(server.hosts) as supervisor:
        supervisor.watch_data("/a", callback)
        poll("the first call", lambda: reported or None, PATIENCE)
        supervisor.client(PATIENCE).create("/a")
        poll("the second call", lambda: [*map(str, reported)] == ["'mine'"] * 2 or None, PATIENCE)


def test_no_code_of_a_users_runs_under_the_mutex(server: Server) -> None:
    free = list[bool]()

    def look(_: object) -> None:
        mutex = supervisor._backend.mutex
        other = Running(lambda: mutex.acquire(timeout=PATIENCE) and mutex.release() is None)
        free.append(other.result())

    def leading(lock: Any) -> None:
        look(lock)
        lock.lost.wait()

    with Supervisor(server.hosts) as supervisor:
        supervisor.watch_data("/", look)
        supervisor.lead("/election", leading)
        poll("both", lambda: len(free) == 2 or None, PATIENCE)
    assert free == [True, True]


def test_many_threads_serve_dismiss_and_close_while_sessions_end(server: Server) -> None:
    before = threading.active_count()
    supervisor = Supervisor(server.hosts)
    stop, killed, ready = threading.Event(), list[bool](), threading.Semaphore(0)

    def watch(number: int) -> None:
        for count in count_up():
            with supervisor.watch_data(f"/{number}") as watch:
                watch.next(PATIENCE)
            Probe(supervisor)
            if count == 3:
                ready.release()

    def murder() -> None:
        while not stop.is_set():
            for session in list(server.sessions):
                killed.append(server.expire(session.session_id))
            stop.wait(0.02)

    work = [Running(partial(watch, number)) for number in range(4)]
    killer = Running(murder)
    for _ in work:
        assert ready.acquire(timeout=PATIENCE)
    poll("sessions were killed", lambda: sum(killed) > 5 or None, PATIENCE)
    for closing in [Running(supervisor.close) for _ in range(3)]:
        closing.result()
    for one in work:
        with pytest.raises(ClientClosedError):
            one.result()
    stop.set()
    killer.result()
    poll("the threads ended", lambda: threading.active_count() <= before or None, PATIENCE)
    assert not any(supervisor._algorithm._newest._driver.services)


async def test_one_that_nobody_closes_goes_on(server: Server) -> None:
    """As a thread does: what was asked of it is to be true forever."""
    terms = Terms(Side(""))
    supervisor = Supervisor(server.hosts)
    supervisor.lead("/election", terms.lead)
    shell, sequence = supervisor._backend, supervisor._algorithm
    await terms.wait(1)
    del supervisor
    gc.collect()
    kill(server, run(sequence.client()).session_id)
    await terms.wait(2)
    run(sequence.stop())
    shell.join(PATIENCE)
