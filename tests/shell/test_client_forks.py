"""What a client leaves: a forked child, an interpreter that ends, a program that drops it."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import select
import selectors
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import open_descriptors
from tests.shell.test_client import ARGUMENTS, PAUSE, undisturbed
from tests.shell.test_client_threads import forks, in_child
from tests.support.both_clients import Side, answer, asking, both, done, event_of
from tests.support.certificates import Certificate
from tests.support.fake_server import Connection, FakeServer
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from tests.support.snippets import ROOT, blocks, run_python
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    BlockingLock,
    Cache,
    Check,
    Client,
    Counter,
    Create,
    Delete,
    ForkedError,
    Group,
    MultiError,
    NonBlockingLock,
    NoNodeError,
    Partitioner,
    PersistentNode,
    Queue,
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
            *(partitioner.next, lambda: counter.version, lambda: sessions.watch_data("/", print)),
        ]
        if isinstance(sessions, Supervisor):
            asked += [sessions.wait, sessions.client, lambda: sessions.lead("/e", print)]

        def child() -> None:
            assert_refused(asked)
            assert not any([cache.fresh, cache.ready, node.present, node.stat, node.conflict])
            assert share.lost == {"x"}
            assert partitioner.state == "closed"
            watch.close()
            sessions.close()

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
            ran = run_python("-W", "error", "-X", "faulthandler", "-c", code, server.hosts)
            assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
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
    for said in answers:
        assert "has ['zookeeper']" in said
        assert not any(session in said for session in parent)


UNCLOSED = "unclosed client <"


@contextmanager
def warned() -> Iterator[list[str]]:
    """The ResourceWarnings that come in this block; at its end the collector has run."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield said
        gc.collect()
        said += [str(each.message) for each in caught if each.category is ResourceWarning]


def collect(gone: weakref.ref[Client]) -> None:
    """Collect until the client is gone: its thread holds it while it has something to do."""

    def look() -> bool | None:
        gc.collect()
        return gone() is None or None

    poll("the client was collected", look, PATIENCE)


def nobody_left(server: Server) -> None:
    poll("the session ended", lambda: len(server.sessions) == 0 or None, PATIENCE)


def ended_clients() -> list[Client]:
    """One that was refused its arguments has no driver."""
    clients = [each for each in gc.get_objects() if type(each) is Client]
    return [each for each in clients if hasattr(each, "_driver") and each._driver.ended]


def nothing_but(others: weakref.WeakSet[Client]) -> bool | None:
    """Whether no ended client is left, but for those that other tests keep."""
    gc.collect()
    return not any(each not in others for each in ended_clients()) or None


def used(server: Server) -> Client:
    client = Client(server.hosts)
    client.connect()
    return client


async def only_this_task() -> None:
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.001)


# --- dropped --------------------------------------------------------------------------------------


def with_a_lock(client: Client, server: Server) -> None:
    SequentialLock(client, "/lock").acquire()


def with_callbacks(client: Client, server: Server) -> None:
    """Each leads back to the client, as the methods of an object that has one."""
    called = threading.Event()

    def call(_: object) -> None:
        assert client is not None
        called.set()

    client.add_state_listener(lambda _: client)
    client.get_data("/", watch=lambda _: client)
    client.add_watch("/seen", call)
    client.create("/seen")
    assert called.wait(10)


def without_a_server(client: Client, server: Server) -> None:
    server.stop()
    client.wait_for_state(State.DISCONNECTED, timeout=10)


WAYS = [with_a_lock, with_callbacks, without_a_server]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_hazard_E12_a_dropped_client_is_closed_and_says_so(
    server: Server, way: Callable[[Client, Server], None]
) -> None:
    others, states = weakref.WeakSet(ended_clients()), list[State]()
    with warned() as said:
        client = used(server)
        way(client, server)
        client.add_state_listener(states.append)
        thread = client._driver.thread
        assert thread is not None
        gone = weakref.ref(client)
        del client
        collect(gone)
    assert [line[: len(UNCLOSED)] for line in said] == [UNCLOSED]
    thread.join(10)
    assert not thread.is_alive()
    poll("listeners are told", lambda: State.CLOSED in states or None, PATIENCE)
    if way is not without_a_server:
        nobody_left(server)
    poll("nothing of it is left", lambda: nothing_but(others), PATIENCE)


class Mine(AsyncClient):
    def seen(self, _: object) -> None:
        """A listener that leads back to the client."""


async def test_a_dropped_asyncio_client_is_closed_and_says_so(server: Server) -> None:
    tracemalloc.start(9)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            client = Mine(server.hosts)
            await client.connect()
            await AsyncSequentialLock(client, "/lock").acquire()
            client.add_state_listener(client.seen)
            gone = weakref.ref(client)
            del client
            while gone() is not None:  # for a moment the loop has something to do for it
                gc.collect()
                await asyncio.sleep(0.001)
        (warning,) = caught
        assert str(warning.message).startswith("unclosed client <Mine")
        where = tracemalloc.get_object_traceback(warning.source)
        assert where is not None
        assert __file__ in [frame.filename for frame in where]
    finally:
        tracemalloc.stop()
    del warning, caught
    await asyncio.to_thread(nobody_left, server)
    await only_this_task()


def test_an_asyncio_client_whose_loop_has_ended(server: Server) -> None:
    async def use() -> AsyncClient:
        client = AsyncClient(server.hosts)
        await client.connect()
        return client

    with warned() as said:
        asyncio.run(use())
    assert [line[: len(UNCLOSED)] for line in said] == [UNCLOSED]


# --- what a call has used -------------------------------------------------------------------------


@pytest.fixture
def garbage() -> Iterator[Callable[[], list[str]]]:
    """Which objects of zkwire's the collector finds, instead of freeing them."""

    def found() -> list[str]:
        gc.collect()
        kinds = [type(thing) for thing in gc.garbage]
        names = [kind.__name__ for kind in kinds if kind.__module__.startswith("zkwire.")]
        gc.garbage.clear()
        return names

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield found
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def refused_call(client: Client) -> None:
    with suppress(NoNodeError):
        client.get_data("/missing")


def together(client: Client) -> None:
    with suppress(MultiError):
        client.multi([Create("/a"), Check("/a", 7)])
    client.multi([Create("/a"), Delete("/a")])
    with client.transaction() as t:
        t.create("/a")
        t.delete("/a")


def locked(client: Client) -> None:
    for kind in (SequentialLock, BlockingLock):
        with kind(client, f"/{kind.__name__}"):
            client.sync()  # by now its node is watched
    if client.exists("/taken") is None:
        client.create("/taken", ephemeral=True)
    assert not NonBlockingLock(client, "/taken").acquire(0)


def counted_and_queued(client: Client) -> None:
    Counter(client, "/count").add()
    queue = Queue(client, "/queue")
    queue.put(b"1")
    with queue.take():
        pass


@pytest.mark.parametrize("call", [refused_call, together, locked, counted_and_queued])
def test_a_call_leaves_nothing_to_the_collector(
    server: Server, garbage: Callable[[], list[str]], call: Callable[[Client], None]
) -> None:
    with Client(server.hosts) as client:
        call(client)
        garbage()  # of the connecting
        for _ in range(3):
            call(client)
        assert garbage() == []


def test_a_refused_await_leaves_nothing_to_the_collector(
    server: Server, garbage: Callable[[], list[str]]
) -> None:
    async def main() -> list[str]:
        async with AsyncClient(server.hosts) as client:
            for _ in range(3):
                with suppress(NoNodeError):
                    await client.get_data("/missing")
            return garbage()

    assert not [name for name in asyncio.run(main()) if name.endswith("Error")]


# --- descriptors ----------------------------------------------------------------------------------

CLIENTS = 10


async def use(client: Any) -> None:
    """In every way: a read, a watch, an operation whose answer nobody waits for."""
    path, watch = f"/{client.session_id}", Watch()
    await done(client.exists(path, watch=watch))
    await answer(asking(client).create(path))
    assert await event_of(watch, client)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
@both
@pytest.mark.parametrize("epoll", [True, False])
async def test_a_client_has_few_descriptors_and_none_when_it_is_closed(
    side: Side, epoll: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not epoll:
        monkeypatch.delattr(select, "epoll")
        monkeypatch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
    async with side.opened(server.hosts):
        pass  # what the process itself gets once
    own, theirs = 5 if not side.asyncio else 1, 1  # the server, here too, has the other end
    before = len(open_descriptors())
    async with AsyncExitStack() as stack:
        for _ in range(CLIENTS):
            await use(await stack.enter_async_context(side.opened(server.hosts)))
        assert CLIENTS < len(open_descriptors()) - before <= (own + theirs) * CLIENTS
    assert len(open_descriptors()) <= before + theirs * CLIENTS
