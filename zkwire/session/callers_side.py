"""The callers' side of a session: what they ask for, and the functions that are called for them."""

from __future__ import annotations

from zkwire.errors import ClientClosedError
from zkwire.session import outcomes
from zkwire.session.life import SessionLife
from zkwire.session.request import Request
from zkwire.session.unknown_operations import UNKNOWN
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.authentication import Credential
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.waitable import Waker
    from zkwire.session.watch import Watch


class CallersSide(SessionLife):
    """See the module's docstring."""

    def submit(self, request: Request, now: float) -> None:
        """Put a request behind all earlier ones.

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
        """:meth:`submit` for a request that needs nothing but to be sent.

        Returns how many requests are queued then, or 0 where nothing was done because the request
        needs more.
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
            raise ClientClosedError(outcomes.CLOSING, op=request.op.name, path=request.path)

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
            self.own_frames.append(self._identity.authentication.send(credential))

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

    def hold(self, holder: LeaseHolder) -> None:
        """From now on tell ``holder`` when the session's lease ends."""
        self._lease_holders.add(holder)
        if self.ended:
            self._lease_holders.lose_all(str(self.ending()))
        elif self._closing:
            self._lease_holders.lose_all(outcomes.CLOSING)

    def unhold(self, holder: LeaseHolder) -> None:
        """Undo :meth:`hold`.  Idempotent."""
        self._lease_holders.remove(holder)

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
        # The server frees what is held when it reads this; no claim may outlive that.
        self._lease_holders.lose_all(outcomes.CLOSING)
        return request

    def take_callbacks(self) -> list[Waker]:
        """The functions to call now, in this order, outside the shell's locks; each once."""
        # The list itself stays, since others append to it.  No call in between: interrupt-safe.
        callbacks = self.callbacks[:]
        del self.callbacks[:]
        return callbacks
