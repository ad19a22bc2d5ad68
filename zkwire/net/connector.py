"""Makes and ends connections, keeps the deadlines, runs the SASL mechanism: what shells share.

An engine has a selector (or something that looks like one), and somebody who calls :meth:`prepare`
before waiting for it and :meth:`conclude` after: a thread for the blocking client, the event loop
for the asyncio one.  It alone makes, ends and closes connections.  It must not know who waits for
what, and never blocks.
"""

from __future__ import annotations

from weakref import ref

from zkwire.errors import AuthFailedError
from zkwire.net.background import report
from zkwire.net.connection import Connection
from zkwire.net.dial import Dialer, LookUp, shut_down
from zkwire.net.probe import Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from ssl import SSLContext
    from typing import Any, Protocol

    from zkwire.net.dial import Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.session.hosts import Address
    from zkwire.session.session import Session

    class Owner(Protocol):
        """What an engine needs of the pump that it works for."""

        session: Session
        link: Connection | None
        now: Callable[[], float]
        resolver: Resolver
        tls: SSLContext | None
        sasl: Mechanism | None

        def flush(self) -> None: ...
        def call_due(self) -> None: ...

    class Selector(Protocol):
        """What an engine needs of a selector."""

        def register(self, sock: socket.socket, events: int, data: Any = None, /) -> object: ...
        def modify(self, sock: socket.socket, events: int, data: Any = None, /) -> object: ...
        def unregister(self, sock: socket.socket, /) -> object: ...


# How long a server that was asked whether it is read-write has for its answer.
PROBE_SECONDS = 2.0


class Connector:
    """See the module's docstring.  ``mutex`` guards the owner's session."""

    def __init__(
        self,
        owner: Owner,
        mutex: AbstractContextManager[Any],
        selector: Selector,
        wake: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._mutex = mutex
        self._selector = selector
        self.wake = wake
        self._look_ups: dict[tuple[str, int], LookUp] = {}
        self._first: dict[tuple[str, int], Address | None] = {}  # of a name's, to begin with
        self._heard: set[socket.socket] = set()  # those of attempts, in the selector
        self._peer: Address | None = None  # of the connection
        self._dialer: Dialer | None = None
        self._dial_at: float | None = None
        self._probe: Probe | None = None
        self._ask_at: float | None = None
        self._exchange: Generator[bytes, bytes, None] | None = None
        self._interest = 0  # what the selector listens to on the connection
        self._dead: list[Connection] = []  # ended, and perhaps still in use
        self.sockets: set[socket.socket] = set()  # of connections

    def prepare(self) -> float | None:
        """Do what can be done without waiting; returns when to be called again at the latest."""
        self.bury()
        self._dial()
        self._ask()
        with self._mutex:
            due = self._owner.session.next_deadline()
        times = [t for t in (due, self._dial_at, self._ask_at) if t is not None]
        return min(times) if times else None

    def conclude(self, now: float) -> None:
        """Keep the deadlines, and end a connection that is at its end.

        ``now``: a moment until which all that had come has been read.
        """
        owner, link = self._owner, self._owner.link
        if link is not None and not link.end and owner.session.challenge is not None:
            self._authenticate(link, owner.session.challenge)
        with self._mutex:
            session = owner.session
            session.on_deadline(now)
            broken = session.broken or ("the session is over" if session.ended else None)
            if broken and link is None:
                why = broken if self._dialer is None else self._dialer.stage
                session.connection_lost(owner.now(), 0, why)
        if link is not None and (link.end or broken):
            self.end(link, link.end or broken or "")
        owner.call_due()
        owner.flush()

    # --- the connection ---------------------------------------------------------------------------

    def listen(self, interest: int) -> None:
        """Make the selector listen to the connection for exactly these events."""
        link = self._owner.link
        if link is None or interest == self._interest:
            return
        if not self._interest:
            self._selector.register(link.sock, interest)
        elif not interest:
            self._selector.unregister(link.sock)
        else:
            self._selector.modify(link.sock, interest)
        self._interest = interest

    def end(self, link: Connection, why: str) -> None:
        """End the connection."""
        owner = self._owner
        self.listen(0)
        with self._mutex:
            link.end = link.end or why
            if owner.session.state.usable:  # what was found meanwhile may be long out of date
                self._look_ups = {t: it for t, it in self._look_ups.items() if it.found is None}
            owner.link = None
            if owner.session.refused and owner.session.server is not None:
                self._first[owner.session.server] = self._peer  # what it does not know is known
            owner.session.connection_lost(owner.now(), link.written, why)
        shut_down(link.sock)
        self._dead.append(link)
        owner.call_due()

    def bury(self) -> None:
        """Close the sockets that no thread uses any more; nobody gets a role on a dead one."""
        if self._dead:
            with self._mutex:
                unused = [link for link in self._dead if link.reader is link.writer is None]
                for link in unused:
                    self._dead.remove(link)
            for link in unused:
                self.sockets.discard(link.sock)
                link.close()

    def _authenticate(self, link: Connection, challenge: bytes) -> None:
        """Have the SASL mechanism answer.  It is a user's, so not under the mutex."""
        session, sasl = self._owner.session, self._owner.sasl
        assert sasl is not None
        assert session.server is not None
        try:
            if self._exchange is None:
                self._exchange = sasl.exchange(session.server[0])
                token = next(self._exchange)
            else:
                token = self._exchange.send(challenge)
            if not isinstance(token, bytes):
                raise TypeError(f"a SASL token must be bytes, not {type(token).__name__}")
        except StopIteration:
            with self._mutex:
                if not link.end:  # else what has been submitted meanwhile would be lost with it
                    session.sasl_done(self._owner.now())
        except AuthFailedError as error:
            with self._mutex:
                session.sasl_failed(str(error))
        except BaseException as error:
            report(error)
            with self._mutex:
                session.sasl_failed(
                    f"the SASL mechanism failed: {str(error) or type(error).__name__}"
                )
        else:
            with self._mutex:
                session.sasl_token(token)

    # --- dialling ---------------------------------------------------------------------------------

    def _dial(self) -> None:
        owner = self._owner
        target = owner.session.target
        if self._dialer is not None and self._dialer.target is not target:
            self._dialer.cancel()
            self._dialer = None
        self._dial_at = None
        if target is None:
            return
        if self._dialer is None:
            self._dialer = self._new_dialer(target)
        self._dial_at = self._dialer.advance(owner.now(), owner.session.act_at)
        if self._dialer.failure is not None:
            with self._mutex:
                owner.session.connection_lost(owner.now(), 0, self._dialer.failure)
            self._dialer = None
            self.wake()
        elif self._dialer.connected is not None:
            self._first[target], self._peer = self._dialer.following, self._dialer.address
            link, self._dialer = self._link(self._dialer), None
            with self._mutex:
                owner.link = link
                owner.session.connection_made(owner.now(), self._peer)
            owner.flush()

    def _new_dialer(self, target: tuple[str, int]) -> Dialer:
        arrange, first = self._owner.session.hosts.arrange, self._first.get(target)
        return Dialer(target, self._look_up, self._listen_for, self._owner.tls, arrange, first)

    def _link(self, dialer: Dialer) -> Connection:
        """The connection that the dialer has made."""
        assert dialer.connected is not None
        self.sockets.add(dialer.connected)
        self._exchange = None
        if dialer.tls is None:
            return Connection(dialer.connected)
        from zkwire.net.tls_connection import TLSConnection

        return TLSConnection(dialer.connected, dialer.tls, self._mutex)

    def _listen_for(self, attempt: Dialer | Probe, sock: socket.socket, events: int) -> None:
        """Have ``attempt.ready`` called when something can be done on its socket.

        The selector outlives a client that nobody holds, so it does not hold the attempt.
        """
        if not events:
            self._selector.unregister(sock)
            self._heard.discard(sock)
        elif sock in self._heard:
            self._selector.modify(sock, events, ref(attempt))
        else:
            self._selector.register(sock, events, ref(attempt))
            self._heard.add(sock)

    def _ask(self) -> None:
        """Ask a server whether it is read-write, if the session wants to know."""
        owner = self._owner
        target = owner.session.asking
        if self._probe is not None and self._probe.target is not target:
            self._probe.cancel()
            self._probe = None
        self._ask_at = None
        if target is None:
            return
        if self._probe is None:
            dialer = self._new_dialer(target)
            self._probe = Probe(dialer, self._listen_for, owner.now() + PROBE_SECONDS)
        self._ask_at = self._probe.advance(owner.now())
        if self._probe.answer is not None:
            with self._mutex:
                found = owner.session.answered(self._probe.answer, owner.now())
            dialer = self._probe.dialer
            self._first[target] = dialer.address if found else dialer.following
            self._probe = None
            self.wake()

    def _look_up(self, target: tuple[str, int]) -> LookUp:
        """A look-up of the name: the last one as long as nobody has had what it found.

        It may never end, and one that takes longer than an attempt is of use to the next.
        """
        pending = self._look_ups.get(target)
        if pending is None or pending.used:
            pending = self._look_ups[target] = LookUp(target, self._owner.resolver, self.wake)
        return pending

    # --- the end ----------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """End the session on this side, the connection and all attempts."""
        with self._mutex:
            self._owner.session.closed()
        if self._owner.link is not None:
            self.end(self._owner.link, why)
        for attempt in (self._dialer, self._probe):
            if attempt is not None:
                attempt.cancel()
        self._dialer = self._probe = None

    def abandon(self) -> None:
        """In a forked child: close all sockets, without a byte or a FIN."""
        for link in self._dead:
            link.close()
        for attempt in (self._dialer, self._probe):
            if attempt is not None:
                attempt.abandon()
