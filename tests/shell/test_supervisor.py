"""Supervisors for threads and for asyncio: sessions that are killed, and how a supervisor ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count as count_up
from typing import Any

import pytest

import zkwire
from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, both, done, each, entered, using
from tests.support.lock_helpers import PATIENCE, Running, assert_strictly_rising, timed
from tests.support.server_control import free_port, poll
from tests.support.supervisor_helpers import Terms, for_ever, kill, spin
from zkwire import (
    AsyncClient,
    AsyncSupervisor,
    ClientClosedError,
    ConnectionLossError,
    Counter,
    LockLostError,
    SequentialLock,
    SessionExpiredError,
    State,
    Supervisor,
)
from zkwire.blocking import supervisor as module
from zkwire.blocking.driver import ThreadDriver
from zkwire.testing import Server

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
                    await spin(client)
            if len(clients) == 3:
                break
        assert len({client.session_id for client in clients}) == 3
        lost = ConnectionLossError("of another client"), LockLostError("deleted")
        for error in (KeyError("x"), *lost, group):
            session = await anext(each(supervisor))
            with pytest.raises(type(error)):
                async with entered(session):
                    raise error


async def in_a_group(client: AsyncClient) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(spin(client))
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


def test_many_threads_serve_dismiss_and_close_while_sessions_end(server: Server) -> None:
    before = threading.active_count()
    supervisor = Supervisor(server.hosts)
    stop, killed, ready = threading.Event(), list[bool](), threading.Semaphore(0)

    def watch(number: int) -> None:
        for count in count_up():
            with supervisor.watch_data(f"/{number}") as watch:
                watch.next(PATIENCE)
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


# ruff: noqa: PT012 - how a scope ends is what these tests are about

# --- errors of functions --------------------------------------------------------------------------


async def fail(_: object) -> None:
    raise KeyError("mine")


async def ends_cancelled(_: object) -> None:
    task = asyncio.ensure_future(for_ever())
    task.cancel()
    await task


def no_coroutine(_: object) -> None: ...


async def ended_by(side: Side, hosts: str, function: Any, error: type[Exception]) -> Any:
    """A supervisor that this function has ended with this error."""
    supervisor = side.Supervisor(hosts)
    with pytest.raises(error) as caught:
        async with entered(supervisor):
            supervisor.lead("/other", Terms(side).lead)
            supervisor.lead("/election", function)
            with pytest.raises(error):
                await done(supervisor.wait())
    assert "mine" in str(caught.value) or error is not KeyError
    return supervisor


@both
async def test_the_error_of_a_function_ends_it_and_is_raised(
    side: Side, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = await ended_by(side, server.hosts, side.function(fail), KeyError)
    lead = lambda: supervisor.lead("/e", side.function(fail))  # noqa: E731
    for ask in (supervisor.wait, supervisor.client, lead):
        with pytest.raises(KeyError, match="mine"):
            await done(ask())
    said = [record for record in caplog.records if "ended the supervisor" in record.getMessage()]
    (record,) = said  # the functions beside it end with the same error
    assert record.getMessage().endswith("lead-/election has ended the supervisor")
    assert record.levelname == "ERROR"
    assert "in fail" in str(record.exc_text)
    with pytest.raises(ValueError, match="the body's"):
        async with entered(side.Supervisor(server.hosts)) as supervisor:
            supervisor.lead("/election", side.function(fail))
            with pytest.raises(KeyError):
                await done(supervisor.wait())
            raise ValueError("the body's")


@pytest.mark.parametrize(
    ("function", "error"), [(no_coroutine, TypeError), (ends_cancelled, RuntimeError)]
)
async def test_a_function_that_is_none_to_await_ends_it(
    server: Server, function: Any, error: type[Exception]
) -> None:
    await ended_by(Side("Async"), server.hosts, function, error)


# --- to close -------------------------------------------------------------------------------------


def test_a_function_that_ignores_the_loss_is_named_in_a_warning(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = threading.Event(), threading.Event()

    def function(_: SequentialLock) -> None:
        begun.set()
        release.wait(PATIENCE)

    supervisor = Supervisor(server.hosts)
    supervisor.lead("/election", function)
    assert begun.wait(PATIENCE)
    with caplog.at_level(logging.WARNING, "zkwire"):
        _, seconds = timed(lambda: supervisor.close(0.1))
    assert seconds < 3.0
    assert "lead-/election has not ended" in caplog.text
    caplog.clear()
    release.set()
    supervisor.close(None)
    assert not caplog.records


@pytest.mark.parametrize("where", ["function", "service", "client", "iteration"])
@both
async def test_hazard_E8_close_from_its_own_threads_or_tasks(
    side: Side, server: Server, where: str
) -> None:
    before, ended = threading.active_count(), list[str]()

    async def closing(_: object) -> None:
        await done(supervisor.close())
        ended.append(where)

    supervisor = side.Supervisor(server.hosts)
    async with entered(supervisor):
        client = await done(supervisor.client(PATIENCE))
        match where:
            case "function":
                supervisor.lead("/election", side.function(closing))
            case "service":
                supervisor.watch_data("/", side.function(closing))
            case "client":
                await done(client.add_watch("/", side.function(closing)))
                await done(client.create("/child"))
            case _:
                async for session in each(supervisor):
                    async with entered(session):
                        await closing(None)
                        await done(client.exists("/"))
        assert await done(supervisor.wait(PATIENCE))
        if not side.asyncio:
            await eventually("the call returned", lambda: ended)
    with pytest.raises(ClientClosedError):
        await done(client.exists("/"))
    await eventually("the threads ended", lambda: threading.active_count() <= before)


async def test_close_cancels_a_callback_and_a_function_and_waits_for_them(server: Server) -> None:
    """Also a close that is cancelled itself."""
    begun, ended = list[object](), list[object]()

    async def last(what: object) -> None:
        begun.append(what)
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0.01)
            ended.append(what)

    for cancelled in (False, True):
        supervisor = AsyncSupervisor(server.hosts)
        supervisor.lead("/election", last)
        supervisor.watch_data("/", last)
        await eventually("both", lambda: len(begun) == 2)
        closing = asyncio.create_task(supervisor.close())
        await asyncio.sleep(0)
        if cancelled:
            closing.cancel()
        await asyncio.wait([closing])
        assert (len(ended), closing.cancelled()) == (2, cancelled)
        await supervisor.close()
        begun.clear()
        ended.clear()


# --- interrupts -----------------------------------------------------------------------------------


@contextmanager
def interrupted(when: Callable[[], object]) -> Iterator[None]:
    """Interrupt the body, which runs in the main thread, as soon as something is true."""

    def interrupt() -> None:
        poll("the moment", lambda: when() or None, PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = Running(interrupt)
    try:
        yield
        threading.Event().wait(PATIENCE)
        pytest.fail("the interrupt was lost")
    except KeyboardInterrupt:
        interrupter.result()


@pytest.mark.parametrize("ask", ["wait", "client", "iteration", "body"])
def test_an_interrupt_ends_the_with(ask: str) -> None:
    before = threading.active_count()
    supervisor = Supervisor(f"127.0.0.1:{free_port()}")
    sequence = supervisor._algorithm
    waits: dict[str, Callable[[], object]] = {
        "wait": supervisor.wait,
        "client": supervisor.client,
        "iteration": lambda: list(supervisor),
        "body": lambda: threading.Event().wait(PATIENCE),
    }

    def waiting() -> object:
        return sequence._begun if ask == "body" else len(sequence._stopped._waiting)

    with interrupted(waiting), supervisor:
        waits[ask]()
    with pytest.raises(ClientClosedError):
        supervisor.client()
    assert threading.active_count() == before


def test_an_interrupted_close_ends_the_session_all_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(server.hosts)
    client = supervisor.client(PATIENCE)
    close, interrupts = module.ThreadSessions.close_client, [KeyboardInterrupt()]

    async def close_client(shell: Any, client: Any) -> None:
        if interrupts and threading.current_thread() is threading.main_thread():
            raise interrupts.pop()
        await close(shell, client)

    monkeypatch.setattr(module.ThreadSessions, "close_client", close_client)
    with pytest.raises(KeyboardInterrupt):
        supervisor.close()
    with pytest.raises(ClientClosedError):
        client.exists("/")


def test_an_interrupt_of_the_entry_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    begin = module.ThreadSessions.start

    def begin_and_be_interrupted(shell: Any, work: Any, name: str) -> None:
        begin(shell, work, name)
        raise KeyboardInterrupt

    monkeypatch.setattr(module.ThreadSessions, "start", begin_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt), Supervisor(server.hosts):
        pytest.fail("it was entered")
    assert threading.active_count() == before


# --- loops ----------------------------------------------------------------------------------------


async def test_another_loop_is_refused(server: Server) -> None:
    async with AsyncSupervisor(server.hosts) as supervisor:

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(supervisor.wait())

        await asyncio.to_thread(elsewhere)


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
        with pytest.raises(LockLostError):
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


@pytest.mark.parametrize("error", [OSError("EMFILE"), RuntimeError("can't start new thread")])
def test_a_session_for_which_nothing_is_left_is_tried_again(
    server: Server,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No descriptor, or no thread."""
    start, errors = ThreadDriver.start, list[Exception]()

    def fail_once(driver: ThreadDriver) -> None:
        if errors and driver is not first._driver:
            raise errors.pop()
        start(driver)

    with Supervisor(server.hosts) as supervisor:
        first = supervisor.client(PATIENCE)
        errors.append(error)
        monkeypatch.setattr(ThreadDriver, "start", fail_once)
        kill(server, first.session_id)
        first.wait_for_state(State.EXPIRED, timeout=PATIENCE)
        poll("a session", lambda: supervisor.client(PATIENCE) is not first or None, PATIENCE)
    assert f"{error}; a supervisor keeps trying" in caplog.text
