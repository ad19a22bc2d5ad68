"""A forked child and an interpreter that ends, with a client that is connected."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc  # noqa: F401  (pytest's hook would import it in the midst of a collection)
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_client import ARGUMENTS, PATIENCE, PAUSE, undisturbed
from tests.shell.test_client_threads import forks, in_child, run_child
from tests.support.certificates import Certificate
from tests.support.fake_server import Connection, FakeServer
from tests.support.lock_helpers import Running
from tests.support.snippets import ROOT, blocks
from zkwire import (
    Cache,
    Client,
    Counter,
    ForkedError,
    Group,
    Partitioner,
    PersistentNode,
    SequentialLock,
    State,
    Supervisor,
    Watch,
)
from zkwire.net.wakeup import Sleeper
from zkwire.session.waitable import Waitable
from zkwire.testing import Server

# --- forks ----------------------------------------------------------------------------------------


# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def assert_refused(attempts: Sequence[Callable[[], object]]) -> None:
    for attempt in attempts:
        with pytest.raises(ForkedError, match="belongs to the parent process"):
            attempt()


def assert_forked(client: Client, call: Any, watch: Watch, lock: SequentialLock) -> None:
    """A27: in the child everything raises at once, and nothing reaches the server."""
    started = time.monotonic()
    good = [(verb, {a[0]: a[1] for a in arguments}) for verb, arguments in ARGUMENTS.items()]
    attempts: list[Callable[[], object]] = [client.connect, client.__enter__, watch.wait]
    attempts.append(lock.check)
    sides: list[Any] = [client, client.pipeline]
    for operations in sides:
        attempts += [partial(getattr(operations, verb), **arguments) for verb, arguments in good]
    if not call.ready:  # another thread may have read its answer before the fork
        attempts += [call.result, lambda: call.result(0.5)]
    assert_refused(attempts)
    acquires: list[Callable[[], object]] = [lambda: lock.acquire(0.5), lock.try_acquire]
    for acquire in acquires:
        with pytest.raises((ForkedError, RuntimeError), match=r"already|parent process"):
            acquire()
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    assert client.lease_remaining() == 0.0
    watch.close()
    client.close()
    client.close()
    assert time.monotonic() - started < 1.0 + PAUSE


@forks
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_hazard_A27_a_forked_child_leaves_the_session_alone(
    secure: bool, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """In the middle of traffic: threads of the parent read, write and hold locks at the fork."""
    tls = trusting if secure else None
    with (
        FakeServer(tls=shown.server_context() if secure else None) as fake,
        Client(fake.hosts, session_timeout=20, tls=tls) as client,
    ):
        assert_left_alone(fake, client)


def assert_left_alone(fake: FakeServer, client: Client) -> None:
    client.create("/a")
    watch, stop = Watch(), threading.Event()
    client.get_data("/a", watch=watch)
    lock = SequentialLock(client, "/lock")
    assert lock.acquire(PATIENCE)

    def traffic(number: int) -> int:
        done = 0
        while not stop.is_set():
            client.exists(f"/{number}/{done}")
            done += 1
        return done

    workers = [Running(partial(traffic, n)) for n in range(3)]
    session_id = client.session_id
    for _ in range(25):
        call = client.pipeline.exists("/unread")
        in_child(partial(assert_forked, client, call, watch, lock))
        assert call.result(PATIENCE) is None
        assert lock.held
    stop.set()
    for worker in workers:
        assert worker.result() > 0
    assert (client.session_id, client.state) == (session_id, State.CONNECTED)
    assert client.get_data("/a").data == b""
    assert len(fake.connections) == 1
    client.set_data("/a", b"")
    assert watch.wait(PATIENCE) is not None
    lock.release()


@forks
def test_a_fork_while_a_lock_of_the_client_is_held(fake: FakeServer) -> None:
    """The holder does not exist in the child; whoever asks there must not wait for it."""
    with Client(fake.hosts) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        lock = SequentialLock(client, "/lock")
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            link = client._driver.current_connection
            assert link is not None
            with client._driver.mutex:
                link.reader = link.writer = hold
                held.set()
                assert let_go.wait(PATIENCE)
                link.reader = link.writer = None

        holder = Running(hold)
        assert held.wait(PATIENCE)

        def child() -> None:
            started = time.monotonic()
            assert_refused([client.sync, watch.wait, lock.try_acquire])
            watch.close()
            client.close()
            assert time.monotonic() - started < 1.0 + PAUSE

        in_child(child)
        let_go.set()
        holder.result()
        client.sync()


@forks
def test_a_child_can_have_a_client_that_was_not_used_before(fake: FakeServer) -> None:
    with Client(fake.hosts) as client, closing(Client(fake.hosts)) as unused:
        client.sync()

        def child() -> None:
            assert_refused([client.sync])
            with unused:
                unused.create("/from-the-child")
            with Client(fake.hosts) as own:
                own.create("/from-another")

        in_child(child)
        assert client.exists("/from-the-child") is not None
        assert client.exists("/from-another") is not None
        assert unused.exists("/from-another") is not None


@forks
@pytest.mark.parametrize("kind", [Client, Supervisor])
def test_a_child_gets_no_answer_from_memory(
    server: Server, kind: type[Client] | type[Supervisor]
) -> None:
    with kind(server.hosts) as sessions, Client(server.hosts) as client:
        cache, group = Cache(sessions, "/"), Group(sessions, "/g")
        node, watch = PersistentNode(sessions, "/node"), sessions.watch_data("/")
        partitioner, counter = Partitioner(sessions, "/p", ["x"]), Counter(client, "/c")
        assert cache.wait_ready(PATIENCE)
        assert node.wait_present(PATIENCE)
        assert group.join(b"", "me", PATIENCE).present
        assert group.members(PATIENCE)
        share, events = partitioner.next(PATIENCE), cache.events()
        assert share is not None
        assert watch.next(PATIENCE) is not None
        assert events.next(PATIENCE) is not None  # more are handed over already
        counter.add(1)
        asked: list[Callable[[], object]] = [
            *(lambda: cache.get("/"), lambda: "/" in cache, lambda: len(cache), cache.events),
            *(lambda: cache.children("/"), lambda: list(cache), events.next, cache.wait_fresh),
            *(watch.next, group.members, lambda: next(group.changes()), node.wait_present),
            *(partitioner.next, lambda: counter.version),
        ]

        def child() -> None:
            assert_refused(asked)
            assert not any([cache.fresh, cache.ready, node.present, node.stat])
            assert share.lost == {"x"}
            assert partitioner.state == "closed"

        in_child(child)
        assert cache.wait_fresh(PATIENCE)
        assert node.present
        for service in (partitioner, group, node):
            service.close()


# --- exits ----------------------------------------------------------------------------------------


EXITS = {
    "open": "client.connect()",
    "never used": "",
    "connecting": "client.pipeline.exists('/a')",
    "with calls in flight": "client.connect(); [client.pipeline.exists('/a') for _ in range(1000)]",
    "with a watch": "client.exists('/a', watch=print)",
    "with a callback that blocks": """
        called = threading.Event()
        client.exists('/a', watch=lambda event: called.set() or threading.Event().wait())
        client.create('/a')
        called.wait()
    """,
    "with threads that wait": """
        client.connect()
        for _ in range(3):
            wait = lambda: client.pipeline.get_data('/silent').result()
            threading.Thread(target=wait, daemon=True).start()
    """,
    "with a lock": "assert SequentialLock(client, '/lock').acquire()",
    "with an exception": """
        client.connect()
        sys.stderr.close()
        sys.stderr = None
        raise SystemExit(0)
    """,
    "closed at exit": "client.connect(); atexit.register(client.close)",
    "closed by its finalizer": """
        client.connect()
        class Owner:
            def __del__(self):
                client.close()
        owner = Owner()
        owner.owner = owner
    """,
    "with no server": "client = Client('127.0.0.1:1'); client.pipeline.exists('/a')",
    "with a name that is looked up": """
        client = Client('zoo.example', _resolver=lambda host, port: threading.Event().wait())
        client.pipeline.exists('/a')
    """,
}


@pytest.mark.parametrize("how", EXITS)
def test_hazard_E7_an_exit_is_quick_and_silent(how: str) -> None:
    """E7."""

    def silent_for_one(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if request.path != "/silent":
                connection.answer(request)

    code = f"""
import atexit, sys, threading
from zkwire import Client, SequentialLock
client = Client(sys.argv[1])
{textwrap.dedent(EXITS[how])}
"""
    with FakeServer(silent_for_one) as server:

        def seconds() -> float:
            started = time.monotonic()
            assert run_child(code, server.hosts) == ""
            return time.monotonic() - started

        undisturbed(seconds, 2.0 + PAUSE)


def test_no_sleep_depends_on_a_wake_up_alone() -> None:
    """Else a Ctrl-C that comes right before the system call is not noticed until somebody wakes."""
    Sleeper(Waitable()).sleep(None)


# --- the page about forked workers ----------------------------------------------------------------

SECONDS = 30.0


def program(hosts: str) -> str:
    (block,) = blocks("how-to/forks", hosts)
    return block


def ask(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), SECONDS) as asking:
        asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: asking.recv(4096), b"")).decode()


@forks
def test_each_worker_of_gunicorn_has_a_session(server: Server, tmp_path: Path) -> None:
    """The parent has used its client before the fork."""
    pytest.importorskip("gunicorn")
    used = "\nclient.connect()\n"
    (tmp_path / "application.py").write_text(program(server.hosts) + used, encoding="utf-8")
    command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-b", "127.0.0.1:0"]
    command += ["--pythonpath", f"{ROOT},{tmp_path}", "application"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as gunicorn:
        try:
            assert gunicorn.stderr is not None
            port = next(
                int(found[1])
                for line in gunicorn.stderr
                if (found := re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", line))
            )
            parent = {f"session {each.session_id} has" for each in server.sessions}
            answers = [ask(port) for _ in range(4)]
        finally:
            gunicorn.terminate()
            gunicorn.communicate(timeout=SECONDS)
    assert len(parent) == 1
    for answer in answers:
        assert "has ['zookeeper']" in answer
        assert not any(session in answer for session in parent)
