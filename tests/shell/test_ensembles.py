"""Clients of an ensemble: they follow its configuration, and read where its quorum is lost."""

from __future__ import annotations

# --- following the configuration ------------------------------------------------------------------
import faulthandler
import random
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.interop import chaos, chaos_faults
from tests.interop.chaos_workers import KINDS
from tests.shell.test_client import PATIENCE
from tests.shell.test_secure_client import failure
from tests.support.both_clients import again
from tests.support.certificates import Certificate
from tests.support.fake_server import FakeServer, silent
from tests.support.hooks import Clock, hooked
from tests.support.installed_servers import LOOPBACK, InstalledBackend, InstalledServer
from tests.support.secure_servers import available, installed_backend
from tests.support.server_control import (
    Backend,
    Ensemble,
    NoBackendError,
    Settings,
    free_port,
    poll,
)
from zkwire import (
    Client,
    Create,
    EventType,
    GetData,
    NoAuthError,
    NoNodeError,
    NotReadOnlyError,
    State,
    Watch,
)
from zkwire import testing as embedded
from zkwire.session.hosts import HostList, parse_hosts
from zkwire.session.outcomes import UNGREETED
from zkwire.testing import FaultProxy
from zkwire.wire.paths import CONFIG_NODE

LONG = 30.0


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
            again(client.sync)
            assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
            before[there] += 1
            assert doors.tried() == before
        assert client.session_id == session_id


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


def test_a_configuration_that_may_not_be_read_is_let_be() -> None:
    with embedded.Server() as server:
        server.refuse_next("get_data", NoAuthError.code)
        with having_read(server.hosts) as client:
            assert client.exists("/") is not None
            follows(client, server.hosts)


@pytest.mark.parametrize("code", [-122, -127])
def test_a_busy_server_is_asked_again(code: int) -> None:
    with embedded.Server() as server:
        server.set_config(config("127.0.0.1:7777"))
        server.refuse_next("get_data", code)
        with following(server.hosts) as client:
            follows(client, "127.0.0.1:7777")


# --- real servers ---------------------------------------------------------------------------------


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
    command = backend.command(RECONFIGURABLE)
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


# --- servers that have lost the ensemble ----------------------------------------------------------

RO, RW = State.CONNECTED_READ_ONLY, State.CONNECTED
TO_THE_BETTER = [State.DISCONNECTED, State.CONNECTING, State.HANDSHAKE, RW]
# Real servers notice the loss of a quorum, and elect a leader, within that.
ELECTION = 30.0


def assert_reads_only(client: Client, path: str) -> None:
    """``path`` is there, with the data b"kept"."""
    assert client.state is RO
    assert client.get_data(path).data == b"kept"
    assert client.get_children(path) == []
    assert client.exists(f"{path}/none") is None
    assert client.multi_read([GetData(path)])[0].data == b"kept"
    assert client.who_am_i()
    with pytest.raises(NoNodeError):
        client.get_data(f"{path}/none")
    writes: list[Callable[[], object]] = [
        lambda: client.create(f"{path}/new"),
        lambda: client.create(f"{path}/new", ephemeral=True),
        lambda: client.delete(path),
        lambda: client.set_data(path, b"changed"),
        lambda: client.multi([Create(f"{path}/new")]),
        lambda: client.sync(path),
    ]
    for write in writes:
        with pytest.raises(NotReadOnlyError):
            write()
    assert client.state is RO
    assert client.get_data(path).data == b"kept"


class Shaken:
    """Tells when the client has tried a server, and in which states it has been."""

    def __init__(self, client: Client) -> None:
        self.states: list[State] = []
        self._handshakes = threading.Semaphore(0)
        client.add_state_listener(self)

    def __call__(self, state: State) -> None:
        self.states.append(state)
        if state is State.HANDSHAKE:
            self._handshakes.release()

    def wait(self, times: int) -> None:
        """The client is turned away, and comes again, so many times from now on."""
        while self._handshakes.acquire(blocking=False):
            pass
        for _ in range(times):
            assert self._handshakes.acquire(timeout=PATIENCE)


def assert_same_session(client: Client, session_id: int, path: str, shaken: Shaken) -> None:
    assert client.wait_for_state(RW, timeout=ELECTION) is RW
    assert client.session_id == session_id
    stat = client.exists(path)
    assert stat is not None
    assert stat.ephemeral_owner == session_id
    assert not {RO, State.EXPIRED} & {*shaken.states}


def types(*watches: Watch) -> list[Any]:
    events = [watch.wait(PATIENCE) for watch in watches]
    return [event and event.type for event in events]


# --- real servers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torn_ensemble(backend: Backend) -> Iterator[Ensemble]:
    settings = Settings(
        options={"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"},
        java_flags=("-Dreadonlymode.enabled=true",),
    )
    try:
        ensemble = backend.ensemble(settings)
    except NoBackendError as error:
        unavailable(str(error))
    with ensemble:
        yield ensemble


@pytest.fixture
def restored(torn_ensemble: Ensemble) -> Iterator[Ensemble]:
    torn_ensemble.restore()
    yield torn_ensemble
    torn_ensemble.restore()


@pytest.mark.since("3.7")
@pytest.mark.apache
def test_reads_and_watches_without_a_quorum_and_the_way_back(
    restored: Ensemble, fresh_path: str
) -> None:
    with Client(restored.hosts) as client:
        client.create(fresh_path, b"kept")
    last = restored.leave_read_only()
    with Client(restored.hosts, read_only=True, session_timeout=LONG) as client:
        assert_reads_only(client, fresh_path)
        session_id = client.session_id
        changed, created, lasting = Watch(), Watch(), Watch()
        client.get_data(fresh_path, watch=changed)
        client.exists(f"{fresh_path}/new", watch=created)
        client.add_watch("/zookeeper/quota", watch=lasting)
        assert failure(last.hosts, None) == "the server closed it" + UNGREETED
        for server in restored.servers[1:]:
            server.start(wait=False)
        assert client.wait_for_state(RW, timeout=ELECTION) is RW
        assert client.session_id != session_id
        again(partial(client.set_data, fresh_path, b"new"))
        client.create(f"{fresh_path}/new", ephemeral=True)
        assert types(changed, created, lasting) == [
            EventType.NODE_DATA_CHANGED,
            EventType.NODE_CREATED,
            EventType.REREAD,
        ]


@pytest.mark.since("3.8")  # 3.4.14 and 3.6.2 let it go on there, and it is read-only then
@pytest.mark.apache
def test_a_real_session_is_not_given_away(restored: Ensemble, fresh_path: str) -> None:
    """It could be read-only now, but then it would lose its ephemeral nodes."""
    last = restored.servers[0]
    with Client(last.hosts, read_only=True, session_timeout=LONG) as client:
        client.create(fresh_path, ephemeral=True)
        session_id, shaken = client.session_id, Shaken(client)
        restored.leave_read_only()
        with Client(last.hosts, read_only=True, session_timeout=LONG) as newcomer:
            assert newcomer.state is RO
            shaken.wait(3)
        for server in restored.servers[1:]:
            server.start(wait=False)
        assert_same_session(client, session_id, fresh_path, shaken)


# --- embedded servers -----------------------------------------------------------------------------


@pytest.fixture
def three() -> Iterator[embedded.Ensemble]:
    """Three members that have lost each other; "/kept" is there."""
    with embedded.Ensemble(3) as ensemble:
        with Client(ensemble.hosts) as client:
            client.create("/kept", b"kept")
        ensemble.set_read_only(True)
        yield ensemble


def test_a_better_address_of_the_same_name_is_found(three: embedded.Ensemble) -> None:
    """Each address is asked in turn, and the next connection goes to the one that said so."""
    addresses: list[tuple[int, Any]] = [(socket.AF_INET, (LOOPBACK, s.port)) for s in three.servers]
    with hooked(Client)("zoo.example", read_only=True, _resolver=lambda *_: addresses) as client:
        client.connect()
        first = three.server_for_session(client.session_id)
        _, better = (server for server in three.servers if server is not first)
        shaken = Shaken(client)
        better.set_read_only(False)
        assert client.wait_for_state(RW, timeout=PATIENCE) is RW
        assert three.server_for_session(client.session_id) is better
        poll("it is told", lambda: RW in shaken.states or None, PATIENCE)
        assert shaken.states == TO_THE_BETTER


# --- the question "isro" --------------------------------------------------------------------------


def beside(good: str, other: str, **options: Any) -> AbstractContextManager[Client]:
    """A client of both servers that begins at the good one, and asks the other one."""
    hosts = f"{good},{other}"
    servers, _ = parse_hosts(hosts)
    (wanted,), _ = parse_hosts(good)
    seed = next(s for s in range(99) if HostList(servers, random.Random(s)).next() == wanted)
    return hooked(Client)(hosts, read_only=True, session_timeout=LONG, _seed=seed, **options)


def assert_unmoved(client: Client) -> None:
    assert client.get_data("/kept").data == b"kept"
    assert client.state is RO


def test_questions_leave_no_connection_behind(three: embedded.Ensemble) -> None:
    with FaultProxy(upstream=three.servers[1].hosts) as proxy:
        with beside(three.servers[0].hosts, proxy.hosts) as client:
            session_id = client.session_id
            proxy.wait_for(lambda frames: sum(f.op == "isro" for f in frames) >= 3, PATIENCE)
            proxy.wait_for(lambda _: proxy.connections <= 1, PATIENCE)
            assert_unmoved(client)
            assert client.session_id == session_id
        proxy.wait_for(lambda _: proxy.connections == 0, PATIENCE)
        frames = [frame for frame in proxy.frames() if frame.direction == "c2s"]
        assert {frame.op for frame in frames} == {"isro"}
        assert len({frame.connection for frame in frames}) == len(frames)


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_is_silent_is_not_waited_for_long(
    tls: bool, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """Neither for its answer nor for its TLS handshake; the pauses grow."""
    now = Clock()
    with (
        embedded.Server(tls=shown.server_context() if tls else None) as good,
        FakeServer(silent) as mute,
    ):
        good.set_read_only(True)
        with beside(good.hosts, mute.hosts, _now=now, tls=trusting if tls else None) as client:
            for number in range(3):
                mute.wait_for(lambda number=number: len(mute.connections) > number)  # type: ignore[misc]
                sock = mute.connections[number].sock
                now.jump(client, 2.0)
                mute.wait_for(lambda sock=sock: sock.fileno() == -1)  # type: ignore[misc]
                assert client.exists("/") is not None
                now.jump(client, 4.0)
            assert client.state is RO


WORKERS = 4


@pytest.mark.apache
def test_chaos(backend: Backend, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever happens, nothing wrong, nobody stuck, nothing left."""
    if not isinstance(backend, InstalledBackend):
        pytest.skip(f"stops and wipes servers, which are {backend}")
    # pytest's limit is for tests that end within seconds wherever they run.
    assert sys.__stderr__ is not None
    faulthandler.dump_traceback_later(chaos.GRACE_SECONDS, exit=True, file=sys.__stderr__)
    report = chaos.run_chaos(backend, 0.0, seed, workers=WORKERS)
    with capsys.disabled():
        print(f"\n{report}")
    assert report.found == [], str(report)
    assert {*report.faults, *report.idle} == chaos_faults.ALL.keys()
    assert report.grants.total() >= 2 * WORKERS * len(KINDS), str(report)
    assert {who.rpartition("-")[2] for who in report.grants} == set(KINDS)
