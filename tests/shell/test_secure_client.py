"""The client over TLS and with SASL: its everyday work, and what each way of failing tells.

Against real servers (`tests/support/secure_servers.py`) wherever they can do it; what they cannot,
a server in this process does, behind `TlsFront` where TLS is wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import signal
import socket
import ssl
import struct
import termios
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, Background, own_threads, within
from tests.shell.test_client_threads import (
    again,
    ask,
    ask_until_answered,
    forks,
    in_child,
    interrupted_everywhere,
    name_of,
)
from tests.shell.test_roles import Interrupting
from tests.support.certificates import Authority, Certificate
from tests.support.fake_server import Connection, FakeServer, Node, echo, reply, serve, silent
from tests.support.installed_servers import LOOPBACK
from tests.support.lock_helpers import make_path
from tests.support.secure_servers import BOTH_NAMES, USERS, WANTS_CERTIFICATE, SecureServer
from tests.support.server_control import poll
from zkwire import (
    ACL,
    AuthFailedError,
    Client,
    ClientClosedError,
    ConnectionLossError,
    Create,
    DigestMD5,
    EventType,
    Id,
    NoAuthError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    Perms,
    SequentialLock,
    SetData,
    State,
    Watch,
)
from zkwire.jute import records as r
from zkwire.net.connection import INTERRUPTED
from zkwire.session.outcomes import UNGREETED
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy.faults import Gate
from zkwire.testing.proxy.proxy import Action, cut_before, hold, rst_before

real = [pytest.mark.real, pytest.mark.apache]
# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
BOB = ("bob", USERS["bob"])
REJECTED = "the server rejected the SASL authentication"
WRONG = [("bob", "wrong horse"), ("nobody", "nobody's")]
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


@pytest.fixture(scope="session")
def shown(authority: Authority) -> Certificate:
    """What a server of this process shows."""
    return authority.sign("front", hosts=BOTH_NAMES)


@pytest.fixture(scope="session")
def trusting(authority: Authority) -> ssl.SSLContext:
    """A client's context."""
    return authority.client_context()


@pytest.fixture
def tls_client(tls_zookeeper: SecureServer) -> Iterator[Client]:
    server = tls_zookeeper
    with Client(server.hosts, tls=server.client_context(), session_timeout=LONG) as client:
        yield client


def threads_of(client: Client) -> set[str]:
    return {name for name in own_threads() if name.startswith(name_of(client))}


def settled(client: Client) -> None:
    """Wait until the client is connected again, if it is not."""
    assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE) is State.CONNECTED


# --- everyday work over TLS -----------------------------------------------------------------------


class TestOverTls:
    pytestmark = real

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
        assert not threads_of(client)

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

        for worker in [Background(lambda n=n: work(n)) for n in range(12)]:  # type: ignore[misc]
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

        for worker in [Background(work) for _ in range(4)]:
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


# --- what goes wrong with TLS ---------------------------------------------------------------------


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
    assert not threads_of(client)
    before, server, reason = text.partition(f"({hosts}: ")
    assert before == f"no server could be reached within {TRIES} s "
    assert server
    return reason.removesuffix(")")


class TestTlsFailures:
    pytestmark = real

    @each_version
    def test_a_certificate_for_another_host(
        self, tls_zookeeper_elsewhere: SecureServer, version: ssl.TLSVersion
    ) -> None:
        server = tls_zookeeper_elsewhere
        words = failure(server.hosts, only(server.client_context(), version))
        assert words == f"TLS: the certificate is not for host '{LOOPBACK}'"

    @each_version
    def test_an_expired_certificate(
        self, tls_zookeeper_expired: SecureServer, version: ssl.TLSVersion
    ) -> None:
        server = tls_zookeeper_expired
        words = failure(server.hosts, only(server.client_context(), version))
        assert words == "TLS: certificate has expired"

    def test_a_certificate_of_a_stranger(self, tls_zookeeper: SecureServer, tmp_path: Path) -> None:
        words = failure(tls_zookeeper.hosts, Authority(tmp_path, "stranger").client_context())
        assert words == (
            "TLS: the certificate is not trusted: unable to get local issuer certificate"
        )

    @each_version
    def test_no_client_certificate(
        self, tls_zookeeper_for_certified: SecureServer, version: ssl.TLSVersion
    ) -> None:
        server = tls_zookeeper_for_certified
        words = failure(server.hosts, only(server.client_context(), version))
        assert re.fullmatch(WANTS_CERTIFICATE, words)

    @each_version
    def test_a_client_certificate_of_a_stranger(
        self,
        tls_zookeeper_for_certified: SecureServer,
        authority: Authority,
        tmp_path: Path,
        version: ssl.TLSVersion,
    ) -> None:
        stranger = Authority(tmp_path, "stranger")
        context = only(stranger.client_context(stranger.sign("client")), version)
        context.load_verify_locations(authority.file)
        words = failure(tls_zookeeper_for_certified.hosts, context)
        assert words == (
            "TLS: the server does not accept the client certificate: certificate unknown"
        )

    @each_version
    def test_a_good_client_certificate(
        self, tls_zookeeper_for_certified: SecureServer, version: ssl.TLSVersion
    ) -> None:
        server = tls_zookeeper_for_certified
        with Client(server.hosts, tls=only(server.client_context("client"), version)) as client:
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
        assert found == {("x509", "CN=client"), ("ip", LOOPBACK)}

    def test_a_plain_client_at_the_tls_port(self, tls_zookeeper: SecureServer) -> None:
        assert failure(tls_zookeeper.hosts, None) == "the server closed it" + UNGREETED

    def test_a_tls_client_at_a_plain_port_of_netty(self, tls_zookeeper: SecureServer) -> None:
        words = failure(tls_zookeeper.server.hosts, tls_zookeeper.client_context())
        assert words == "TLS: the other side ended the connection; does it speak TLS?"

    def test_a_tls_client_at_an_ordinary_plain_port(
        self, sasl_zookeeper: SecureServer, trusting: ssl.SSLContext
    ) -> None:
        words = failure(sasl_zookeeper.server.hosts, trusting)
        # Which one the kernel tells first is a race.
        assert words in {
            "TLS: the other side ended the connection; does it speak TLS?",
            "TLS: Connection reset by peer",
        }


GARBAGE = {
    "text": b"220 mail.example ESMTP\r\n",
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(100),
    "noise": bytes(range(255, 0, -1)),
    "alert": b"\x15\x03\x03\0\x02\x02\x28",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_for_a_tls_handshake(kind: str, trusting: ssl.SSLContext) -> None:
    def talks(connection: Connection) -> None:
        connection.receive()
        connection.send(GARBAGE[kind])
        connection.wait_gone()

    with FakeServer(talks) as server:
        words = failure(server.hosts, trusting)
    print(words)
    assert words.startswith("TLS: ")
    if kind in {"text", "http", "zeros", "noise"}:
        assert words == "TLS: the other side does not speak TLS"
    if kind == "alert":
        assert words == (
            "TLS: the server refused: handshake failure; perhaps it wants a client certificate"
        )


def server_hello(hello: bytes, shown: Certificate) -> bytes:
    """What a TLS server answers to a client's first message."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(hello)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("end", ["FIN", "RST"])
def test_an_end_in_the_middle_of_the_tls_handshake(
    part: float, end: str, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    def leaves(connection: Connection) -> None:
        answer = server_hello(connection.receive(), shown)
        connection.send(answer[: round(len(answer) * part)])
        if end == "RST":
            connection.reset()

    with FakeServer(leaves) as server:
        words = failure(server.hosts, trusting)
    if end == "FIN" and part < 1:
        assert words == "TLS: the other side ended the connection; does it speak TLS?"
    elif end == "FIN":  # it was done, as far as the client could see
        assert words.partition(" before it greeted")[0] in {
            "the server closed it", "the server reset it",
        }  # fmt: skip
    else:
        assert words.partition(" before it greeted")[0] in {
            "TLS: Connection reset by peer", "the server reset it",
        }  # fmt: skip


def test_silence_in_the_tls_handshake(trusting: ssl.SSLContext) -> None:
    with FakeServer(silent) as server:
        words = failure(server.hosts, trusting, session_timeout=1.0)
    assert words == "no answer to the TLS handshake"


def test_a_silent_server_does_not_hide_a_good_one(
    trusting: ssl.SSLContext, shown: Certificate
) -> None:
    with (
        FakeServer(silent) as first,
        Server() as server,
        TlsFront(server.port, shown) as front,
    ):
        hosts = f"{first.hosts},{front.hosts}"
        for seed in range(4):  # in either order
            with (
                within(6.0),
                Client(hosts, tls=trusting, session_timeout=6.0, _seed=seed) as client,
            ):
                assert client.exists("/") is not None


def test_a_silent_address_does_not_hide_a_good_one(
    trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """Of one name, in one attempt."""
    with (
        FakeServer(silent) as mute,
        Server() as server,
        TlsFront(server.port, shown) as front,
    ):

        def resolver(*_: object) -> list[tuple[int, Any]]:
            return [(socket.AF_INET, (LOOPBACK, port)) for port in (mute.port, front.port)]

        for seed in range(10):  # each has an order of its own
            client = Client(
                "localhost:1", tls=trusting, session_timeout=6.0, _resolver=resolver, _seed=seed
            )
            with within(6.0), client:
                assert client.exists("/") is not None
            if mute.connections:
                break
        mute.wait_for(lambda: mute.connections[0].sock.fileno() == -1)


@pytest.mark.parametrize("behind", [False, True])
def test_an_interrupted_send_costs_nobody_anything(
    behind: bool, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """As without TLS: hazard E13."""
    with (
        Server() as server,
        TlsFront(server.port, shown) as front,
        Client(front.hosts, tls=trusting) as client,
    ):
        client.create("/a")
        link = client._driver.current_connection
        assert link is not None
        others: list[Any] = []

        def meanwhile() -> None:
            Background(lambda: others.append(client.pipeline.create("/b"))).result(PATIENCE)

        link._taken = Interrupting(behind, KeyboardInterrupt(), meanwhile)
        with pytest.raises(KeyboardInterrupt):
            client.set_data("/a", b"new")
        assert others[0].result(PATIENCE) == "/b"
        assert client.get_data("/a").data == b"new"
        assert client._driver.current_connection is link


def test_a_handshake_in_single_bytes(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """And everything behind it."""
    from zkwire.testing.proxy.proxy import split

    with (
        Server() as server,
        TlsFront(server.port, shown) as front,
        FaultProxy(upstream=front.hosts) as proxy,
    ):
        proxy.rule(lambda _: split)
        with Client(proxy.hosts, tls=trusting, session_timeout=LONG) as client:
            client.create("/a", bytes(2000))
            assert client.get_data("/a").data == bytes(2000)


@pytest.mark.parametrize("host", ["localhost", LOOPBACK])
def test_the_servers_name_is_told(host: str, trusting: ssl.SSLContext, shown: Certificate) -> None:
    with Server() as server, TlsFront(server.port, shown) as front:
        with Client(f"{host}:{front.port}", tls=trusting) as client:
            assert client.exists("/") is not None
        # An address is no name, and RFC 6066 does not allow to send it as one.
        assert front.names == ["localhost" if host == "localhost" else None]


def test_a_name_that_cannot_be_told(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """Only a resolver of one's own finds such a name; it must not cost more than the attempt."""
    with Server() as server, TlsFront(server.port, shown) as front:

        def resolver(_: str, port: int) -> list[tuple[int, Any]]:
            return [(socket.AF_INET, (LOOPBACK, port))]

        words = failure(f".x:{front.port}", trusting, _resolver=resolver)
    assert "TLS: " in words


# --- the end, forks and interrupts over TLS -------------------------------------------------------


def test_close_in_each_phase(trusting: ssl.SSLContext, shown: Certificate) -> None:
    with FakeServer(silent) as server, TlsFront(server.port, shown) as front:
        # Before anything, in the TLS handshake, in the session's.
        Client(server.hosts, tls=trusting).close()
        for hosts in (server.hosts, front.hosts):
            client = Client(hosts, tls=trusting)
            running = Background(client.connect)
            before = len(server.connections)
            server.wait_for(lambda before=before: len(server.connections) > before)  # type: ignore[misc]
            with within(CLOSE_BOUND):
                client.close()
            with pytest.raises(ClientClosedError):
                running.result()
            assert client.state is State.CLOSED
            assert not threads_of(client)


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

            workers = [Background(traffic) for _ in range(2)]
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
                other = Background(lambda: ask_until_answered(client, "/other"))
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
            other = Background(lambda: client.exists("/kept"))
            signal.pthread_kill(main, signal.SIGINT)
            return other

        interrupting = Background(interrupt)
        with within(PATIENCE), pytest.raises(KeyboardInterrupt):
            client.exists("/slow")
        answered.set()
        with suppress(ConnectionLossError):
            interrupting.result().result()
        assert client.exists("/kept") is not None
        assert len(server.sessions) == 1


# --- SASL -----------------------------------------------------------------------------------------


def refused(hosts: str, mechanism: Any, **options: Any) -> AuthFailedError:
    """The error of a client whose login fails, which must come at once."""
    states: list[State] = []
    client = Client(hosts, sasl=mechanism, session_timeout=LONG, **options)
    client.add_state_listener(states.append)
    with within(3.0), pytest.raises(AuthFailedError) as caught:
        client.connect()
    assert client.state is State.AUTH_FAILED
    with pytest.raises(AuthFailedError):
        client.exists("/")
    with within(CLOSE_BOUND):
        client.close()
    assert State.CONNECTED not in states
    assert not threads_of(client)
    return caught.value


class TestSasl:
    pytestmark = real

    @pytest.mark.parametrize("user", USERS)
    def test_a_good_password(
        self, sasl_zookeeper: SecureServer, user: str, fresh_path: str
    ) -> None:
        mechanism = DigestMD5(user, USERS[user])
        everything = [ACL(Perms.ALL, Id("sasl", user))]
        with Client(sasl_zookeeper.hosts, sasl=mechanism) as client:
            assert ("sasl", user) in {(who.auth_scheme, who.user) for who in client.who_am_i()}
            client.create(fresh_path, b"secret", acl=everything)
            assert client.get_data(fresh_path).data == b"secret"
            (stranger,) = set(USERS) - {user}
            others = DigestMD5(stranger, USERS[stranger])
            with (
                Client(sasl_zookeeper.hosts, sasl=others) as other,
                pytest.raises(NoAuthError),
            ):
                other.get_data(fresh_path)
            client.delete(fresh_path)

    def test_one_mechanism_serves_many_clients(self, sasl_zookeeper: SecureServer) -> None:
        mechanism = DigestMD5(*BOB)

        def log_in() -> None:
            with Client(sasl_zookeeper.hosts, sasl=mechanism) as client:
                assert client.exists("/") is not None

        for each in [Background(log_in) for _ in range(8)]:
            each.result()

    @pytest.mark.parametrize(("user", "password"), WRONG)
    def test_a_server_that_requires_it_refuses(
        self, sasl_zookeeper: SecureServer, user: str, password: str
    ) -> None:
        error = refused(sasl_zookeeper.hosts, DigestMD5(user, password))
        assert str(error) == REJECTED

    @pytest.mark.parametrize(("user", "password"), WRONG)
    def test_a_server_that_offers_it_refuses(
        self, tls_zookeeper: SecureServer, user: str, password: str
    ) -> None:
        error = refused(tls_zookeeper.server.hosts, DigestMD5(user, password))
        assert str(error) == REJECTED

    @pytest.mark.parametrize(("user", "password"), WRONG)
    def test_a_lenient_server_lets_nobody_in_unnoticed(
        self, sasl_zookeeper_lenient: SecureServer, user: str, password: str
    ) -> None:
        error = refused(sasl_zookeeper_lenient.hosts, DigestMD5(user, password))
        assert str(error) == "the server refused the user name or the password"

    def test_a_server_without_it(self, tls_zookeeper_for_certified: SecureServer) -> None:
        error = refused(tls_zookeeper_for_certified.server.hosts, DigestMD5(*BOB))
        assert str(error) == "the server sent no SASL challenge: SASL is not enabled there"

    def test_who_does_not_log_in_where_it_is_required(self, sasl_zookeeper: SecureServer) -> None:
        client = Client(sasl_zookeeper.hosts, session_timeout=LONG)
        client.connect()
        with within(3.0), pytest.raises(AuthFailedError) as caught:
            client.exists("/")
        print(caught.value)
        assert client.state is State.AUTH_FAILED
        client.close()

    @each_version
    @pytest.mark.parametrize("user", USERS)
    def test_inside_tls(
        self, tls_zookeeper: SecureServer, user: str, version: ssl.TLSVersion
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        mechanism = DigestMD5(user, USERS[user])
        with Client(tls_zookeeper.hosts, tls=context, sasl=mechanism) as client:
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
        assert found == {("sasl", user), ("ip", LOOPBACK)}

    def test_a_wrong_password_inside_tls(self, tls_zookeeper: SecureServer) -> None:
        context = tls_zookeeper.client_context()
        error = refused(tls_zookeeper.hosts, DigestMD5("bob", "wrong"), tls=context)
        assert str(error) == REJECTED

    def test_each_connection_logs_in_before_anything_else(
        self, sasl_zookeeper: SecureServer, fresh_path: str
    ) -> None:
        check_order(sasl_zookeeper.server.hosts, fresh_path)


OPENING = ["connect", "sasl", "sasl", "auth", "set_watches"]


def check_order(upstream: str, path: str) -> None:
    """Five connections, each lost in the midst of requests; the frames of each."""
    with (
        FaultProxy(upstream=upstream) as proxy,
        Client(
            proxy.hosts,
            sasl=DigestMD5(*BOB),
            auth=[("digest", b"ann:other")],
            session_timeout=LONG,
        ) as client,
    ):
        client.create(path)
        watch = Watch()
        client.get_data(path, watch=watch)
        session_id = client.session_id
        for _ in range(4):
            for number in range(20):
                client.pipeline.exists(f"{path}/{number}")
            proxy.cut_all()
            # These wait for the next connection.
            replies = [client.pipeline.exists(path) for _ in range(3)]
            for each in replies:
                with suppress(ConnectionLossError):
                    assert each.result(PATIENCE) is not None
            settled(client)
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
            assert ("sasl", "bob") in found
            assert "digest" in {scheme for scheme, _ in found}
        assert client.session_id == session_id
        client.set_data(path, b"")
        assert watch.wait(PATIENCE) is not None
        client.delete(path)
        frames = [frame for frame in proxy.frames() if frame.direction == "c2s"]
    sent = [[f.op for f in frames if f.connection == n] for n in range(5)]
    assert sent[0][:4] == OPENING[:4]
    for ops in sent[1:]:
        assert ops[: len(OPENING)] == OPENING
        assert "sasl" not in ops[3:]


# --- SASL, with servers of this process -----------------------------------------------------------


@contextmanager
def sasl_server(**options: Any) -> Iterator[Server]:
    with Server(sasl_users=USERS, enforce_auth=("sasl",), **options) as server:
        yield server


def test_the_order_at_the_embedded_server() -> None:
    with sasl_server() as server:
        check_order(server.hosts, "/a")


@pytest.mark.parametrize("password", ["wrong horse", "\u5f20"])
def test_the_embedded_server_refuses(password: str) -> None:
    with sasl_server() as server:
        error = refused(server.hosts, DigestMD5("bob", password))
    assert str(error) == REJECTED


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


def test_no_ping_comes_before_the_login() -> None:
    """The challenge comes late: a ping would be due, and the server would end the connection."""
    now, gate = Time(), Gate()
    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        proxy.on("sasl", action=hold(gate), reply=True)
        client = Client(proxy.hosts, sasl=DigestMD5(*BOB), session_timeout=30, _now=now)
        connecting = Background(client.connect)
        gate.wait_reached()
        now.jump(client, 12.0)
        gate.release()
        connecting.result()
        assert client.exists("/") is not None
        ops = [frame.op for frame in proxy.frames() if frame.direction == "c2s"]
        client.close()
    assert ops[:3] == OPENING[:3]
    assert "ping" not in ops[:3]


class Custom:
    """A mechanism of a user's."""

    def __init__(self, exchange: Callable[[str], Any]) -> None:
        self.exchange = exchange


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What was reported as an unhandled exception of a thread is."""
    found: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(args.exc_value))
    return found


def test_a_mechanism_that_raises(reported: list[BaseException]) -> None:
    problem = LookupError("no ticket")

    def at_once(host: str) -> Generator[bytes, bytes, None]:
        raise problem
        yield b""

    def later(host: str) -> Generator[bytes, bytes, None]:
        yield b""
        raise problem

    def refuses(host: str) -> Generator[bytes, bytes, None]:
        yield b""
        raise AuthFailedError("not this server")

    def no_generator(host: str) -> Any:
        raise problem

    with sasl_server() as server:
        for exchange in (at_once, later, no_generator):
            error = refused(server.hosts, Custom(exchange))
            assert "no ticket" in str(error)
            assert reported.pop() is problem
        assert str(refused(server.hosts, Custom(refuses))) == "not this server"
        assert reported == []  # that is no mistake, and whoever calls is told


@pytest.mark.parametrize("token", ["text", None, 7, bytearray(b"x")], ids=repr)
def test_a_mechanism_that_yields_no_bytes(token: Any, reported: list[BaseException]) -> None:
    def exchange(host: str) -> Any:
        yield token

    with sasl_server() as server:
        error = refused(server.hosts, Custom(exchange))
    kind = type(token).__name__
    assert str(error) == f"the SASL mechanism failed: a SASL token must be bytes, not {kind}"
    assert [type(each) for each in reported] == [TypeError]


@pytest.mark.parametrize("made", [None, 7, b""], ids=repr)
def test_a_mechanism_without_a_generator(made: Any, reported: list[BaseException]) -> None:
    with sasl_server() as server:
        error = refused(server.hosts, Custom(lambda host: made))
    assert "not an iterator" in str(error)
    assert len(reported) == 1


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_mechanism_that_is_satisfied_early(tokens: int) -> None:
    """It decides; what the server thinks of it shows in what the client may do."""

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        for _ in range(tokens):
            yield b""

    with Server(sasl_users=USERS) as server, Client(server.hosts, sasl=Custom(exchange)) as client:
        assert [who.auth_scheme for who in client.who_am_i()] == ["ip"]
    with sasl_server() as server:
        client = Client(server.hosts, sasl=Custom(exchange))
        with within(3.0), pytest.raises(AuthFailedError):
            client.exists("/")
        client.close()


def test_a_mechanism_is_told_the_host() -> None:
    hosts: SimpleQueue[str] = SimpleQueue()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        hosts.put(host)
        return DigestMD5(*BOB).exchange(host)

    with (
        sasl_server() as server,
        Client(f"localhost:{server.port}", sasl=Custom(exchange)) as client,
    ):
        assert client.exists("/") is not None
    assert hosts.get_nowait() == "localhost"
    assert hosts.empty()


def test_a_mechanism_that_takes_long() -> None:
    """Longer than the attempt may: that one is given up, and the next one is made."""
    now, thinking, go_on = Time(), threading.Event(), threading.Event()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        thinking.set()
        assert go_on.wait(PATIENCE)
        return (yield from DigestMD5(*BOB).exchange(host))

    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        client = Client(proxy.hosts, sasl=Custom(exchange), session_timeout=30, _now=now)
        with within(1.0), pytest.raises(NotSentError):
            client.connect(0.2)
        assert thinking.wait(PATIENCE)
        now._ahead += 21.0  # more than two thirds of the session timeout
        go_on.set()
        client.connect(40.0)
        assert client.exists("/") is not None
        assert {frame.connection for frame in proxy.frames()} == {0, 1}
        client.close()


def test_close_does_not_wait_for_a_mechanism() -> None:
    thinking, go_on = threading.Event(), threading.Event()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        thinking.set()
        assert go_on.wait(PATIENCE)
        yield b""

    with sasl_server() as server:
        client = Client(server.hosts, sasl=Custom(exchange))
        connecting = Background(lambda: client.connect(PATIENCE))
        assert thinking.wait(PATIENCE)
        with within(CLOSE_BOUND + 0.5):
            client.close()
        go_on.set()
        # Or it was connected, or rejected for its empty token, in the moment of the close.
        with suppress(ClientClosedError, AuthFailedError):
            connecting.result()
        thread = client._driver.thread
        assert thread is not None
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_mechanism_begins_anew_with_each_connection() -> None:
    begun = 0
    closed = threading.Event()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        nonlocal begun
        begun += 1
        if begun > 1:
            return (yield from DigestMD5(*BOB).exchange(host))
        try:
            yield b""
        finally:
            closed.set()

    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        proxy.on("sasl", action=cut_before, reply=True)
        with Client(proxy.hosts, sasl=Custom(exchange), session_timeout=LONG) as client:
            assert client.exists("/") is not None
        assert closed.is_set()
    assert begun == 2


CHALLENGE = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'
PROOFS = {
    b"rspauth=" + b"0" * 32: "the server's proof that it knows the password is wrong",
    b"rspauth=": "the server's SASL answer is garbage",
    b"hello=1": "the server gave no proof that it knows the password",
    b"\xff\0": "the server's SASL answer is garbage",
    b"": "the server refused the user name or the password",
}


@pytest.mark.parametrize("proof", PROOFS, ids=repr)
def test_a_server_that_does_not_know_the_password(proof: bytes) -> None:
    seen: list[str] = []

    def pretends(connection: Connection) -> None:
        connection.greet()
        for answer in (CHALLENGE, proof):
            request = connection.request()
            seen.append(request.op)
            connection.send(reply(request.xid, r.SetSASLResponse(answer), zxid=0))
        connection.wait_gone()

    with FakeServer(pretends) as server:
        error = refused(server.hosts, DigestMD5(*BOB))
        assert len(server.connections) == 1  # and does not come back
    assert str(error) == PROOFS[proof]
    assert seen == ["sasl", "sasl"]


@pytest.mark.parametrize(
    "answer",
    [
        reply(77, r.SetSASLResponse(CHALLENGE)),  # to something that was not asked
        reply(1),  # without a body
        struct.pack(">i", 3) + b"abc",
        reply(1, error=-5),  # a fault of the server's, which says nothing of the password
    ],
    ids=["xid", "no body", "no header", "error"],
)
def test_garbage_in_the_login_costs_the_connection_only(answer: bytes) -> None:
    def garbles(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(answer)
        connection.wait_gone()

    def knows(connection: Connection) -> None:
        connection.greet()
        request = connection.request()
        connection.send(reply(request.xid, error=-115))
        connection.wait_gone()

    with FakeServer(garbles, knows) as server:
        error = refused(server.hosts, DigestMD5(*BOB))
        assert len(server.connections) == 2
    assert str(error) == REJECTED


def last_words(client: Client) -> list[str]:
    """All that can be shown of the error that ends a session."""
    with pytest.raises(AuthFailedError) as caught:
        client.connect()
    error = caught.value
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    linked = [str(error.__context__), str(error.__cause__)]
    return [str(error), repr(error), repr(error.__dict__), *linked, *shown.format()]


def test_the_password_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    secret = "Tr0ub4dor&3-\u00e4"
    caplog.set_level(logging.DEBUG)
    traced: list[Any] = []
    told: list[str] = []
    with (
        Server(sasl_users={"bob": secret}) as server,
        Server(sasl_users={"bob": "another"}) as strange,
        Server() as without,
    ):
        for hosts in (server.hosts, strange.hosts, without.hosts):
            mechanism = DigestMD5("bob", secret)
            client = Client(hosts, sasl=mechanism, trace=traced.append, session_timeout=LONG)
            if hosts == server.hosts:
                assert client.exists("/") is not None
            else:
                told += last_words(client)
            told += [repr(client), repr(mechanism), str(mechanism)]
            client.close()
    told += [*map(repr, traced), caplog.text]
    assert sum("-115" in each for each in told) >= 2
    assert any("sasl" in repr(frame) for frame in traced)
    for each in told:
        assert "Tr0ub4dor" not in each


def test_a_login_that_is_cut_anywhere_goes_on_with_the_next_connection() -> None:
    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        for reply_to in (False, True):
            for nth in (1, 2):
                proxy.on("sasl", nth=nth, action=rst_before, reply=reply_to)
                with (
                    within(3.0),
                    Client(proxy.hosts, sasl=DigestMD5(*BOB), session_timeout=LONG) as client,
                ):
                    assert client.exists("/") is not None
                proxy.clear()
