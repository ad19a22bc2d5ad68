"""Clients that follow the ensemble's configuration: which servers they try from then on."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, within
from tests.support.hooks import hooked
from tests.support.installed_servers import LOOPBACK, InstalledBackend, InstalledServer
from tests.support.secure_servers import available, installed_backend
from tests.support.server_control import Ensemble, Settings, ZooKeeperServer, free_port, poll
from zkwire import Client, ConnectionLossError, NoAuthError, State, Watch
from zkwire import testing as embedded
from zkwire.session.hosts import parse_hosts
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import Frame, cut_after, cut_before, rewrite
from zkwire.wire.paths import CONFIG_NODE

LONG = 20.0


def follows(client: Client, *hosts: str) -> None:
    """Wait until the client would try exactly these servers; the client has no event for it."""
    wanted = sorted(parse_hosts(",".join(hosts))[0])
    found = client._session.hosts
    poll("the list is taken over", lambda: sorted(found._hosts) == wanted or None, PATIENCE)


def following(hosts: str, **options: Any) -> AbstractContextManager[Client]:
    return hooked(Client)(hosts, follow_reconfig=True, session_timeout=LONG, **options)


class Reads:
    """Knows when the client has had answers to its reads of the configuration.

    What the client made of an answer is done: `wait` returns after a turn of its thread.
    """

    def __init__(self) -> None:
        self._answers = threading.Semaphore(0)

    def trace(self, frame: Any) -> None:
        if frame.path == CONFIG_NODE and not frame.sent:
            self._answers.release()

    def wait(self, client: Client) -> None:
        assert self._answers.acquire(timeout=PATIENCE)
        for _ in range(2):
            turned = threading.Event()
            client._driver.call_soon(turned.set)
            assert turned.wait(PATIENCE)


@contextmanager
def having_read(hosts: str) -> Iterator[Client]:
    """A client that follows, and has had its first answer."""
    reads = Reads()
    with following(hosts, trace=reads.trace) as client:
        reads.wait(client)
        yield client


def again(call: Callable[[], Any]) -> Any:
    """Repeat what a lost connection has ended."""
    for _ in range(100):
        with suppress(ConnectionLossError):
            return call()
    raise AssertionError("the connection breaks every time")


def config(*hosts: str) -> bytes:
    """A configuration with these servers."""
    lines = [
        f"server.{number}={LOOPBACK}:2888:3888:participant;{host}"
        for number, host in enumerate(hosts, 1)
    ]
    return "\n".join([*lines, "version=100000000"]).encode()


class Doors:
    """An embedded ensemble, and a proxy in front of each member: what was tried shows there."""

    def __init__(self, exit_stack: ExitStack) -> None:
        self.ensemble = exit_stack.enter_context(embedded.Ensemble(3))
        self.proxies = [
            exit_stack.enter_context(FaultProxy(upstream=server.hosts))
            for server in self.ensemble.servers
        ]
        self.hosts = [proxy.hosts for proxy in self.proxies]

    def tried(self) -> list[int]:
        """How many connections have come to each door."""
        return [
            len({f.connection for f in proxy.frames() if f.op == "connect"})
            for proxy in self.proxies
        ]


@pytest.fixture
def doors() -> Iterator[Doors]:
    with ExitStack() as stack:
        yield Doors(stack)


# --- embedded servers -----------------------------------------------------------------------------


def test_the_list_is_read_at_the_first_connection() -> None:
    with embedded.Ensemble(3) as ensemble, following(ensemble.servers[0].hosts) as client:
        follows(client, ensemble.hosts)
        client.create("/mine", ephemeral=True)
        session_id = client.session_id
        ensemble.servers[0].stop()  # the only one that it was told of
        with within(PATIENCE):
            assert again(partial(client.exists, "/mine")) is not None
        assert client.session_id == session_id
        assert ensemble.server_for_session(session_id) in ensemble.servers[1:]


def test_who_does_not_ask_for_it_keeps_the_list() -> None:
    with embedded.Ensemble(3) as ensemble:
        hosts = ensemble.servers[0].hosts
        with Client(hosts, session_timeout=LONG) as client:
            watch = Watch()
            client.get_config(watch=watch)
            ensemble.set_config(config(ensemble.servers[1].hosts))
            assert watch.wait(PATIENCE) is not None
            client.sync()
            follows(client, hosts)


def test_a_change_moves_the_next_connection_and_not_this_one(doors: Doors) -> None:
    doors.ensemble.set_config(config(doors.hosts[0]))
    with following(doors.hosts[0]) as client:
        session_id = client.session_id
        for here, there in ((0, 1), (1, 2), (2, 0), (0, 1)):  # each change, not just the first
            doors.ensemble.set_config(config(doors.hosts[there]))
            follows(client, doors.hosts[there])
            client.sync()
            before = doors.tried()
            assert doors.proxies[here].connections == 1  # it stays where it is
            doors.proxies[here].cut_all()
            assert again(client.sync) is None
            assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
            before[there] += 1
            assert doors.tried() == before
        assert client.session_id == session_id


@pytest.mark.parametrize("action", [cut_before, cut_after])
@pytest.mark.parametrize("reply", [False, True])
def test_a_read_that_is_lost_is_repeated_below_a_chroot_too(
    doors: Doors, action: Any, reply: bool
) -> None:
    with Client(doors.hosts[0]) as maker:
        maker.create("/root")
    doors.ensemble.set_config(config(*doors.hosts))
    doors.proxies[0].on("get_data", action=action, reply=reply)
    with following(f"{doors.hosts[0]}/root") as client:
        follows(client, *doors.hosts)
        doors.ensemble.set_config(config(*doors.hosts[:2]))
        follows(client, *doors.hosts[:2])


NOTHING_TO_FOLLOW = {
    "empty": b"",
    # What a server that joins an ensemble without them makes of it: the others are still there.
    "one address for clients": (
        b"server.1=127.0.0.1:2888:3888:participant\n"
        b"server.2=127.0.0.1:2889:3889:participant;127.0.0.1:1\nversion=0"
    ),
    "garbage": bytes(range(256)),
    "bad ports": b"server.1=h:2888:3888:participant;h:99999999\nserver.2=h:1:2;x:y",
}


@pytest.mark.parametrize("kind", NOTHING_TO_FOLLOW)
def test_a_configuration_that_says_nothing_changes_nothing(kind: str) -> None:
    with embedded.Ensemble(2) as ensemble:
        ensemble.set_config(NOTHING_TO_FOLLOW[kind])
        with having_read(ensemble.hosts) as client:
            follows(client, ensemble.hosts)
            ensemble.cut_all()
            again(client.sync)
            # And it is still looked at: the next one may say more.
            ensemble.set_config(config(ensemble.servers[1].hosts))
            follows(client, ensemble.servers[1].hosts)


@pytest.mark.parametrize("code", [-101, -102, -6, "3.4"])
def test_a_configuration_that_cannot_be_read_is_no_harm(code: int | str) -> None:
    with embedded.Server(version="3.4" if code == "3.4" else "3.9") as server:
        if isinstance(code, int):
            server.refuse_next("get_data", code, close=False)
        with having_read(server.hosts) as client:
            client.create("/a")
            server.cut_all()
            assert again(partial(client.exists, "/a")) is not None
            follows(client, server.hosts)


@pytest.mark.parametrize("code", [-122, -127])
def test_a_busy_server_is_asked_again(code: int) -> None:
    with embedded.Server() as server:
        server.set_config(config("127.0.0.1:7777"))
        server.refuse_next("get_data", code)
        with following(server.hosts) as client:
            follows(client, "127.0.0.1:7777")


# --- real servers ---------------------------------------------------------------------------------


@pytest.mark.real
def test_a_real_server_on_its_own_has_an_empty_configuration(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    with FaultProxy(upstream=zookeeper.hosts) as proxy, having_read(proxy.hosts) as client:
        follows(client, proxy.hosts)
        client.create(fresh_path, ephemeral=True)
        proxy.cut_all()
        assert again(partial(client.exists, fresh_path)) is not None


RECONFIGURABLE = Settings(options={"reconfigEnabled": "true", "skipACL": "yes"})


@contextmanager
def reconfigurable(count: int) -> Iterator[Ensemble]:
    """An ensemble whose configuration names each server's address for clients."""
    with available():
        backend = installed_backend()
    assert isinstance(backend, InstalledBackend)
    ports = [free_port() for _ in range(count)]
    members = {
        f"server.{n}": f"{LOOPBACK}:{free_port()}:{free_port()}:participant;{LOOPBACK}:{port}"
        for n, port in enumerate(ports, 1)
    }
    command = backend._command(RECONFIGURABLE)
    options = {**members, **RECONFIGURABLE.config()}
    servers = [InstalledServer(command, port, n, options) for n, port in enumerate(ports, 1)]
    with Ensemble(servers) as ensemble:
        ensemble.start()
        yield ensemble


@pytest.mark.since("3.5")
@pytest.mark.real
@pytest.mark.apache
def test_a_real_reconfiguration(fresh_path: str) -> None:
    with reconfigurable(3) as ensemble:
        leader = ensemble.leader()
        leaving, staying = (server for server in ensemble.servers if server is not leader)
        number = ensemble.servers.index(leaving) + 1
        with (
            following(leaving.hosts) as client,
            Client(leader.hosts, session_timeout=LONG) as admin,
        ):
            follows(client, ensemble.hosts)
            client.create(fresh_path, ephemeral=True)
            session_id = client.session_id
            lines = admin.get_config().data.decode().splitlines()
            line = next(line for line in lines if line.startswith(f"server.{number}="))
            admin.reconfig(leaving=[str(number)])
            # The one that has left may close its connections at once, or go on for a while.
            follows(client, leader.hosts, staying.hosts)
            leaving.kill()
            assert again(partial(client.exists, fresh_path)) is not None
            assert client.session_id == session_id
            assert ensemble.server_for_session(session_id) in {leader, staying}
            leaving.start(wait=False)
            again(partial(admin.reconfig, joining=[line]))
            follows(client, ensemble.hosts)
            assert again(partial(client.exists, fresh_path)) is not None


@pytest.mark.since("3.5")
@pytest.mark.real
@pytest.mark.apache
def test_a_server_joins_an_ensemble_that_does_not_tell_its_addresses() -> None:
    """Those in `clientPort` are not in the configuration, and yet clients must not leave them."""
    reads = Reads()
    with (
        available(),
        installed_backend().ensemble(RECONFIGURABLE) as ensemble,
        Client(ensemble.hosts, session_timeout=LONG) as admin,
        following(ensemble.hosts, trace=reads.trace) as client,
    ):
        reads.wait(client)
        newcomer = f"{LOOPBACK}:{free_port()}:{free_port()}:observer;{LOOPBACK}:{free_port()}"
        admin.reconfig(joining=[f"server.4={newcomer}"])
        reads.wait(client)
        follows(client, ensemble.hosts)


@pytest.mark.real
@pytest.mark.apache
def test_a_real_configuration_that_may_not_be_read(zookeeper: ZooKeeperServer) -> None:
    """Only whoever may do everything there could change its ACL; so a proxy plays that part."""

    def refused(raw: bytes) -> bytes:
        return struct.pack(">i", 16) + raw[4:8] + struct.pack(">qi", 1, NoAuthError.code)

    def rule(frame: Frame) -> Any:
        about = frame.request is not None and frame.request.path == CONFIG_NODE
        return rewrite(refused) if about else None

    with FaultProxy(upstream=zookeeper.hosts) as proxy:
        proxy.rule(rule)
        with having_read(proxy.hosts) as client:
            assert client.exists("/") is not None
            follows(client, proxy.hosts)
