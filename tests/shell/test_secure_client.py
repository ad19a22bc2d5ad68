"""The client over TLS: its everyday work, lost connections, forks, interrupts and the end.

Against real servers (`tests/support/secure_servers.py`) wherever they can do it; what they cannot,
a server in this process does.
"""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import struct
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from queue import SimpleQueue
from typing import Any

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
from tests.support.certificates import Authority, Certificate
from tests.support.fake_server import FakeServer, Node, echo, serve, silent
from tests.support.installed_servers import LOOPBACK
from tests.support.lock_helpers import Running, make_path
from tests.support.secure_servers import SecureServer
from tests.support.server_control import poll
from zkwire import (
    Client,
    ClientClosedError,
    Create,
    EventType,
    ForkedError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SetData,
    State,
    Watch,
)
from zkwire.net.connection import INTERRUPTED
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Action, cut_before, rst_before
from zkwire.testing.server.tls import make_context

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


def settled(client: Client) -> None:
    """Wait until the client is connected again, if it is not."""
    assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE) is State.CONNECTED


def type_of_next(watch: Watch) -> EventType | int:
    event = watch.wait(PATIENCE)
    assert event is not None
    return event.type


@contextmanager
def proxied(
    server: SecureServer, context: ssl.SSLContext | None = None
) -> Iterator[tuple[FaultProxy, Client, Client]]:
    """A client over TLS behind a proxy, and one that no fault is to hit."""
    tls = context or server.client_context()
    with (
        FaultProxy(upstream=server.hosts) as proxy,
        Client(proxy.hosts, tls=tls, session_timeout=LONG) as client,
        Client(server.server.hosts) as observer,
    ):
        yield proxy, client, observer


class TestOverTls:
    pytestmark = real

    @pytest.mark.since("3.7")
    @each_version
    def test_operations(
        self, tls_zookeeper: SecureServer, version: ssl.TLSVersion, fresh_path: str
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        plain = tls_zookeeper.server.hosts
        with Client(tls_zookeeper.hosts, tls=context) as client, Client(plain) as other:
            node = f"{fresh_path}/node"
            client.create(fresh_path, b"one")
            assert client.create(node, b"two", ephemeral=True) == node
            assert client.get_children(fresh_path) == ["node"]
            results = client.multi([Create(f"{node}s"), SetData(fresh_path, b"four")])
            assert results[0] == f"{node}s"
            client.sync(fresh_path)
            assert client.get_data(fresh_path).data == b"four"
            with pytest.raises(NoNodeError):
                client.get_data(f"{fresh_path}/none")
            assert [who.auth_scheme for who in client.who_am_i()] == ["ip"]
            called: SimpleQueue[Any] = SimpleQueue()
            for number in range(20):  # events while nobody waits for a reply
                client.get_data(fresh_path, watch=called.put)
                other.set_data(fresh_path, b"%d" % number)
                assert called.get(timeout=PATIENCE).type is EventType.NODE_DATA_CHANGED
            gone = Watch()
            assert other.exists(node, watch=gone) is not None
            with within(CLOSE_BOUND):
                client.close()
            assert type_of_next(gone) is EventType.NODE_DELETED
        all_ended(name_of(client))

    @each_version
    def test_floods_of_large_and_of_small_requests(
        self, tls_zookeeper: SecureServer, version: ssl.TLSVersion, fresh_path: str
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        with Client(tls_zookeeper.hosts, tls=context, session_timeout=LONG) as client:
            client.create(fresh_path)
            send = client.pipeline
            data = [os.urandom(MEGABYTE) for _ in range(12)]  # in both directions at once
            pairs = [(send.set_data(fresh_path, d), send.get_data(fresh_path)) for d in data]
            for number, (written, read) in enumerate(pairs):
                assert written.result().version == number + 1
                assert read.result().data == data[number]
            paths = [f"{fresh_path}/{n}" for n in range(5000)]
            made = [send.create(path) for path in paths]
            there = [send.exists(path) for path in paths]
            assert [each.result() for each in made] == paths
            zxids = [stat.czxid for each in there if (stat := each.result()) is not None]
            assert len(zxids) == 5000
            assert zxids == sorted(zxids)
            client.delete_tree(fresh_path)

    def test_many_threads(self, tls_zookeeper: SecureServer, fresh_path: str) -> None:
        context = tls_zookeeper.client_context()
        with Client(tls_zookeeper.hosts, tls=context, session_timeout=LONG) as client:
            client.create(fresh_path)

            def work(number: int) -> None:
                mine = f"{fresh_path}/{number}"
                client.create(mine)
                for n in range(100):
                    data = b"%d-%d" % (number, n) + bytes(n * 37)
                    written = client.pipeline.set_data(mine, data)
                    assert client.get_data(mine).data == data
                    assert written.result().version == n + 1

            for worker in [Running(lambda n=n: work(n)) for n in range(12)]:  # type: ignore[misc]
                worker.result(60.0)
            client.delete_tree(fresh_path)

    @each_version
    @pytest.mark.parametrize("how", ["cut_all", "reset_all"])
    def test_a_broken_connection_is_replaced(
        self, tls_zookeeper: SecureServer, fresh_path: str, version: ssl.TLSVersion, how: str
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        with proxied(tls_zookeeper, context) as (proxy, client, observer):
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
                assert type_of_next(changed) is EventType.NODE_DATA_CHANGED
                assert type_of_next(lasting) is EventType.REREAD
                data, stat = client.get_data(fresh_path)
                assert (data, stat.ephemeral_owner) == (b"%d" % number, session_id)
                lasting.close()
            assert client.session_id == session_id

    @pytest.mark.parametrize("action", [cut_before, rst_before], ids=["FIN", "RST"])
    @pytest.mark.parametrize("direction", ["c2s", "s2c"])
    def test_no_outcome_is_wrong(
        self, tls_zookeeper: SecureServer, fresh_path: str, direction: str, action: Action
    ) -> None:
        """The n-th piece of a flood of creates is stopped, whatever part of a record it ends in."""
        counts: Counter[str] = Counter()
        with proxied(tls_zookeeper) as (proxy, client, observer):
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
        assert counts["unknown"]
        assert counts["success"]

    def test_what_the_kernel_never_took_was_not_sent(
        self, tls_zookeeper: SecureServer, fresh_path: str
    ) -> None:
        with proxied(tls_zookeeper) as (proxy, client, observer):
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
            assert [ended for ended, _ in groupby(ends)] == ["unknown", "not sent"]
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
        seen.append(struct.unpack("q", acknowledged)[0] + struct.unpack("i", waiting)[0])
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


# --- with servers of this process -----------------------------------------------------------------


def test_an_idle_session_lives(trusting: ssl.SSLContext, shown: Certificate) -> None:
    pongs = threading.Semaphore(0)

    def trace(frame: Any) -> None:
        if frame.op == "ping" and not frame.sent:
            pongs.release()

    with (
        Server(tls=shown.server_context(), tick=0.1, timeouts=(0.1, LONG)) as server,
        Client(server.hosts, tls=trusting, session_timeout=1.5, trace=trace) as client,
    ):
        session_id, states = client.session_id, list[State]()
        client.add_state_listener(states.append)
        for _ in range(4):  # for longer than the session timeout
            assert pongs.acquire(timeout=PATIENCE)
        assert client.exists("/") is not None
        assert (client.session_id, states) == (session_id, [])


def test_close_in_each_phase(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """Before anything, in the TLS handshake, in the session's."""
    Client("127.0.0.1:1", tls=trusting).close()
    for context in (None, shown.server_context()):
        with FakeServer(silent, tls=context) as server:
            client = Client(server.hosts, tls=trusting)
            running = Running(client.connect)
            server.wait_for(lambda server=server: server.connections)  # type: ignore[misc]
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
    with FakeServer(tls=shown.server_context()) as server:
        with Client(server.hosts, tls=trusting, session_timeout=LONG) as client:
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
    with FakeServer(serve) as plain, FakeServer(serve, tls=shown.server_context()) as server:
        named = f"server.1=127.0.0.1:2888:3888:participant;{plain.hosts}\nversion=100"
        server.nodes["/zookeeper/config"] = Node(named.encode(), 1)
        with Client(
            server.hosts, tls=trusting, follow_reconfig=True, session_timeout=2.0
        ) as client:
            client.connect()
            both = {(LOOPBACK, server.port), (LOOPBACK, plain.port)}
            poll("it follows", lambda: set(client._session.hosts._hosts) == both or None, PATIENCE)
            for _ in range(3):
                server.reset_all()
                again(client.sync)


def test_an_interrupt_anywhere_in_a_call(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """The next calls, of this thread and of another, are answered with their own answers."""
    with (
        FakeServer(echo, tls=shown.server_context()) as server,
        Client(server.hosts, tls=trusting, session_timeout=LONG) as client,
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


def test_a_certificate_that_is_loaded_again_is_for_the_next_connection(
    authority: Authority, shown: Certificate
) -> None:
    old, new = authority.sign("old-name"), authority.sign("new-name")
    tls = authority.client_context()
    tls.load_cert_chain(old.both)
    wanting = make_context(str(shown.both), None, str(authority.file), optional=False)
    with (
        Server(tls=wanting) as server,
        FaultProxy(server.hosts) as proxy,
        Client(proxy.hosts, tls=tls, session_timeout=LONG) as client,
    ):
        session = client.session_id

        def name() -> str:
            return next(info.user for info in client.who_am_i() if info.auth_scheme == "x509")

        def reconnect() -> None:
            proxy.refuse()
            proxy.cut_all()
            assert client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
            proxy.refuse(False)
            client.connect(PATIENCE)

        old.both.write_bytes(new.both.read_bytes())
        reconnect()
        assert "old-name" in name()
        tls.load_cert_chain(old.both)
        assert "old-name" in name()
        reconnect()
        assert "new-name" in name()
        assert client.session_id == session


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
