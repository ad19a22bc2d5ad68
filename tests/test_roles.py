"""Who reads, and when: the waiter of a watch as a guest, pauses in a long pipeline, late guards."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import zkwire.roles
from tests.fake_server import Connection, FakeServer, reply
from tests.family_helpers import soon
from tests.lock_helpers import Stage, requests
from tests.server_control import ZooKeeperServer
from tests.test_client import PATIENCE, Background
from zkwire import AsyncClient, Client, EventType, SequentialLock, Watch
from zkwire.aio.engine import LoopDriver
from zkwire.jute.records import GetDataRequest, GetDataResponse, Stat
from zkwire.link import LONG_LINE


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.hosts, session_timeout=20) as client:
        yield client


def reader(client: Client) -> object:
    link = client._pump.link
    assert link is not None
    return link.reader


def waiting(client: Client, watch: Watch) -> Background:
    """Somebody who waits for the watch, and reads meanwhile."""
    waiter = Background(lambda: watch.wait(PATIENCE))
    soon("the waiter reads", lambda: reader(client) is not None)
    return waiter


def watched(client: Client, path: str) -> Watch:
    watch = Watch()
    client.get_data(path, watch=watch)
    return watch


# --- who waits for a watch ------------------------------------------------------------------------


def test_who_waits_for_a_watch_reads_its_event(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("/a")
    watch = watched(client, "/a")
    readers: list[str] = []
    read = client._pump.read
    waiter = waiting(client, watch)

    def note(link: object, *, block: bool) -> None:
        readers.append(threading.current_thread().name)
        read(link, block=block)  # type: ignore[arg-type]

    monkeypatch.setattr(client._pump, "read", note)
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")
    event = waiter.result()
    assert event is not None
    assert event.type is EventType.NODE_DATA_CHANGED
    assert readers
    assert not any(name.startswith("zkwire") for name in readers), "no switch between threads"


def test_a_waiter_makes_room_for_who_wants_an_answer(server: FakeServer, client: Client) -> None:
    """The first answer is read by the waiter; then it stands back, and others read their own."""
    client.create("/a")
    watch = watched(client, "/a")
    waiter = waiting(client, watch)
    assert client.get_data("/a").data == b""
    soon("the waiter has stood back", lambda: reader(client) is None)
    for _ in range(3):
        assert client.get_data("/a").data == b""
        assert reader(client) is None
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/a")
    assert waiter.result() is not None


def test_a_waiter_that_is_interrupted_costs_nobody_the_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("/a")
    watch = watched(client, "/a")
    link = client._pump.link

    def interrupted(sock: socket.socket, seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(zkwire.roles, "readable_within", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch.wait(PATIENCE)
    monkeypatch.undo()
    assert client.get_data("/a").data == b""
    assert client._pump.link is link
    assert reader(client) is None


def test_a_waiter_that_is_interrupted_while_it_reads_ends_the_connection(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read is lost, so nothing of that connection may be believed."""
    client.create("/a")
    watch = watched(client, "/a")
    old = client._pump.link

    def interrupted(link: object, *, block: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client._pump, "read", interrupted)
    server.connections[-1].event(EventType.NODE_DATA_CHANGED, "/b")
    with pytest.raises(KeyboardInterrupt):
        watch.wait(PATIENCE)
    monkeypatch.undo()
    assert old is not None
    assert old.end is not None
    soon("there is another connection", lambda: client._pump.link not in (None, old))


def test_a_waiter_keeps_its_time_limit(client: Client) -> None:
    client.create("/a")
    assert watched(client, "/a").wait(0.05) is None
    assert reader(client) is None


def test_a_waiter_is_told_of_the_end(server: FakeServer) -> None:
    client = Client(server.hosts, session_timeout=20)
    client.connect()
    client.create("/a")
    waiter = waiting(client, watched(client, "/a"))
    client.close()
    with pytest.raises(zkwire.ClientClosedError):
        waiter.result()


# --- pauses in a long pipeline --------------------------------------------------------------------


def dripping(count: int) -> Callable[[Connection], None]:
    """A server that answers so many reads one by one, when all of them have come."""

    def script(connection: Connection) -> None:
        connection.greet()
        asked = [connection.request() for _ in range(count)]
        assert all(isinstance(request.record, GetDataRequest) for request in asked)
        record = GetDataResponse(b"x", Stat(*[0] * 11))
        for request in asked:
            connection.send(reply(request.xid, record))
        for closing in connection.requests():
            connection.put(reply(closing.xid))

    return script


@pytest.mark.parametrize(("count", "pauses"), [(LONG_LINE - 1, False), (LONG_LINE * 2, True)])
def test_a_reader_lets_answers_gather_in_a_long_pipeline_only(
    count: int, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with FakeServer(dripping(count)) as server, Client(server.hosts) as client:
        monkeypatch.setattr("zkwire.roles.time.sleep", slept.append)
        replies = [client.pipeline.get_data("/a") for _ in range(count)]
        assert all(reply.result(PATIENCE).data == b"x" for reply in replies)
    assert bool(slept) == pauses
    assert all(0 < seconds <= zkwire.roles.LONGEST_PAUSE for seconds in slept)


@pytest.mark.parametrize(("count", "pauses"), [(LONG_LINE - 1, False), (LONG_LINE * 2, True)])
def test_an_event_loop_lets_answers_gather_in_a_long_pipeline_only(
    count: int, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[int] = []
    pause = LoopDriver._pause

    def note(driver: LoopDriver) -> None:
        paused.append(1)
        pause(driver)

    monkeypatch.setattr(LoopDriver, "_pause", note)

    async def ask(hosts: str) -> None:
        async with AsyncClient(hosts) as client:
            replies = await asyncio.gather(*[client.get_data("/a") for _ in range(count)])
            assert all(reply.data == b"x" for reply in replies)

    with FakeServer(dripping(count)) as server:
        asyncio.run(ask(server.hosts))
    assert bool(paused) == pauses


# --- the guard of a lock --------------------------------------------------------------------------


@pytest.fixture
def stage(zookeeper: ZooKeeperServer) -> Iterator[Stage]:
    with Stage(zookeeper) as stage:
        yield stage


def sent(stage: Stage) -> list[str]:
    return [frame.op for frame in requests(stage.proxy.frames())]


def test_a_lock_held_for_a_moment_is_two_round_trips(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard has not left when it is released, and then need not leave at all."""
    monkeypatch.setattr(zkwire.roles, "LINGER", PATIENCE)
    stage.observer.create(fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    for _ in range(3):
        assert lock.acquire(PATIENCE)
        assert lock.held
        lock.release()
    assert sent(stage) == ["create2", "get_children", "delete"] * 3
    assert lock.lost.reason is None


def test_the_guard_of_a_lock_that_is_kept_leaves_by_itself(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    assert lock.acquire(PATIENCE)
    stage.proxy.wait_for(lambda frames: [f.op for f in requests(frames)][-1:] == ["get_children2"])
    lock.release()


def test_the_guard_leaves_with_the_next_request(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zkwire.roles, "LINGER", PATIENCE)
    stage.observer.create(fresh_path)
    client = stage.client()
    lock = SequentialLock(client, fresh_path)
    assert lock.acquire(PATIENCE)
    client.exists("/")
    assert sent(stage) == ["create2", "get_children", "get_children2", "exists"]
    lock.release()
