"""The supervisor for threads: sessions that are killed, functions that fail, ways to end it."""

from __future__ import annotations

import ast
import gc
import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count as count_up
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.fake_server import Connection, FakeServer, reply
from tests.support.lock_helpers import PATIENCE, Running, assert_strictly_rising, timed
from tests.support.server_control import free_port, poll
from tests.support.supervisor_helpers import Probe, Refuses, kill
from zkwire import (
    AsyncSupervisor,
    Client,
    ClientClosedError,
    ConnectionLossError,
    ForkedError,
    LockLostError,
    SequentialLock,
    SessionExpiredError,
    State,
    Supervisor,
    UnreachableError,
)
from zkwire.blocking import supervisor as module
from zkwire.blocking.sync import run
from zkwire.net import listeners
from zkwire.net import options as checks
from zkwire.net.client import ClientBase
from zkwire.testing import Server


@pytest.fixture
def supervisor(server: Server) -> Iterator[Supervisor]:
    with Supervisor(server.hosts) as supervisor:
        yield supervisor


class Terms:
    """A function that leads until its term is lost, and its fences."""

    def __init__(self) -> None:
        self.fences: list[int] = []
        self.leading = 0
        self.most = 0

    def __call__(self, lock: SequentialLock) -> None:
        self.leading += 1
        self.most = max(self.most, self.leading)
        self.fences.append(lock.fence)
        try:
            lock.lost.wait()
            lock.check()
        finally:
            self.leading -= 1

    def wait(self, number: int) -> None:
        poll(f"term {number}", lambda: len(self.fences) >= number or None, PATIENCE)


def exhaust(client: Client) -> None:
    """Ask until that raises."""
    while True:
        client.exists("/")


def threads() -> int:
    return threading.active_count()


# --- sessions that are killed ---------------------------------------------------------------------


def test_services_and_leaderships_are_begun_again_in_each_session(
    server: Server, supervisor: Supervisor
) -> None:
    terms, seen = Terms(), list[bytes | None]()
    supervisor.lead("/election", terms, "me")
    supervisor.watch_data("/config", lambda state: seen.append(state.data))
    for number in range(1, 4):
        terms.wait(number)
        client = supervisor.client(PATIENCE)
        client.ensure_path("/config")
        client.set_data("/config", b"%d" % number)
        poll("the change", lambda: b"%d" % len(terms.fences) in seen or None, PATIENCE)
        kill(server, client.session_id)
        client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
        with pytest.raises(SessionExpiredError):
            client.get_data("/config")
    terms.wait(4)
    assert_strictly_rising(terms.fences)
    assert terms.most == 1


def test_a_run_of_a_service_has_ended_before_the_next_session_begins(
    server: Server, supervisor: Supervisor
) -> None:
    probes = [Probe(supervisor._core) for _ in range(5)]
    clients, left = list[Client](), list[object]()
    for session in supervisor:
        with session as client:
            left += [each for before in clients for each in before._driver.services]
            clients.append(client)
            poll("all run", lambda: all(p.running for p in probes) or None, PATIENCE)
            if len(clients) == 5:
                break
            kill(server, client.session_id)
            exhaust(client)
    sessions = [client.session_id for client in clients]
    assert left == []
    assert not any(probe.overlapped for probe in probes)
    assert [probe.runs for probe in probes] == [sessions] * 5


def test_a_service_with_an_error_of_its_own_is_not_begun_again(
    server: Server, supervisor: Supervisor
) -> None:
    service = Refuses(supervisor._core, ValueError("mine"))
    assert run(supervisor._core.holds(service.over, PATIENCE))
    assert service not in supervisor._algorithm._services
    with pytest.raises(ValueError, match="mine"):
        service._check()


def test_a_service_that_is_dismissed_runs_no_longer(server: Server, supervisor: Supervisor) -> None:
    probe = Probe(supervisor._core)
    assert run(supervisor._core.holds(probe.began, PATIENCE))
    supervisor._core.dismiss(probe)
    poll("it has ended", lambda: not probe.running or None, PATIENCE)
    kill(server, supervisor.client().session_id)
    poll("another session", lambda: supervisor._algorithm._present[0] == 2 or None, PATIENCE)
    assert len(probe.runs) == 1


# --- the iterator of sessions ---------------------------------------------------------------------


def test_the_scope_of_a_session_swallows_its_end_alone(
    server: Server, supervisor: Supervisor
) -> None:
    clients = list[Client]()
    for session in supervisor:
        with session as client:
            clients.append(client)
            if len(clients) == 3:
                break
            kill(server, client.session_id)
            exhaust(client)
    assert len({client.session_id for client in clients}) == 3

    scope = module.SessionScope(clients[-1])
    for error in (KeyError("x"), ConnectionLossError("of another client"), LockLostError("lost")):
        with pytest.raises(type(error)), scope:
            raise error
    with module.SessionScope(clients[0]), clients[0]:
        pytest.fail("it has ended")


def test_a_close_ends_the_iteration(server: Server) -> None:
    with Supervisor(server.hosts) as supervisor:
        for session in supervisor:
            with session as client:
                supervisor.close()
                client.exists("/")
            ended = client
    with pytest.raises(ClientClosedError):
        ended.exists("/")
    assert list(supervisor) == []


# --- its ends -------------------------------------------------------------------------------------


def test_the_error_of_a_function_ends_it_and_is_raised(server: Server) -> None:
    def fail(_: SequentialLock) -> None:
        raise KeyError("mine")

    supervisor = Supervisor(server.hosts)

    def enter(error: Exception | None) -> None:
        with supervisor:
            supervisor.lead("/election", fail)
            with pytest.raises(KeyError, match="mine"):
                supervisor.wait()
            if error is not None:
                raise error

    with pytest.raises(KeyError, match="mine"):
        enter(None)
    for ask in (supervisor.wait, supervisor.client, lambda: supervisor.lead("/e", fail)):
        with pytest.raises(KeyError):
            ask()
    supervisor = Supervisor(server.hosts)
    with pytest.raises(ValueError, match="the body's"):
        enter(ValueError("the body's"))


def test_the_error_of_a_function_is_logged_at_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: SequentialLock) -> None:
        raise KeyError("mine")

    supervisor = Supervisor(server.hosts)
    supervisor.lead("/election", fail)
    record = poll(
        "the line", lambda: next((r for r in caplog.records if r.exc_info), None), PATIENCE
    )
    supervisor.close()
    assert record.levelname == "ERROR"
    assert record.getMessage().endswith("lead-/election has ended the supervisor")
    assert "in fail" in str(record.exc_text)


def test_what_must_be_seen_is_written_without_logging(server: Server) -> None:
    """A program that has not even loaded ``logging`` sees it on its standard error."""
    program = f"""
import sys, zkwire
def fail(lock):
    raise KeyError("mine")
with zkwire.Client({server.hosts!r}) as client, zkwire.Group(client, "/r") as group:
    client.create("/r", acl=zkwire.READ_ACL_UNSAFE)
    try:
        group.join()
    except zkwire.NoAuthError:
        pass
supervisor = zkwire.Supervisor({server.hosts!r})
supervisor.lead("/election", fail)
try:
    supervisor.wait()
except KeyError:
    supervisor.close()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stderr.count("is refused, and tried again: NoAuthError") == 1
    assert "KeyError: 'mine'" in ran.stderr


def test_a_logging_that_is_just_being_loaded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "logging", ModuleType("logging"))
    assert listeners._logger(listeners.DEBUG) is None


def test_a_session_that_ends_is_logged_without_advice(
    server: Server, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "zkwire"):
        client = supervisor.client(PATIENCE)
        kill(server, client.session_id)
        client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
        with pytest.raises(SessionExpiredError, match="make a new Client, or ask the supervisor"):
            client.exists("/")
        ended = poll(
            "the line",
            lambda: next((r for r in caplog.records if "expired" in r.getMessage()), None),
            PATIENCE,
        )
    assert ended.getMessage().endswith("locks and watches are gone")


def test_the_errors_of_its_session_begin_another_term(server: Server) -> None:
    errors = [ConnectionLossError("x"), LockLostError("x"), None]
    ended = threading.Event()

    def function(lock: SequentialLock) -> None:
        if not errors:
            ended.set()
            lock.lost.wait()
            return
        error = errors.pop(0)
        if error is not None:
            raise error

    with Supervisor(server.hosts) as supervisor:
        supervisor.lead("/election", function)
        assert ended.wait(PATIENCE)


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


def test_close_from_its_own_threads(server: Server) -> None:
    before = threads()
    ended = set[str]()

    def leading(lock: SequentialLock) -> None:
        first.close()
        ended.add("leading")
        lock.check()

    with Supervisor(server.hosts) as first:
        first.lead("/election", leading)
        assert first.wait(PATIENCE)

    def watching(_: object) -> None:
        second.close()
        ended.add("watching")

    with Supervisor(server.hosts) as second:
        second.watch_data("/", watching)
        assert second.wait(PATIENCE)

    def of_the_client(_: object) -> None:
        third.close()
        ended.add("client")

    with Supervisor(server.hosts) as third:
        client = third.client(PATIENCE)
        client.add_watch("/", of_the_client)
        client.create("/child")
        assert third.wait(PATIENCE)
    poll("all calls returned", lambda: len(ended) == 3 or None, PATIENCE)
    poll("the threads ended", lambda: threads() == before or None, PATIENCE)


def test_many_threads_serve_dismiss_and_close_while_sessions_end(server: Server) -> None:
    before = threads()
    supervisor = Supervisor(server.hosts)
    stop, killed = threading.Event(), list[bool]()

    def watch(number: int) -> None:
        for count in count_up():
            with supervisor.watch_data(f"/{number}") as watch:
                watch.next(PATIENCE)
            Probe(supervisor._core)
            if count == 3:
                ready.release()

    def murder() -> None:
        while not stop.is_set():
            for session in list(server.sessions):
                killed.append(server.expire(session.session_id))
            stop.wait(0.02)

    ready = threading.Semaphore(0)
    work = [Running(partial(watch, number)) for number in range(4)]
    killer = Running(murder)
    for _ in work:
        assert ready.acquire(timeout=PATIENCE)
    poll("sessions were killed", lambda: sum(killed) > 5 or None, PATIENCE)
    closers = [Running(supervisor.close) for _ in range(3)]
    for each in closers:
        each.result()
    for each in work:
        with pytest.raises(ClientClosedError):
            each.result()
    stop.set()
    killer.result()
    poll("the threads ended", lambda: threads() <= before or None, PATIENCE)
    assert not any(supervisor._algorithm._newest._driver.services)


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
    before = threads()
    supervisor = Supervisor(f"127.0.0.1:{free_port()}")
    sequence = supervisor._algorithm
    waits: dict[str, Callable[[], object]] = {
        "wait": supervisor.wait,
        "client": supervisor.client,
        "iteration": lambda: list(supervisor),
    }

    def waiting() -> object:
        return sequence._begun if ask == "body" else len(sequence._stopped._waiting)

    with interrupted(waiting), supervisor:
        if ask in waits:
            waits[ask]()
        threading.Event().wait(PATIENCE)
    with pytest.raises(ClientClosedError):
        supervisor.client()
    assert threads() == before


def test_an_interrupted_close_ends_the_session_all_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(server.hosts)
    client = supervisor.client(PATIENCE)
    close, interrupts = module.ThreadBackend.close_client, [KeyboardInterrupt()]

    async def close_client(shell: Any, client: Client) -> None:
        if interrupts and threading.current_thread() is threading.main_thread():
            raise interrupts.pop()
        await close(shell, client)

    monkeypatch.setattr(module.ThreadBackend, "close_client", close_client)
    with pytest.raises(KeyboardInterrupt):
        supervisor.close()
    with pytest.raises(ClientClosedError):
        client.exists("/")


def test_an_interrupt_of_the_entry_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threads()
    begin = module.ThreadBackend.begin

    def begin_and_be_interrupted(shell: Any, work: Any, name: str) -> None:
        begin(shell, work, name)
        raise KeyboardInterrupt

    monkeypatch.setattr(module.ThreadBackend, "begin", begin_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt), Supervisor(server.hosts):
        pytest.fail("it was entered")
    assert threads() == before


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_no_thread_to_be_had(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def start(_: threading.Thread) -> None:
        raise error

    supervisor = Supervisor(server.hosts)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(type(error)):
            supervisor.client()
    assert supervisor.client(PATIENCE).exists("/")
    supervisor.close()


# --- no server, and one that refuses --------------------------------------------------------------


def test_without_a_server_it_keeps_trying_and_closes_at_once() -> None:
    server = Server()
    with server:
        hosts = server.hosts
        server.stop()
        supervisor = Supervisor(hosts)
        with pytest.raises(UnreachableError, match=r"no session within 0\.05 s"):
            supervisor.client(0.05)
        assert not supervisor.wait(0)
        server.start()
        assert supervisor.client(PATIENCE).exists("/")
        server.stop()
        other = Supervisor(hosts)
        with pytest.raises(UnreachableError):
            other.client(0)
        for each in (supervisor, other):
            _, seconds = timed(each.close)
            assert seconds < 3.0


def test_a_refused_authentication_is_tried_again_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def reject(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(reply(-4, error=-115))

    with (
        caplog.at_level(logging.WARNING, "zkwire"),
        FakeServer(reject, reject) as server,
        Supervisor(server.hosts, auth=[("digest", b"a:b")]) as supervisor,
    ):
        server.wait_for(lambda: len(server.connections) >= 2)
        poll("the warning", lambda: "keeps trying" in caplog.text or None, PATIENCE)
        with pytest.raises(UnreachableError, match="within 0 s: the server rejected the cred"):
            supervisor.client(0)


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hosts": "zoo:2181:1"}, ValueError),
        ({"session_timeout": -1}, ValueError),
        ({"session_timeout": "10"}, TypeError),
        ({"auth": "digest"}, TypeError),
        ({"trace": 1}, TypeError),
        ({"resume": None}, TypeError),
        ({"nonsense": 1}, TypeError),
    ],
)
@pytest.mark.parametrize("kind", [Supervisor, AsyncSupervisor])
def test_wrong_options_are_refused_at_once(
    kind: type[Supervisor] | type[AsyncSupervisor], options: dict[str, Any], error: type
) -> None:
    before = threads()
    with pytest.raises(error):
        kind(**{"hosts": "zoo:2181", **options})
    assert threads() == before


async def asynchronous(_: object) -> None: ...


@pytest.mark.parametrize(
    ("path", "function", "text", "error"),
    [
        ("election", print, "", ValueError),
        (1, print, "", TypeError),
        ("/election", None, "", TypeError),
        ("/election", asynchronous, "", TypeError),
        ("/election", print, b"me", TypeError),
    ],
)
def test_wrong_arguments_of_lead(path: Any, function: Any, text: Any, error: type) -> None:
    supervisor = Supervisor("zoo:2181")
    with pytest.raises(error):
        supervisor.lead(path, function, text)
    assert not supervisor._algorithm._begun


@pytest.mark.parametrize("call", ["wait", "client", "close"])
def test_wrong_time_limits(call: str) -> None:
    supervisor = Supervisor("zoo:2181")
    for limit, error in ((-1, ValueError), ("1", TypeError)):
        with pytest.raises(error):
            getattr(supervisor, call)(limit)
    assert not supervisor._algorithm._begun


def test_the_typed_options_are_those_of_a_client() -> None:
    """TypedDict costs an import: to the program it is not there."""
    tree = ast.parse(Path(checks.__file__).read_text())
    (kind,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    typed = {
        statement.target.id: ast.unparse(statement.annotation)
        for statement in kind.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    signature = inspect.signature(ClientBase.__init__).parameters.values()
    options = {
        parameter.name: parameter.annotation
        for parameter in signature
        if parameter.kind is parameter.KEYWORD_ONLY and not parameter.name.startswith("_")
    }
    del options["resume"]
    assert typed == options


# --- callbacks, forks, and no close ---------------------------------------------------------------


def test_a_callback_that_raises_is_reported(
    server: Server, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, seen = list[object](), list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))

    def callback(state: object) -> None:
        seen.append(state)
        raise KeyError("mine")

    client = supervisor.client(PATIENCE)
    supervisor.watch_data("/a", callback)
    poll("the first call", lambda: seen or None, PATIENCE)
    client.create("/a")
    poll("the second call", lambda: len(seen) == 2 or None, PATIENCE)
    poll("the reports", lambda: [str(error) for error in reported] == ["'mine'"] * 2, PATIENCE)


def test_no_code_of_a_users_runs_under_the_mutex(server: Server, supervisor: Supervisor) -> None:
    free = list[bool]()

    def look(_: object) -> None:
        mutex = supervisor._backend.mutex
        other = Running(lambda: mutex.acquire(timeout=PATIENCE) and mutex.release() is None)
        free.append(other.result())

    def leading(lock: SequentialLock) -> None:
        look(lock)
        lock.lost.wait()

    supervisor.watch_data("/", look)
    supervisor.lead("/election", leading)
    poll("both", lambda: len(free) == 2 or None, PATIENCE)
    assert free == [True, True]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_an_error_and_leaves_its_parent_alone(
    server: Server, supervisor: Supervisor
) -> None:
    watch = supervisor.watch_data("/")
    assert watch.next(PATIENCE) is not None
    child = os.fork()
    if child == 0:  # no assertion and no exception may leave this branch
        code = 1
        try:
            calls: list[Callable[[], object]] = [
                supervisor.wait, supervisor.client, supervisor.__enter__, watch.next,
                lambda: supervisor.lead("/e", print), lambda: supervisor.watch_data("/", print),
                lambda: next(iter(supervisor)),
            ]  # fmt: skip
            refused = 0
            for call in calls:
                try:
                    call()
                except ForkedError:
                    refused += 1
            watch.close()
            supervisor.close()
            code = 0 if refused == len(calls) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    supervisor.client().create("/still")


def test_one_that_was_not_used_leaves_nothing() -> None:
    before = threads()
    Supervisor("zoo:2181").close()
    Supervisor("zoo:2181")
    gc.collect()
    assert threads() == before


def test_one_that_nobody_closes_goes_on(server: Server) -> None:
    """As a thread does: what was asked of it is to be true forever."""
    terms = Terms()
    supervisor = Supervisor(server.hosts)
    supervisor.lead("/election", terms)
    shell, sequence = supervisor._backend, supervisor._algorithm
    terms.wait(1)
    del supervisor
    gc.collect()
    kill(server, run(sequence.client()).session_id)
    terms.wait(2)
    run(sequence.stop())
    shell.join(PATIENCE)
