"""The engine: it stands where kazoo's client has its ConnectionHandler.

kazoo's client, handlers and recipes are kazoo's own.  This module decides what a state of zkwire's
session is for kazoo, when the next session begins, and how an answer gets into kazoo's result.  It
must not know frames, and uses only what is public in zkwire.
"""

# kazoo has no types, so its values are Any here.
# pyright: basic, reportMissingTypeStubs=false

from __future__ import annotations

import errno
import socket
import ssl
import sys
import threading
import time
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kazoo import client as kazoo_client
from kazoo import exceptions as ke
from kazoo.handlers.utils import AsyncResult
from kazoo.protocol import connection as kc
from kazoo.protocol.states import EVENT_TYPE_MAP, Callback, KeeperState, WatchedEvent

import zkwire as zk
from zkwire.kazoo.requests import KazooRequests, outcome, refused_arguments, secret, translated

if TYPE_CHECKING:
    from collections.abc import Generator

    class Base:
        """kazoo's client, which has no types."""

        _connection: Any
        _state: Any

        def __init__(self, *arguments: Any, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    Base = kazoo_client.KazooClient

NO_LIMIT = 2**31 - 1  # kazoo has none, so only that of the servers (jute.maxbuffer) counts
_STATES = {
    zk.State.CONNECTED: KeeperState.CONNECTED,
    zk.State.CONNECTED_READ_ONLY: KeeperState.CONNECTED_RO,
    zk.State.EXPIRED: KeeperState.EXPIRED_SESSION,
    zk.State.AUTH_FAILED: KeeperState.AUTH_FAILED,
    zk.State.CLOSED: KeeperState.CLOSED,
}


_running: set[Engine] = set()
"""Those with a session: a client lives until it is stopped, as by kazoo's connection thread."""


def kazoo_state(state: zk.State) -> str:
    """kazoo's name for a state; all on the way to a connection are CONNECTING."""
    return _STATES.get(state, KeeperState.CONNECTING)


class Engine:
    """What kazoo's client asks of its ConnectionHandler, with a client of zkwire for each session.

    The client of zkwire calls its state listeners and watches one after the other in one thread;
    those of kazoo's users are called by it (states) and by kazoo's handler (watches), as in kazoo.
    """

    def __init__(
        self, client: Any, retry_sleeper: Any, logger: Any = None, sasl_options: Any = None
    ) -> None:
        self.client = client
        self.retry_sleeper = retry_sleeper
        self.logger: Any = logger or client.logger
        self.sasl_options = sasl_options
        self.session: zk.Client | None = None
        self._requests: KazooRequests | None = None
        self._write_sock: Any = None
        self._connect = None  # programs replace it, and kazoo alone calls it
        self._lock = threading.Lock()  # for session and _requests
        self._expired: zk.Client | None = None
        self.connection_stopped = client.handler.event_object()
        self.connection_stopped.set()
        self._hosts: Any = None  # those that the session was told last
        self._failures, self._failing_since = 0, 0.0
        self.refusal: Exception | None = None  # of the credentials, in this session

    # --- what kazoo's client calls ----------------------------------------------------------------

    def start(self) -> None:
        """Begin a session."""
        self._write_sock = self  # first: a client whose start is refused is stopped with it
        check_handler(self.client.handler)
        self.connection_stopped.clear()
        self.client._session_callback(KeeperState.CONNECTING)
        self._begin()

    def send(self, _: bytes) -> None:
        """End the session of a client that stops: what wakes kazoo's connection thread.

        kazoo's stop() then joins the threads of its handler.  In a watch that raises, so the
        session must have ended before.
        """
        if self.client._stopped.is_set():
            self.stop()

    def stop(self, timeout: float | None = None) -> bool:
        """End the session, after all requests before it; True, as it always ends in time."""
        try:
            with self._lock:
                _running.discard(self)
                session, self.session, self._requests = self.session, None, None
                expired, self._expired = self._expired, None
            for old in (expired, session):
                if old is not None:
                    old.close()
        finally:  # interrupted, too: else the client could not be started again
            self.connection_stopped.set()
            self.client._session_callback(KeeperState.CLOSED)
        return True

    def close(self) -> None:
        """Nothing is left of a stopped engine; one that runs is refused, as kazoo does."""
        if not self.connection_stopped.is_set():
            raise ke.KazooException("Cannot close connection until it is stopped")
        self._write_sock = None

    def submit(self, request: Any, result: Any) -> None:
        """Send a request; ``result`` (None for nobody) becomes ready with its answer."""
        submitter = self._requests
        try:
            if submitter is None:
                raise ke.ConnectionClosedError("Connection has been closed")
            reply, convert = submitter.submit(request)
        except zk.ZooKeeperError as error:
            failure: Exception = translated(error)
        except (ValueError, TypeError) as error:
            failure = refused_arguments(error)
        except (ke.KazooException, NotImplementedError) as error:
            failure = error
        else:
            if isinstance(result, AsyncResult):
                _Reading.make(result, (reply, convert))
            elif result is not None:  # such as gevent's own kind
                reply.add_done_callback(lambda _: _store(result, outcome(reply, convert)))
            return
        if result is not None:
            result.set_exception(failure)

    # --- the session ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make a client of zkwire, for the session that kazoo's client wants to continue if any."""
        client = self.client
        resume = None
        if client._session_id:
            resume = zk.Credentials(client._session_id, client._session_passwd)
        session = zk.Client(
            self._server_list(),
            session_timeout=timedelta(milliseconds=client._session_timeout),
            auth=[(scheme, secret(credential)) for scheme, credential in client.auth_data],
            sasl=mechanism(self.sasl_options),
            tls=tls_context(client),
            read_only=bool(client.read_only),
            resume=resume,
            shuffle_hosts=bool(client.randomize_hosts),
            receive_limit=NO_LIMIT,
            send_limit=NO_LIMIT,
        )
        session.add_state_listener(partial(self._see, session))
        self._failures, self.refusal = 0, None
        with self._lock:
            if client._stopped.is_set():
                return
            self.session = session
            _running.add(self)
            self._requests = KazooRequests(session, self._chroot, partial(_Watcher, client))
            session.start()

    def _server_list(self) -> str:
        self._hosts = self.client.hosts
        servers = (f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self._hosts)
        return ",".join(servers) + self._chroot

    @property
    def _chroot(self) -> str:
        chroot = self.client.chroot.strip("/")  # programs set it, too
        return f"/{chroot}" if chroot else ""

    def _see(self, session: zk.Client, state: zk.State) -> None:
        """The session is in ``state``; by the thread that calls zkwire's callbacks."""
        client = self.client
        if session is not self.session:
            return
        if state.usable:
            client._session_id, client._session_passwd = session.credentials
            client._protocol_version = 0
            self._failures = 0
            expired, self._expired = self._expired, None
            if expired is not None:
                expired.close()
        elif state is zk.State.DISCONNECTED:
            if client.hosts is not self._hosts:
                session.set_hosts(self._server_list())
            if self._gives_up():
                return
        client._session_callback(kazoo_state(state))
        if state is zk.State.AUTH_FAILED:
            try:
                session.connect()
            except zk.AuthFailedError as error:
                self.refusal = translated(error)
            self.logger.warning("AUTH_FAILED closing: %s", self.refusal)
            client._live.set()  # wakes start(), which finds it cleared
            client._live.clear()
        if state is zk.State.EXPIRED and session is self.session and not client._stopped.is_set():
            # Its callbacks are closed later: those of its watches are still to come.
            self._expired = session
            client._session_callback(KeeperState.CONNECTING)
            try:
                self._begin()
            except Exception:  # of the options, such as a file that has gone
                self.logger.exception("No new session can begin")
                self.stop()

    def _gives_up(self) -> bool:
        """Whether ``connection_retry`` allows no further attempt; the session is over then."""
        retry, now = self.retry_sleeper, time.monotonic()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        tries, limit = retry.max_tries, retry.deadline
        spent = tries is not None and 0 < tries * len(self.client.hosts) <= self._failures
        if not spent and (limit is None or now < self._failing_since + limit):
            return False
        self.logger.warning("Failed connecting to Zookeeper within the connection retry policy.")
        self.stop()
        return True

    # --- what programs reach for ------------------------------------------------------------------

    @property
    def _socket(self) -> Any:
        """What stands for the connection's socket; None while kazoo's client is stopped."""
        return None if self.session is None else _Socket(self.session)

    _xid = 0
    """zkwire counts requests by itself."""


class _Socket:
    """Stands for the connection's socket: tells the server, and ends the connection."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def getpeername(self) -> tuple[str, int]:
        """The server's address; OSError while there is no connection."""
        server = self._session.server
        if server is None:
            raise OSError(errno.ENOTCONN, "there is no connection")
        return server

    def getsockname(self) -> tuple[str, int]:
        """The own address towards the server; the port is not known, so it is 0."""
        server = self.getpeername()
        family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(server)  # sends nothing
            return probe.getsockname()[0], 0

    def close(self, how: int = socket.SHUT_RDWR) -> None:
        """End the connection; the client makes another."""
        from zkwire.testing import break_connection

        break_connection(self._session)

    shutdown = close


class _Watcher:
    """A function of kazoo's as a callback of zkwire's; the same function is the same callback."""

    __slots__ = ("_client", "_function")

    def __init__(self, client: Any, function: Any) -> None:
        self._client, self._function = client, function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and self._function == other._function

    def __hash__(self) -> int:
        return hash(self._function)

    def __call__(self, event: zk.Event) -> None:
        kind, client = EVENT_TYPE_MAP.get(int(event.type)), self._client
        if kind is None or client._stopped.is_set():
            return
        seen = WatchedEvent(kind, kazoo_state(event.state), event.path or None)
        client.handler.dispatch_callback(Callback("watch", self._function, (seen,)))


# --- results --------------------------------------------------------------------------------------


def _store(result: Any, answer: tuple[Any, Exception | None]) -> None:
    """Put an answer into a result."""
    value, failure = answer
    if failure is None:
        result.set(value)
    else:
        result.set_exception(failure)


class _Reading:
    """What is added to kazoo's AsyncResult: its caller reads the answer in ``get()`` by itself.

    Only if its caller does anything else, the thread of zkwire's callbacks sets it, as kazoo's
    connection does.  ``_unread`` stays until the result is set, so no interrupt loses the answer.
    """

    _unread: tuple[Any, Any] | None = None
    _will_be_set = False
    _callbacks: list[Any]
    _condition: Any

    @staticmethod
    def make(result: Any, unread: tuple[Any, Any]) -> None:
        """Make one of this kind of kazoo's result."""
        kind: Any = type(result)
        result.__class__ = _reading(kind)
        result._unread = unread

    def _set(self, answer: tuple[Any, Exception | None]) -> None:
        # A stopped handler has kazoo call what is linked to the result in place, which may ask for
        # it: a thread that has kazoo's condition, which is re-entrant, is setting it already.
        if self._condition._is_owned():
            return
        with self._condition:
            if self._unread is not None:
                _store(self, answer)
                self._unread = None  # interrupt-safe: last, else it is set again

    def _set_it(self, *_: object) -> None:
        if (unread := self._unread) is not None:
            self._set(outcome(*unread))

    def _have_it_set(self) -> None:
        """Set it now if the answer is there, else as soon as it is."""
        if (unread := self._unread) is not None:
            if unread[0].ready:
                self._set_it()
            elif not self._will_be_set:
                unread[0].add_done_callback(self._set_it)
                self._will_be_set = True

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not block or timeout is not None:
            self._have_it_set()
        elif (unread := self._unread) is not None:
            try:
                value, failure = answer = outcome(*unread)
                self._set(answer)
            except BaseException:  # an interrupt
                self._have_it_set()
                raise
            if failure is None:
                return value
        return super().get(block, timeout)  # type: ignore[misc]

    def ready(self) -> bool:
        self._have_it_set()
        return super().ready()  # type: ignore[misc]

    def successful(self) -> bool:
        self._have_it_set()
        return super().successful()  # type: ignore[misc]

    @property
    def exception(self) -> Any:
        self._have_it_set()
        return super().exception  # type: ignore[misc]

    def wait(self, timeout: float | None = None) -> bool:
        self._have_it_set()
        return super().wait(timeout)  # type: ignore[misc]

    def rawlink(self, callback: Any) -> None:
        # kazoo's asks whether this is ready, and calls the callbacks then; to set it calls them as
        # well, so it must not become ready there.
        with self._condition:
            if self._unread is None:
                super().rawlink(callback)  # type: ignore[misc]
            elif callback not in self._callbacks:
                self._callbacks.append(callback)
        self._have_it_set()


@cache
def _reading(kind: Any) -> type[Any]:
    """The class of results of a handler, with :class:`_Reading` in front."""
    return type(kind.__name__, (_Reading, kind), {})


# --- options --------------------------------------------------------------------------------------


def check_handler(handler: Any) -> None:
    """Refuse a handler for green threads where zkwire's threads are not green as well."""
    name = getattr(handler, "name", "")
    for library, patched in (("gevent", _gevent_has_patched), ("eventlet", _eventlet_has_patched)):
        if name == f"sequential_{library}_handler" and not patched():
            raise ke.ConfigurationError(
                f"the handler is for {library}, and {library} has not patched threading: call its "
                "monkey patching first, or use SequentialThreadingHandler"
            )


def _gevent_has_patched() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _eventlet_has_patched() -> bool:
    patcher = sys.modules.get("eventlet.patcher")
    return patcher is not None and bool(patcher.is_monkey_patched("thread"))


def tls_context(client: Any) -> ssl.SSLContext | None:
    """What kazoo makes of its options for TLS; None without."""
    if not client.use_ssl:
        return None
    if client.check_hostname and not client.verify_certs:
        raise ValueError("verify_certs must be True when check_hostname is True")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = bool(client.check_hostname)
    context.verify_mode = ssl.CERT_REQUIRED if client.verify_certs else ssl.CERT_NONE
    if client.ca:
        context.load_verify_locations(client.ca)
    if client.certfile and client.keyfile:
        context.load_cert_chain(client.certfile, client.keyfile, client.keyfile_password)
    return context


def mechanism(options: dict[str, Any] | None) -> Any:
    """The mechanism of kazoo's ``sasl_options``: DIGEST-MD5 is zkwire's, others are pure-sasl's."""
    if not options:
        return None
    if options.get("mechanism") == "DIGEST-MD5":
        return zk.DigestMD5(options["username"], options["password"])
    return _PureSasl(options)


class _PureSasl:
    """A mechanism of the package pure-sasl, such as GSSAPI."""

    def __init__(self, options: dict[str, Any]) -> None:
        if not kc.PURESASL_AVAILABLE:
            raise ke.SASLException("Missing SASL support")
        self._options = {"service": "zookeeper", **options}

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        """See :class:`zkwire.DigestMD5`."""
        puresasl: Any = import_module("puresasl")
        peer = import_module("puresasl.client").SASLClient(host, **self._options)
        challenge = None
        while not peer.complete:
            try:
                token = peer.process(challenge)
            except (puresasl.SASLError, puresasl.SASLProtocolException) as error:
                raise zk.AuthFailedError(f"pure-sasl: {error}") from error
            if peer.complete and not token:
                return
            challenge = yield token or b""


# --- the client -----------------------------------------------------------------------------------


class KazooClient(Base):
    """kazoo's client on zkwire: the same arguments, methods, handlers and recipes.

    A lost connection is :class:`NotSent` or :class:`OutcomeUnknown`, both of which are kazoo's
    ConnectionLoss and have ``maybe_applied``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        theirs = self._connection
        if not isinstance(theirs, Engine):  # else install() has been called
            sleeper, logger = theirs.retry_sleeper, theirs.logger
            self._connection = Engine(self, sleeper, logger, theirs.sasl_options)

    __init__.__doc__ = Base.__init__.__doc__

    @property
    def zkwire(self) -> zk.Client:
        """The same session as zkwire's own client, for programs that move call by call.

        It is another one in each session: after an expiry, ask again.  ConnectionClosedError while
        the client is stopped.  Stop the client, and do not close this one.
        """
        session = self._connection.session
        if session is None:
            raise ke.ConnectionClosedError("start the client first")
        return session

    @property
    def last_zxid(self) -> int:
        """The zxid of the newest change that an answer has shown; 0 while the client is stopped."""
        session = getattr(self._connection, "session", None)
        return self.__dict__.get("last_zxid", 0) if session is None else session.last_zxid

    @last_zxid.setter
    def last_zxid(self, zxid: int) -> None:
        """By kazoo: to 0 for a new session, and its own connection to what it has seen."""
        self.__dict__["last_zxid"] = zxid

    def start(self, timeout: float = 15) -> None:
        """kazoo's; AuthFailedError as soon as the server has refused the credentials."""
        try:
            _original_start(self, timeout)
        except self.handler.timeout_exception as error:
            raise getattr(self._connection, "refusal", None) or error from None

    def _call(self, request: Any, async_object: Any) -> bool | None:
        """What all of kazoo's operations end in; other programs override it, and call this."""
        engine = self._connection
        if not isinstance(engine, Engine):  # a client that was made before install()
            return _original_call(self, request, async_object)
        failure = _CLOSED.get(self._state)
        if failure is not None:
            async_object.set_exception(failure())
            return False
        if request is kc._CONNECTION_DROP or request is kc._SESSION_EXPIRED:
            _lose(engine, expire=request is kc._SESSION_EXPIRED)
        else:
            engine.submit(request, async_object)
        return None


_original_call: Any = kazoo_client.KazooClient._call
_original_start: Any = kazoo_client.KazooClient.start
_CLOSED = {
    KeeperState.AUTH_FAILED: ke.AuthFailedError,
    KeeperState.CLOSED: partial(ke.ConnectionClosedError, "Connection has been closed"),
    KeeperState.EXPIRED_SESSION: ke.SessionExpiredError,
}


def _lose(engine: Engine, *, expire: bool) -> None:
    """Do what kazoo's own tests ask for: lose the connection, or the session."""
    session = engine.session
    if session is None:
        return
    if expire:
        hosts = ",".join(f"{host}:{port}" for host, port in engine.client.hosts)
        with zk.Client(hosts, resume=session.credentials):
            pass
    else:
        engine._socket.close()


def install() -> None:
    """Put the engine into every KazooClient that this process makes from now on, of any class.

    Clients that exist stay what they are.  Idempotent.
    """
    kazoo_client.ConnectionHandler = Engine
    theirs: Any = kazoo_client.KazooClient
    theirs._call, theirs.start = KazooClient._call, KazooClient.start
    theirs.zkwire, theirs.last_zxid = KazooClient.zkwire, KazooClient.last_zxid
