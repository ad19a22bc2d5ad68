"""An in-memory ZooKeeper on the real wire protocol, for tests, demos and teaching.

::

    with Server() as server, Client(server.hosts) as client:
        client.create("/x")

Never for production: nothing is replicated, nothing survives the process.  For production there is
Apache ZooKeeper.

Decides how servers are started, stopped and inspected; `processor` answers requests, `loop` moves
the bytes.
"""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from zkwire.errors import AUTH_FAILED, SESSION_CLOSED_REQUIRE_AUTH, SESSION_EXPIRED
from zkwire.testing.proxy import frames
from zkwire.testing.proxy.faults import Action, on_reply
from zkwire.testing.proxy.proxy import _Once
from zkwire.testing.server.faultpoints import Refuse
from zkwire.testing.server.loop import Loop, monotonic_epoch
from zkwire.testing.server.operations import member_line
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.rules import Behaviour
from zkwire.testing.server.sessions import Sessions
from zkwire.testing.server.tree import DataTree
from zkwire.testing.socket_thread import listening_socket

if TYPE_CHECKING:
    import ssl

    from zkwire.testing.server.tls import ServerTls

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
_LAST_PORT = 0xFFFF
_ADDRESS = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]+)")
_CLOSING_CODES = {SESSION_EXPIRED, AUTH_FAILED, SESSION_CLOSED_REQUIRE_AUTH}


class _Service:
    """The common part of a server and an ensemble: the processor, its thread, the controls."""

    servers: tuple[OneServer, ...]
    _new_tls: Callable[[], ServerTls] | None = None

    def __init__(
        self,
        members: int = 3,
        *,
        tick: float = 2.0,
        timeouts: tuple[float, float] | None = None,
        now: Callable[[], float] | None = None,
        seed: int | None = None,
        tls: ssl.SSLContext | None = None,
        **behaviour: Unpack[Behaviour],
    ) -> None:
        if tls is not None:
            from zkwire.testing.server.tls import ServerTls, check_context

            check_context(tls)
            self._new_tls = partial(ServerTls, tls)
        self._now = now or time.monotonic
        self._processor = Processor(
            rng=random.Random(seed),
            tick=tick,
            timeouts=timeouts,
            epoch=0.0 if now else monotonic_epoch(),
            members=members,
            x509=tls is not None,
            **behaviour,
        )
        self._loop: Loop | None = None
        self.servers = tuple(OneServer(self, LOOPBACK, 0, number) for number in range(members))

    @property
    def tree(self) -> DataTree:
        """The data tree.  Read it only while no request is under way."""
        return self._processor.state.tree

    @property
    def sessions(self) -> Sessions:
        """The living sessions.  Read them only while no request is under way."""
        return self._processor.state.sessions

    def inspect(self, look: Callable[[], T]) -> T:
        """What ``look`` returns, called while no request is under way: it may read the tree."""
        return self._call(lambda _: look())

    def watches(self, session_id: int) -> list[str]:
        """The paths that a session watches, sorted; read it as the tree."""
        session = self.sessions.get(session_id)
        connections = () if session is None else session.connections.values()
        watchers = self._processor.state.watchers
        return sorted(path for connection in connections for path in watchers.paths(connection))

    def expire(self, session_id: int) -> bool:
        """Expire a session now; whether there was one."""
        return self._call(lambda _: self._processor.expire(session_id, self._now()))

    def cut_all(self) -> None:
        """Close all connections; the sessions stay."""
        self._call(Loop.cut)

    def on(self, op: str, *, action: Action, nth: int = 1, reply: bool = False) -> None:
        """Do ``action`` to the ``nth`` request of an operation from now on, or to its reply.

        The actions are those of `zkwire.testing.proxy.faults` that are not about the network, but
        no reply is held; ``op`` is a name of `zkwire.testing.proxy.frames.OPCODES` or "connect".
        """
        description = frames.describe_rule(op, nth, {*frames.OPCODES, "connect"}, reply=reply)
        act = on_reply(action) if reply else action
        rule = _Once(lambda frame: frame.op == op, description, nth, act)
        self._call(lambda loop: loop.faults.rules.append(rule))

    def refuse_next(self, op: str, code: int, *, nth: int = 1, close: bool | None = None) -> None:
        """Answer the ``nth`` request of an operation from now on with an error code.

        The request is not carried out.  ``close`` says whether the connection ends after the
        answer; by default it ends after the codes after which a real server ends it (-112, -115,
        -124).
        """
        frames.describe_rule(op, nth, frames.OPCODES)  # refuses "connect", too
        refusal: Any = Refuse(code, code in _CLOSING_CODES if close is None else close)
        self.on(op, action=lambda _: (refusal,), nth=nth)

    @property
    def unfired(self) -> list[str]:
        """Descriptions of the rules of :meth:`on` and :meth:`refuse_next` that still wait.

        A test that checks it at its end finds the rules whose request has never come.
        """
        return self._call(lambda loop: [rule.description for rule in loop.faults.rules])

    def set_config(self, text: bytes) -> None:
        """Write ``/zookeeper/config`` as a reconfiguration would, which fires its watches."""
        if not isinstance(text, bytes):
            raise TypeError(f"a configuration is bytes, not {type(text).__name__}")
        self._call(lambda _: self._processor.configure(text, self._now()))

    def clear(self) -> None:
        """Drop the rules of :meth:`on` and :meth:`refuse_next`; actions that have begun go on."""
        self._call(lambda loop: loop.faults.rules.clear())

    def close(self) -> None:
        """End all connections and the thread; a second call does nothing.

        Raises the error that a rule's action has raised, so that a mistake in a test does not look
        like a fault.
        """
        for listener in self.servers:
            listener.listener = None  # the loop closes it
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def _set_read_only(self, read_only: bool, members: Iterable[int]) -> None:
        def change(_: Loop) -> None:
            for member in members:
                self._processor.set_read_only(read_only, self._now(), member)

        self._call(change)

    def _start(self, listener: OneServer) -> None:
        """Serve at one more address; if this fails and is the first, no thread is left."""
        is_first = self._loop is None
        if self._loop is None:
            self._loop = Loop(self._processor, self._now, self._new_tls)
        try:
            if listener.listener is None:
                sock = listener.listener = listening_socket(listener.host, listener.port)
                self._loop.call(partial(self._loop.listen, sock, listener.member))
                listener.port = sock.getsockname()[1]
        except BaseException:
            if is_first:
                self.close()
            raise

    def _call(self, function: Callable[[Loop], T]) -> T:
        """Call it in the loop's thread, while no request is under way."""
        return self._running().call(partial(function, self._running()))

    def _running(self) -> Loop:
        if self._loop is None:
            raise RuntimeError(
                "the embedded server does not run: it was not started, or it is closed"
            )
        return self._loop

    def __enter__(self) -> Self:
        try:
            for listener in self.servers:
                listener.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OneServer:
    """One server of a service.

    ``port``: for port 0, a free port that the first start chooses and later ones keep.
    """

    port: int = 0

    def __init__(self, service: _Service, host: str, port: int, member: int) -> None:
        try:
            host.encode("idna")
        except UnicodeError as error:
            raise ValueError(f"{host!r} is not a valid host name: {error}") from None
        self._service = service
        self.host = host
        self.port = port
        self.member = member
        self.listener: socket.socket | None = None

    @property
    def hosts(self) -> str:
        """The connect string for this address alone."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def start(self) -> None:
        """Accept connections; again after a :meth:`stop`, at the same port."""
        self._service._start(self)

    def stop(self) -> None:
        """Close the connections to it and accept no more; the tree and the sessions stay."""
        loop, ended, self.listener = self._service._running(), self.listener, None
        if ended is not None:
            loop.call(partial(loop.stop_listening, ended))

    def set_read_only(self, read_only: bool) -> None:
        """Take this member's quorum away, or give it back; see :meth:`Server.set_read_only`.

        The others keep theirs.  Unlike a real server, this member still sees their writes.
        """
        self._service._set_read_only(read_only, (self.member,))


class Server(_Service, OneServer):
    """One embedded server, running from ``start()`` or ``with`` until ``close()``.

    ``tick`` is ZooKeeper's unit of time, in seconds; session timeouts are 2 to 20 ticks unless
    ``timeouts`` gives (shortest, longest).  ``now`` replaces the clock: with a `VirtualClock` time
    passes only in its ``advance``, and the times in stats are its times.  ``seed`` makes session
    ids and passwords repeatable.  ``tls`` is an SSLContext for servers: the server then accepts TLS
    only.  Its ``verify_mode`` says whether clients may or must show a certificate, whose subject
    then is an id of the scheme x509.  All other options, such as ``version="3.5"`` or
    ``sasl_users={"bob": "secret"}``, are described in
    `zkwire.testing.server.rules.Behaviour`.
    """

    def __init__(
        self,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        tick: float = 2.0,
        timeouts: tuple[float, float] | None = None,
        now: Callable[[], float] | None = None,
        seed: int | None = None,
        tls: ssl.SSLContext | None = None,
        **behaviour: Unpack[Behaviour],
    ) -> None:
        _Service.__init__(
            self, 1, tick=tick, timeouts=timeouts, now=now, seed=seed, tls=tls, **behaviour
        )
        OneServer.__init__(self, self, host, port, 0)
        self.servers: tuple[OneServer, ...] = (self,)

    def set_read_only(self, read_only: bool) -> None:
        """Take the quorum away, or give it back; either ends all connections.

        Without a quorum the server accepts only clients that allow read-only mode, gives them
        sessions that end with this mode, and answers writes with -119.  Other sessions do not
        expire meanwhile.
        """
        super().set_read_only(read_only)


class Ensemble(_Service):
    """Several servers on one tree: a client that loses one can go on at another.

    There is no election and no lag: a write through one member is at once visible through all.
    There can be 127 ``members``; the other arguments are those of `Server`.
    """

    @property
    def hosts(self) -> str:
        """The connect string, with every member."""
        return ",".join(server.hosts for server in self.servers)

    def _start(self, listener: OneServer) -> None:
        """Write the started members into the configuration, too."""
        super()._start(listener)
        ports = {number: server.port for number, server in enumerate(self.servers, 1)}
        members = {n: member_line(LOOPBACK, port) for n, port in ports.items() if port}
        self._call(lambda _: self._processor.set_members(members))

    def server_for_session(self, session_id: int) -> OneServer | None:
        """The member that a session is attached to; None if the session has no connection."""
        session = self.sessions.get(session_id)
        if session is None or session.member not in session.connections:
            return None
        return self.servers[session.member]

    def set_read_only(self, read_only: bool) -> None:
        """Take the quorum of all members away, or give it back."""
        self._set_read_only(read_only, range(len(self.servers)))


def serve(listen: str, tls: ssl.SSLContext | None = None) -> int:
    """Run a server at ``host:port`` until Ctrl-C; returns the exit status of the command.

    ValueError for what is no address, OSError where it cannot listen.
    """
    address = _ADDRESS.fullmatch(listen)
    if address is None or int(address["port"]) > _LAST_PORT:
        raise ValueError(f"not HOST:PORT or [ADDRESS]:PORT: {listen}")
    try:
        host = address["host"] or address["address"] or LOOPBACK
        server = Server(host, int(address["port"]), tls=tls)
        server.start()
    except (OSError, ValueError) as error:
        raise OSError(f"cannot listen at {listen}: {error}") from None
    with server, suppress(KeyboardInterrupt):
        print(
            f"an in-memory ZooKeeper listens at {server.hosts}{' (TLS)' * (tls is not None)}, "
            "for tests and demos.\n"
            "Never for production: its data is gone when it ends.  Press Ctrl-C to end it.",
            flush=True,
        )
        threading.Event().wait()
    return 0
