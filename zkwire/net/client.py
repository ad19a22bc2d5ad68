"""What both clients have in common: the options, the session, and its coroutines, each once.

:class:`ClientBase` checks the options and makes the session and its driver.  For the coroutines of
:class:`ClientCoroutines` the asyncio client is a subclass; the blocking client has a table of them
and runs each in the caller's thread, where every await blocks in place.
"""

from __future__ import annotations

import itertools
from functools import cached_property

from zkwire.errors import UnreachableError
from zkwire.jute.frames import RECEIVE_LIMIT, SEND_LIMIT
from zkwire.jute.records import ACL, AuthPacket, ConnectRequest
from zkwire.net.lifetime import AllocationSite, warn_unclosed
from zkwire.operations.nodes import HEADER_BYTES, check_acl, check_flag, too_large
from zkwire.recipes import runtime as trees
from zkwire.recipes._recipe import renamed
from zkwire.session.hosts import HostList, parse_hosts
from zkwire.session.liveness import LEAST_MARGINS
from zkwire.session.outcomes import perhaps_older
from zkwire.session.session import Session
from zkwire.session.states import Listener
from zkwire.session.waitable import check_timeout
from zkwire.wire.model import OPEN_ACL_UNSAFE, Credentials, State
from zkwire.wire.ops import AUTH

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from datetime import timedelta
    from random import Random
    from ssl import SSLContext
    from typing import Any, TypedDict, TypeVar

    from zkwire.net.driver import Driver
    from zkwire.net.observer import Observer
    from zkwire.net.sasl import Mechanism
    from zkwire.net.server_list import ServerListUpdates
    from zkwire.session.trace import TraceFrame

    Init = TypeVar("Init", bound=Callable[..., None])

    class ClientOptions(TypedDict, total=False):
        """See :class:`zkwire.Client`."""

        session_timeout: float | timedelta
        operation_timeout: float | None
        auth: Sequence[tuple[str, bytes]]
        default_acl: Sequence[ACL]
        sasl: Mechanism | None
        tls: SSLContext | None
        read_only: bool
        shuffle_hosts: bool
        follow_reconfig: bool
        receive_limit: int
        send_limit: int
        lease_margin: float
        trace: Callable[[TraceFrame], object] | None
        observer: Observer | None


CLOSE_SECONDS = 1.0
LONG_LOOK_UP = 1.0  # seconds, after which a look-up says more than the last failure
_numbers = itertools.count(1)
_HOOKS = ("_resolver", "_now", "_seed")

# The greetings, and a request or a reply of a few names, fit into less.
LEAST_LIMIT = 1024

# Seconds.  Unconfigured servers grant 20 ticks (40 s) at most; other clients take milliseconds, so
# that a larger number is nearly always a mistake, and a timedelta is none.
LONGEST_SESSION = 3600
_LONGEST_SENT = 0x7FFFFFFF / 1000


# --- the options: TypeError or ValueError, when the client is made -------------------------------


def check_session_timeout(timeout: float | timedelta) -> float:
    """``timeout`` in seconds: from 0.001 to an hour; as a timedelta as long as can be sent."""
    has_unit = hasattr(timeout, "total_seconds")  # datetime is expensive to load
    given: Any = timeout
    seconds = check_timeout("session_timeout", given.total_seconds() if has_unit else given)
    if seconds is None:
        raise TypeError("session_timeout must be a number of seconds, not None")
    if not 0.001 <= seconds <= (_LONGEST_SENT if has_unit else LONGEST_SESSION):
        message = f"session_timeout must be 0.001 to {LONGEST_SESSION} seconds, not {timeout}"
        if not has_unit and LONGEST_SESSION < seconds <= _LONGEST_SENT:
            message += (
                f": {timeout} milliseconds are {seconds / 1000:g}; for a longer session, where "
                f"the server's maxSessionTimeout allows it: timedelta(seconds={timeout})"
            )
        raise ValueError(message)
    return seconds


def check_lease_margin(margin: float, session_timeout: float) -> float:
    """``margin`` itself if so long a session can have it: 0 (none) to a fifth of the timeout."""
    checked = check_timeout("lease_margin", margin)
    if checked is None:
        raise TypeError("lease_margin must be a number of seconds, not None")
    if checked * LEAST_MARGINS > session_timeout:
        raise ValueError(
            f"lease_margin must be at most a fifth of session_timeout, {session_timeout} s, else "
            f"locks would be lost while the server answers; not {margin}"
        )
    return checked


def check_limit(name: str, limit: int) -> int:
    """``limit`` itself if it is a number of bytes that the client's own frames fit into."""
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"{name} must be an int, not {type(limit).__name__}")
    if not LEAST_LIMIT <= limit <= 0x7FFFFFFF:
        raise ValueError(f"{name} must be {LEAST_LIMIT} to 2**31-1 bytes, not {limit}")
    return limit


def check_auth(auth: Sequence[tuple[str, bytes]], send_limit: int) -> Sequence[tuple[str, bytes]]:
    """``auth`` itself if it is a sequence of (scheme, secret) pairs that can be sent."""
    message = (
        "auth must be a list or tuple of (scheme, secret) pairs, a str and bytes each, such as "
        '[digest_auth("user", "password")]'
    )
    if not isinstance(auth, list | tuple):
        raise TypeError(message)
    for pair in auth:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(message)
        if not isinstance(pair[0], str) or not isinstance(pair[1], bytes):
            raise TypeError(message)
        try:
            body = AuthPacket.pack(0, *pair)
        except ValueError as error:
            raise ValueError(f"auth cannot be sent: {error}") from None
        if len(body) + HEADER_BYTES > send_limit:
            raise too_large(AUTH, None, len(body) + HEADER_BYTES, send_limit)
    return auth


def check_resume(resume: Credentials | None, send_limit: int) -> Credentials | None:
    """``resume`` itself if it is what :attr:`Client.credentials` returned."""
    if resume is None:
        return None
    if not isinstance(resume, Credentials):
        raise TypeError(f"resume must be Credentials, not {type(resume).__name__}")
    if resume.session_id == 0:
        raise ValueError("resume names no session: its client had not connected")
    if not isinstance(resume.session_id, int) or not isinstance(resume.passwd, bytes):
        raise TypeError("resume must be Credentials of an int and bytes")
    try:
        size = len(ConnectRequest.pack(0, 0, 0, *resume, False))
    except ValueError as error:
        raise ValueError(f"resume cannot be sent: {error}") from None
    if size > send_limit:
        raise ValueError(f"resume cannot be sent: its password has {len(resume.passwd)} bytes")
    return resume


def check_callable(name: str, function: object) -> None:
    """Raise TypeError if it cannot be called."""
    if not callable(function):
        raise TypeError(f"{name} must be callable, not {type(function).__name__}")


def check_sasl(mechanism: Mechanism | None) -> Mechanism | None:
    """``mechanism`` itself if it has an exchange to offer."""
    if mechanism is not None and not callable(getattr(mechanism, "exchange", None)):
        raise TypeError(
            f"sasl must be a mechanism such as DigestMD5, not {type(mechanism).__name__}"
        )
    return mechanism


def check_tls(context: SSLContext | None) -> SSLContext | None:
    """``context`` itself if connections can be made with it."""
    if context is not None:
        from zkwire.net.tls import check_context

        check_context(context)
    return context


# --- the clients ----------------------------------------------------------------------------------


class LazyRandom:
    """The methods of a ``random.Random``: of the system's source, or of ``seed``.

    For the order of servers, for pauses and for the names of nodes.  It is made when it is first
    needed.  A client of one server that makes no lock needs none, and loading ``random`` takes as
    long as a few round trips.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed

    @cached_property
    def _source(self) -> Random:
        from random import Random, SystemRandom

        return SystemRandom() if self._seed is None else Random(self._seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def _explained(init: Init) -> Init:
    """An ``__init__`` whose errors name the public class, and say what is wrong with an option.

    It also takes options that are for tests, and that no signature shows: a ``_resolver`` of names,
    the clock ``_now``, and a ``_seed`` of what is random.
    """

    def __init__(self: Any, *hosts: Any, **options: Any) -> None:
        if len(hosts) > 1:
            raise TypeError(
                f"the port belongs into hosts, as in 'host:2181', and other options have names: "
                f"{hosts[1]!r} has none"
            )
        self._hooks = {name: options.pop(name) for name in _HOOKS if name in options}
        function: Any = init
        renamed(function, f"{type(self).__qualname__}.__init__")(self, *hosts, **options)

    explained: Any = __init__
    explained.__wrapped__ = init  # inspect shows its signature
    typed: Init = explained
    return typed


class ClientBase:
    """The options, and what needs no waiting; see the module's docstring."""

    _driver: Any  # a Driver, as the subclass says
    _chroot: str
    _driver_class: Callable[[], type[Driver]]  # loaded by the first client: it needs sockets
    _hooks: dict[str, Any]  # the options for tests

    @_explained
    def __init__(
        self,
        hosts: str,
        *,
        session_timeout: float | timedelta = 10.0,
        operation_timeout: float | None = None,
        auth: Sequence[tuple[str, bytes]] = (),
        default_acl: Sequence[ACL] = OPEN_ACL_UNSAFE,
        sasl: Mechanism | None = None,
        tls: SSLContext | None = None,
        read_only: bool = False,
        resume: Credentials | None = None,
        shuffle_hosts: bool = True,
        follow_reconfig: bool = False,
        receive_limit: int = RECEIVE_LIMIT,
        send_limit: int = SEND_LIMIT,
        lease_margin: float = 0.0,
        trace: Callable[[TraceFrame], object] | None = None,
        observer: Observer | None = None,
    ) -> None:
        from zkwire.net import listeners

        servers, self._chroot = parse_hosts(hosts)
        if trace is not None:
            check_callable("trace", trace)
        rng: Any = LazyRandom(self._hooks.get("_seed"))
        self._name, self._rng = f"zkwire-{next(_numbers)}", rng
        self._hosts, self._made, self._send_limit = hosts, AllocationSite(), send_limit
        self._operation_timeout = check_timeout("operation_timeout", operation_timeout)
        self._acl: Sequence[ACL] = check_acl(default_acl, "default_acl")
        self._sasl, self._tls = check_sasl(sasl), check_tls(tls)
        self._session = Session(
            HostList(servers, rng, shuffle=check_flag("shuffle_hosts", shuffle_hosts)),
            chroot=self._chroot,
            timeout=(timeout := check_session_timeout(session_timeout)),
            send_limit=check_limit("send_limit", send_limit),
            receive_limit=check_limit("receive_limit", receive_limit),
            sasl=sasl is not None,
            read_only=check_flag("read_only", read_only),
            resume=check_resume(resume, send_limit),
            lease_margin=check_lease_margin(lease_margin, timeout),
        )
        for scheme, secret in check_auth(auth, send_limit):
            self._session.add_auth(scheme, secret)
        self._driver = self._driver_class()(self)
        listeners.attach(self._driver, trace)
        if observer is not None:
            from zkwire.net.observer import Observation

            Observation(observer, self)
        self._updates: ServerListUpdates | None = None
        if check_flag("follow_reconfig", follow_reconfig):
            from zkwire.net.server_list import ServerListUpdates

            self._updates = ServerListUpdates(self._driver, servers)

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)  # there is none after a refused option
        if driver is not None and driver.drop(CLOSE_SECONDS):
            warn_unclosed(self, self._made)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hosts} {self.state.value}>"

    def start(self) -> None:
        """Begin to connect, and return at once; every other use of the client begins it, too.

        Under asyncio it must be called where the client's event loop runs.  Idempotent.  The
        client goes on trying until a server answers; :meth:`wait_for_state` waits, and the state
        listeners are told.  Raises what ended the client: SessionExpiredError, AuthFailedError or
        ClientClosedError.
        """
        self._driver.start()
        self._driver.check_open()

    @property
    def state(self) -> State:
        """Where the client stands at this moment; CLOSED in a forked child."""
        return State.CLOSED if self._driver.forked else self._session.state

    def set_hosts(self, hosts: str) -> None:
        """Use these servers from the next attempt to connect on; from any thread.

        ``hosts`` is what the constructor takes; the chroot may be left out, and another chroot is a
        ValueError.  A connection stays, even to a server that is not named any more.  With
        ``follow_reconfig`` the next change of the configuration replaces them.
        """
        servers, chroot = parse_hosts(hosts)
        if chroot not in ("", self._chroot):
            raise ValueError(
                f"hosts: the chroot of a client stays, {self._chroot or '/'!r}: it cannot become "
                f"{chroot!r}"
            )
        if self._updates is not None:
            self._updates.given(servers)
        self._driver.replace_hosts(servers)
        self._hosts = hosts if chroot else hosts.rstrip("/") + self._chroot

    def add_state_listener(self, listener: Callable[[State], object]) -> None:
        """Call ``listener`` with every new state from now on, in order, in the callback thread.

        Under asyncio it is called by the event loop.  It may block (not under asyncio) and may use
        the client.  DISCONNECTED: connecting again, nothing is lost yet; while no server can be
        reached CONNECTING and DISCONNECTED alternate, a pair for each attempt.  CONNECTED again:
        the same session, watches and authentication are back.  EXPIRED, AUTH_FAILED and CLOSED are
        the last.

        No call waits for a listener.  A call that fails because of a lost connection or the end of
        the session may raise before the listener is told of that, and before :attr:`state` shows
        it.  What the call's error says is true in any case.
        """
        check_callable("listener", listener)
        self._driver.attach(Listener(listener, self._driver.dispatch))

    def remove_state_listener(self, listener: Callable[[State], object]) -> None:
        """The opposite of :meth:`add_state_listener`.  Idempotent."""
        self._driver.detach(Listener(listener, self._driver.dispatch))

    @property
    def credentials(self) -> Credentials:
        """The session's id and password, for ``Client(resume=...)``; its repr hides the password.

        Raises what ended the session, and RuntimeError when there is none yet.
        """
        if self._session.ended:
            raise self._session.ending()
        if self._session.session_id == 0:
            raise RuntimeError("there is no session yet: connect first")
        return self._session.credentials

    @property
    def session_id(self) -> int:
        """The session's id, a signed 64-bit number; 0 before the first connection."""
        return self._session.session_id

    @property
    def server(self) -> tuple[str, int] | None:
        """The connected server's IP address and port; None while the client is not connected.

        After a lost connection it may at once be another server.
        """
        peer = None if self._driver.forked else self._session.peer
        if peer is None:
            return None
        host, port = peer[1][:2]  # an IPv6 address has more
        return host, port

    @property
    def last_zxid(self) -> int:
        """The newest transaction that an answer has shown this client; 0 before the first answer.

        The beginning and the end of a session are transactions, too.  The client leaves a server
        that does not have this transaction, so no later read shows an older state.
        """
        return self._session.last_zxid

    @property
    def session_timeout(self) -> float:
        """Seconds: what the server granted, before the first connection what was asked for."""
        return self._session.timeout

    @property
    def lease_margin(self) -> float:
        """Seconds: what was asked for, but at most a fifth of the session timeout granted.

        So the margin is smaller if a server grants less than five margins; a WARNING in the log
        says so.  Locks stay exclusive as long as it is more than half of the servers' tickTime.
        """
        return self._session.lease_margin

    def lease_remaining(self) -> float:
        """Seconds for which the session is surely alive, even if no further answer comes.

        Counted from the sending of the last request that was answered; 0.0 when the session may
        have expired, or has.  This is certain as long as the server that answered is in touch with
        its leader and, without a ``lease_margin``, does not crash right after an answer; see
        :mod:`zkwire.session.liveness`.
        """
        return max(0.0, self._driver.lease_deadline - self._driver.now())

    def _credentials_to_leave(self) -> Credentials:
        """The credentials, if nothing is held that would live on without an owner."""
        credentials = self.credentials
        self._driver.check()
        for lock in list(self._driver.active_locks):
            lock._resume_cleanup()
        if self._session.lease_holders or any(
            lock._is_active for lock in list(self._driver.active_locks)
        ):
            raise RuntimeError(
                "a lock is held, or being acquired, or it was lost and not released: end that "
                "first, its node would block all others"
            )
        return credentials

    def _unreachable(self, seconds: float) -> UnreachableError:
        """The error for no connection in that time."""
        known = self._session.failures.copy()  # the I/O thread may note down another
        for (host, port), look_up in self._driver.look_ups.copy().items():
            server, running = f"{host}:{port}", look_up.seconds
            if running >= LONG_LOOK_UP or (running and server not in known):
                known[server] = str(look_up)
        failures = [f"{server}: {why}" for server, why in known.items()]
        return UnreachableError(
            f"no server could be reached within {seconds:.1f} s "
            f"({'; '.join(failures) or 'none has answered yet'})"
            f"{perhaps_older(self._session.last_failure, self._session.last_zxid)}"
        )

    def _deadline(self) -> float | None:
        limit = self._operation_timeout
        return None if limit is None else self._driver.now() + limit


class ClientCoroutines(ClientBase):
    """What waits, as coroutines; see the module's docstring."""

    # --- the session ------------------------------------------------------------------------------

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until the client is connected, at most ``timeout`` seconds (None: session timeout).

        Raises UnreachableError (a NotSentError and a TimeoutError) when no server can be reached,
        with what each server answered; the client continues to try.  SessionExpiredError,
        AuthFailedError or ClientClosedError when no operation of this client can succeed any more.
        """
        limit = check_timeout("timeout", timeout)
        limit = self._session.timeout if limit is None else limit
        self._driver.start()
        if not await self._driver.within(self._session.change, limit):
            raise self._unreachable(limit)
        if self._session.ended:
            raise self._session.ending()

    async def close(self) -> None:
        """End the session: its ephemeral nodes and locks go at once.  Idempotent; takes a second
        at most, and when no server can be told, the server ends the session at its timeout."""
        await self._driver.close(CLOSE_SECONDS)

    async def detach(self) -> Credentials:
        """Close the client without ending the session; returns the credentials for ``resume``.

        Ephemeral nodes live on if another client resumes the session within its timeout.  Watches
        and authentication belong to this client and end with it.  Locks must be released before:
        their nodes would live on and block all others.  A clean-up that is under way is finished
        first, within a second.  Raises RuntimeError when a lock is held, being acquired, or lost
        and not released, or when there is no session yet.  When the session has ended, raises the
        error that says how (ClientClosedError, SessionExpiredError, AuthFailedError).
        """
        self._credentials_to_leave()
        latest = self._driver.now() + CLOSE_SECONDS
        await self._driver.cleaned_up(CLOSE_SECONDS)
        credentials = self._credentials_to_leave()  # a lock may have been acquired since
        await self._driver.close(max(0.0, latest - self._driver.now()), detach=True)
        return credentials

    async def wait_for_state(self, *states: State, timeout: float | None = None) -> State | None:
        """Wait until the client is in one of ``states``; returns it, or None after ``timeout``.

        A state that lasted only a moment counts.  When the session ends in a state that is not one
        of ``states``, that state is returned, since no other can come.
        """
        if not states or not all(isinstance(state, State) for state in states):
            raise TypeError("wait_for_state takes one or more State")
        limit = check_timeout("timeout", timeout)
        self._driver.start()
        with self._driver.seeing(*states) as wait:
            await self._driver.within(wait, limit)
        return wait.reached

    # --- several operations, not atomic -----------------------------------------------------------

    async def ensure_path(self, path: str, acl: Sequence[ACL] | None = None) -> None:
        """Create a node and whatever is missing above it, each with this ACL (or the default one).

        That includes the chroot: ``ensure_path("/")`` creates it, and nothing else.  Not atomic:
        others may create the same nodes at the same time.  A lost connection is not an error.
        OperationTimeoutError if one step takes longer than the ``operation_timeout`` (two session
        timeouts if the client has none).
        """
        await self._driver.ensure_path(path, acl, self._deadline())

    async def delete_tree(self, path: str) -> None:
        """Delete a node and everything below it, if it is there.

        Not atomic: others see parts of it gone, and what they create meanwhile is deleted too, for
        as long as this takes.  A lost connection is not an error, as for :meth:`ensure_path`.  Even
        for a tree of millions of nodes it keeps only a few megabytes of paths in memory.
        Refused with: NoAuthError.  If nodes were deleted before that, the error has
        ``maybe_applied``, and a note (``__notes__``) says how many.
        """
        await trees.delete_tree(self._driver, path, self._deadline())

    def walk(self, path: str = "/") -> AsyncIterator[str]:
        """The paths of a node and of all below it, parents before their children.

        Not a snapshot: nodes that come and go meanwhile may or may not be among them.  A lost
        connection is not an error, as for :meth:`ensure_path`; an ``operation_timeout`` is for each
        request, not for the whole walk.  Raises NoNodeError if ``path`` itself is not there.
        """
        return self._iterate(trees.walk(self._driver, path, self._deadline))

    @staticmethod
    def _iterate(items: AsyncGenerator[str, None]) -> Any:
        return items
