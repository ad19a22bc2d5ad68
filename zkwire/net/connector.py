"""Makes and ends connections, keeps the deadlines, runs the SASL mechanism, for both clients.

A connector has a selector (or something with its methods), and a caller: a thread for the blocking
client, the event loop for the asyncio one.  The caller calls :meth:`Connector.prepare` before
waiting for the selector and :meth:`Connector.conclude` after.  The connector alone makes, ends and
closes connections.  It must not know which caller waits for what, and never blocks.
"""

from __future__ import annotations

import selectors
from weakref import ref

from zkwire.errors import AuthFailedError
from zkwire.net.background import report
from zkwire.net.connection import Connection
from zkwire.net.dial import Dialer, LookUp, shut_down

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator
    from typing import Any

    from zkwire.net.driver import Driver
    from zkwire.session.hosts import Address


QUESTION = b"isro"
ANSWER_BYTES = 16


class Probe:
    """Asks one server whether it is read-write, by the four-letter word ``isro``.

    ``answer`` is set at its end, b"" if there was none until ``until``.
    """

    def __init__(
        self, dialer: Dialer, listen: Callable[[Any, socket.socket, int], None], until: float
    ) -> None:
        self.target: tuple[str, int] = dialer.target
        self.answer: bytes | None = None
        self.dialer = dialer
        self._listen = listen
        self._until = until
        self._sock: socket.socket | None = None

    def advance(self, now: float) -> float | None:
        """Go on as far as possible; returns when to be called again at the latest."""
        if self.answer is not None:
            return None
        due = self.dialer.advance(now, self._until)
        if self.dialer.failure is not None or now >= self._until:
            self._end(b"")
        elif self.dialer.connected is not None and self._sock is None:
            self._ask(self.dialer.connected)
        return self._until if due is None else min(due, self._until)

    def _ask(self, sock: socket.socket) -> None:
        tls = self.dialer.tls
        sock.setblocking(False)
        self._sock = sock
        self._listen(self, sock, selectors.EVENT_READ)
        try:
            sock.send(QUESTION if tls is None else tls.encrypt(QUESTION))
        except OSError:
            self._end(b"")

    def ready(self, _: int) -> None:
        """The server has answered, or ended the connection."""
        tls, sock = self.dialer.tls, self._sock
        if sock is None:
            return
        try:
            data = sock.recv(ANSWER_BYTES if tls is None else 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        said = data if tls is None else tls.feed(data)
        if said or not data:
            self._end(said)

    def _end(self, answer: bytes) -> None:
        self.answer = answer
        self.cancel()

    def cancel(self) -> None:
        """End it without an answer."""
        if self._sock is not None:
            self._listen(self, self._sock, 0)
            self._sock = None
        self.dialer.cancel()

    def close_sockets(self) -> None:
        """Close the sockets and nothing else."""
        self.dialer.close_sockets()


# How long a server that was asked whether it is read-write has for its answer.
PROBE_SECONDS = 2.0


class Connector:
    """See the module's docstring."""

    def __init__(self, driver: Driver, selector: Any, wake: Callable[[], None]) -> None:
        self._driver = driver
        self._mutex = driver.mutex
        self._selector = selector
        self.wake = wake
        self._first: dict[tuple[str, int], Address | None] = {}  # the address to begin with
        self._heard: set[socket.socket] = set()  # those of attempts, in the selector
        self._peer: Address | None = None  # of the connection
        self._dialer: Dialer | None = None
        self._dial_at: float | None = None
        self._probe: Probe | None = None
        self._ask_at: float | None = None
        self._sasl: Generator[bytes, bytes, None] | None = None
        self._interest = 0  # what the selector listens to on the connection
        self._ended: list[Connection] = []  # ended, and perhaps still in use
        self.sockets: set[socket.socket] = set()  # of connections

    def prepare(self) -> float | None:
        """Do what can be done without waiting; returns when to be called again at the latest."""
        self.close_unused()
        self._dial()
        self._ask()
        with self._mutex:
            due = self._driver.session.next_deadline()
        times = [t for t in (due, self._dial_at, self._ask_at) if t is not None]
        return min(times) if times else None

    def conclude(self, now: float) -> None:
        """Keep the deadlines, and end a connection that is at its end.

        ``now``: a moment until which all that had come has been read.
        """
        driver, connection = self._driver, self._driver.current_connection
        challenge = driver.session.challenge
        if connection is not None and not connection.closed_because and challenge is not None:
            self._authenticate(connection, challenge)
        with self._mutex:
            session = driver.session
            session.on_deadline(now)
            broken = session.broken or ("the session is over" if session.ended else None)
            if broken and connection is None:
                why = broken if self._dialer is None else self._dialer.stage
                session.connection_lost(driver.now(), 0, why)
        if connection is not None and (connection.closed_because or broken):
            self.end(connection, connection.closed_because or broken or "")
        driver.call_callbacks()
        driver.flush()

    # --- the connection ---------------------------------------------------------------------------

    def listen(self, interest: int) -> None:
        """Make the selector listen to the connection for exactly these events."""
        connection = self._driver.current_connection
        if connection is None or interest == self._interest:
            return
        if not self._interest:
            self._selector.register(connection.sock, interest)
        elif not interest:
            self._selector.unregister(connection.sock)
        else:
            self._selector.modify(connection.sock, interest)
        self._interest = interest

    def end(self, connection: Connection, why: str) -> None:
        """End the connection."""
        driver = self._driver
        self.listen(0)
        with self._mutex:
            connection.closed_because = connection.closed_because or why
            if driver.session.state.usable:  # what was found meanwhile may be long out of date
                for look_up in driver.look_ups.values():
                    look_up.forget()
            driver.current_connection = None
            if driver.session.refused and driver.session.server is not None:
                self._first[driver.session.server] = self._peer  # what it does not know is known
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
                self.sockets.discard(connection.sock)
                connection.close()

    def _authenticate(self, connection: Connection, challenge: bytes) -> None:
        """Have the SASL mechanism answer.  It is a user's, so not under the mutex."""
        session, sasl = self._driver.session, self._driver.sasl
        assert sasl is not None
        assert session.server is not None
        try:
            if self._sasl is None:
                self._sasl = sasl.exchange(session.server[0])
                token = next(self._sasl)
            else:
                token = self._sasl.send(challenge)
            if not isinstance(token, bytes):
                raise TypeError(f"a SASL token must be bytes, not {type(token).__name__}")
        except StopIteration:
            with self._mutex:
                if not connection.closed_because:  # else what is queued would be lost with it
                    session.sasl_done(self._driver.now())
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
        driver = self._driver
        target = driver.session.target
        if self._dialer is not None and self._dialer.target is not target:
            self._dialer.cancel()
            self._dialer = None
        self._dial_at = None
        if target is None:
            return
        if self._dialer is None:
            self._dialer = self._new_dialer(target)
        self._dial_at = self._dialer.advance(driver.now(), driver.session.act_at)
        if self._dialer.failure is not None:
            with self._mutex:
                driver.session.connection_lost(driver.now(), 0, self._dialer.failure)
            self._dialer = None
            self.wake()
        elif self._dialer.connected is not None:
            self._first[target], self._peer = self._dialer.following, self._dialer.address
            connection, self._dialer = self._make_connection(self._dialer), None
            with self._mutex:
                driver.current_connection = connection
                driver.session.connection_made(driver.now(), self._peer)
            driver.flush()

    def _new_dialer(self, target: tuple[str, int]) -> Dialer:
        arrange, first = self._driver.session.hosts.arrange, self._first.get(target)
        return Dialer(target, self._look_up, self._listen_for, self._driver.tls, arrange, first)

    def _make_connection(self, dialer: Dialer) -> Connection:
        """The connection that the dialer has made."""
        assert dialer.connected is not None
        self.sockets.add(dialer.connected)
        self._sasl = None
        if dialer.tls is None:
            return Connection(dialer.connected)
        from zkwire.net.tls_connection import TLSConnection

        return TLSConnection(dialer.connected, dialer.tls, self._mutex)

    def _listen_for(self, attempt: Dialer | Probe, sock: socket.socket, events: int) -> None:
        """Have ``attempt.ready`` called when something can be done on its socket.

        The selector outlives a client that nothing refers to, so it does not hold the attempt.
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
        driver = self._driver
        target = driver.session.asking
        if self._probe is not None and self._probe.target is not target:
            self._probe.cancel()
            self._probe = None
        self._ask_at = None
        if target is None:
            return
        if self._probe is None:
            dialer = self._new_dialer(target)
            self._probe = Probe(dialer, self._listen_for, driver.now() + PROBE_SECONDS)
        self._ask_at = self._probe.advance(driver.now())
        if self._probe.answer is not None:
            with self._mutex:
                found = driver.session.answered(self._probe.answer, driver.now())
            dialer = self._probe.dialer
            self._first[target] = dialer.address if found else dialer.following
            self._probe = None
            self.wake()

    def _look_up(self, target: tuple[str, int]) -> LookUp:
        """The look-ups of the name, one of them begun for this attempt.

        One may never end, and one that takes longer than an attempt is of use to the next.
        """
        driver = self._driver
        look_up = driver.look_ups.get(target)
        if look_up is None:
            look_up = driver.look_ups[target] = LookUp(
                target, driver.resolver, self.wake, driver.now
            )
        look_up.ask()
        return look_up

    # --- the end ----------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """End the session on this side, the connection and all attempts."""
        with self._mutex:
            self._driver.session.closed()
        if self._driver.current_connection is not None:
            self.end(self._driver.current_connection, why)
        for attempt in (self._dialer, self._probe):
            if attempt is not None:
                attempt.cancel()
        self._dialer = self._probe = None

    def after_fork(self) -> None:
        """In a forked child: close all sockets, without a byte or a FIN."""
        for connection in self._ended:
            connection.close()
        for attempt in (self._dialer, self._probe):
            if attempt is not None:
                attempt.close_sockets()
