"""What older servers do not know, and what a server's settings decide."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.embedded_servers import EmbeddedServer
from tests.support.lock_helpers import (
    PATIENCE,
    Running,
    Stage,
    acquire_as_third_party,
    calm,
)
from tests.support.scripted import (
    NO_NODE,
    TIMEOUT,
    Script,
    armed,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    types,
)
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import Life, sweep
from zkwire import (
    AsyncClient,
    Client,
    ConnectionLossError,
    Create,
    DoubleBarrier,
    GetData,
    Queue,
    ReadWriteLock,
    Semaphore,
    SequentialLock,
    SetData,
    Supervisor,
    Watch,
    testing,
)
from zkwire.errors import NotSentError, OutcomeUnknownError, UnimplementedError
from zkwire.session.request import Request
from zkwire.testing import Server
from zkwire.wire import ops
from zkwire.wire.model import EventType, State

# --- an operation that the server does not know ---------------------------------------------------

UNKNOWN = UnimplementedError.code


@pytest.fixture
def script() -> Script:
    return script_in(State.CONNECTED)


def refuse(script: Script, verb: str, *arguments: Any) -> Request:
    """The server does not know what is called."""
    call = script.call(verb, *arguments)
    script.answer(call, error=UNKNOWN, zxid=-1)
    return call


def ends_well(script: Script, call: Request) -> None:
    script.answer(call)
    assert failure(call) is None


def asked(script: Script, verb: str, *arguments: Any) -> list[str]:
    """What is sent for this call."""
    script.call(verb, *arguments)
    return script.names()


# --- the connection on which it is asked for ------------------------------------------------------


def test_known_A47_the_refusal_overtakes_and_others_get_their_answers(script: Script) -> None:
    """Apache's server sends it past its pipeline; answers may come even to what is behind it."""
    before = script.call("set_data", "/a", b"")
    refused, behind = script.call("who_am_i"), script.call("set_data", "/b", b"")
    lost = script.call("set_data", "/c", b"")
    again, other = script.call("who_am_i"), script.call("get_ephemerals")
    script.flush()
    script.answer(refused, error=UNKNOWN, zxid=-1)
    leaves_at = script.session.act_at
    script.now += 0.5
    script.answer(other, error=UNKNOWN, zxid=-1)  # one connection can bring two refusals
    assert script.session.act_at == leaves_at, "the time to leave the server counts from the first"
    script.answer(before)
    script.answer(behind)
    assert script.session.broken is None
    script.lose(why="the server closed it")
    assert [failure(call) for call in (before, behind, lost)] == [None, None, OutcomeUnknownError]
    assert [failure(call) for call in (refused, again, other)] == [UnimplementedError] * 3
    assert maybe_applied(lost)
    assert "the server does not know get_ephemerals" in str(lost.error())


def test_nothing_goes_into_a_connection_that_the_server_is_closing(script: Script) -> None:
    """What was submitted before the refusal came ends unsent, what comes later is sent later."""
    refused = script.send("who_am_i")
    unsent = script.call("set_data", "/a", b"")
    script.answer(refused, error=UNKNOWN, zxid=-1)
    watch = Watch()
    late = script.call("get_data", "/b", watch=watch)
    script.session.add_auth("digest", b"a:b")
    assert script.names() == []
    script.lose()
    assert failure(unsent) is NotSentError
    script.connect()
    ends_well(script, late)
    assert armed(watch)


def test_a_server_that_does_not_close_is_left_in_time(script: Script) -> None:
    refuse(script, "who_am_i")
    late = script.call("set_data", "/a", b"")
    script.advance(TIMEOUT / 2)
    assert script.state is not State.CONNECTED
    script.connect()
    ends_well(script, late)


def test_what_is_switched_off_costs_no_connection(script: Script) -> None:
    """It is refused inside of the pipeline, with a zxid, as TTL nodes are, and ``reconfig``."""
    for _ in range(2):
        call = script.call("create", "/a", ttl=1.0)
        script.answer(call, error=UNKNOWN)
        assert failure(call) is UnimplementedError
        assert script.session.usable


# --- and those after it ---------------------------------------------------------------------------


def test_what_was_asked_for_in_between_is_refused_without_being_sent(script: Script) -> None:
    refuse(script, "add_watch", "/a", Watch())
    watch = Watch()
    call = script.call("add_watch", "/a", watch)
    read = script.call("get_data", "/b", watch=Watch())
    script.reconnect()
    assert failure(call) is UnimplementedError
    assert not armed(watch)
    ends_well(script, read)


def test_another_address_of_the_same_name_is_asked(script: Script) -> None:
    refuse(script, "who_am_i")
    script.lose()
    script.session.on_deadline(script.session.act_at)
    script.session.connection_made(script.now, (2, ("127.0.0.2", 2181)))
    script.sent = []
    script.flush()
    script.welcome()
    assert asked(script, "who_am_i") == ["who_am_i"]


def test_a_server_that_cannot_take_watches_away_is_told_once(script: Script) -> None:
    script.watching("get_data", "/a").close()
    (removal,) = script.flush()
    script.feed(reply_frame(removal.xid, -1, UNKNOWN))
    script.reconnect()
    script.watching("get_data", "/b").close()
    assert script.names() == []
    assert failure(script.call("remove_watches", "/b")) is not None
    watch = script.watching("get_data", "/c")
    assert failure(script.call("remove_watches", "/c")) is UnimplementedError
    assert types(watch) == [EventType.DATA_WATCH_REMOVED]  # it is removed here all the same
    assert script.names() == []


def test_persistent_watches_end_where_no_server_knows_them() -> None:
    """A newer one had set them, in the middle of an upgrade: the next server may be new, too."""
    script = Script(servers=2)
    script.connect()
    watch, other = script.persistent("/a"), script.watching_missing("/b")
    script.lose()
    for _ in range(2):
        assert types(watch) == []
        script.greet()
        assert script.names() == ["set_watches2"]
        script.feed(reply_frame(ops.SET_WATCHES_XID, -1, UNKNOWN))
        assert "3.6" in (script.session.broken or "")
        script.lose()
    assert types(watch) == [EventType.PERSISTENT_WATCH_REMOVED]
    script.greet()
    (restored,) = script.restore()
    assert restored.set_watches().exist_watches == ("/b",)
    script.answer(script.call("exists", "/b"), error=NO_NODE)
    assert armed(other)


# --- over sockets ---------------------------------------------------------------------------------


@pytest.mark.real
def test_known_A47_an_operation_that_no_server_knows(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    """A real one: what another thread has sent by then is answered, or executed or not.

    What it has not sent by then raises NotSentError, and is not executed.
    """
    unheard_of = [ops.Op(f"unheard_of_{n}", 9000 + n, None, None) for n in range(10)]
    asked_all = threading.Event()
    done = unknown = 0

    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)

        def write() -> None:
            nonlocal done, unknown
            while not asked_all.is_set():
                try:
                    client.set_data(fresh_path, b"")
                    done += 1
                except NotSentError:
                    continue
                except OutcomeUnknownError:
                    unknown += 1

        def written_since(before: int) -> bool | None:
            return done > before or writer.ended or None

        writer = Running(write)
        for op in unheard_of:
            poll("a write is answered", partial(written_since, done), PATIENCE)
            with pytest.raises(UnimplementedError):
                client.pipeline._send(op, None, b"", None).result(PATIENCE)
        asked_all.set()
        writer.result(PATIENCE)
        stat = client.exists(fresh_path)
        assert stat is not None
        assert unknown <= len(unheard_of)
        assert done <= stat.version <= done + unknown


# --- recipes on a server that plays 3.4 -----------------------------------------------------------


@pytest.fixture
def old() -> Iterator[EmbeddedServer]:
    with Server(version="3.4", timeouts=(0.1, 60.0)) as server:
        yield EmbeddedServer(server, server.close)


@pytest.fixture
def observer(old: EmbeddedServer) -> Iterator[Client]:
    with Client(old.hosts, session_timeout=60.0) as client:
        yield calm(client, old)


def sequential(stage: Stage, client: Client, path: str) -> None:
    lock = SequentialLock(client, path)
    assert lock.acquire(PATIENCE)
    lock.release()
    acquire_as_third_party(stage, SequentialLock, path)
    stage.wait_no_nodes(path)


def read_write(stage: Stage, client: Client, path: str) -> None:
    lock = ReadWriteLock(client, path)
    with lock.write, lock.read:
        assert lock.write.held
    stage.wait_no_nodes(path)


def semaphore(stage: Stage, client: Client, path: str) -> None:
    with Semaphore(client, path, 1).lease():
        assert not Semaphore(stage.observer, path, 1).lease().try_acquire()
    stage.wait_no_nodes(f"{path}/leases")


def barrier(stage: Stage, client: Client, path: str) -> None:
    with DoubleBarrier(client, path, 1):
        assert stage.observer.exists(f"{path}/ready")
    stage.wait_no_nodes(path)


@pytest.mark.parametrize("life", [sequential, read_write, semaphore, barrier])
def test_every_cut_on_an_old_server(old: EmbeddedServer, observer: Client, life: Life) -> None:
    assert sweep(old, observer, "/old", life) > 1


# --- settings -------------------------------------------------------------------------------------

MIB = 1 << 20


def test_lease_margin_that_was_not_granted_is_reduced_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "zkwire")
    with testing.Server(tick=0.25) as server, testing.Server(tick=1.0) as generous:
        with Client(server.hosts, session_timeout=12.0, lease_margin=2.4) as client:
            assert (client.session_timeout, client.lease_margin) == (5.0, 1.0)

        async def granted() -> float:
            async with AsyncClient(server.hosts, session_timeout=12, lease_margin=2) as client:
                return client.lease_margin

        assert asyncio.run(granted()) == 1.0
        with Client(generous.hosts, session_timeout=12.0, lease_margin=2.4) as client:
            assert client.lease_margin == 2.4
    told = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert told == [
        f"the server has granted a session timeout of 5 s, so the lease_margin is 1 s, a fifth of "
        f"that, and not {wanted} s: enough if the servers' tickTime is less than 2 s"
        for wanted in ("2.4", "2")
    ]


def test_hazard_A57_what_a_server_takes_can_be_sent() -> None:
    big = bytes(3 * MIB)
    with testing.Server(jute_maxbuffer=4 * MIB) as server:
        with Supervisor(server.hosts, send_limit=4 * MIB) as supervisor:
            client = supervisor.client(PATIENCE)
            client.create("/a", big)
            client.pipeline.set_data("/a", big).result(PATIENCE)
            client.multi([SetData("/a", big[MIB:]), Create("/b", big[2 * MIB :])])
            with client.transaction() as transaction:
                transaction.set_data("/b", big)
            assert client.multi_read([GetData("/b")])[0].data == big
            Queue(client, "/q").put(big)

        async def written() -> int:
            async with AsyncClient(server.hosts, send_limit=4 * MIB) as client:
                return (await client.set_data("/a", big)).data_length

        assert asyncio.run(written()) == len(big)
        with Client(server.hosts) as usual:
            for send in (
                lambda: usual.set_data("/a", big),
                lambda: usual.multi([SetData("/a", bytes(MIB - 200)), SetData("/b", bytes(200))]),
                lambda: usual.transaction().set_data("/a", big),
            ):
                with pytest.raises(ValueError, match="this client's send_limit is 1048575"):
                    send()


def test_hazard_A57_a_request_that_is_longer_than_a_server_takes_says_perhaps() -> None:
    """Whether all of it was sent decides which error it is: the server does not read on."""
    with testing.Server() as server, Client(server.hosts, send_limit=4 * MIB) as client:
        client.create("/a")
        with pytest.raises(ConnectionLossError, match=r"perhaps because of the 20000\d\d bytes"):
            client.set_data("/a", bytes(2_000_000))
        assert client.get_data("/a").data == b""


def test_what_the_client_sends_by_itself_keeps_to_its_send_limit() -> None:
    limit = 20_000
    with (
        testing.Server(jute_maxbuffer=limit) as server,
        testing.FaultProxy(server.hosts) as proxy,
        Client(proxy.hosts, send_limit=limit, session_timeout=PATIENCE) as client,
        Client(server.hosts) as other,
    ):
        watches = [Watch() for _ in range(300)]
        for number, watch in enumerate(watches):
            client.exists(f"/{number:0200}", watch=watch)
        proxy.cut_all()
        for number, watch in enumerate(watches):
            other.create(f"/{number:0200}")
            assert watch.wait(PATIENCE) is not None
        queue = Queue(client, "/q")
        queue.put_many([bytes(300)] * 100)
        assert len(queue) == 100
        assert max(len(frame.raw) - 4 for frame in proxy.log) <= limit
