"""The life of a session: how it goes from state to state, and what ends with it.

``states.TRANSITIONS`` is the whole of the state machine; :meth:`SessionLife._enter` is the only
place that moves it.  Why it is moved is :class:`zkwire.session.session.Session`'s matter.

Only a server can say that the session has expired.  What is held locally is told so when the
session's lease ends (:mod:`zkwire.session.liveness`).

An interrupt (a signal handler that raises, such as Ctrl-C) can end any method between two calls.
So whatever ends is ended before it is forgotten: the next event finds it in its old place, and
ending it again changes nothing.  The lines whose place matters for that say ``interrupt-safe``.
"""

from __future__ import annotations

from zkwire.jute.frames import FrameSplitter
from zkwire.session import outcomes
from zkwire.session.handshake import Handshake
from zkwire.session.liveness import LAPSED
from zkwire.session.status import SessionStatus
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.errors import ZooKeeperError
    from zkwire.session.request import Failed, Refused, Request


class SessionLife(SessionStatus):
    """See the module's docstring."""

    act_at: float
    ended: bool
    server: tuple[str, int] | None
    usable: bool

    def start(self, now: float) -> None:
        """Begin to look for a server."""
        self._enter("start")
        self.server = self.hosts.next()
        self.act_at = now + self._connect_timeout

    def _enter(self, by: str) -> None:
        """Take the transition ``by``, with all that follows from the new state."""
        self._machine.enter(by)
        self._follow_state()

    def _follow_state(self) -> None:
        self.usable, self.ended = self.state.usable, self.state.terminal
        if self.ended:
            self._end_everything()

    def _end_at_last(self) -> None:
        """End what an interrupt has kept from ending; called for each later event."""
        if self.state.terminal and not self._all_ended:
            self._machine.tell()
            self._follow_state()

    def _end_everything(self) -> None:
        self._forget_connection()
        self._watches.fire()
        watches = dict.fromkeys(self._watches.table.all())  # an ordered set
        for request in self._everything():
            if request.watch is not None:
                watches[request.watch] = None
            request.complete(outcomes.terminal(self.state, request, self._reason), self.callbacks)
        for watch in watches:
            watch._end(self.state, self.ending)
            self.callbacks.extend(watch._take_wakers())
        self._lease_holders.lose_all(str(self.ending()))
        self._requests.clear()
        self._watches.table.clear()
        self._all_ended = True  # interrupt-safe: last

    def _everything(self) -> list[Request]:
        """All requests that have not ended."""
        return [*self._requests, *self._identity.authentication]

    def _forget_connection(self) -> None:
        """Start afresh what belongs to one connection."""
        self._splitter = FrameSplitter(self._receive_limit)
        self._handshake = Handshake(self._identity)
        self._read_write_search.stop()
        self.own_frames.clear()
        self.refused = False
        self._requests.position = 0

    def ending(self, op: str | None = None, path: str | None = None) -> ZooKeeperError:
        """The error that says how the session ended, for an operation that this ends or refuses."""
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

    def _lapse(self, now: float) -> None:
        """What is held must not outlive the session's lease."""
        if self._lease_holders.holders and now >= self.lease_deadline:
            self._lease_holders.lose_all(LAPSED)
