"""The embedded server over TCP: clients, ensembles, faults, time, and peers that misbehave."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

import zkwire.testing
from tests.support.differential_sides import RealLink
from tests.support.embedded import multi_body
from zkwire import Client, OutcomeUnknownError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.testing import socket_thread
from zkwire.testing.proxy import FaultProxy, faults
from zkwire.testing.proxy.faults import Action, Gate
from zkwire.testing.server.loop import VirtualClock
from zkwire.testing.server.server import Ensemble, OneServer, Server, serve
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE

T = TypeVar("T")

SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]
GREETING = frame(r.ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(tick=0.2) as running:
        yield running


def dial(server: Server | OneServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), SECONDS)


def persist(read: Callable[[], T]) -> T:
    """Repeat a read over lost connections."""
    while True:
        try:
            return read()
        except OutcomeUnknownError:
            continue


def read_to_end(connection: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: connection.recv(65536), b""))
    except ConnectionResetError:
        return b""


def test_the_package_exports_lazily() -> None:
    assert zkwire.testing.Server is Server
    assert zkwire.testing.Ensemble is Ensemble
    assert zkwire.testing.FaultProxy.__name__ == "FaultProxy"
    assert zkwire.testing.VirtualClock is VirtualClock
    with pytest.raises(AttributeError, match="nothing"):
        zkwire.testing.nothing  # noqa: B018
    code = "import sys, zkwire.testing; assert 'socket' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_permissions_are_told_with_their_names(server: Server) -> None:
    anyone = r.Id("world", "anyone")
    with Client(server.hosts) as client:
        client.create("/a", acl=[r.ACL(3, anyone)])
        (entry,) = client.get_acl("/a").acl
        assert f"{entry.perms}" == "Perms.READ|WRITE"
        assert entry == r.ACL(3, anyone)
        server.tree.nodes["/a"].acl = (r.ACL(-1, anyone), r.ACL(32, anyone))
        assert [repr(entry.perms) for entry in client.get_acl("/a").acl] == ["-1", "32"]


@pytest.mark.parametrize("kind", [Server, Ensemble])
def test_a_server_takes_no_orders_but_while_it_runs(kind: type[Server] | type[Ensemble]) -> None:
    server = kind()
    before = threading.active_count()
    for _ in range(2):
        for order in (server.clear, server.cut_all, partial(server.expire, 1)):
            with pytest.raises(RuntimeError, match="started, or it is closed"):
                order()
        assert threading.active_count() == before
        with server:
            server.clear()


def test_a_server_that_cannot_start_leaves_no_thread(server: Server) -> None:
    other = Server(port=server.port)
    ensemble = Ensemble(2)
    ensemble.servers[1].port = server.port
    before = threading.active_count()
    for start in (other.start, other.__enter__, ensemble.servers[1].start, ensemble.__enter__):
        with pytest.raises(OSError, match="in use"):
            start()
        assert threading.active_count() == before
    with Ensemble(2) as ensemble, Client(ensemble.servers[0].hosts) as client:
        ensemble.servers[1].stop()
        ensemble.servers[1].port = server.port
        with pytest.raises(OSError, match="in use"):
            ensemble.servers[1].start()
        assert client.create("/a") == "/a", "nor does a member that cannot start again"


def test_options_out_of_range_are_refused_at_once(server: Server) -> None:
    """The number of a member is the first byte of a session id, which is signed."""
    no_times: list[dict[str, Any]] = [
        *({"handshake_timeout": seconds} for seconds in (0, -1.0, float("nan"), float("inf"))),
        *({"timeouts": limits} for limits in ((5, 1), (-5, -1), (0, 1))),
        {"tick": 0},
    ]
    for options in no_times:
        with pytest.raises(ValueError, match=r"timeout|tick"):
            Server(**options)
    for members in (-1, 0, 128):
        with pytest.raises(ValueError, match="1 to 127"):
            Ensemble(members)
    assert len(Ensemble(127).servers) == 127
    before = server.tree.zxid
    with pytest.raises(TypeError, match="not str"):
        server.set_config("text")  # type: ignore[arg-type]
    assert server.tree.zxid == before


def queued_requests() -> bytes:
    """Some of each kind, one that would make the node, and a close with one behind."""
    check = r.CheckVersionRequest("/", -1)
    requests = [
        (10, ops.SET_DATA, r.SetDataRequest("/a", b"x", -1).encode()),
        (11, ops.EXISTS, r.ExistsRequest("/", False).encode()),
        (-2, ops.PING, b""),
        (13, ops.SYNC, r.SyncRequest("/").encode()),
        (16, ops.MULTI, multi_body((ops.CHECK, check), (ops.CHECK, check))),
        (17, ops.MULTI_READ, multi_body((ops.GET_DATA, r.GetDataRequest("/", False)))),
        (18, ops.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()),
        (22, ops.CLOSE_SESSION, b""),
        (23, ops.EXISTS, r.ExistsRequest("/", False).encode()),
    ]
    return b"".join(frame(r.RequestHeader(x, op.opcode).encode() + b) for x, op, b in requests)


def test_what_waits_in_the_queue_of_an_expired_session_is_refused(server: Server) -> None:
    """As ZooKeeper 3.8.0 was seen to do."""
    gate = Gate()
    server.on("set_data", action=faults.hold(gate))
    host, port = server.hosts.split(":")
    link = RealLink(host, int(port))
    link.exchange(GREETING, 1)
    link.exchange(queued_requests(), 0)
    gate.wait_reached()
    (session,) = server.sessions
    assert server.expire(session.session_id)
    *found, end = link.exchange(b"", None)
    link.close()
    headers = [r.ReplyHeader.decode(raw, 0, 16) for raw in found]
    refused = dict.fromkeys((10, 11, -2, 13, 16, 17, 18, 22), -112) | {16: 0, 22: 0}
    assert [(header.xid, header.err) for header in headers] == [*refused.items()]  # no more
    results = [struct.pack(">ibii", -1, 0, code, code) for code in (-112, -2)]
    assert found[4][16:] == b"".join(results) + struct.pack(">ibi", -1, 1, -1)
    assert end == b""
    assert "/a" not in server.tree.nodes


# --- time -----------------------------------------------------------------------------------------


def test_virtual_time_passes_only_when_told_and_chance_has_a_seed() -> None:
    clock, ids = VirtualClock(start=1000.0), list[int]()
    for _ in range(2):
        with Server(seed=7) as server, Client(server.hosts) as client:
            ids.append(client.session_id)
    assert ids[0] == ids[1], "nor does chance"
    with Server(tick=2.0, now=clock) as server, dial(server) as connection:
        connection.sendall(GREETING)
        answer = r.ConnectResponse.decode(connection.recv(100)[4:])
        create = struct.pack(">ii", 1, 1) + r.CreateRequest("/a", b"", _open(), 1).encode()
        connection.sendall(frame(create))
        connection.recv(100)
        assert server.tree.node("/a").ctime == 1_000_000
        clock.advance(answer.time_out / 1000 + 1.9)
        assert "/a" in server.tree.nodes
        clock.advance(0.1)
        assert "/a" not in server.tree.nodes
        assert read_to_end(connection) == b""
    now = clock()
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not negative"):
            clock.advance(seconds)
    assert clock() == now


def _open() -> tuple[r.ACL, ...]:
    return (r.ACL(31, r.Id("world", "anyone")),)


# --- several servers ------------------------------------------------------------------------------


def test_a_client_of_three_servers_loses_one_and_goes_on() -> None:
    with Ensemble(3) as ensemble, Client(ensemble.hosts) as client:
        client.create("/a", ephemeral=True)
        session_id = client.session_id
        for _ in range(4):
            member = ensemble.server_for_session(session_id)
            assert member is not None
            member.stop()
            stat = persist(partial(client.exists, "/a"))
            assert stat is not None
            assert stat.ephemeral_owner == client.session_id == session_id
            assert ensemble.server_for_session(session_id) is not member
            member.start()
        assert ensemble.server_for_session(4711) is None
        first, second, third = ensemble.servers
        with Client(first.hosts) as one, Client(third.hosts) as other:
            one.create("/b")
            assert other.exists("/b") is not None
        with dial(second) as connection:
            connection.sendall(b"srvr")
            assert b"Mode: follower" in read_to_end(connection)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "applied"),
    [
        (faults.cut_after, True),
        (faults.cut_before, False),
        (faults.rst_before, False),
        (faults.truncate(19), False),  # half a request is none
        (faults.black_hole, False),
    ],
)
def test_what_an_action_leaves_of_a_request(server: Server, action: Action, applied: bool) -> None:
    with Client(server.hosts, session_timeout=3.0) as client:
        client.create("/a")
        server.on("create", nth=2, action=action)
        client.create("/b")
        with pytest.raises(OutcomeUnknownError):
            client.create("/c")
        assert (client.exists("/c") is not None) is applied
        server.on("create", action=faults.drop)
        server.clear()
        assert client.create("/d") == "/d"


def test_the_rules_that_still_wait_are_told(server: Server) -> None:
    with Client(server.hosts) as client:
        server.on("create2", action=faults.cut_after)
        server.on("create", action=faults.forward)
        server.refuse_next("create", -101)
        server.on("get_data", nth=2, action=faults.forward, reply=True)
        client.create("/a")
        client.get_data("/a")
        assert server.unfired == ["request 1 of create2", "the reply to request 2 of get_data"]
        server.clear()
        assert server.unfired == []


OPEN = Gate()
OPEN.release()
MISTAKES: list[Action] = [
    faults.delay(1.0),
    faults.drip(1.0),
    faults.split,
    lambda it: (faults.Hold(OPEN, it), faults.HalfClose()),
]


@pytest.mark.parametrize("reply", [True, False])
@pytest.mark.parametrize("action", MISTAKES, ids=["delay", "drip", "split", "behind a gate"])
def test_a_mistake_in_an_action_is_told_at_the_end(action: Action, reply: bool) -> None:
    server = Server()
    server.start()
    with Client(server.hosts) as client:
        server.on("create", action=action, reply=reply)
        with pytest.raises(OutcomeUnknownError):
            client.create("/a")
        assert client.create("/b") == "/b"
    with pytest.raises(ValueError, match="needs the fault proxy"):
        server.close()
    with server:
        with pytest.raises(ValueError, match="unknown operation"):
            server.on("nothing", action=faults.forward)
        with pytest.raises(ValueError, match="counts from 1"):
            server.on("create", action=faults.forward, nth=0)


def test_nobody_waits_for_a_server_that_has_failed() -> None:
    class Mistaken(Future[None]):
        def set_exception(self, exception: BaseException | None) -> None:
            raise KeyError("a mistake")

    def fail() -> None:
        raise OSError

    server = Server()
    server.start()
    server._running()._commands.append((fail, Mistaken()))
    with pytest.raises(RuntimeError, match="a mistake"):  # whether it has failed before or not
        server.cut_all()
    with pytest.raises(KeyError):
        server.close()


# --- peers that misbehave -------------------------------------------------------------------------


def test_garbage_costs_its_own_connection_only(server: Server, seed: int) -> None:
    rng = random.Random(seed)
    with Client(server.hosts) as client:
        for _ in range(200):
            garbage = rng.randbytes(rng.randrange(1, 60))
            if rng.random() < 0.5:
                opcode = rng.choice([1, 2, 3, 4, 5, 8, 14, 22, 100, 101, 103])
                request = struct.pack(">ii", 1, opcode) + rng.randbytes(rng.randrange(40))
                garbage = GREETING + frame(request) + garbage
            with dial(server) as connection:
                connection.sendall(garbage)
                with suppress(OSError):  # the server may have ended it already
                    connection.shutdown(socket.SHUT_WR)
                read_to_end(connection)
        assert client.create("/a") == "/a", f"seed {seed}"
        for length in (-1, 0xFFFFF + 1, 2**31 - 1):
            with dial(server) as connection:
                connection.sendall(GREETING)
                assert len(connection.recv(41, socket.MSG_WAITALL)) == 41
                connection.sendall(struct.pack(">i", length))
                assert read_to_end(connection) == b"", "an end, and no reply"


def test_one_who_does_not_read_costs_bounded_memory(server: Server) -> None:
    with Client(server.hosts) as client, dial(server) as connection:
        client.create("/big", bytes(1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(GREETING)
        ask = struct.pack(">ii", 1, 4) + r.GetDataRequest("/big", False).encode()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        connection.sendall(frame(ask) * 2000)  # for two gigabytes
        for _ in range(50):
            assert client.exists("/big") is not None, "the others are served"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 * 1024, f"{grown} KiB"


@pytest.mark.parametrize("hops", [0, 1])
@pytest.mark.parametrize("why", [errno.ECONNABORTED, errno.EMFILE])
def test_who_could_not_be_accepted_is_accepted_later(
    server: Server, monkeypatch: pytest.MonkeyPatch, why: int, hops: int
) -> None:
    """By the server, and by a proxy; without a free descriptor neither tries again at once."""
    accept, errors, pauses = socket.socket.accept, [OSError(why, "once")], list[float]()

    def refuse_once(listener: socket.socket) -> tuple[socket.socket, object]:
        if errors:
            raise errors.pop()
        return accept(listener)

    with FaultProxy(server.hosts) as proxy:
        monkeypatch.setattr(socket_thread, "sleep", pauses.append)
        monkeypatch.setattr(socket.socket, "accept", refuse_once)
        with Client((server.hosts, proxy.hosts)[hops]) as client:
            assert client.exists("/") is not None
    assert (len(errors), len(pauses)) == (0, why == errno.EMFILE)


# --- the command ----------------------------------------------------------------------------------


def test_serve_refuses_what_is_no_address(server: Server) -> None:
    for listen in ("nowhere", "127.0.0.1:99999", "[::1:0", "::1]:0", "::1:0", "[]:0", "a:-1"):
        with pytest.raises(ValueError, match=re.escape(f"PORT: {listen}")):
            serve(listen)
    for listen in (server.hosts, "\xe9" * 70 + ":0"):
        with pytest.raises(OSError, match=re.escape(f"cannot listen at {listen}: ")):
            serve(listen)


def test_serve_that_cannot_say_where_it_listens() -> None:
    command = [sys.executable, "-m", "zkwire", "server", "--listen", "127.0.0.1:0"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=ROOT, env=buffered, stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"zkwire: .*No space left on device\n", done.stderr)
