"""THE automaton: one ZooKeeper session over any number of connections.

It owns every decision about the session: what is sent and in which order, what a byte from the
server means, when a connection is dead, which call ends how.  It has no socket, no clock, no thread
and no randomness: bytes and ``now`` (seconds on any clock that does not stop) come in, bytes and
the next deadline go out.  Same input, same output.

Rules of this file:

* ``states.TRANSITIONS`` is the whole of the state machine; :meth:`Session._enter` is the only
  place that moves it.
* Replies and watch events take effect in the order of the wire; a watch is registered in the step
  that handles the reply which sets it.  Hence: *if a reply shows a change, the watch for that
  change has already fired.*
* A connection that breaks ends every call that was given to it: with NotSentError if the kernel
  did not take all of its bytes, else with OutcomeUnknownError.  Calls submitted while there is no
  connection wait for the next one, for a session timeout at most.  Nothing is ever sent twice.
* A server that does not know an operation closes the connection: nothing more is sent on it, what
  still comes is read, and what is submitted from then on waits for the next one (``refused``).
* On a new connection: connect request, authentication, watches, and when all that is answered, the
  queue.
* Only a server can say that the session has expired.  Locally, whoever holds something must act as
  if it had once a session timeout has passed since the *sending* of the last request that was
  answered (``lease_deadline``).

A shell does this, in a loop: dial ``target`` while it is set; call one method for each thing that
happens (bytes, end of stream, a deadline); drop the connection when ``broken`` is set; write what
:meth:`data_to_send` hands out; call every function in ``take_callbacks()``, outside its locks.
"""

from __future__ import annotations

import struct
from itertools import chain, islice

from zkwire.errors import (
    REJECTIONS,
    SESSION_EXPIRED,
    AuthFailedError,
    ClientClosedError,
    NoNodeError,
    NoWatcherError,
    ProtocolError,
    ReplyTooLargeError,
    SessionMovedError,
    ZooKeeperError,
)
from zkwire.jute.frames import RECEIVE_LIMIT, FrameSplitter
from zkwire.jute.records import AuthPacket, RemoveWatchesRequest, WatcherEvent
from zkwire.session import outcomes, own_frames
from zkwire.session.handshake import Handshake, Identity
from zkwire.session.liveness import LeaseHolders, Liveness, Reported
from zkwire.session.read_write_search import ReadWriteSearch
from zkwire.session.request import ANSWERED, Answered, Failed, Refused, Request
from zkwire.session.request_queue import RequestQueue
from zkwire.session.states import TRANSITIONS, StateMachine
from zkwire.session.unknown_operations import UNKNOWN, Unknown, says_unknown
from zkwire.session.watch_manager import WatchManager
from zkwire.wire import ops
from zkwire.wire.model import Credentials, State, WatchType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from zkwire.session.hosts import HostList
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.trace import Tracer
    from zkwire.session.waitable import Waker
    from zkwire.session.watch import Watch

_REPLY = struct.Struct(">iqi")  # xid, zxid, err
_REPLY_BYTES = _REPLY.size
_read_reply = _REPLY.unpack_from

_NO_NODE = NoNodeError.code
_SESSION_MOVED = SessionMovedError.code


class Session:
    """See the module's docstring.

    ``timeout`` is in seconds: asked for at first, then what the server granted.  ``sasl``: the
    shell has a mechanism.  ``read_only``: a server that has lost the ensemble will do.  ``resume``
    continues an earlier session.  ``first_xid`` is for tests of the wrap.
    """

    def __init__(
        self,
        hosts: HostList,
        *,
        timeout: float,
        chroot: str = "",
        receive_limit: int = RECEIVE_LIMIT,
        sasl: bool = False,
        read_only: bool = False,
        resume: Credentials | None = None,
        lease_margin: float = 0.0,
        first_xid: int = 1,
    ) -> None:
        self.callbacks: list[Waker] = []
        self._machine = StateMachine(self.callbacks)
        self.observers = self._machine.observers
        self.change = self._machine.change
        self.usable = False  # the state's own answers, at hand
        self.ended = False
        self.chroot = chroot
        self.server: tuple[str, int] | None = None
        self.broken: str | None = None
        self.trace: Tracer | None = None
        self._live = Reported(timeout, lease_margin) if lease_margin else Liveness(timeout)
        self._identity = Identity(timeout)
        self._identity.sasl, self._identity.read_only = sasl, read_only
        self.resumed = resume is not None
        if resume is not None:
            self._identity.session_id, self._identity.passwd = resume
        self.hosts = hosts
        self._receive_limit = receive_limit
        self._requests = RequestQueue(first_xid)
        self._watches = WatchManager(chroot, self.callbacks)
        self._lease_holders = LeaseHolders(self.callbacks)
        self._read_write_search = ReadWriteSearch(hosts)
        self._control: list[bytes] = []
        self._unknown = Unknown()
        self._closing = False
        self._ended = False
        self._garbled = False
        self._reason: str | None = None  # why the session is over, if the state does not say it all
        self.last_failure = "none was tried"
        self.failures: dict[str, str] = {}  # by server, since the last usable connection
        self.act_at = 0.0
        self._forget_connection(0.0)

    def _forget_connection(self, now: float) -> None:
        """Start every per-connection quantity afresh."""
        self._splitter = FrameSplitter(self._receive_limit)
        self._live.open(now)
        self._control.clear()
        self._requests.position = 0
        self._handshake = Handshake(self._identity)

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first handshake."""
        return self._identity.session_id

    @property
    def connection(self) -> object:
        """Another object for each connection, to be compared by ``is``."""
        return self._handshake

    @property
    def credentials(self) -> Credentials:
        """What another client needs to go on with the session."""
        return Credentials(self._identity.session_id, self._identity.passwd)

    @property
    def timeout(self) -> float:
        """The session timeout in seconds: what was asked for, then what the server granted."""
        return self._live.timeout

    @property
    def last_zxid(self) -> int:
        """The newest transaction that an answer has shown; no server that is behind it will do."""
        return self._requests.last_zxid

    @property
    def target(self) -> tuple[str, int] | None:
        """The server that the shell must connect to now."""
        return self.server if self.state is State.CONNECTING else None

    @property
    def watch_count(self) -> int:
        """How many watches are set."""
        return len(self._watches.table)

    # --- the state machine ------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self._machine.state

    def _enter(self, by: str) -> None:
        """Take the transition ``by``, with all that follows from where it leads."""
        self._machine.enter(by)
        self._follow_state()

    def _follow_state(self) -> None:
        self.usable, self.ended = self.state.usable, self.state.terminal
        if self.ended:
            self._end_everything()

    def _end_at_last(self) -> None:
        """End what an interrupt has kept from ending.  Called for each thing that still happens."""
        if self.state.terminal and not self._ended:
            self._machine.tell()
            self._follow_state()

    def _end_everything(self) -> None:
        """What has an end gets it before it is forgotten: an interrupt may make this begin anew."""
        self._handshake = Handshake(self._identity)
        self._read_write_search.stop()
        self._control.clear()
        watches = dict.fromkeys(self._watches.all_told())  # each once, in order
        for request in self._everything():
            if request.watch is not None:
                watches[request.watch] = None
            closing = request.op is ops.CLOSE_SESSION
            ending = outcomes.terminal(self.state, request, self._reason)
            self._finish(request, ANSWERED if closing else ending)
        for watch in watches:
            watch.end(self.state, self.ending)
            self.callbacks += watch.take_wakers()
        self._lease_holders.lose_all(self._reason or outcomes.TERMINAL[self.state][1])
        self._requests.clear()
        self._watches.table.clear()
        self._ended = True

    def _everything(self) -> list[Request]:
        """All calls that have not ended."""
        return [*self._requests, *self._identity.authentication]

    def ending(self, op: str | None = None, path: str | None = None) -> ZooKeeperError:
        """The error that says how the session ended, and what it ended or refused."""
        kind, message = outcomes.TERMINAL[self.state]
        return kind(self._reason or message, op=op, path=path)

    def _reject(self, why: str | None = None) -> None:
        """The server does not accept who we are."""
        self._reason = why
        self._enter("reject")

    def start(self, now: float) -> None:
        """Begin to look for a server."""
        self._enter("start")
        self.server = self.hosts.next()
        self.act_at = now + self._connect_timeout

    @property
    def _connect_timeout(self) -> float:
        """Seconds for one attempt: every server can be tried within one session timeout."""
        return self.timeout / (len(self.hosts) + 1)

    # --- what callers ask for ---------------------------------------------------------------------

    def submit(self, request: Request, now: float) -> None:
        """Put a call behind all earlier ones.  Raises at once when the session is over."""
        if self._closing or not self.usable:
            self._check_open(request)
            request.deadline = now + self.timeout
        if request.op not in self._unknown.local:
            self._queue(request)
        elif request.op is ops.AUTH:
            packet = AuthPacket.decode(request.body)
            self._authenticate(packet.scheme, packet.auth or b"", request)
        elif request.op is ops.REMOVE_WATCHES:
            self._remove_watches(request)
        elif self.usable:
            self._finish(request, UNKNOWN)
        else:
            self._queue(request)  # the next server may know it

    def _queue(self, request: Request) -> None:
        try:
            if request.watch is not None:
                self._watches.expect(request, request.watch)
            self._requests.queue.append(request)
        except BaseException:  # refused, or interrupted
            if request.watch is not None and request not in self._requests.queue:
                self._watches.fail(request, request.watch, self.last_zxid, given_up=True)
            raise

    def push(self, request: Request) -> int:
        """:meth:`submit` for a call that is just to be sent, where it can be; else 0.

        How many wait to be handed out then.
        """
        if not self.usable or self._closing or request.watch is not None:
            return 0
        if request.op in self._unknown.local:
            return 0
        queue = self._requests.queue
        queue.append(request)
        return len(queue)

    def _check_open(self, request: Request) -> None:
        if self.ended:
            raise self.ending(request.op.name, request.path)
        if self._closing:
            raise ClientClosedError(outcomes.CLOSING, op=request.op.name, path=request.path)

    def withdraw(self, request: Request) -> bool:
        """The caller no longer waits.  True if the call had not been sent and now never will be."""
        if request.sent or request.ready:
            return False
        queue = self._requests.queue
        try:
            if queue and queue[-1] is request:  # thousands may be given up, the last one first
                queue.pop()
            else:
                queue.remove(request)
        except ValueError:
            return False  # it waits for something else: an authentication
        self._fail(request, outcomes.GIVEN_UP)
        self._tell_server()
        return True

    def add_auth(self, scheme: str, secret: bytes) -> None:
        """Authenticate with these credentials, on this and every later connection."""
        self._authenticate(scheme, secret)

    def _authenticate(self, scheme: str, secret: bytes, request: Request | None = None) -> None:
        """The call, if there is one, has ended when a server has accepted the credential."""
        authentication = self._identity.authentication
        credential = authentication.add(scheme, secret)
        if request is not None:
            credential.requests.append(request)
        if self._handshake.restored and not self.refused:
            self._control.append(authentication.send(credential))

    def _remove_watches(self, request: Request) -> None:
        """Take watches out; if the server need not be told, the call has ended."""
        asked = RemoveWatchesRequest.decode(request.body)
        which = WatchType(asked.type)
        found = self._watches.remove_at(asked.path, which, self.last_zxid)
        told = self._watches.requests.pop(0) if self._watches.requests and self.usable else None
        if told is not None and told.op in self._unknown.ops:
            self._finish(request, UNKNOWN)
        elif told is None:
            self._finish(request, ANSWERED if found else Refused(NoWatcherError.code))
        else:
            request.body = told.body
            self._requests.queue.append(request)
        self._tell_server()

    def forget_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Take a watch out of the table, and with ``tell`` make the server forget it too."""
        if tell:
            self._watches.remove(watch, self.last_zxid)
            self._tell_server()
        else:
            self._watches.drop(watch)

    def _tell_server(self) -> None:
        """Queue what the server must know about watches; a new connection has to know nothing.

        But one that is about to be usable has been told of them: then this waits until it is.
        """
        opening = self._handshake.restored and self.state is State.HANDSHAKE
        if self._watches.requests and not opening:
            if self.usable and not self._closing:
                self._requests.queue.extend(self._unknown.known(self._watches.requests))
            self._watches.requests.clear()

    def hold(self, holder: LeaseHolder) -> None:
        """From now on tell ``holder`` when the session may be gone."""
        self._lease_holders.add(holder)
        if self.ended:
            self._lease_holders.lose_all(self._reason or outcomes.TERMINAL[self.state][1])
        elif self._closing:
            self._lease_holders.lose_all(outcomes.CLOSING)

    @property
    def lease_holders(self) -> Collection[LeaseHolder]:
        """What is held, in the order in which it was acquired."""
        return self._lease_holders.holders

    def unhold(self, holder: LeaseHolder) -> None:
        """The opposite of :meth:`hold`.  Idempotent."""
        self._lease_holders.remove(holder)

    def close(self, now: float) -> Request | None:
        """Begin to end the session; None if there is none to end, else the call to wait for."""
        self._end_at_last()
        if self.ended:
            return None
        if self.session_id == 0:
            self._enter("close")
            return None
        request = Request(ops.CLOSE_SESSION)
        self.submit(request, now)
        self._closing = True
        # The server frees what is held when it reads this; no claim may outlive that.
        self._lease_holders.lose_all(outcomes.CLOSING)
        return request

    def closed(self) -> None:
        """End the session on this side, whatever the server knows."""
        self._end_at_last()
        if not self.ended:
            self._enter("close")

    # --- towards the server -----------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        """Whether :meth:`data_to_send` would hand out something."""
        return bool(self._control or (self._requests.queue and self.usable))

    @property
    def queued(self) -> int:
        """How many requests wait to be handed out."""
        return len(self._requests.queue)

    @property
    def unanswered(self) -> int:
        """How many requests have been handed out and not been answered."""
        return len(self._requests.unanswered)

    def send_alone(self, request: Request, now: float) -> bytes:
        """:meth:`submit` and :meth:`data_to_send` for a call before which nothing waits, in one.

        b"" if something does, or if the call is not just to be sent; then nothing has happened.
        """
        if (
            not self.usable or self._closing or self._requests.queue or self._control
            or self.trace is not None or request.op in self._unknown.local
        ):  # fmt: skip
            return b""
        if request.watch is not None:
            try:
                self._watches.expect(request, request.watch)
            except RuntimeError:
                return b""  # submit will say so, with no connection in hand
        self._live.last_send = now
        return self._requests.send(request, now)

    def data_to_send(self, now: float) -> bytes:
        """The next bytes for the server; from now on their calls count as sent."""
        parts: list[bytes] = []
        if self._control:
            parts, self._control = self._control, parts
            self._requests.position += sum(map(len, parts))
            if self.trace is not None:
                self.trace.control(parts, now)
        if self.usable:
            before = len(self._requests.unanswered)
            parts += self._requests.take(now)
            if self.trace is not None:
                self.trace.sent(self._requests.since(before), now)
        if parts:
            self._live.last_send = now
        return b"".join(parts)

    def connection_made(self, now: float, peer: object = None) -> None:
        """The shell has reached ``target``.  Harmless when the session has ended meanwhile.

        ``peer``: which server of that name it is.
        """
        if self.ended:
            return
        self._unknown.connected(peer or self.server)
        self._forget_connection(now)
        self._control.append(self._identity.greeting(self.last_zxid))
        self._enter("dialled")

    # --- opening a connection ---------------------------------------------------------------------

    def _receive_greeting(self, chunk: bytes, at: int, end: int, now: float) -> None:
        if self.trace is not None:
            self.trace.greeted(end - at, now)
        answer = self._handshake.receive_greeting(chunk, at, end)
        if answer is None:
            if not (self._closing or self.lease_deadline):
                self._reason = outcomes.NOT_RESUMED
            self._enter("close" if self._closing else "expire")
            return
        asked_for = self.timeout
        self._live.greeted(answer.time_out / 1000, read_only=self._handshake.read_only)
        if self.timeout != asked_for:
            for (
                request
            ) in self._everything():  # else those behind end late, as the first is looked at
                request.deadline = now + self.timeout
        if self._handshake.challenge is None:
            self.sasl_done(now)

    @property
    def challenge(self) -> bytes | None:
        """What the shell's SASL mechanism must answer now; b"" to begin with."""
        return self._handshake.challenge

    def sasl_token(self, token: bytes) -> None:
        """The mechanism's answer to the challenge."""
        if self._handshake.challenge is not None:
            self._control.append(self._handshake.sasl_token(token, self._requests.new_xid()))

    def sasl_done(self, now: float) -> None:
        """The mechanism is satisfied; or there is none."""
        if self._handshake.greeted and not self._handshake.restored:
            self._control += self._handshake.restore(self._watches.table, self.last_zxid)
            self._become_usable(now)

    def sasl_failed(self, why: str) -> None:
        """The mechanism does not believe the server."""
        if self.state is State.HANDSHAKE:
            self._reject(why)

    def _become_usable(self, now: float) -> None:
        if self._handshake.done and self.state is State.HANDSHAKE:
            self.failures.clear()
            read_only = self._handshake.read_only
            self._watches.state = State.CONNECTED_READ_ONLY if read_only else State.CONNECTED
            self._watches.reread()
            self._enter("usable read-only" if read_only else "usable")
            for request in self._requests.take_all(self._unknown.ops):
                self._fail(request, UNKNOWN)
            # First: a call that is queued may set a watch there again.
            requests = self._unknown.known([*self._watches.requests, *self._watches.doubts()])
            self._requests.queue.extendleft(reversed(requests))
            self._watches.requests.clear()
            if read_only:
                self._read_write_search.start(now)

    # --- from the server --------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes have arrived.  What they cannot mean sets ``broken``; this never raises."""
        if self._lease_holders.holders:
            self._lapse(now)
        if self.broken or not (self.usable or self.state is State.HANDSHAKE or self.refused):
            return
        size, at = len(data), 0
        if self._splitter.partial:
            data = self._splitter.join(data)
        if self.usable and self.trace is None and len(data) <= self._receive_limit:
            at = self._requests.complete_plain(data, self._live, self.callbacks, now)
        if at == 0 or at < len(data):
            whole = self._receive_frames(data, at, now)
            self._live.received(len(data) - at if at else size, whole, now)

    def _receive_frames(self, data: bytes, at: int, now: float) -> bool:
        """What begins at ``at``, frame by frame; whether one was whole."""
        whole = False
        try:
            if not self._handshake.greeted:
                self._handshake.check_beginning(data)
            for chunk, start, end in self._splitter.cut(data, at):
                whole = True
                if self.broken or self.ended:
                    break
                if self._handshake.greeted:
                    self._receive_frame(chunk, start, end, now)
                else:
                    self._receive_greeting(chunk, start, end, now)
        except AuthFailedError as error:
            self._reject(str(error))
        except ProtocolError as error:
            self.broken, self._garbled = str(error), True
            # Without a definite answer the caller would read again, and break the connection again.
            if isinstance(error, ReplyTooLargeError) and self._requests.unanswered:
                failed = Failed(ReplyTooLargeError, str(error), True)
                self._fail(self._requests.unanswered[0], failed)
        return whole

    def _receive_frame(self, chunk: bytes, at: int, end: int, now: float) -> None:
        if end - at < _REPLY_BYTES:
            raise ProtocolError(f"a reply of {end - at} bytes has no header")
        xid, zxid, code = _read_reply(chunk, at)
        unknown = code != 0 and says_unknown(zxid, code)
        if unknown:
            self._requests.advance(xid)
        if self.trace is not None:
            self.trace.received(xid, zxid, code, end - at, self._requests.unanswered, now)
        at += _REPLY_BYTES
        if xid > 0 and self._handshake.restored:
            request = self._requests.head(xid)
            self._receive_reply(request, zxid, code, chunk, at, end, now)
            if unknown:
                self._unknown.learn(request.op)
                self._stop_sending(now)
        elif xid > 0:
            self._handshake.receive_sasl(xid, code, chunk, at, end)
        elif xid == ops.NOTIFICATION_XID:
            event = WatcherEvent.decode(chunk, at, end)
            self._watches.receive(event.type, event.path, zxid)
        elif xid == ops.SET_WATCHES_XID and unknown:
            self._lack_persistent_watches()
        else:
            self._receive_own(xid, code, now)

    def _receive_own(self, xid: int, code: int, now: float) -> None:
        """An answer to what the session has sent on its own account."""
        if xid == ops.PING_XID:
            self._live.pong(now)
            self._react(code)
            return
        if xid == ops.AUTH_XID:
            for request in self._identity.authentication.receive(code):
                self._finish(request, ANSWERED)
        elif xid == ops.SET_WATCHES_XID:
            self._handshake.receive_watches(code)
        else:
            raise ProtocolError(f"a reply has the xid {xid}")
        self._become_usable(now)

    def _receive_reply(
        self, request: Request, zxid: int, code: int, chunk: bytes, at: int, end: int, now: float
    ) -> None:
        op, record = request.op, None
        if code == 0:
            try:
                if op.reply is not None:
                    record = op.reply.decode(chunk, at, end)
                elif at != end:
                    raise ProtocolError(f"{end - at} unknown trailing bytes")
            except ProtocolError as error:
                message = f"its reply cannot be read: {error}"
                self._fail(request, Failed(ProtocolError, message, True))
                raise
        self._live.answered(request.sent_at, now)
        self._requests.last_zxid = max(self.last_zxid, zxid)
        if request.watch is not None:
            self._watches.answered(request, request.watch, code, record, zxid)
        if request.wakers:
            self.callbacks += request.take_wakers()
        # Of an add_watch the caller wants what to close.
        request.record = request.watch if op is ops.ADD_WATCH else record
        # A missing node is an answer to exists.
        refused = code and not (code == _NO_NODE and op is ops.EXISTS)
        request.outcome = Refused(code) if refused else ANSWERED
        # Late, so that an interrupt anywhere above leaves the call to connection_lost.
        self._requests.unanswered.popleft()
        if self._watches.requests:
            self._tell_server()
        if code:
            self._react(code)
        elif op is ops.CLOSE_SESSION:
            self._enter("close")

    @property
    def refused(self) -> bool:
        """The server does not know what it was sent, and closes this connection."""
        return self.state.usable and not self.usable

    def _stop_sending(self, now: float) -> None:
        """The server closes this connection; what it has read it may still execute and answer."""
        if self.usable:
            for request in self._requests.queue:
                request.deadline = None  # tells them from what is submitted from now on
            self.act_at = now + self._connect_timeout
            self.usable = False

    def _lack_persistent_watches(self) -> None:
        """The server is older than a persistent watch, which another one has set (an upgrade)."""
        self.broken = "the server does not know persistent watches, servers do since 3.6"
        if self.hosts.exhausted:
            self._watches.end_lasting(self.last_zxid)

    def _react(self, code: int) -> None:
        """Some refusals are about the session or the connection, not about the request."""
        if code == SESSION_EXPIRED:
            self._enter("expire")
        elif code in REJECTIONS:
            self._reject(REJECTIONS[code])
        elif code == _SESSION_MOVED:
            self.broken = "the session has moved to another server"

    # --- calls that end ---------------------------------------------------------------------------

    def _finish(self, request: Request, outcome: Answered | Refused | Failed) -> None:
        if request.outcome is None:
            self.callbacks += request.take_wakers()
            request.record = None
            request.outcome = outcome

    def _fail(self, request: Request, outcome: Failed | Refused) -> None:
        if request.watch is not None and not request.ready:
            given_up = outcome is outcomes.GIVEN_UP
            self._watches.fail(request, request.watch, self.last_zxid, given_up=given_up)
        self._finish(request, outcome)

    def connection_lost(self, now: float, written: int, why: str) -> None:
        """The connection is gone, or could not be made.

        ``written`` is how many bytes of it the kernel has taken at most.  Harmless when there is
        no connection.
        """
        self._end_at_last()
        if self.ended or "lost" not in TRANSITIONS[self.state]:
            return
        self._watches.fire()
        if why in (outcomes.CLOSED, outcomes.RESET) and not self._handshake.greeted:
            why += outcomes.ungreeted(self.last_zxid)
        refused = self.refused
        if refused:
            why = self._unknown.refusal()
        else:
            self._unknown.forget()
        server = "{}:{}".format(*(self.server or ("?", 0)))
        self.last_failure = f"{server}: {why}"
        self.failures[server] = why
        if self.state.usable:
            if self._live.has_served(now):
                self.hosts.served()
            for request in self._requests.take_lost(self.usable):
                self._lose(request, now, written, why)
            self._watches.expect_nothing(self._requests.queue)
            for request in self._identity.authentication:
                request.deadline = now + self.timeout
        self._watches.forget_server()
        self.broken, self._garbled = None, False
        self._handshake = Handshake(self._identity)
        self._read_write_search.stop()
        self._control.clear()
        self._enter("lost")
        if refused and self.server is not None:
            self.hosts.prefer(self.server)
        self.act_at = now + self.hosts.pause()

    def _lose(self, request: Request, now: float, written: int, why: str) -> None:
        """End a call that was given to the connection which has broken."""
        if request.op is ops.CLOSE_SESSION:
            request.xid, request.deadline = 0, now + self.timeout  # the next connection will do
            self._requests.queue.append(request)
        elif request.op in self._unknown.ops:
            self._fail(request, UNKNOWN)
        else:
            self._fail(request, outcomes.broken(request, written, why, self._garbled))

    # --- time -------------------------------------------------------------------------------------

    @property
    def lease_deadline(self) -> float:
        """Until then no server can have expired the session; 0 before the first handshake."""
        return 0.0 if self.ended else self._live.lease_deadline

    def next_deadline(self) -> float | None:
        """When :meth:`on_deadline` must be called at the latest; None for not before something."""
        if self.ended or self.state is State.NOT_STARTED:
            return None
        if self.usable:
            due = min(self._live.ping_at, self._live.dead_at)
            if self._read_write_search.at is not None:
                due = min(due, self._read_write_search.at)
        else:
            waiting = [*islice(self._requests.queue, 1), *self._identity.authentication]
            due = min([self.give_up_at, *(c.deadline for c in waiting if c.deadline is not None)])
        return min(due, self.lease_deadline) if self._lease_holders.holders else due

    @property
    def dead_at(self) -> float:
        """When the connection counts as dead if nothing comes."""
        return self._live.dead_at

    @property
    def give_up_at(self) -> float:
        """When to try the next server.  One that has greeted may take its time over the rest."""
        greeted = self.state is State.HANDSHAKE and self._handshake.greeted
        return self._live.dead_at if self.usable or greeted else self.act_at

    def on_deadline(self, now: float) -> None:
        """Do what is due at ``now``; harmless when nothing is."""
        self._end_at_last()
        if self.ended or self.state is State.NOT_STARTED:
            return
        self._lapse(now)
        if self.usable:
            if now >= self._live.dead_at:
                self.broken = f"nothing came for {now - self._live.last_receive:.1f} s"
            elif now >= self._live.ping_at:
                self._live.ping(now)
                self._control.append(own_frames.PING)
            self._read_write_search.on_deadline(now)
            return
        overdue = self._requests.overdue(now), self._identity.authentication.overdue(now)
        for request in chain(*overdue):
            self._fail(request, outcomes.unreachable(self.timeout, self.last_failure))
        if now >= self.give_up_at:
            if self.state is State.DISCONNECTED:
                self.start(now)
            else:
                asked = self.state is State.HANDSHAKE and not self._handshake.greeted
                self.broken = outcomes.SILENT if asked else outcomes.UNANSWERED

    def _lapse(self, now: float) -> None:
        """Whoever holds something must stop once the session may have expired."""
        if self._lease_holders.holders and now >= self.lease_deadline:
            self._lease_holders.lose_all(outcomes.LAPSED)

    @property
    def asking(self) -> tuple[str, int] | None:
        """The server that the shell must ask ``isro`` now."""
        return self._read_write_search.asking

    def answered(self, answer: bytes, now: float) -> bool:
        """What that server said, b"" for nothing; True if it is the one to go to."""
        found = self._read_write_search.answered(answer, now) and self.usable
        if found:
            self.broken = "a read-write server was found"
        return found

    def call(self, function: Waker) -> None:
        """Have a function called with the callbacks, in this place of their order."""
        self.callbacks.append(function)

    def take_callbacks(self) -> list[Waker]:
        """Functions to call now, in this order, outside the shell's locks."""
        # The list stays the same one: others add to it, too.  No call in between, at which an
        # interrupt could come and lose them.
        callbacks = self.callbacks[:]
        del self.callbacks[:]
        return callbacks
