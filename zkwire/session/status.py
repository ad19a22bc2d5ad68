"""What a session consists of, what others may read of it, and how it goes from state to state.

The parts are made here.  ``states.TRANSITIONS`` is the whole table of the state machine, and
:meth:`SessionStatus._enter` is the only place that moves it.  Why it is moved, and what changes the
parts, is decided in :class:`zkwire.session.session.Session`, which inherits this class.  All times
are in seconds on the caller's clock, which must not stop or be set.

Only a server can say that the session has expired.  What is held locally is told so when the
session's lease ends (:mod:`zkwire.session.liveness`).

An interrupt (a signal handler that raises, such as Ctrl-C) can end any method between two calls.
So everything is ended before it is forgotten: if an interrupt comes between, the next event finds
it in its old place, and ending it again changes nothing.  A line whose place matters for that says
``interrupt-safe``.
"""

from __future__ import annotations

import math

from zkwire.jute.frames import RECEIVE_LIMIT, SEND_LIMIT, FrameSplitter
from zkwire.session import outcomes
from zkwire.session.handshake import Handshake, Identity
from zkwire.session.liveness import Liveness, Reported
from zkwire.session.outcomes import UnknownOperations
from zkwire.session.request import Failed, Refused, Request, RequestQueue
from zkwire.session.states import TRANSITIONS, Observers
from zkwire.session.waitable import Waitable
from zkwire.session.watch_table import WatchTable
from zkwire.wire.model import Credentials, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque

    from zkwire.errors import ZooKeeperError
    from zkwire.session.hosts import Address, HostList
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.trace import Tracer
    from zkwire.session.waitable import Alarm, Waker


class StateChange(Waitable):
    """Ready while the session is usable, and when it has ended."""

    __slots__ = ("_session",)

    def __init__(self, session: SessionStatus) -> None:
        super().__init__()
        self._session = session

    @property
    def ready(self) -> bool:
        """Whether requests are sent at once, or will never be sent any more."""
        return self._session.state.usable or self._session.state.terminal


class SessionStatus:
    """The parts of one session; see the module's docstring.

    ``timeout`` is the session timeout in seconds that is asked for.  ``sasl``: the I/O layer has a
    mechanism.  ``read_only``: a server that has lost the ensemble is accepted.  ``resume``: the
    session to continue.  ``lease_margin``, in seconds: see
    :class:`zkwire.session.liveness.Reported`.
    ``first_xid`` is for tests of the wrap.
    """

    # More than thirty attributes would make Python look each of them up in a dict.
    __slots__ = (
        "_address", "_all_ended", "_closed_by", "_closing", "_garbled", "_handshake", "_identity",
        "_live", "_only_asking", "_peer", "_reason", "_receive_limit", "_requests", "_search_at",
        "_search_pause", "_splitter", "_told", "_unknown", "_watches", "act_at", "alarms", "asking",
        "broken", "callbacks", "change", "chroot", "control_frames", "ended", "failures", "hosts",
        "in_flight", "last_failure", "lease_holders", "observers", "queue", "refused", "resumed",
        "send_limit", "server", "state", "trace", "usable",
    )  # fmt: skip

    def __init__(
        self,
        hosts: HostList,
        *,
        timeout: float,
        chroot: str = "",
        receive_limit: int = RECEIVE_LIMIT,
        send_limit: int = SEND_LIMIT,
        sasl: bool = False,
        read_only: bool = False,
        resume: Credentials | None = None,
        lease_margin: float = 0.0,
        first_xid: int = 1,
    ) -> None:
        self.callbacks: list[Waker] = []
        self.state: State = State.NOT_STARTED
        self._told = self.state  # the observers know
        self.observers: Observers = Observers()
        self.change: StateChange = StateChange(self)
        self.alarms: dict[Alarm, None] = {}  # that have not rung; any thread sets and drops one
        self.usable: bool = False  # requests are sent at once; False before the connection ends
        self.ended: bool = False  # the state is terminal
        self.chroot: str = chroot
        self.hosts: HostList = hosts
        self.server: tuple[str, int] | None = None  # the last one that was chosen
        self.broken: str | None = None  # why the I/O layer must drop the connection
        self.act_at: float = 0.0  # when the attempt to connect, or the pause before it, ends
        self.last_failure: str = "none was tried"
        self.failures: dict[str, str] = {}  # by server, since the last usable connection
        self.resumed: bool = resume is not None
        self.trace: Tracer | None = None
        self._identity = Identity(timeout, sasl=sasl, read_only=read_only, resume=resume)
        self._live = Reported(timeout, lease_margin) if lease_margin else Liveness(timeout)
        # What is held while the lease runs, in the order of its acquisition: an ordered set.
        self.lease_holders: dict[LeaseHolder, None] = {}
        self._requests = RequestQueue(first_xid)
        self.queue: deque[Request] = self._requests.queue
        self.in_flight: deque[Request] = self._requests.unanswered
        self.send_limit: int = send_limit
        self._watches = WatchTable(chroot, self.callbacks, send_limit)
        self._unknown = UnknownOperations()
        self._address: object = None  # of the connection
        self._peer: Address | None = None  # the same, where it is a socket's
        self._closed_by: object = None  # the address whose server has closed the last one
        self._only_asking = False  # this one is to tell whether the session lives, and no more
        self._search_pause: float = 0.0
        self._closing = False  # close() was called: nothing more is accepted
        self._all_ended = False  # everything that waited knows of the session's end
        self._reason: str | None = None  # why the session ended, if its state does not say it all
        self._receive_limit = receive_limit
        self._garbled = False  # ``broken`` because of bytes that are not the protocol's
        self._forget_connection()

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first handshake."""
        return self._identity.session_id

    @property
    def lease_deadline(self) -> float:
        """When the session's lease ends: no server expires it before; 0 before any handshake."""
        return 0.0 if self.ended else self._live.lease_deadline

    @property
    def credentials(self) -> Credentials:
        """What another client needs to continue the session."""
        return self._identity.credentials

    @property
    def timeout(self) -> float:
        """The session timeout in seconds: the one asked for, later the one granted."""
        return self._live.timeout

    @property
    def lease_margin(self) -> float:
        """The lease margin in seconds: the one wanted, at most a fifth of the timeout granted."""
        return self._live.margin

    @property
    def last_zxid(self) -> int:
        """The newest transaction that an answer has shown; a server without it is refused."""
        return self._requests.last_zxid

    @property
    def watch_count(self) -> int:
        """How many watches are set."""
        return len(self._watches)

    # --- the connection ---------------------------------------------------------------------------

    @property
    def target(self) -> tuple[str, int] | None:
        """The server that the I/O layer must connect to now."""
        return self.server if self.state is State.CONNECTING else None

    @property
    def peer(self) -> Address | None:
        """The address of the server that requests are sent to; None while there is none."""
        return self._peer if self.state.usable else None

    @property
    def connection(self) -> object:
        """A token of the connection: each connection has its own.  Compare it with ``is``."""
        return self._handshake

    @property
    def challenge(self) -> bytes | None:
        """What the I/O layer's SASL mechanism must answer now; b"" at the beginning."""
        return self._handshake.challenge

    @property
    def has_output(self) -> bool:
        """Whether :meth:`~zkwire.session.session.Session.data_to_send` would return anything."""
        return bool(self.control_frames or (self.queue and self.usable))

    @property
    def queued(self) -> int:
        """How many requests are not sent yet."""
        return len(self.queue)

    @property
    def unanswered(self) -> int:
        """How many requests are sent and not answered."""
        return len(self.in_flight)

    @property
    def dead_at(self) -> float:
        """When the connection counts as dead unless something arrives."""
        return self._live.dead_at

    @property
    def give_up_at(self) -> float:
        """When to drop this server and try the next one.

        Once a server has answered the greeting, it has as long as any connection.
        """
        greeted = self.state is State.HANDSHAKE and self._handshake.greeted
        return self._live.dead_at if self.usable or greeted else self.act_at

    @property
    def _connect_timeout(self) -> float:
        """Seconds for one attempt: every server can be tried within one session timeout."""
        return self.timeout / (len(self.hosts) + 1)

    @property
    def _restoring(self) -> bool:
        """Whether the connection has been sent the watches and is not usable yet."""
        return self._handshake.restored and self.state is State.HANDSHAKE

    # --- from state to state ----------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to look for a server."""
        self._enter("start")
        self.server = self.hosts.next()
        self.act_at = now + self._connect_timeout

    def _enter(self, by: str) -> None:
        """Take the transition ``by``, with all that follows from the new state."""
        self.state = TRANSITIONS[self.state][by]
        self._follow_state()

    def _follow_state(self) -> None:
        if self._told is not self.state:
            self.callbacks += self.observers.tell(self.state)
            self._told = self.state
        if self.change.ready:
            self.callbacks += self.change._take_wakers()
        self.usable, self.ended = self.state.usable, self.state.terminal
        if self.ended:
            self.broken = self.broken or "the session is over"
            self._end_everything()

    def _end_at_last(self) -> None:
        """End what an interrupt has kept from ending; called for each later event."""
        if self.state.terminal and not self._all_ended:
            self._follow_state()

    def _end_everything(self) -> None:
        self._forget_connection()
        self._watches.fire()
        watches = dict.fromkeys(self._watches)  # an ordered set
        for request in self._everything():
            if request.watch is not None:
                watches[request.watch] = None
            request.complete(outcomes.terminal(self.state, request, self._reason), self.callbacks)
        for watch in watches:
            watch._end(self.state, self.ending)
            self.callbacks.extend(watch._take_wakers())
        self._lose_all(str(self.ending()))
        self._requests.clear()
        self._watches.clear()
        self._all_ended = True  # interrupt-safe: last

    def _lose_all(self, message: str) -> None:
        """The session has ended, or may have; ``message`` tells the lease holders why."""
        for holder in list(self.lease_holders):
            self.callbacks += holder._lose(message)
            self.lease_holders.pop(holder, None)  # interrupt-safe: last

    def _everything(self) -> list[Request]:
        """All requests that have not ended."""
        return [*self._requests, *self._identity.authentication]

    def _forget_connection(self) -> None:
        """Reset what belongs to one connection; it is made here as well."""
        self._splitter = FrameSplitter(self._receive_limit)
        self._handshake = Handshake(self._identity)
        self.control_frames: list[bytes] = []  # to be sent before any request
        # For an operation that the server does not know: it ends the connection.
        self.refused: bool = False
        # The server that the I/O layer must ask ``isro`` now, and when the next one is asked, while
        # the client is connected to a read-only one and searches a read-write one.
        self.asking: tuple[str, int] | None = None
        self._search_at: float = math.inf
        self._requests.position = 0

    def ending(self, op: str | None = None, path: str | None = None) -> ZooKeeperError:
        """The error that says how the session ended, for an operation that fails because of it."""
        kind, message = outcomes.TERMINAL[self.state]
        return kind(self._reason or message, op=op, path=path)

    def _reject(self, why: str | None = None) -> None:
        """The server does not accept the client's identity."""
        self._reason = why
        self._enter("reject")

    def sasl_failed(self, why: str) -> None:
        """The mechanism does not accept the server."""
        if self.state is State.HANDSHAKE:
            self._reject(why)

    def closed(self) -> None:
        """End the session on this side, whatever the server knows."""
        self._end_at_last()
        if not self.ended:
            self._enter("close")

    def _fail(self, request: Request, outcome: Failed | Refused) -> None:
        if request.watch is not None and not request.ready:
            withdrawn = outcome is outcomes.WITHDRAWN
            self._watches.fail(request, request.watch, self.last_zxid, withdrawn=withdrawn)
        request.complete(outcome, self.callbacks)
