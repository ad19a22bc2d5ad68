"""The supervisor for asyncio: what is cancelled, by what, and what is left; see test_supervisor."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.support.aio_helpers import eventually
from tests.support.lock_helpers import PATIENCE, assert_strictly_rising
from tests.support.server_control import free_port
from tests.support.supervisor_helpers import Probe, kill
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    AsyncSupervisor,
    ClientClosedError,
    ConnectionLossError,
    ForkedError,
    LockLostError,
    SessionExpiredError,
    UnreachableError,
)
from zkwire.testing import Server


class Terms:
    """A coroutine function that leads forever, and its fences."""

    def __init__(self) -> None:
        self.fences: list[int] = []
        self.leading = self.most = self.cancelled = 0

    async def __call__(self, lock: AsyncSequentialLock) -> None:
        self.leading += 1
        self.most = max(self.most, self.leading)
        self.fences.append(lock.fence)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.leading -= 1

    async def wait(self, number: int) -> None:
        await eventually(f"term {number}", lambda: len(self.fences) >= number)


async def spin(client: AsyncClient) -> None:
    """Ask until that raises."""
    while True:
        await client.exists("/")


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


# --- sessions that are killed ---------------------------------------------------------------------


async def test_services_and_leaderships_are_begun_again_in_each_session(server: Server) -> None:
    terms, seen = Terms(), list[bytes | None]()
    async with AsyncSupervisor(server.hosts) as supervisor:

        async def callback(state: Any) -> None:
            await asyncio.sleep(0)
            seen.append(state.data)

        supervisor.lead("/election", terms, "me")
        supervisor.watch_data("/config", callback)
        for number in range(1, 4):
            await terms.wait(number)
            client = await supervisor.client(PATIENCE)
            await client.ensure_path("/config")
            await client.set_data("/config", b"%d" % number)
            await eventually("the change", lambda: b"%d" % len(terms.fences) in seen)
            kill(server, client.session_id)
        await terms.wait(4)
    assert_strictly_rising(terms.fences)
    assert (terms.most, terms.leading, terms.cancelled) == (1, 0, 4)


async def test_a_run_of_a_service_has_ended_before_the_next_session_begins(server: Server) -> None:
    clients, left = list[AsyncClient](), list[object]()
    async with AsyncSupervisor(server.hosts) as supervisor:
        probes = [Probe(supervisor._sessions) for _ in range(5)]
        async for session in supervisor:
            async with session as client:
                left += [each for before in clients for each in before._driver.services]
                clients.append(client)
                await eventually("all run", lambda: all(probe.running for probe in probes))
                if len(clients) == 5:
                    break
                kill(server, client.session_id)
                await for_ever()
    assert left == []
    assert not any(probe.overlapped or probe.running for probe in probes)
    assert [probe.runs for probe in probes] == [[c.session_id for c in clients]] * 5


async def test_a_callback_is_not_lost_between_two_sessions(server: Server) -> None:
    """What a service has seen in its last step goes to the callback, whatever session is next."""
    called = list[int]()
    async with AsyncSupervisor(server.hosts) as supervisor:
        client = await supervisor.client(PATIENCE)
        supervisor._algorithm._newest = AsyncClient(server.hosts)  # as right behind the end of one
        supervisor._sessions.dispatch(lambda: called.append(1))
        await eventually("the call", lambda: called)
        supervisor._algorithm._newest = client


# --- the scope of a session -----------------------------------------------------------------------


async def sleeping(_: AsyncClient) -> None:
    await for_ever()


async def in_a_group(client: AsyncClient) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(spin(client))
        group.create_task(for_ever())


@pytest.mark.parametrize("body", [sleeping, spin, in_a_group])
async def test_the_end_of_a_session_ends_its_scope(
    server: Server, body: Callable[[AsyncClient], Awaitable[None]]
) -> None:
    sessions = list[int]()
    async with AsyncSupervisor(server.hosts) as supervisor:
        async for session in supervisor:
            async with session as client:
                sessions.append(client.session_id)
                if len(sessions) == 3:
                    break
                kill(server, client.session_id)
                await body(client)
    assert len(set(sessions)) == 3


async def scopes(supervisor: AsyncSupervisor) -> AsyncIterator[Any]:
    async for session in supervisor:
        yield session


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        ConnectionLossError("of another client"),
        LockLostError("deleted"),
        ExceptionGroup("tasks", [SessionExpiredError("another's"), KeyError("x")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_other_errors_leave_the_scope(server: Server, error: Exception) -> None:
    async with AsyncSupervisor(server.hosts) as supervisor:
        session = await anext(scopes(supervisor))
        with pytest.raises(type(error)):
            async with session:
                raise error


async def test_a_scope_that_begins_behind_the_end_is_left_without_a_trace(server: Server) -> None:
    """A cancellation that a task is given while it runs would come at a later await."""
    async with AsyncSupervisor(server.hosts) as supervisor:
        session = await anext(scopes(supervisor))
        client = await supervisor.client()
        kill(server, client.session_id)
        await eventually("another", lambda: supervisor._algorithm._present[0] == 2)
        async with session:
            pass
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_cancellation_from_outside_stays_one_while_the_session_ends(
    server: Server,
) -> None:
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


@pytest.mark.parametrize("ask", ["wait", "client", "iteration"])
async def test_a_cancelled_wait_leaves_nothing(ask: str) -> None:
    async with AsyncSupervisor(f"127.0.0.1:{free_port()}") as supervisor:
        waits: dict[str, Callable[[], Awaitable[object]]] = {
            "wait": supervisor.wait,
            "client": supervisor.client,
            "iteration": lambda: anext(scopes(supervisor)),
        }
        await asyncio.sleep(0)
        before = len(supervisor._algorithm._stopped._waiting)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waits[ask](), 0.01)
        assert not supervisor._algorithm._waiting
        assert len(supervisor._algorithm._stopped._waiting) == before


# --- its ends -------------------------------------------------------------------------------------


async def test_the_error_of_a_function_ends_it_and_is_raised(server: Server) -> None:
    async def fail(_: object) -> None:
        raise KeyError("mine")

    async def enter(function: Any) -> None:
        async with AsyncSupervisor(server.hosts) as supervisor:
            supervisor.lead("/other", Terms())
            supervisor.lead("/election", function)
            with pytest.raises((KeyError, TypeError, RuntimeError)):
                await supervisor.wait()
            supervisors.append(supervisor)

    async def ends_cancelled(_: object) -> None:
        task = asyncio.ensure_future(for_ever())
        task.cancel()
        await task

    def no_coroutine(_: object) -> None: ...

    supervisors = list[AsyncSupervisor]()
    with pytest.raises(KeyError, match="mine"):
        await enter(fail)
    with pytest.raises(TypeError, match="to await"):
        await enter(no_coroutine)
    with pytest.raises(RuntimeError, match="CancelledError"):
        await enter(ends_cancelled)
    for ask in (supervisors[0].wait, supervisors[0].client):
        with pytest.raises(KeyError, match="mine"):
            await ask()


async def test_the_errors_of_a_group_of_tasks_that_its_session_has_ended_begin_another_term(
    server: Server,
) -> None:
    fences = list[int]()

    async def work(lock: AsyncSequentialLock) -> None:
        fences.append(lock.fence)
        client = await supervisor.client()
        if len(fences) < 3:
            kill(server, client.session_id)
        await in_a_group(client)

    async with AsyncSupervisor(server.hosts) as supervisor:
        supervisor.lead("/election", work)
        await eventually("three terms", lambda: len(fences) == 3)
    assert_strictly_rising(fences)


@pytest.mark.parametrize("where", ["function", "callback"])
async def test_close_from_its_own_tasks(server: Server, where: str) -> None:
    async def closing(_: object) -> None:
        await supervisor.close()

    supervisor = AsyncSupervisor(server.hosts)
    async with supervisor:
        if where == "function":
            supervisor.lead("/election", closing)
        else:
            supervisor.watch_data("/", closing)
        assert await supervisor.wait(PATIENCE)
        assert await supervisor.wait(0)


async def test_close_cancels_a_callback_and_a_function_and_waits_for_them(server: Server) -> None:
    begun, ended = list[object](), list[object]()

    async def last(what: object) -> None:
        begun.append(what)
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0.01)
            ended.append(what)

    async with AsyncSupervisor(server.hosts) as supervisor:
        supervisor.lead("/election", last)
        supervisor.watch_data("/", last)
        await eventually("both", lambda: len(begun) == 2)
    assert len(ended) == 2


async def test_a_cancelled_close_still_ends_everything(server: Server) -> None:
    supervisor, terms = AsyncSupervisor(server.hosts), Terms()
    supervisor.lead("/election", terms)
    await terms.wait(1)
    closing = asyncio.create_task(supervisor.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert terms.leading == 0
    await supervisor.close()


async def test_cancelled_tasks_of_a_supervisor_end_it(server: Server) -> None:
    """As a program does that cancels all tasks."""
    supervisor = AsyncSupervisor(server.hosts)
    client = await supervisor.client(PATIENCE)
    for task in supervisor._backend.tasks:
        task.cancel()
    assert await supervisor.wait(PATIENCE)
    with pytest.raises(ClientClosedError):
        await client.exists("/")


async def test_a_cancelled_candidate_ends_it(server: Server) -> None:
    """If it went on without one, a program would wait in vain to lead again."""
    tasks: list[asyncio.Task[None] | None] = []

    async def work(_: AsyncSequentialLock) -> None:
        tasks.append(asyncio.current_task())
        await for_ever()

    async with AsyncSupervisor(server.hosts) as supervisor:
        supervisor.lead("/election", work)
        await eventually("it leads", lambda: tasks)
        assert tasks[0] is not None
        tasks[0].cancel()
        assert await supervisor.wait(PATIENCE)


async def test_without_a_server_it_keeps_trying_and_closes_at_once() -> None:
    with Server() as server:
        server.stop()
        supervisor = AsyncSupervisor(server.hosts)
        with pytest.raises(UnreachableError, match=r"no session within 0\.05 s"):
            await supervisor.client(0.05)
        assert not await supervisor.wait(0)
        server.start()
        assert await (await supervisor.client(PATIENCE)).exists("/")
        async with asyncio.timeout(3.0):
            await supervisor.close()
        assert await supervisor.wait()
        with pytest.raises(ClientClosedError):
            supervisor.watch_data("/", print)


# --- forks, loops ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_forked_child_gets_an_error_and_leaves_its_parent_alone(server: Server) -> None:
    async with AsyncSupervisor(server.hosts) as supervisor:
        client = await supervisor.client(PATIENCE)
        child = os.fork()
        if child == 0:  # no assertion and no exception may leave this branch
            code = 1
            try:
                with pytest.raises(ForkedError):
                    supervisor.lead("/e", for_ever)  # type: ignore[arg-type]
                for call in (supervisor.wait(), supervisor.client()):
                    with pytest.raises(ForkedError):
                        call.send(None)
                with pytest.raises(StopIteration):
                    supervisor.close().send(None)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert await client.exists("/")


async def test_another_loop_is_refused(server: Server) -> None:
    async with AsyncSupervisor(server.hosts) as supervisor:
        errors = list[BaseException]()

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop") as raised:
                asyncio.run(supervisor.wait())
            errors.append(raised.value)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(errors) == 1
