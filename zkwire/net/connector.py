"""Makes and ends connections, keeps the deadlines, runs the SASL mechanism, for both clients.

A subclass is the loop around it: a thread for the blocking client, a part of the event loop for the
asyncio one.  The subclass has a selector (or something with its methods), calls
:meth:`Connector.prepare` before it waits for that, and :meth:`Connector.conclude` after.  The
connector alone makes, ends and closes connections.  It must not know which caller waits for what,
and never blocks.
"""

from __future__ import annotations

from zkwire.errors import AuthFailedError
from zkwire.net.background import report
from zkwire.net.connection import Connection
from zkwire.net.dial import Dialer, shut_down
from zkwire.net.lifetime import OwnerRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Generator
    from typing import Any

    from zkwire.net.driver import Driver
    from zkwire.net.tls import TlsFilter
    from zkwire.session.hosts import Address


# What a server is asked, to know whether it is read-write, and how many seconds it has to answer.
QUESTION = b"isro"
PROBE_SECONDS = 2.0


class Connector:
    """See the module's docstring."""

    _selector: Any  # which the subclass makes

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._mutex = driver.mutex
        self.owner_ref: OwnerRef = OwnerRef(self)
        self._first: dict[tuple[str, int], Address | None] = {}  # the address to begin with
        self._dialer: Dialer | None = None
        self._probe: Dialer | None = None
        self._sasl: Generator[bytes, bytes, None] | None = None
        self._interest = 0  # what the selector listens to on the connection
        self._ended: list[Connection] = []  # ended, and perhaps still in use

    def prepare(self) -> float | None:
        """Do what can be done without waiting; returns when to be called again at the latest."""
        self.close_unused()
        self._dial()
        self._ask()
        with self._mutex:
            due = self._driver.session.next_deadline()
        times = [attempt.due for attempt in self._attempts()]
        return min(times if due is None else [due, *times], default=None)

    def conclude(self, now: float) -> None:
        """Keep the deadlines, and end a connection that is at its end.

        ``now``: everything that had come until this moment has been read.
        """
        driver, connection = self._driver, self._driver.current_connection
        challenge = driver.session.challenge
        if connection is not None and not connection.closed_because and challenge is not None:
            self._authenticate(connection, challenge)
        with self._mutex:
            session = driver.session
            session.on_deadline(now)
            why = session.broken
            if why and connection is None:
                why = why if self._dialer is None else self._dialer.stage
                session.connection_lost(driver.now(), 0, why)
        if connection is not None and (why := connection.closed_because or why):
            self.end(connection, why)
        driver.call_callbacks()
        driver.flush()
        if driver.unfinished:
            driver.finish_clean_up()

    # --- the connection ---------------------------------------------------------------------------

    def _listen_to_connection(self, interest: int) -> None:
        """Make the selector listen to the connection for exactly these events."""
        connection = self._driver.current_connection
        if connection is not None:
            self._listen_for(connection.sock, self._interest, interest)
            self._interest = interest

    def _listen_for(self, sock: socket.socket, before: int, events: int) -> None:
        """Make the selector listen for exactly these events, and not for those ``before``."""
        if before and before != events:
            self._selector.unregister(sock)
        if events and before != events:
            self._selector.register(sock, events)

    def end(self, connection: Connection, why: str) -> None:
        """End the connection."""
        driver = self._driver
        self._listen_to_connection(0)
        with self._mutex:
            connection.closed_because = connection.closed_because or why
            if driver.session.state.usable:  # what was found meanwhile may be long out of date
                for look_up in driver.look_ups.values():
                    look_up.forget()
            driver.current_connection = None
            if driver.session.refused and driver.session.server is not None:
                # What the server at this address does not know is known.
                self._first[driver.session.server] = driver.session.peer
            driver.session.connection_lost(driver.now(), connection.written, why)
        shut_down(connection.sock)
        self._ended.append(connection)
        driver.call_callbacks()

    def close_unused(self) -> None:
        """Close the sockets that no thread uses any more, or ever will: these give no role."""
        if self._ended:
            with self._mutex:
                unused = [
                    each
                    for each in self._ended
                    if each.reader is each.writer is each.listener is None
                ]
                for connection in unused:
                    self._ended.remove(connection)
            for connection in unused:
                self.owner_ref.sockets.discard(connection.sock)
                connection.close()

    def _authenticate(self, connection: Connection, challenge: bytes) -> None:
        """Have the SASL mechanism answer.  It is a user's, so not under the mutex."""
        session, sasl = self._driver.session, self._driver.sasl
        assert sasl is not None
        assert session.server is not None
        token = failure = None
        try:
            if self._sasl is None:
                self._sasl = sasl.exchange(session.server[0])
                token = next(self._sasl)
            else:
                token = self._sasl.send(challenge)
            if not isinstance(token, bytes):
                raise TypeError(f"a SASL token must be bytes, not {type(token).__name__}")
        except StopIteration:
            pass
        except AuthFailedError as error:
            failure = str(error)
        except BaseException as error:
            report(error)
            failure = f"the SASL mechanism failed: {str(error) or type(error).__name__}"
        with self._mutex:
            if failure is not None:
                session.sasl_failed(failure)
            elif token is not None:
                session.sasl_token(token)
            elif not connection.closed_because:  # else what is queued would be lost with it
                session.sasl_done(self._driver.now())

    # --- dialling ---------------------------------------------------------------------------------

    def _continued(
        self,
        attempt: Dialer | None,
        target: tuple[str, int] | None,
        until: float,
        question: bytes = b"",
    ) -> Dialer | None:
        """The attempt that the session wants at this moment, as far as it has come by now."""
        if attempt is not None and attempt.target is not target:
            attempt.cancel()
            attempt = None
        if target is not None:
            if attempt is None:
                first = self._first.get(target)
                attempt = Dialer(target, self._driver, self._listen_for, first, until, question)
            attempt.advance()
        return attempt

    def _go_on(self, sock: socket.socket | None, events: int) -> None:
        """Something can be done on the socket: take the next step of the attempt that it is of."""
        for attempt in self._attempts():
            if attempt.sock is sock:
                attempt.ready(events)

    def _dial(self) -> None:
        """Reach a server, if the session wants one."""
        driver, session = self._driver, self._driver.session
        dialer = self._dialer = self._continued(self._dialer, session.target, session.act_at)
        if dialer is None or not dialer.over:
            return
        self._dialer = None
        if dialer.connected is None:
            dialer.cancel()
            with self._mutex:
                session.connection_lost(driver.now(), 0, dialer.failure)
            driver.wake()
            return
        self._first[dialer.target] = dialer.following
        connection = self._make_connection(dialer.connected, dialer.tls)
        with self._mutex:
            driver.current_connection = connection
            session.connection_made(driver.now(), dialer.address)
        driver.flush()

    def _ask(self) -> None:
        """Ask a server whether it is read-write, if the session wants to know."""
        driver, session = self._driver, self._driver.session
        until = driver.now() + PROBE_SECONDS
        probe = self._probe = self._continued(self._probe, session.asking, until, QUESTION)
        if probe is None or not probe.over:
            return
        self._probe = None
        probe.cancel()
        with self._mutex:
            found = session.answered(probe.answer, driver.now())
        self._first[probe.target] = probe.address if found else probe.following
        driver.wake()

    def _make_connection(self, sock: socket.socket, tls: TlsFilter | None) -> Connection:
        self.owner_ref.sockets.add(sock)
        self._sasl = None
        epolls = self._selector.epolls_for(sock)
        if tls is None:
            return Connection(sock, epolls)
        from zkwire.net.tls_connection import TLSConnection

        return TLSConnection(sock, epolls, tls, self._mutex)

    def _attempts(self) -> list[Dialer]:
        """Those that are being made."""
        return [attempt for attempt in (self._dialer, self._probe) if attempt is not None]

    # --- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the session on this side, the connection and all attempts."""
        with self._mutex:
            self._driver.session.closed()
        if self._driver.current_connection is not None:
            self.end(self._driver.current_connection, "the client is closed")
        for attempt in self._attempts():
            attempt.cancel()
        self._dialer = self._probe = None

    def after_fork(self) -> None:
        """In a forked child: close all sockets, without a byte or a FIN."""
        for connection in self._ended:
            connection.close()
        for attempt in self._attempts():
            attempt.close_socket()
