"""A forked child and an interpreter that ends, with a client that is connected."""

from __future__ import annotations

import multiprocessing
import textwrap
import threading
import time
import tracemalloc  # noqa: F401  (pytest's hook would import it in the midst of a collection)
from collections.abc import Callable
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, PAUSE, undisturbed
from tests.shell.test_client_threads import forks, in_child, run_child
from tests.support.fake_server import Connection, FakeServer
from tests.support.lock_helpers import Running
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
from zkwire.blocking.waiting import Sleeper
from zkwire.session.waitable import Waitable
from zkwire.testing import Server

# --- forks ----------------------------------------------------------------------------------------


# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def assert_forked(client: Client, call: Any, watch: Watch, lock: SequentialLock) -> None:
    """A27: in the child everything raises at once, and nothing reaches the server."""
    started = time.monotonic()
    attempts: list[Callable[[], object]] = [
        lambda: client.create("/child"),
        lambda: client.create_with_stat("/child"),
        lambda: client.delete("/a"),
        lambda: client.set_data("/a", b"child"),
        lambda: client.exists("/a"),
        lambda: client.get_data("/a"),
        lambda: client.get_children("/a"),
        lambda: client.get_children_with_stat("/a"),
        client.sync,
        client.connect,
        client.__enter__,
        lambda: client.pipeline.create("/child"),
        lambda: client.pipeline.get_data("/a", watch=Watch()),
        # Another thread may have read its answer before the fork.
        *([] if call.ready else [call.result, lambda: call.result(0.5)]),
        watch.wait,
        lambda: lock.acquire(0.5),
        lock.try_acquire,
    ]
    for number, attempt in enumerate(attempts):
        try:
            attempt()
        except ForkedError:
            continue
        except RuntimeError as error:
            if "already" in str(error):  # the lock object held it before the fork
                continue
            raise
        raise AssertionError(f"attempt {number} did not raise")
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    assert client.lease_remaining() == 0.0
    watch.close()
    client.close()
    client.close()
    assert time.monotonic() - started < 1.0 + PAUSE


@forks
def test_a_forked_child_leaves_the_session_alone(seed: int, fake: FakeServer) -> None:
    """In the middle of traffic: threads of the parent read, write and hold locks at the fork."""
    client = Client(fake.hosts, session_timeout=20)
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

    workers = [Running(lambda n=n: traffic(n)) for n in range(3)]  # type: ignore[misc]
    session_id = client.session_id
    for _ in range(25):
        call = client.pipeline.exists("/unread")
        in_child(lambda call=call: assert_forked(client, call, watch, lock))  # type: ignore[misc]
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
    client.close()


@forks
def test_a_fork_while_a_lock_of_the_client_is_held() -> None:
    """The holder does not exist in the child; whoever asks there must not wait for it."""
    with FakeServer() as server, Client(server.hosts) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        call = client.pipeline.exists("/b")
        call.result()
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
            for attempt in (client.sync, watch.wait, lock.try_acquire):
                with pytest.raises(ForkedError):
                    attempt()
            watch.close()
            client.close()
            assert time.monotonic() - started < 1.0 + PAUSE

        in_child(child)
        let_go.set()
        holder.result()
        client.sync()


@forks
def test_a_client_that_was_not_used_before_a_fork_works_in_the_child(fake: FakeServer) -> None:
    client = Client(fake.hosts)

    def child() -> None:
        with client:
            client.create("/from-the-child")

    in_child(child)
    with client:
        assert client.exists("/from-the-child") is not None


@forks
def test_a_child_can_have_a_client_of_its_own_beside_its_parents() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        client.sync()

        def child() -> None:
            with pytest.raises(ForkedError):
                client.sync()
            with Client(server.hosts) as own:
                own.create("/from-the-child")

        in_child(child)
        assert client.exists("/from-the-child") is not None


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
            for ask in asked:
                with pytest.raises(ForkedError, match="belongs to the parent process"):
                    ask()
            assert not any([cache.fresh, cache.ready, node.present, node.stat])
            assert share.lost == {"x"}
            assert partitioner.state == "closed"

        in_child(child)
        assert cache.wait_fresh(PATIENCE)
        assert node.present
        for service in (partitioner, group, node):
            service.close()


def work_in_pool(_: int) -> str:
    """For a process of multiprocessing: what its parent's client says there."""
    try:
        _inherited[0].sync()
    except ForkedError as error:
        return str(error)
    return "no error"


_inherited: list[Client] = []


@forks
def test_processes_of_multiprocessing() -> None:
    """Their ends run exit handlers and the collector: the parent's session lives on."""
    with FakeServer() as server, Client(server.hosts) as client:
        client.sync()
        _inherited[:] = [client]
        try:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                answers = pool.map_async(work_in_pool, range(4)).get(PATIENCE)
                pool.close()
                pool.join()
        finally:
            _inherited.clear()
        assert all("parent process" in answer for answer in answers)
        client.sync()
        assert len(server.connections) == 1


_pool: dict[
    str, Any
] = {}  # of a worker of a prefork pool, as Celery's: made once, used by many tasks


def begin_worker(hosts: str) -> None:
    _pool["client"] = Client(hosts)


def count_one(_: int) -> tuple[str, int]:
    """A task: what the inherited client says, and one more in a node, under a lock."""
    inherited = work_in_pool(0)
    own: Client = _pool["client"]
    with SequentialLock(own, "/lock"):
        data = own.get_data("/count").data
        own.set_data("/count", b"%d" % (int(data) + 1))
    return inherited, own.session_id


@forks
def test_workers_of_a_prefork_pool_have_a_session_each(server: Server) -> None:
    """They are replaced after three tasks; their parent holds a lock of its own all the time."""
    with Client(server.hosts) as client, SequentialLock(client, "/parent") as lock:
        client.create("/count", b"0")
        session, _inherited[:] = client.session_id, [client]
        fork = multiprocessing.get_context("fork")
        try:
            with fork.Pool(2, begin_worker, (server.hosts,), maxtasksperchild=3) as pool:
                answers = pool.map_async(count_one, range(12), chunksize=1).get(PATIENCE)
                pool.close()
                pool.join()
        finally:
            _inherited.clear()
        assert client.get_data("/count").data == b"12"
        assert all("parent process" in inherited for inherited, _ in answers)
        sessions = {own for _, own in answers}
        assert len(sessions) >= 4
        assert session not in sessions
        assert (client.session_id, lock.held) == (session, True)


# --- exits ----------------------------------------------------------------------------------------


EXITS = {
    "open": "client.connect()",
    "never used": "",
    "connecting": "client.pipeline.exists('/a')",
    "with calls in flight": "client.connect(); [client.pipeline.exists('/a') for _ in range(1000)]",
    "with a watch": "client.exists('/a', watch=print)",
    "with a callback that blocks": """
        called = threading.Event()
        def block(event):
            called.set()
            threading.Event().wait()
        client.exists('/a', watch=block)
        client.create('/a')
        called.wait()
    """,
    "with threads that wait": """
        client.connect()
        def wait():
            client.pipeline.get_data('/silent').result()
        for _ in range(3):
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
def test_an_exit_is_quick_and_silent(how: str) -> None:
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
