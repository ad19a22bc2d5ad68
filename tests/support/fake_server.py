"""A ZooKeeper-like server on a loopback socket that does what a test tells it to.

Each connection it accepts is a thread that runs a *script*: the first connection the first script,
the last script all the rest. `serve` is the ordinary one: it accepts the session and answers from a
table in memory. Every other script is a few lines made of the same pieces::

    def dies_at_the_third(connection: Connection) -> None:
        connection.greet()
        for _ in range(3):
            connection.answer(connection.request())
        connection.reset()

    with FakeServer(dies_at_the_third, serve) as server, Client(server.hosts) as client:
        ...

The table is a tree of zkwire's own server for tests, without its sessions, its time and its order.
A script that returns has its connection closed; one that raises fails the test, in `close`, unless
its peer has gone away or the server is being closed. Records are the library's own, read and
written from the other side.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple, Self

from zkwire.errors import ServerError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.testing.server import sessions, tree
from zkwire.testing.server.operations import READS, read, write
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.state import ServerState
from zkwire.testing.server.tls import ServerTls
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType
from zkwire.wire.ops import OPS, PING_XID

PATIENCE = 30.0
_OPCODES = {op.name: opcode for opcode, op in OPS.items()}
_RESET = struct.pack("ii", 1, 0)


class Request(NamedTuple):
    """One frame from the client, behind the handshake."""

    xid: int
    op: str
    record: Any
    time: float
    connection: int
    body: bytes = b""

    @property
    def path(self) -> str:
        return str(getattr(self.record, "path", ""))


def Node(data: bytes, czxid: int, owner: int = 0) -> tree.Node:
    """A node for the table."""
    return tree.Node(data, OPEN_ACL_UNSAFE, owner, czxid, 0)


class GoneError(Exception):
    """The peer has closed the connection, or the test the server."""


def reply(xid: int, record: Record | None = None, *, error: int = 0, zxid: int = 1) -> bytes:
    """One reply as a frame."""
    return frame(r.ReplyHeader(xid, zxid, error).encode() + (record.encode() if record else b""))


class Connection:
    """One accepted connection, for its script."""

    def __init__(self, server: FakeServer, sock: socket.socket, number: int) -> None:
        self.server = server
        self.sock = sock
        self.number = number
        self.connect_request: r.ConnectRequest | None = None
        self.received: list[Request] = []
        self.peer = sessions.Connection(number, lambda peer: self._deliver(peer.take_output()))
        self.session_id = 0
        self._buffer = bytearray()
        self._out = bytearray()
        self._sending = threading.RLock()
        self._tls = ServerTls(server.tls) if server.tls else None

    # --- the client's bytes ---

    def body(self) -> bytes:
        """The next frame's body; before it waits, what was answered is sent."""
        while True:
            length = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) >= 4 + length > 4:
                body = bytes(self._buffer[4 : 4 + length])
                del self._buffer[: 4 + length]
                return body
            self.flush()
            self._buffer += self.receive()

    def receive(self) -> bytes:
        """Some bytes; GoneError at the end of the stream."""
        try:
            data = self.sock.recv(1 << 18)
            while data and self._tls is not None:
                with self._sending:
                    plaintext = self._tls.receive(data)
                    self.sock.sendall(self._tls.encrypt(b""))
                if plaintext:
                    return plaintext
                data = self.sock.recv(1 << 18)
        except OSError as error:
            raise GoneError from error
        if not data:
            raise GoneError
        return data

    def request(self, *, pings: bool = False) -> Request:
        """The next request. Pings are answered on the way, unless they are asked for."""
        while True:
            body = self.body()
            xid, opcode = struct.unpack_from(">ii", body)
            op = OPS[opcode]
            record: Any = op.request.decode(body, 8) if op.request else None
            request = Request(xid, op.name, record, time.monotonic(), self.number, body[8:])
            self.server.note(self, request)
            if xid != PING_XID or pings:
                return request
            self.put(reply(PING_XID))

    def requests(self) -> Iterator[Request]:
        """All requests to come."""
        while True:
            yield self.request()

    def wait_gone(self) -> None:
        """Read on, and answer nothing, until the connection ends."""
        self.flush()
        with contextlib.suppress(GoneError):
            while True:
                self.receive()

    # --- the server's bytes ---

    def put(self, data: bytes) -> None:
        """Send these bytes behind all others, with the next flush."""
        with self._sending:
            self._out += data

    def flush(self) -> None:
        with self._sending:
            data, self._out = bytes(self._out), bytearray()
            if data and self._tls is not None:
                data = self._tls.encrypt(data)
            try:
                self.sock.sendall(data)
            except OSError as error:
                raise GoneError from error

    def send(self, data: bytes) -> None:
        self.put(data)
        self.flush()

    def _deliver(self, events: bytes) -> None:
        with contextlib.suppress(GoneError):
            self.send(events)

    def event(self, kind: EventType, path: str) -> None:
        """Report a change."""
        self.send(reply(-1, r.WatcherEvent(int(kind), 3, path), zxid=-1))

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection with RST; what the peer has not read yet may be lost to it."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.sock.close()

    # --- pieces of scripts ---

    def hello(self) -> r.ConnectRequest:
        """The client's greeting."""
        self.connect_request = r.ConnectRequest.decode(self.body())
        self.server.notify()
        return self.connect_request

    def greet(self, *, timeout_ms: int | None = None) -> None:
        """Take the client's greeting and accept the session, or say that it is gone."""
        hello = self.hello()
        granted = self.server.accept_session(hello.session_id, timeout_ms or hello.time_out)
        self.session_id, passwd = granted or (0, bytes(16))
        self.peer.session = sessions.Session(self.session_id, passwd, 0, local=False)
        milliseconds = (timeout_ms or hello.time_out) if granted else 0
        self.send(
            frame(r.ConnectResponse(0, milliseconds, self.session_id, passwd, False).encode())
        )
        if not granted:
            raise GoneError

    def answer(self, request: Request) -> None:
        """Carry a request out on the table; the answer leaves with the next flush."""
        self.server.execute(self, request)


Script = Callable[[Connection], None]


def serve(connection: Connection) -> None:
    """Accept the session and answer everything from the table."""
    connection.greet()
    for request in connection.requests():
        connection.answer(request)


def answering(count: int, then: Callable[[Connection], object]) -> Callable[[Connection], None]:
    """A script that answers so many requests, and then does something else."""

    def script(connection: Connection) -> None:
        connection.greet()
        for _ in range(count):
            connection.answer(connection.request())
        connection.flush()
        then(connection)

    return script


def echo(connection: Connection) -> None:
    """Accept the session; answer every get_data with its own path, all else from the table."""
    connection.greet()
    for request in connection.requests():
        if request.op == "get_data" and not request.record.watch:
            connection.server.executed.append(request)
            data = r.GetDataResponse(request.path.encode(), Node(b"", 1).stat())
            connection.put(reply(request.xid, data))
        else:
            connection.answer(request)


def silent(connection: Connection) -> None:
    """Read everything, say nothing."""
    connection.wait_gone()


def mute(connection: Connection) -> None:
    """Accept the session, then read everything and say nothing more."""
    connection.greet()
    connection.wait_gone()


def deaf(connection: Connection) -> None:
    """Accept the session, then read nothing any more."""
    connection.greet()
    connection.server.wait_closing()


class FakeServer:
    """See the module's docstring."""

    def __init__(
        self, *scripts: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.state = ServerState(
            tree.DataTree(config=False),
            sessions.Sessions(tick=1000, rng=Random(1), first_id=1),
            Rules(),
            1,
        )
        self.nodes = self.state.tree.nodes
        self.executed: list[Request] = []  # in the order of their effects
        self.connections: list[Connection] = []
        self.sessions: dict[int, int] = {}  # id -> timeout in ms
        self._scripts = scripts or (serve,)
        self.tls = tls
        self._changed = threading.Condition(threading.RLock())
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._ids = itertools.count(0x1000)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.hosts = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._threads = [threading.Thread(target=self._accept, name="fake-server", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and threads; raises what a script has raised."""
        self._closing.set()
        self.stop_listening()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{thread.name} does not end"
        if self._failure is not None:
            raise RuntimeError("a script of the fake server failed") from self._failure

    def stop_listening(self) -> None:
        """Refuse new connections from now on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def reset_all(self) -> None:
        """Reset every connection, from outside its script."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.sock.shutdown(socket.SHUT_RDWR)

    def wait_closing(self) -> None:
        """Wait until the test closes the server: for a script that reads nothing any more."""
        self._closing.wait()

    # --- what has happened ---

    @property
    def received(self) -> list[Request]:
        """Every request of every connection, pings too."""
        with self._changed:
            return [request for c in self.connections for request in c.received]

    def count(self, op: str) -> int:
        return sum(request.op == op for request in self.received)

    def wait_for(self, predicate: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait until something true has happened at the server."""
        with self._changed:
            assert self._changed.wait_for(predicate, seconds), (
                f"not within {seconds} s; connections {len(self.connections)}, "
                f"last requests {self.received[-5:]}"
            )

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def note(self, connection: Connection, request: Request) -> None:
        with self._changed:
            connection.received.append(request)
            self._changed.notify_all()

    # --- sessions ---

    def accept_session(self, session_id: int, timeout_ms: int) -> tuple[int, bytes] | None:
        with self._changed:
            if session_id == 0:
                session_id = next(self._ids)
            elif session_id not in self.sessions:
                return None
            self.sessions[session_id] = timeout_ms
        return session_id, struct.pack(">qq", session_id, 1)

    def expire(self, session_id: int) -> None:
        """Forget a session and end its connections."""
        with self._changed:
            self._end_session(session_id)
        for connection in self.connections:
            if connection.session_id == session_id:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

    # --- the table ---

    def execute(self, connection: Connection, request: Request) -> None:
        """Carry out one request and put its answer behind the connection's others."""
        with self._changed:
            self.executed.append(request)
            code, body = 0, b""
            try:
                body = self._execute(connection.peer, request)
            except ServerError as refusal:
                code = refusal.code
            header = r.ReplyHeader(request.xid, self.state.tree.zxid, code)
            connection.put(frame(header.encode() + body))
        if request.op == "close_session":
            connection.flush()
            raise GoneError

    def _execute(self, peer: sessions.Connection, request: Request) -> bytes:
        opcode = _OPCODES[request.op]
        if request.op == "close_session":
            assert peer.session is not None
            self._end_session(peer.session.session_id)
        elif opcode in READS:
            return read(self.state, peer, opcode, request.body)[0]
        elif request.op not in {"auth", "ping"}:
            body, events = write(self.state, peer, opcode, request.body)
            self.state.send_events(events)
            if request.op == "create_container":
                self.nodes[request.path].owner = 0  # here it stays when it is empty
            return body
        return b""

    def _end_session(self, session_id: int) -> None:
        self.sessions.pop(session_id, None)
        self.state.tree.begin(0)
        self.state.send_events(list(self.state.tree.end_session(session_id)))

    # --- threads ---

    def _accept(self) -> None:
        for number in itertools.count():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, sock, number)
            script = self._scripts[min(number, len(self._scripts) - 1)]
            thread = threading.Thread(
                target=self._run, args=(script, connection), name=f"fake-{number}", daemon=True
            )
            self._threads.append(thread)
            with self._changed:
                self.connections.append(connection)
                self._changed.notify_all()
            thread.start()

    def _run(self, script: Script, connection: Connection) -> None:
        try:
            script(connection)
            connection.flush()
        except GoneError:
            pass
        except BaseException as error:
            if not self._closing.is_set():
                self._failure = error
        finally:
            with self._changed:
                self.state.watchers.forget(connection.peer)
            # A FIN, not a RST: what was sent must reach the client, so read what it still sends.
            with contextlib.suppress(OSError, GoneError):
                connection.sock.shutdown(socket.SHUT_WR)
                connection.wait_gone()
            connection.sock.close()
            self.notify()
