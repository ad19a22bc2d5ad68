"""Clients at servers that have lost the ensemble: what works, what does not, and the way back."""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.shell.test_client import CLOSE_BOUND, PATIENCE, within
from tests.shell.test_follow_reconfig import again
from tests.shell.test_secure_client import Time, failure
from tests.support.certificates import Certificate
from tests.support.fake_server import Connection, FakeServer, silent
from tests.support.hooks import hooked
from tests.support.installed_servers import LOOPBACK
from tests.support.server_control import Backend, Ensemble, NoBackendError, Settings, poll
from zkwire import (
    Client,
    Create,
    EventType,
    GetData,
    NoNodeError,
    NotReadOnlyError,
    State,
    Watch,
)
from zkwire import testing as embedded
from zkwire.session.hosts import HostList, parse_hosts
from zkwire.session.outcomes import UNGREETED
from zkwire.testing import FaultProxy

RO, RW = State.CONNECTED_READ_ONLY, State.CONNECTED
TO_THE_BETTER = [State.DISCONNECTED, State.CONNECTING, State.HANDSHAKE, RW]
LONG = 30.0
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


def test_reads_only_and_for_whoever_asks_for_it(three: embedded.Ensemble) -> None:
    with (
        Client(three.hosts, read_only=True) as client,
        Client(three.hosts, read_only=True) as other,
    ):
        assert_reads_only(client, "/kept")
        assert other.state is RO
        assert other.session_id != client.session_id
    assert failure(three.servers[0].hosts, None) == "the server closed it" + UNGREETED
    three.servers[2].set_read_only(False)
    for _ in range(4):
        with within(3.0), Client(three.hosts) as client:
            assert client.state is RW
            assert three.server_for_session(client.session_id) is three.servers[2]


def test_a_better_server_is_looked_for_and_found(three: embedded.Ensemble) -> None:
    for _ in range(5):
        three.set_read_only(True)
        with (
            Client(three.hosts, read_only=True, session_timeout=LONG) as client,
            Client(three.hosts, read_only=True, session_timeout=LONG) as bystander,
        ):
            shaken, session_id = Shaken(client), client.session_id
            here = three.server_for_session(session_id)
            better = next(server for server in three.servers if server is not here)
            changed, children, lasting = Watch(), Watch(), Watch()
            client.get_data("/kept", watch=changed)
            client.get_children("/kept", watch=children)
            client.add_watch("/", watch=lasting)
            better.set_read_only(False)
            assert client.wait_for_state(RW, timeout=PATIENCE) is RW
            assert client._session.last_failure.endswith("a read-write server was found")
            assert client.session_id != session_id
            assert three.server_for_session(client.session_id) is better
            assert bystander.wait_for_state(RW, timeout=PATIENCE) is RW
            bystander.set_data("/kept", b"kept")
            bystander.create("/kept/child", ephemeral=True)
            assert types(changed, children, lasting) == [
                EventType.NODE_DATA_CHANGED,
                EventType.NODE_CHILDREN_CHANGED,
                EventType.REREAD,
            ]
            client.create("/mine", ephemeral=True)
            # The listener hears of it a little later. Straight from the one to the other.
            poll("it is told", lambda shaken=shaken: RW in shaken.states or None, PATIENCE)  # type: ignore[misc]
            assert shaken.states == TO_THE_BETTER


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


def test_a_real_session_stays_away_from_the_embedded_one(three: embedded.Ensemble) -> None:
    three.set_read_only(False)
    with Client(three.hosts, read_only=True, session_timeout=LONG) as client:
        client.create("/mine", ephemeral=True)
        session_id, shaken = client.session_id, Shaken(client)
        three.set_read_only(True)
        shaken.wait(6)
        three.set_read_only(False)
        assert_same_session(client, session_id, "/mine", shaken)


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


def test_questions_over_tls(trusting: ssl.SSLContext, shown: Certificate) -> None:
    with embedded.Ensemble(2, tls=shown.server_context()) as two:
        two.set_read_only(True)
        first, second = two.servers
        with beside(first.hosts, second.hosts, tls=trusting) as client:
            changed = Watch()
            client.get_data("/", watch=changed)
            assert client.state is RO
            second.set_read_only(False)
            assert client.wait_for_state(RW, timeout=PATIENCE) is RW
            assert client._session.last_failure.endswith("a read-write server was found")
            client.set_data("/", b"new")
            assert types(changed) == [EventType.NODE_DATA_CHANGED]


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_is_silent_is_not_waited_for_long(
    tls: bool, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """Neither for its answer nor for its TLS handshake; the pauses grow."""
    now = Time()
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


ANSWERS = [b"", b"ro", b"r", b"no idea\n", bytes(5000), b"RW"]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer[:10]))
def test_other_answers_change_nothing(answer: bytes, three: embedded.Ensemble) -> None:
    def answers(connection: Connection) -> None:
        assert connection.receive() == b"isro"
        connection.send(answer)

    with FakeServer(answers) as odd, beside(three.servers[0].hosts, odd.hosts) as client:
        session_id = client.session_id
        odd.wait_for(lambda: len(odd.connections) >= 2)
        assert_unmoved(client)
        assert client.session_id == session_id


def test_a_server_that_says_rw_and_is_not(three: embedded.Ensemble) -> None:
    """It costs a connection, and the client comes back to the one that it had."""

    def lies(connection: Connection) -> None:
        if connection.receive() == b"isro":
            connection.send(b"rw")

    good = three.servers[0]
    with FakeServer(lies) as liar, beside(good.hosts, liar.hosts) as client:
        watch = Watch()
        client.get_data("/kept", watch=watch)
        liar.wait_for(lambda: len(liar.connections) >= 2)  # the question, then the client
        assert client.wait_for_state(RO, timeout=PATIENCE) is RO
        assert again(partial(client.get_data, "/kept")).data == b"kept"
        good.set_read_only(False)
        assert client.wait_for_state(RW, timeout=PATIENCE) is RW
        client.set_data("/kept", b"")
        assert types(watch) == [EventType.NODE_DATA_CHANGED]


def test_close_in_the_midst_of_a_question(three: embedded.Ensemble) -> None:
    with FakeServer(silent) as mute:
        with beside(three.servers[0].hosts, mute.hosts) as client:
            mute.wait_for(lambda: mute.connections)
            with within(CLOSE_BOUND):
                client.close()
        mute.wait_for(lambda: mute.connections[0].sock.fileno() == -1)
