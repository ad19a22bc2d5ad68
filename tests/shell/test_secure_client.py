"""The client over TLS and with SASL: its everyday work, and what each way of failing tells.

Against real servers (`tests/support/secure_servers.py`) wherever they can do it; what they cannot,
a server in this process does, behind `TlsFront` where TLS is wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import ssl
import struct
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from queue import SimpleQueue
from typing import Any, Self

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, all_ended, within
from tests.shell.test_client_threads import (
    again,
    ask,
    ask_until_answered,
    forks,
    in_child,
    interrupted_everywhere,
    name_of,
)
from tests.support.certificates import Certificate
from tests.support.fake_server import Connection, FakeServer, Node, echo, serve, silent
from tests.support.installed_servers import LOOPBACK
from tests.support.lock_helpers import Running, make_path
from tests.support.secure_servers import SecureServer
from tests.support.server_control import poll
from zkwire import (
    Client,
    ClientClosedError,
    ConnectionLossError,
    Create,
    EventType,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SequentialLock,
    SetData,
    State,
    Watch,
)
from zkwire.net.connection import INTERRUPTED
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import Action, cut_before, rst_before

real = [pytest.mark.real, pytest.mark.apache]
# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
# The longest data that fits into a request of a server as it is delivered.
MEGABYTE = 1_000_000
# Nothing is to happen to a session.
LONG = 20.0
# How long a client tries that cannot succeed.
TRIES = 0.3
NO_ANSWER = "none has answered yet"
SLACK = 0.7


def only(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = version
    return context


class TlsFront:
    """Ends TLS in front of a server of this process; `names`: what clients called it, by SNI."""

    def __init__(self, port: int, shown: Certificate) -> None:
        self.names: list[str | None] = []
        self._upstream = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(shown.certificate, shown.key)
        self._context.sni_callback = lambda _, name, __: self.names.append(name)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, __: None)  # clients may go as they like
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls-front")
        self._thread.start()
        self._server = self._run(
            asyncio.start_server(self._serve, LOOPBACK, 0, ssl=self._context, backlog=100)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.hosts = f"{LOOPBACK}:{self.port}"

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            await _end(writer)
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(LOOPBACK, self._upstream)
        ways = [(reader, upstream[1]), (upstream[0], writer)]
        copies = [asyncio.create_task(_copy(*way)) for way in ways]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            try:
                await asyncio.gather(*copies, return_exceptions=True)
            finally:  # it may be cancelled here once more
                await _end(upstream[1])

    async def _stop(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # for the transports to call back

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close it; a peer that is gone, or says nothing, is not waited for."""
    with suppress(OSError, TimeoutError, asyncio.CancelledError):
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), 0.5)
    writer.transport.abort()


@pytest.fixture
def tls_client(tls_zookeeper: SecureServer) -> Iterator[Client]:
    server = tls_zookeeper
    with Client(server.hosts, tls=server.client_context(), session_timeout=LONG) as client:
        yield client


def settled(client: Client) -> None:
    """Wait until the client is connected again, if it is not."""
    assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE) is State.CONNECTED


# --- everyday work over TLS -----------------------------------------------------------------------


class TestOverTls:
    pytestmark = real

    @pytest.mark.since("3.7")
    @each_version
    def test_operations(
        self, tls_zookeeper: SecureServer, version: ssl.TLSVersion, fresh_path: str
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        with Client(tls_zookeeper.hosts, tls=context) as client:
            node = f"{fresh_path}/node"
            client.create(fresh_path, b"one")
            assert client.create(node, b"two", ephemeral=True) == node
            assert client.get_children(fresh_path) == ["node"]
            assert client.set_data(node, b"three").version == 1
            results = client.multi([Create(f"{node}s"), SetData(fresh_path, b"four")])
            assert results[0] == f"{node}s"
            client.sync(fresh_path)
            assert client.get_data(fresh_path).data == b"four"
            with pytest.raises(NoNodeError):
                client.get_data(f"{fresh_path}/none")
            assert [who.auth_scheme for who in client.who_am_i()] == ["ip"]
            with Client(tls_zookeeper.server.hosts) as observer:
                assert observer.exists(node) is not None
                gone = Watch()
                observer.exists(node, watch=gone)
                with within(CLOSE_BOUND):
                    client.close()
                event = gone.wait(PATIENCE)
                assert event is not None
                assert event.type is EventType.NODE_DELETED
        all_ended(name_of(client))

    def test_events_while_nobody_waits(
        self, tls_zookeeper: SecureServer, tls_client: Client, fresh_path: str
    ) -> None:
        called: SimpleQueue[Any] = SimpleQueue()
        tls_client.create(fresh_path)
        with Client(tls_zookeeper.server.hosts) as other:
            for number in range(20):
                tls_client.get_data(fresh_path, watch=called.put)
                other.set_data(fresh_path, b"%d" % number)
                assert called.get(timeout=PATIENCE).type is EventType.NODE_DATA_CHANGED

    @each_version
    def test_megabytes_in_both_directions_at_once(
        self, tls_zookeeper: SecureServer, version: ssl.TLSVersion, fresh_path: str
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        with Client(tls_zookeeper.hosts, tls=context, session_timeout=LONG) as client:
            client.create(fresh_path)
            data = [os.urandom(MEGABYTE) for _ in range(12)]
            started = time.monotonic()
            pairs = [
                (client.pipeline.set_data(fresh_path, each), client.pipeline.get_data(fresh_path))
                for each in data
            ]
            for number, (written, read) in enumerate(pairs):
                assert written.result().version == number + 1
                assert read.result().data == data[number]
            print(f"24 MB in {time.monotonic() - started:.2f} s")
            client.delete(fresh_path)

    def test_ten_thousand_requests_at_once(self, tls_client: Client, fresh_path: str) -> None:
        tls_client.create(fresh_path)
        started = time.monotonic()
        replies = [tls_client.pipeline.create(f"{fresh_path}/{n}") for n in range(5000)]
        there = [tls_client.pipeline.exists(f"{fresh_path}/{n}") for n in range(5000)]
        assert [each.result() for each in replies] == [f"{fresh_path}/{n}" for n in range(5000)]
        zxids = [stat.czxid for stat in (each.result() for each in there) if stat is not None]
        assert len(zxids) == 5000
        assert zxids == sorted(zxids)
        print(f"10,000 requests in {time.monotonic() - started:.2f} s")
        tls_client.delete_tree(fresh_path)

    def test_many_threads(self, tls_client: Client, fresh_path: str) -> None:
        tls_client.create(fresh_path)

        def work(number: int) -> None:
            mine = f"{fresh_path}/{number}"
            tls_client.create(mine)
            for n in range(100):
                data = b"%d-%d" % (number, n) + bytes(n * 37)
                written = tls_client.pipeline.set_data(mine, data)
                assert tls_client.get_data(mine).data == data
                assert written.result().version == n + 1

        for worker in [Running(lambda n=n: work(n)) for n in range(12)]:  # type: ignore[misc]
            worker.result(60.0)
        tls_client.delete_tree(fresh_path)

    def test_locks(self, tls_zookeeper: SecureServer, fresh_path: str) -> None:
        counter, inside = 0, threading.Lock()

        def work() -> None:
            nonlocal counter
            context = tls_zookeeper.client_context()
            with Client(tls_zookeeper.hosts, tls=context, session_timeout=LONG) as client:
                lock = SequentialLock(client, fresh_path)
                for _ in range(10):
                    with lock:
                        assert inside.acquire(blocking=False)
                        counter += 1
                        inside.release()

        for worker in [Running(work) for _ in range(4)]:
            worker.result(60.0)
        assert counter == 40

    def test_an_idle_session_lives(self, tls_zookeeper: SecureServer) -> None:
        pongs = threading.Semaphore(0)

        def trace(frame: Any) -> None:
            if frame.op == "ping" and not frame.sent:
                pongs.release()

        context = tls_zookeeper.client_context()
        with Client(tls_zookeeper.hosts, tls=context, session_timeout=4.5, trace=trace) as client:
            session_id, states = client.session_id, list[State]()
            client.add_state_listener(states.append)
            for _ in range(4):  # for longer than the session timeout
                assert pongs.acquire(timeout=PATIENCE)
            assert client.exists("/") is not None
            assert client.session_id == session_id
            assert states == []

    @each_version
    @pytest.mark.parametrize("how", ["cut_all", "reset_all"])
    def test_a_broken_connection_is_replaced(
        self, tls_zookeeper: SecureServer, fresh_path: str, version: ssl.TLSVersion, how: str
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        with (
            FaultProxy(upstream=tls_zookeeper.hosts) as proxy,
            Client(proxy.hosts, tls=context, session_timeout=LONG) as client,
            Client(tls_zookeeper.server.hosts) as observer,
        ):
            client.create(fresh_path, ephemeral=True)
            session_id = client.session_id
            for number in range(5):
                changed, lasting = Watch(), Watch()
                client.get_data(fresh_path, watch=changed)
                client.add_watch("/zookeeper/quota", watch=lasting)
                proxy.refuse()
                getattr(proxy, how)()
                assert client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
                observer.set_data(fresh_path, b"%d" % number)  # while it is away
                proxy.refuse(False)
                event = changed.wait(PATIENCE)
                assert event is not None
                assert event.type is EventType.NODE_DATA_CHANGED
                event = lasting.wait(PATIENCE)
                assert event is not None
                assert event.type is EventType.REREAD
                assert client.get_data(fresh_path).data == b"%d" % number
                lasting.close()
            assert client.session_id == session_id
            stat = observer.exists(fresh_path)
            assert stat is not None
            assert stat.ephemeral_owner == session_id

    @pytest.mark.parametrize("action", [cut_before, rst_before], ids=["FIN", "RST"])
    @pytest.mark.parametrize("direction", ["c2s", "s2c"])
    def test_no_outcome_is_wrong(
        self, tls_zookeeper: SecureServer, fresh_path: str, direction: str, action: Action
    ) -> None:
        """The n-th piece of a flood of creates is stopped, whatever part of a record it ends in."""
        context = tls_zookeeper.client_context()
        counts: Counter[str] = Counter()
        with (
            FaultProxy(upstream=tls_zookeeper.hosts) as proxy,
            Client(proxy.hosts, tls=context, session_timeout=LONG) as client,
            Client(tls_zookeeper.server.hosts) as observer,
        ):
            make_path(observer, fresh_path)
            for n in (1, 2, 3, 5, 8, 13):
                settled(client)
                left = n

                def rule(frame: Any) -> Action | None:
                    nonlocal left
                    left -= frame.direction == direction
                    return action if left == 0 and frame.direction == direction else None

                proxy.rule(rule)
                paths = [f"{fresh_path}/{n}-{number:03}" for number in range(300)]
                replies = {}
                for path in paths:
                    replies[path] = client.pipeline.create(path, bytes(3000))
                    if len(replies) == 1:
                        outcome(replies[path])  # a busy machine would answer none in time
                outcomes = {path: outcome(each) for path, each in replies.items()}
                proxy.clear()
                observer.sync(fresh_path)
                there = {f"{fresh_path}/{name}" for name in observer.get_children(fresh_path)}
                for path, ended in outcomes.items():
                    assert ended != "success" or path in there, path
                    assert ended != "not sent" or path not in there, path
                # In the order of the requests; the last ones may have come after the break.
                runs = [ended for ended, _ in groupby(outcomes.values())]
                order = iter(["success", "unknown", "not sent", "success"])
                assert all(ended in order for ended in runs), runs
                executed = [path in there for path in paths if outcomes[path] == "unknown"]
                assert executed == sorted(executed, reverse=True)
                counts.update(outcomes.values())
            observer.delete_tree(fresh_path)
        print(dict(counts))
        assert counts["unknown"]
        assert counts["success"]

    def test_what_the_kernel_never_took_was_not_sent(
        self, tls_zookeeper: SecureServer, fresh_path: str
    ) -> None:
        context = tls_zookeeper.client_context()
        with (
            FaultProxy(upstream=tls_zookeeper.hosts) as proxy,
            Client(proxy.hosts, tls=context, session_timeout=LONG) as client,
            Client(tls_zookeeper.server.hosts) as observer,
        ):
            make_path(observer, fresh_path)
            proxy.black_hole()
            link = client._driver.current_connection
            assert link is not None
            size = 10_000
            paths = [f"{fresh_path}/{number:04}" for number in range(2500)]
            replies = [client.pipeline.create(path, bytes(size)) for path in paths]
            client._driver.flush()
            taken = full(link.sock)
            proxy.refuse()
            proxy.reset_all()
            proxy.black_hole(False)
            ends = [outcome(each) for each in replies]
            runs = [ended for ended, _ in groupby(ends)]
            assert runs == ["unknown", "not sent"]
            # A request is that much longer than its data, and a record than what is in it.
            each = (size + len(paths[0]) + 55) * (1 + 22 / 16384)
            assert abs(ends.count("unknown") * each - taken) < 32 * 1024
            there = observer.get_children(fresh_path)
            assert {f"{fresh_path}/{name}" for name in there} <= set(paths[: ends.count("unknown")])
            proxy.refuse(False)
            assert client.exists(fresh_path) is not None
            observer.delete_tree(fresh_path)


def full(sock: socket.socket) -> int:
    """Wait until the kernel takes no more for a socket; how many bytes it has taken in all."""
    seen: list[int] = []

    def stable() -> int | None:
        acknowledged = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)[120:]
        waiting = fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))
        taken = struct.unpack("q", acknowledged)[0] + struct.unpack("i", waiting)[0]
        seen.append(int(taken))
        return seen[-1] if len(seen) > 50 and len(set(seen[-50:])) == 1 else None

    return poll("the kernel takes no more", stable, PATIENCE)


def outcome(call: Any) -> str:
    try:
        call.result(PATIENCE)
    except NotSentError:
        return "not sent"
    except OutcomeUnknownError:
        return "unknown"
    return "success"


def failure(hosts: str, tls: ssl.SSLContext | None, **options: Any) -> str:
    """Why no connection can be made, in the words for users; without the server's name."""
    client = Client(hosts, tls=tls, **options)
    text = NO_ANSWER
    deadline = time.monotonic() + PATIENCE
    while NO_ANSWER in text:  # no attempt has ended yet
        assert time.monotonic() < deadline
        with within(TRIES + SLACK), pytest.raises(NotSentError) as caught:
            client.connect(TRIES)
        text = str(caught.value)
    assert not client.state.terminal
    with within(CLOSE_BOUND):
        client.close()
    all_ended(name_of(client))
    before, server, reason = text.partition(f"({hosts}: ")
    assert before == f"no server could be reached within {TRIES} s "
    assert server
    return reason.removesuffix(")")


# --- the end, forks and interrupts over TLS -------------------------------------------------------


def test_close_in_each_phase(trusting: ssl.SSLContext, shown: Certificate) -> None:
    with FakeServer(silent) as server, TlsFront(server.port, shown) as front:
        # Before anything, in the TLS handshake, in the session's.
        Client(server.hosts, tls=trusting).close()
        for hosts in (server.hosts, front.hosts):
            client = Client(hosts, tls=trusting)
            running = Running(client.connect)
            before = len(server.connections)
            server.wait_for(lambda before=before: len(server.connections) > before)  # type: ignore[misc]
            with within(CLOSE_BOUND):
                client.close()
            with pytest.raises(ClientClosedError):
                running.result()
            assert client.state is State.CLOSED
            all_ended(name_of(client))


@forks
def test_a_fork_leaves_the_parents_connection_alone(
    trusting: ssl.SSLContext, shown: Certificate
) -> None:
    from zkwire import ForkedError

    with FakeServer() as server, TlsFront(server.port, shown) as front:
        with Client(front.hosts, tls=trusting, session_timeout=LONG) as client:
            client.create("/a")
            watch, stop = Watch(), threading.Event()
            client.get_data("/a", watch=watch)

            def traffic() -> int:
                done = 0
                while not stop.is_set():
                    client.exists(f"/{done}")
                    done += 1
                return done

            def child() -> None:
                for attempt in (client.sync, client.connect, lambda: client.create("/child")):
                    with pytest.raises(ForkedError):
                        attempt()
                client.close()

            workers = [Running(traffic) for _ in range(2)]
            for _ in range(10):
                in_child(child)
            stop.set()
            assert all(worker.result() for worker in workers)
            assert len(server.connections) == 1
            client.set_data("/a", b"")
            assert watch.wait(PATIENCE) is not None
        assert "/child" not in server.nodes


def test_a_configuration_of_plain_ports_cuts_nobody_off(
    trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """A configuration knows no port for TLS, so the ports that it names answer no TLS handshake."""
    with FakeServer(serve) as server, TlsFront(server.port, shown) as front:
        named = f"server.1=127.0.0.1:2888:3888:participant;127.0.0.1:{server.port}\nversion=100"
        server.nodes["/zookeeper/config"] = Node(named.encode(), 1)
        with Client(front.hosts, tls=trusting, follow_reconfig=True, session_timeout=2.0) as client:
            client.connect()
            both = {(LOOPBACK, front.port), (LOOPBACK, server.port)}
            poll("it follows", lambda: set(client._session.hosts._hosts) == both or None, PATIENCE)
            for _ in range(3):
                for connection in server.connections:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)
                again(client.sync)


def test_an_interrupt_anywhere_in_a_call(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """The next calls, of this thread and of another, are answered with their own answers."""
    with (
        FakeServer(echo) as server,
        TlsFront(server.port, shown) as front,
        Client(front.hosts, tls=trusting, session_timeout=LONG) as client,
    ):
        client.connect()
        points = 0
        for where in interrupted_everywhere(lambda: ask(client, "/interrupted")):
            points += 1
            with within(PATIENCE):
                other = Running(lambda: ask_until_answered(client, "/other"))
                ask_until_answered(client, f"/{points}")
                other.result()
            assert len(server.sessions) == 1, where
            # No byte of an interrupted read is believed, so garbage is never seen.
            assert client._session.last_failure.endswith((INTERRUPTED, "none was tried")), where
        assert points > 30


def test_ctrl_c_in_a_call(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """The caller that reads is interrupted; others who wait learn how their calls have ended."""
    answered = threading.Event()

    def slow(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if request.path == "/slow" and not answered.is_set():
                connection.flush()
                assert answered.wait(PATIENCE)
            connection.answer(request)

    with (
        FakeServer(slow) as server,
        TlsFront(server.port, shown) as front,
        Client(front.hosts, tls=trusting, session_timeout=LONG) as client,
    ):
        client.create("/kept", ephemeral=True)
        main = threading.get_ident()

        def interrupt() -> Any:
            server.wait_for(lambda: any(q.path == "/slow" for q in server.received))
            other = Running(lambda: client.exists("/kept"))
            signal.pthread_kill(main, signal.SIGINT)
            return other

        interrupting = Running(interrupt)
        with within(PATIENCE), pytest.raises(KeyboardInterrupt):
            client.exists("/slow")
        answered.set()
        with suppress(ConnectionLossError):
            interrupting.result().result()
        assert client.exists("/kept") is not None
        assert len(server.sessions) == 1


class Time:
    """The client's clock, which a test can make jump."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def jump(self, client: Client, seconds: float) -> None:
        """Returns when the client's thread has seen it, unless that is busy with something else."""
        self._ahead += seconds
        for _ in range(2):  # the first one may come right before the deadlines are looked at
            seen = threading.Event()
            client._driver.call_soon(seen.set)
            assert seen.wait(PATIENCE)
