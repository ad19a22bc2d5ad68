"""The blocking client ends, or idles."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import pytest

from tests.shell.test_client import (
    ARGUMENTS,
    CLOSE_BOUND,
    PATIENCE,
    all_ended,
    nowhere,
    own_threads,
    poll_state,
    refused_port,
    undisturbed,
    within,
)
from tests.support.fake_server import Connection, FakeServer, deaf, mute, reply, serve
from tests.support.lock_helpers import Running
from tests.support.server_control import poll
from zkwire import (
    AuthFailedError,
    Client,
    ClientClosedError,
    Event,
    EventType,
    NotSentError,
    OperationTimeoutError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.blocking.io_thread import IOThread
from zkwire.net import connection

# --- the end --------------------------------------------------------------------------------------


def _state_connected(stack: ExitStack) -> Client:
    return _connected(stack, serve)


def _connected(stack: ExitStack, script: Callable[[Connection], None], **named_: Any) -> Client:
    client = Client(stack.enter_context(FakeServer(script)).hosts, **named_)
    client.connect()
    return client


def _never_used(stack: ExitStack) -> Client:
    return Client("127.0.0.1:1")


def _dialling(kind: str) -> Callable[[ExitStack], Client]:
    def make(stack: ExitStack) -> Client:
        client = stack.enter_context(nowhere(kind))
        client.pipeline.create("/a")
        return client

    return make


def _waiting(stack: ExitStack) -> Client:
    """Others wait for answers that do not come, one of them as the reader."""
    client = _connected(stack, mute)
    for _ in range(3):
        Running(lambda: client.create("/a"))
    client.pipeline.create("/b")
    return client


def _stuffed(stack: ExitStack) -> Client:
    """The server does not read, and the kernel takes no more."""
    client = _connected(stack, deaf)
    for _ in range(20):
        client.pipeline.set_data("/a", bytes(900_000))
    return client


def _disconnected(stack: ExitStack) -> Client:
    client = _connected(stack, lambda connection: connection.greet())
    with pytest.raises(ZooKeeperError):
        client.create("/a")
    return client


def _lost_server(stack: ExitStack) -> Client:
    server = FakeServer()
    client = Client(server.hosts)
    client.connect()
    server.close()
    return client


def _expired(stack: ExitStack) -> Client:
    server = stack.enter_context(FakeServer())
    client = Client(server.hosts)
    client.connect()
    server.expire(client.session_id)
    assert poll_state(client, State.EXPIRED)
    return client


def _rejected(stack: ExitStack) -> Client:
    def reject(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(reply(-4, error=-115))

    server = stack.enter_context(FakeServer(reject))
    client = Client(server.hosts, auth=[("digest", b"a:b")])
    with pytest.raises(AuthFailedError):
        client.connect()
    return client


def _closed(stack: ExitStack) -> Client:
    client = _state_connected(stack)
    client.close()
    return client


STATES: dict[str, Callable[[ExitStack], Client]] = {
    "never used": _never_used,
    "dialling a black hole": _dialling("black hole"),
    "looking a name up": _dialling("blocked resolver"),
    "refused": _dialling("refused"),
    "greeting": _dialling("silent accept"),
    "connected": _state_connected,
    "waiting for answers": _waiting,
    "stuffed": _stuffed,
    "disconnected": _disconnected,
    "server lost": _lost_server,
    "expired": _expired,
    "rejected": _rejected,
    "closed": _closed,
}


@pytest.mark.parametrize("state", STATES)
def test_close_from_every_state(state: str) -> None:
    """A38: within its bound, no thread left, and the descriptors are the fixture's to count."""
    with ExitStack() as stack:
        client = STATES[state](stack)
        with within(CLOSE_BOUND):
            client.close()
        all_ended(but="zkwire-resolve" if state == "looking a name up" else "")
        with within(0.1):
            client.close()
        assert_dead_at_once(client)


def assert_dead_at_once(client: Client) -> None:
    """A39: everything raises, at once."""
    expected = {
        State.CLOSED: ClientClosedError,
        State.EXPIRED: SessionExpiredError,
        State.AUTH_FAILED: AuthFailedError,
    }[client.state]
    good = {
        verb: {name: value for name, value, _ in arguments} for verb, arguments in ARGUMENTS.items()
    }
    for verb, arguments in good.items():
        for operations in (client, client.pipeline):
            with within(0.1), pytest.raises(expected) as caught:
                getattr(operations, verb)(**arguments)
            assert caught.value.path == arguments.get("path", caught.value.path)
            assert caught.value.op is not None
            assert not caught.value.maybe_applied
    with within(0.1), pytest.raises(expected):
        client.connect()
    with within(0.1), pytest.raises(expected), client:
        pass
    assert client.lease_remaining() == 0.0
    assert client.state.value in repr(client)


def test_close_ends_the_session_on_the_server(hosts: str, fresh_path: str) -> None:
    with Client(hosts) as observer:
        client = Client(hosts)
        client.create(fresh_path, ephemeral=True)
        watch = Watch()
        observer.exists(fresh_path, watch=watch)
        client.close()
        gone = watch.wait(PATIENCE)
        assert gone is not None
        assert gone.type == EventType.NODE_DELETED


def test_close_carries_out_what_was_asked_before(
    hosts: str, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A37: all of a pipeline is executed, and its session is gone."""
    monkeypatch.setattr("zkwire.net.client.CLOSE_SECONDS", PATIENCE)  # a pause is not to end it
    client = Client(hosts)
    client.create(fresh_path)
    replies = [client.pipeline.create(f"{fresh_path}/{n}") for n in range(100)]
    ephemeral = client.pipeline.create(f"{fresh_path}/e", ephemeral=True)
    client.close()
    assert [reply_.result() for reply_ in replies] == [f"{fresh_path}/{n}" for n in range(100)]
    assert ephemeral.result() == f"{fresh_path}/e"
    with Client(hosts) as observer:
        assert sorted(observer.get_children(fresh_path)) == sorted(str(n) for n in range(100))


@pytest.mark.parametrize("closers", [2, 8])
def test_close_from_many_threads_at_once(closers: int, fake: FakeServer) -> None:
    """E9, and the session is ended properly: none of them cuts the other's request short."""
    for _ in range(20):
        client = Client(fake.hosts)
        client.create("/e", ephemeral=True)
        barrier = threading.Barrier(closers)

        def close(client: Client = client, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(PATIENCE)
            client.close()

        with within(CLOSE_BOUND):
            for one in [Running(close) for _ in range(closers)]:
                one.result()
        all_ended()
        poll("the session is over", lambda: "/e" not in fake.nodes or None, PATIENCE)
    assert fake.count("close_session") == 20


def test_start_and_close_at_once(seed: int) -> None:
    """E9: eight threads use and close fresh clients; each call ends, each thread ends."""
    from random import Random

    rng = Random(seed)
    with FakeServer() as server:
        for _ in range(40):
            client = Client(server.hosts)
            barrier = threading.Barrier(8)
            closers = rng.sample(range(8), rng.randrange(1, 8))

            def act(
                number: int,
                client: Client = client,
                barrier: threading.Barrier = barrier,
                closers: list[int] = closers,
            ) -> None:
                barrier.wait(PATIENCE)
                if number in closers:
                    client.close()
                    return
                with suppress(ClientClosedError):
                    client.exists("/a")

            for one in [Running(lambda n=n: act(n)) for n in range(8)]:  # type: ignore[misc]
                one.result()
            client.close()
            all_ended()


def test_close_while_a_callback_is_blocked() -> None:
    """A38: the close does not wait for it for long; what is called next raises."""
    entered, leave = threading.Event(), threading.Event()
    outcome: list[Exception] = []
    with FakeServer() as server:
        client = Client(server.hosts)

        def block(event: Event) -> None:
            entered.set()
            assert leave.wait(PATIENCE)
            try:
                client.exists("/a")
            except ClientClosedError as error:
                outcome.append(error)

        client.exists("/a", watch=block)
        client.create("/a")
        assert entered.wait(PATIENCE)
        with within(CLOSE_BOUND):
            client.close()
        leave.set()
        client.close()
    assert len(outcome) == 1


def test_close_ends_those_who_wait() -> None:
    with ExitStack() as stack:
        client = _connected(stack, mute)
        watch = Watch()
        calls = [client.pipeline.create("/a"), client.pipeline.exists("/a", watch=watch)]
        waiting: list[Running[Any]] = [Running(call.result) for call in calls]
        waiting += [Running(watch.wait), Running(client.pipeline.delete("/x").result)]
        with within(CLOSE_BOUND):
            client.close()
        errors = []
        for one in waiting:
            with pytest.raises(ClientClosedError) as caught:
                one.result()
            errors.append(caught.value)
        assert [e.maybe_applied for e in errors] == [True, False, False, True]
        assert [e.path for e in errors] == ["/a", "/a", None, "/x"]


@contextmanager
def having(link: connection.Connection, role: str) -> Iterator[None]:
    """Have a role on a connection."""
    setattr(link, role, link)
    yield
    setattr(link, role, None)


def test_close_where_the_caller_has_been_interrupted_in_the_middle(fake: FakeServer) -> None:
    """E8: a signal handler may run while its thread holds any of the client's locks."""
    for hold in ("mutex", "reader", "writer"):
        client = Client(fake.hosts)
        client.connect()
        pump = client._driver
        assert pump.current_connection is not None
        with (
            pump.mutex if hold == "mutex" else having(pump.current_connection, hold),
            within(CLOSE_BOUND),
        ):
            client.close()
        client.close()
        all_ended()
        assert_dead_at_once(client)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_is_not_copied(fake: FakeServer, copied: Callable[[object], object]) -> None:
    """The end of a copy would be the end of the session."""
    with Client(fake.hosts) as client:
        with pytest.raises(
            TypeError, match="Client cannot be copied or pickled: it belongs to this process"
        ):
            copied(client)
        gc.collect()
        client.exists("/")


def test_close_in_a_finalizer() -> None:
    """E8: the collector runs in any thread at any time; here in one that waits for an answer."""

    class Owner:
        def __init__(self, hosts: str) -> None:
            self.client = Client(hosts)
            self.client.connect()
            self.cycle = self

        def __del__(self) -> None:
            self.client.close()

    with FakeServer() as server:
        Owner(server.hosts)
        with within(CLOSE_BOUND):
            gc.collect()
        all_ended()
        server.wait_for(lambda: server.count("close_session"))
        assert server.count("close_session") == 1


def collect(lock: AbstractContextManager[object]) -> None:
    """Have the collector run where the lock is taken."""
    with lock:
        gc.collect()


def test_a_watch_closed_in_a_finalizer() -> None:
    """E8: the collector may run it in the thread that has the client's state lock."""

    class Owner:
        def __init__(self, client: Client) -> None:
            self.watch = Watch()
            self.cycle = self
            client.exists("/a", watch=self.watch)

        def __del__(self) -> None:
            self.watch.close()

    with FakeServer() as server, Client(server.hosts) as client:
        Owner(client)
        Running(lambda: collect(client._driver.mutex)).result()
        poll("it is closed", lambda: client._driver.session.watch_count == 0 or None, 5.0)


def test_a_client_that_is_never_used_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    clients = [Client("127.0.0.1:1,zoo.example/chroot") for _ in range(100)]
    assert own_threads() == set()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1
    del clients
    gc.collect()


# --- idle -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["nobody", "a caller"])
def test_an_idle_client_does_nothing(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """The I/O thread turns for pings and their answers, whether it reads them or a caller does."""
    turns: list[float] = []
    turn = IOThread.turn

    def counted(self: IOThread, ready: Any) -> None:
        turns.append(time.monotonic())
        turn(self, ready)

    monkeypatch.setattr(IOThread, "turn", counted)
    script = serve if reader == "nobody" else mute_but_for_pings
    with FakeServer(script) as server, Client(server.hosts, session_timeout=0.9) as client:
        call = client.pipeline.exists("/a")
        if reader == "nobody":
            call.result()
        else:
            waiting = Running(call.result)
        server.wait_for(lambda: server.count("ping") >= 1)

        def turns_for_three_pings() -> int:
            before, pings = len(turns), server.count("ping")
            server.wait_for(lambda: server.count("ping") >= pings + 3)
            return len(turns) - before

        # One for the ping, and for its answer one, or two beside a caller who is faster; more, if
        # the machine has paused for so long that there is a new connection.
        undisturbed(turns_for_three_pings, 3 * 4)
        client.close()
        if reader == "a caller":
            with pytest.raises(ZooKeeperError):  # or with a connection that broke
                waiting.result()


def mute_but_for_pings(connection: Connection) -> None:
    connection.greet()
    for _ in connection.requests():
        connection.flush()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the I/O thread has turned round."""
    turns: list[float] = []
    turn = IOThread.turn

    def counted(self: IOThread, ready: Any) -> None:
        turns.append(time.monotonic())
        turn(self, ready)

    monkeypatch.setattr(IOThread, "turn", counted)
    return turns


def test_a_search_for_a_server_does_not_spin(turns: list[float]) -> None:
    client = Client(f"127.0.0.1:{refused_port()}", session_timeout=1.5)
    with pytest.raises(NotSentError):
        client.create("/a")
    client.close()
    assert len(turns) < 100


def test_a_full_kernel_does_not_make_it_spin(turns: list[float]) -> None:
    with ExitStack() as stack:
        client = _stuffed(stack)
        with pytest.raises(OperationTimeoutError):
            client.pipeline.exists("/a").result(0.5)
        assert len(turns) < 200
        client.close()


def test_a_request_that_the_kernel_takes_in_pieces() -> None:
    """Its caller waits for the answer already; the I/O thread, asleep till then, sends the rest."""
    with FakeServer() as server, Client(server.hosts, session_timeout=90) as client:
        link = client._driver.current_connection
        assert link is not None
        link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = bytes(900_000)
        with within(5.0):  # a ping would wake it after 30 s
            client.create("/a", data)
        assert client.get_data("/a").data == data


def test_import_starts_nothing() -> None:
    import subprocess

    code = "import threading, zkwire; zkwire.Client; print(threading.active_count())"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")
