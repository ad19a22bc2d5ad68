"""The state machine: one ZooKeeper session over any number of connections.

It owns every decision about the session: what is sent and in which order, what a byte from the
server means, when a connection is dead, how a request ends.  It must not know sockets, clocks,
threads or randomness: bytes and ``now`` (seconds on a clock that does not stop) come in, bytes and
the next deadline go out.  Same input, same output.

Invariants:

* Replies and watch events take effect in the order of the wire; a watch is registered in the step
  that handles the reply which sets it.  Hence: *if a reply shows a change, the watch for that
  change has already fired.*
* A connection that breaks ends every request that was given to it: with NotSentError if the kernel
  did not take all of its bytes, else with OutcomeUnknownError.  Requests submitted while there is
  no connection wait for the next one, for a session timeout at most.  Nothing is sent twice.
* A server that does not know an operation closes the connection (``refused``): nothing more is sent
  on it, what still arrives is read, and what is submitted from then on waits for the next one.
* On a new connection: connect request, authentication, watches, and when all that is answered, the
  queue.

An I/O layer does this, in a loop: connect to ``target`` while it is set; call one method for each
thing that happens (bytes, end of stream, a deadline); drop the connection when ``broken`` is set;
write what :meth:`Session.data_to_send` returns; call every function of
:meth:`Session.take_callbacks`, outside its locks.
"""

from __future__ import annotations

import math
import struct
from itertools import islice

from zkwire import errors
from zkwire.jute.multi import MultiResponse
from zkwire.jute.records import WatcherEvent
from zkwire.session import outcomes
from zkwire.session.liveness import LAPSED
from zkwire.session.outcomes import UNKNOWN, says_unknown
from zkwire.session.request import ANSWERED, STILL_THERE, Refused, Request, about_session
from zkwire.session.states import TRANSITIONS
from zkwire.session.status import SessionStatus
from zkwire.wire import ops
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.handshake import Credential
    from zkwire.session.hosts import Address
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.waitable import Waker, Watch

_REPLY = struct.Struct(">iqi")  # xid, zxid, err
_REPLY_BYTES = _REPLY.size
_read_reply = _REPLY.unpack_from

# Seconds before a server is asked whether it is read-write, while the present one is read-only.
FIRST_SEARCH_PAUSE = 0.1
LONGEST_SEARCH_PAUSE = 60.0
READ_WRITE = b"rw"

_EXPIRED = errors.SESSION_EXPIRED
_NO_NODE = errors.NoNodeError.code
_SESSION_MOVED = errors.SessionMovedError.code


class Session(SessionStatus):
    """See the module's docstring; the arguments are those of :class:`SessionStatus`."""

    __slots__ = ()
    act_at: float
    last_failure: str
    control_frames: list[bytes]
    refused: bool

    # --- for callers ------------------------------------------------------------------------------

    def submit(self, request: Request, now: float) -> None:
        """Put a request after all earlier ones.

        Raises what ended the session, ClientClosedError while it is being closed, and RuntimeError
        for a watch that cannot stand beside the others on its path.
        """
        if self._closing or not self.usable:
            self._check_open(request)
            request.deadline = now + self.timeout
        if request.op not in self._unknown.local:
            self._queue(request)
        elif request.op is ops.AUTH:
            self._authenticate(self._identity.authentication.submit(request))
        elif request.op is ops.REMOVE_WATCHES:
            self._remove_watches(request)
        elif self.usable:
            request.complete(UNKNOWN, self.callbacks)
        else:
            self._queue(request)  # the next server may know it

    def _queue(self, request: Request) -> None:
        try:
            if request.watch is not None:
                self._watches.expect(request, request.watch)
            self.queue.append(request)
        except BaseException:  # refused, or interrupted
            if request.watch is not None and request not in self.queue:
                self._watches.fail(request, request.watch, self.last_zxid, withdrawn=True)
            raise

    def push(self, request: Request) -> int:
        """:meth:`submit` for a request that only has to be sent.

        Returns how many requests are queued then.  0: nothing was done, since more than that has to
        be done for this request.
        """
        if not self.usable or self._closing or request.watch is not None:
            return 0
        if request.op in self._unknown.local:
            return 0
        queue = self.queue
        queue.append(request)
        return len(queue)

    def _check_open(self, request: Request) -> None:
        if self.ended:
            raise self.ending(request.op.name, request.path)
        if self._closing:
            raise errors.ClientClosedError(outcomes.CLOSING, op=request.op.name, path=request.path)

    def withdraw(self, request: Request) -> bool:
        """The caller no longer waits.  True if the request was queued and is never sent."""
        if request.sent or request.ready:
            return False
        queue = self.queue
        try:
            if queue and queue[-1] is request:  # thousands are withdrawn from the end
                queue.pop()
            else:
                queue.remove(request)
        except ValueError:
            return False  # an authentication, which is not in the queue
        self._fail(request, outcomes.WITHDRAWN)
        self._tell_server()
        return True

    def add_auth(self, scheme: str, secret: bytes) -> None:
        """Authenticate with these credentials, on this and every later connection."""
        self._authenticate(self._identity.authentication.add(scheme, secret))

    def _authenticate(self, credential: Credential) -> None:
        if self._handshake.restored and not self.refused:
            self.control_frames.append(self._identity.authentication.send(credential))

    def _remove_watches(self, request: Request) -> None:
        outcome = self._watches.remove_asked(request, self.last_zxid, self.usable)
        if outcome is not None:
            request.complete(outcome, self.callbacks)
        elif request.op in self._unknown.ops:
            request.complete(UNKNOWN, self.callbacks)
        else:
            self.queue.append(request)
        self._tell_server()

    def forget_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Remove a watch from the table, and with ``tell`` from the server too."""
        if tell:
            self._watches.remove(watch, self.last_zxid)
            self._tell_server()
        else:
            self._watches.drop(watch)

    def _tell_server(self) -> None:
        """Queue what the server must be told about watches; while restoring, that waits."""
        if self._watches.requests and not self._restoring:
            if self.usable and not self._closing:
                self.queue.extend(self._unknown.known(self._watches.requests))
            self._watches.requests.clear()

    def hold(self, holder: LeaseHolder) -> bool:
        """From now on tell ``holder`` when the session's lease ends.

        Returns whether that may be before anything else is due.
        """
        self.lease_holders[holder] = None
        if self.ended:
            self._lose_all(str(self.ending()))
        elif self._closing:
            self._lose_all(outcomes.CLOSING)
        return not self.usable or self._live.lease_ends_first

    def unhold(self, holder: LeaseHolder) -> None:
        """Undo :meth:`hold`.  Idempotent."""
        if holder in self.lease_holders:
            self.callbacks.extend(holder._let_go())
            self.lease_holders.pop(holder, None)  # interrupt-safe: last

    def close(self, now: float) -> Request | None:
        """Begin to end the session; the request to wait for, or None if the session has ended."""
        self._end_at_last()
        if self.ended:
            return None
        if self.session_id == 0:
            self._enter("close")
            return None
        request = Request(ops.CLOSE_SESSION)
        self.submit(request, now)
        self._closing = True
        # When the server reads this, it frees what is held: no claim may last longer.
        self._lose_all(outcomes.CLOSING)
        return request

    def take_callbacks(self) -> list[Waker]:
        """The functions to call now, in this order, outside the I/O layer's locks; each once."""
        # The list itself stays, since others append to it.  No call in between: interrupt-safe.
        callbacks = self.callbacks[:]
        del self.callbacks[:]
        return callbacks

    # --- to the server ----------------------------------------------------------------------------

    def send_alone(self, request: Request, now: float) -> bytes:
        """:meth:`submit` and :meth:`data_to_send` in one, for a request with none before it.

        Returns b"", and does nothing, if other frames wait, or if the request does not only have to
        be sent.
        """
        if (
            not self.usable or self._closing or self.queue or self.control_frames
            or self.trace is not None or request.op in self._unknown.local
        ):  # fmt: skip
            return b""
        if request.watch is not None:
            try:
                self._watches.expect(request, request.watch)
            except RuntimeError:
                return b""  # submit raises it again, outside the I/O layer's critical section
        self._live.last_send = now
        frame = self._requests.send(request, now)
        if not request.following:
            return frame
        return frame + b"".join([self._requests.send(each, now) for each in request.following])

    def data_to_send(self, now: float) -> bytes:
        """The next bytes for the server; from now on their requests count as sent."""
        if not self.control_frames:
            if not self.queue:
                return b""
            if len(self.queue) == 1 and self.usable and self.trace is None:
                self._live.last_send = now
                frame = self._requests.send(self.queue[0], now)
                self.queue.popleft()  # interrupt-safe: last, so it is never in neither place
                return frame
        parts: list[bytes] = []
        if self.control_frames:
            parts, self.control_frames = self.control_frames, parts
            self._requests.position += sum(map(len, parts))
            if self.trace is not None:
                self.trace.control_frames(parts, now)
        if self.usable:
            before = len(self.in_flight)
            parts += self._requests.take(now)
            if self.trace is not None:
                self.trace.sent(islice(self.in_flight, before, None), now)
        if parts:
            self._live.last_send = now
        return b"".join(parts)

    # --- the handshake ----------------------------------------------------------------------------

    def connection_made(self, now: float, peer: Address | None = None) -> None:
        """The I/O layer has connected to ``target``.  Does nothing if the session has ended.

        ``peer`` tells the servers of one name apart.
        """
        if self.ended:
            return
        before, self._address = self._address, peer or self.server
        self._peer = peer
        if self._address != before:
            self._unknown.forget()
        self._forget_connection()
        # A server whose data are older closes the connection, and does not say whether the session
        # is over.  So when all have done so for long, one is asked as by a client that has seen
        # nothing.  A session that only a read-only server knows has no lease, and is not asked for.
        self._only_asking = (
            self.hosts.exhausted
            and 0.0 < self.lease_deadline <= now - self.timeout
            and bool(outcomes.perhaps_older(self.last_failure, self.last_zxid))
        )
        asking, seen = self._only_asking, 0 if self._only_asking else self.last_zxid
        self._live.open(now)
        self.control_frames.append(self._identity.greeting(seen, only_asking=asking))
        self._enter("dialled")

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
        if self._only_asking:
            self.broken = "the session lives, and the next connection is to resume it"
            return
        if self._address == self._closed_by:
            self._live.doubt(now)
        if self.timeout != asked_for:
            # All deadlines, since only the first of the queue is looked at.
            for request in self._everything():
                request.deadline = now + self.timeout
        if self._handshake.challenge is None:
            self.sasl_done(now)

    def sasl_token(self, token: bytes) -> None:
        """The mechanism's answer to the challenge."""
        if self._handshake.challenge is not None:
            self.control_frames.append(self._handshake.sasl_token(token, self._requests.new_xid()))

    def sasl_done(self, now: float) -> None:
        """The mechanism has finished, or there is none."""
        if self._handshake.greeted and not self._handshake.restored:
            self.control_frames += self._handshake.restore(self._watches, self.last_zxid)
            self._become_usable(now)

    def _become_usable(self, now: float) -> None:
        if not (self._handshake.done and self.state is State.HANDSHAKE):
            return
        self.failures.clear()
        read_only = self._handshake.read_only
        self._watches.reread(State.CONNECTED_READ_ONLY if read_only else State.CONNECTED)
        self._enter("usable read-only" if read_only else "usable")
        for request in self._requests.take_all(self._unknown.ops):
            self._fail(request, UNKNOWN)
        # Before the queue: a request in it may set a watch there again.
        first = self._unknown.known([*self._watches.requests, *self._watches.take_repeats()])
        self.queue.extendleft(reversed(first))
        self._watches.requests.clear()
        if read_only:
            self._search_pause = FIRST_SEARCH_PAUSE
            self._search_at = now + self._search_pause

    # --- from the server --------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes have arrived.  Never raises; bytes that make no sense set ``broken``."""
        if self.lease_holders:
            self._lapse(now)
        if self.broken or not (self.usable or self.state is State.HANDSHAKE or self.refused):
            return
        size = have = len(data)
        if self._splitter.partial:
            data = self._splitter.join(data)
            have = len(data)
        at = 0
        if self.usable and self.trace is None and have <= self._receive_limit:
            at = self._requests.complete_plain(data, self._live, self.callbacks, now)
        if not at or at < have:
            whole = self._receive_frames(data, at, now)
            self._live.received(have - at if at else size, whole, now)

    def _receive_frames(self, data: bytes, at: int, now: float) -> bool:
        """Handle frame by frame what begins at ``at``; whether a frame was whole."""
        whole = False
        try:
            if not self._handshake.greeted:
                self._handshake.check_beginning(data)
            for chunk, start, end in self._splitter.cut(data, at):
                whole = True
                if self.broken:
                    break
                if self._handshake.greeted:
                    self._receive_frame(chunk, start, end, now)
                else:
                    self._receive_greeting(chunk, start, end, now)
        except errors.AuthFailedError as error:
            self._reject(str(error))
        except errors.ProtocolError as error:
            self.broken, self._garbled = str(error), True
            # After any other outcome the caller would repeat it, and break the next connection too.
            if isinstance(error, errors.ReplyTooLargeError) and self.in_flight:
                self._fail(self.in_flight[0], outcomes.unreadable(error))
        return whole

    def _receive_frame(self, chunk: bytes, at: int, end: int, now: float) -> None:
        if end - at < _REPLY_BYTES:
            raise errors.ProtocolError(f"a reply of {end - at} bytes has no header")
        xid, zxid, code = _read_reply(chunk, at)
        unknown = code != 0 and says_unknown(zxid, code)
        if unknown:
            self._requests.advance(xid)
        if self.trace is not None:
            self.trace.received(xid, zxid, code, end - at, self.in_flight, now)
        at += _REPLY_BYTES
        if xid > 0 and self._handshake.restored:
            request = self._requests.head(xid)
            self._receive_reply(request, zxid, code, chunk, at, end, now)
            if unknown:
                self._unknown.learn(request.op)
                # The server closes it, and may still execute and answer what it has read.
                self.refused = self.stop_sending(now) or self.refused
        elif xid > 0:
            self._handshake.receive_sasl(xid, code, chunk, at, end)
        elif xid == ops.NOTIFICATION_XID:
            event = WatcherEvent.decode(chunk, at, end)
            self._watches.receive(event.type, event.path, zxid)
        elif xid == ops.SET_WATCHES_XID and unknown:
            self._lack_persistent_watches()
        else:
            self._live.last_answer = now
            self._receive_own(xid, code, now)

    def _receive_own(self, xid: int, code: int, now: float) -> None:
        """An answer to one of the session's own frames."""
        if xid == ops.PING_XID:
            self._live.pong(now)
            self._react(code)
            return
        if xid == ops.AUTH_XID:
            for request in self._identity.authentication.receive(code):
                request.complete(ANSWERED, self.callbacks)
        elif xid == ops.SET_WATCHES_XID:
            self._handshake.receive_watches(code)
        else:
            raise errors.ProtocolError(f"a reply has the xid {xid}")
        self._become_usable(now)

    def _receive_reply(
        self, request: Request, zxid: int, code: int, chunk: bytes, at: int, end: int, now: float
    ) -> None:
        op, record = request.op, None
        if code == 0:
            try:
                record = op.decode_reply(chunk, at, end)
            except errors.ProtocolError as error:
                self._fail(request, outcomes.unreadable(error))
                raise
            if op is ops.MULTI:
                code = about_session(record)
        self._live.answered(request.sent_at, now)
        self._requests.last_zxid = max(self.last_zxid, zxid)
        if code == _EXPIRED and isinstance(record, MultiResponse) and not self._closing:
            self._requests.ask_about(request, record)
            return
        if request.watch is not None:
            self._watches.answered(request, request.watch, code, record, zxid)
        if request._wakers:
            self.callbacks.extend(request._take_wakers())
        # The caller of an add_watch needs the watch, to close it.
        request.record = request.watch if op is ops.ADD_WATCH else record
        # A missing node is an answer to exists.
        refused = code and not (code == _NO_NODE and op is ops.EXISTS)
        request.outcome = Refused(code) if refused else ANSWERED
        self.in_flight.popleft()  # interrupt-safe: late
        if self._watches.requests:
            self._tell_server()
        if code:
            self._react(code)
        elif op is ops.CLOSE_SESSION:
            self._enter("close")

    def stop_sending(self, now: float) -> bool:
        """The connection is about to end: what is submitted from now on waits for the next one.

        False if that is so already.
        """
        if not self.usable:
            return False
        for request in self.queue:
            request.deadline = None  # what is submitted from now on has one
        self.act_at = now + self._connect_timeout
        self.usable = False
        return True

    def _lack_persistent_watches(self) -> None:
        """The server is older than a persistent watch that a newer one has set (an upgrade)."""
        self.broken = "the server does not know persistent watches, servers do since 3.6"
        if self.hosts.exhausted:
            self._watches.end_lasting(self.last_zxid)

    def _react(self, code: int) -> None:
        """Some refusals are about the session or the connection, not about the request."""
        if code == _EXPIRED:
            self._enter("expire")
        elif code in errors.REJECTIONS:
            self._reject(errors.REJECTIONS[code])
        elif code == _SESSION_MOVED:
            self.broken = "the session has moved to another server"

    # --- a connection that ends -------------------------------------------------------------------

    def connection_lost(self, now: float, written: int, why: str) -> None:
        """The connection has ended, or could not be made.  Harmless when there is none.

        ``written``: how many of its bytes the kernel has taken, at most.
        """
        self._end_at_last()
        if self.ended or "lost" not in TRANSITIONS[self.state]:
            return
        self._watches.fire()
        refused = self.refused
        closed = self._handshake.greeted and why in (outcomes.CLOSED, outcomes.RESET)
        self._closed_by = self._address if closed and not refused else None
        if refused:
            why = self._unknown.refusal()
        else:
            self._unknown.forget()
            why = self._handshake.explain(why, self.last_zxid)
        server = "{}:{}".format(*(self.server or ("?", 0)))
        self.last_failure = f"{server}: {why}"
        self.failures[server] = why
        if self.state.usable:
            if self._live.has_served(now):
                self.hosts.served()
            for request in self._requests.take_lost(self.usable):
                self._lose(request, now, written, why)
            self._watches.expect_nothing(self.queue)
            for request in self._identity.authentication:
                request.deadline = now + self.timeout
        self._watches.forget_server()
        self.broken, self._garbled = None, False
        self._forget_connection()
        self._enter("lost")
        if refused and self.server is not None:
            self.hosts.prefer(self.server)
        self.act_at = now + self.hosts.pause(closed=self._closed_by is not None)

    def _lose(self, request: Request, now: float, written: int, why: str) -> None:
        """End a request that was given to the connection which has broken."""
        if request.op in (ops.CLOSE_SESSION, STILL_THERE):
            request.xid, request.deadline = 0, now + self.timeout  # for the next connection
            self.queue.append(request)
        elif request.op in self._unknown.ops:
            self._fail(request, UNKNOWN)
        else:
            self._fail(request, outcomes.broken(request, written, why, self._garbled))

    # --- time -------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When :meth:`on_deadline` must be called at the latest; None if time changes nothing."""
        if self.ended or self.state is State.NOT_STARTED:
            return None
        if self.usable:
            due = min(self._live.ping_at, self._live.dead_at, self._search_at)
        else:
            waiting = [*islice(self.queue, 1), *self._identity.authentication]
            due = min([self.give_up_at, *(r.deadline for r in waiting if r.deadline is not None)])
        if self.alarms:
            due = min([due, *(alarm.at for alarm in list(self.alarms))])
        return min(due, self.lease_deadline) if self.lease_holders else due

    def _lapse(self, now: float) -> None:
        """What is held must not outlive the session's lease."""
        if self.lease_holders and now >= self.lease_deadline:
            self._lose_all(LAPSED)

    def on_deadline(self, now: float) -> None:
        """Do what is due at ``now``; harmless when nothing is."""
        self._end_at_last()
        if self.ended or self.state is State.NOT_STARTED:
            return
        self._lapse(now)
        for alarm in list(self.alarms):
            if alarm.at <= now:
                self.callbacks.extend(alarm._ring())
                self.alarms.pop(alarm, None)  # interrupt-safe: last, so that it rings again
        if self.usable:
            if now >= self._live.dead_at:
                self.broken = self._live.silence(now)
            elif now >= self._live.ping_at:
                self._live.ping(now)
                self.control_frames.append(ops.PING_FRAME)
            if now >= self._search_at:
                self.asking, self._search_at = self.hosts.next(), math.inf
            return
        for waiting in (self.queue, *self._identity.authentication.waiting):
            while waiting and waiting[0].deadline is not None and waiting[0].deadline <= now:
                why = outcomes.unreachable(self.timeout, self.last_failure, self.last_zxid)
                self._fail(waiting[0], why)
                waiting.popleft()  # interrupt-safe: after its end
        if now >= self.give_up_at:
            if self.state is State.DISCONNECTED:
                self.start(now)
            else:
                asked = self.state is State.HANDSHAKE and not self._handshake.greeted
                self.broken = outcomes.SILENT if asked else outcomes.UNANSWERED

    def answered(self, answer: bytes, now: float) -> bool:
        """What the server ``asking`` has said, b"" for nothing; True if the client goes to it.

        The next one is asked after pauses that double up to a minute, as by Java's
        ``ClientCnxn.pingRwServer``.
        """
        server, self.asking = self.asking, None
        if server is None:
            return False  # the connection has been lost meanwhile
        if answer.startswith(READ_WRITE):
            self.hosts.prefer(server)
            if self.usable:
                self.broken = "a read-write server was found"
            return self.usable
        self._search_pause = min(self._search_pause * 2, LONGEST_SEARCH_PAUSE)
        self._search_at = now + self._search_pause
        return False
