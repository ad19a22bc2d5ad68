"""Reaching a server: names resolved anew at each attempt, every address of a name tried.

One :class:`Dialer` is one attempt; the next one begins behind the address that it has reached, for
what accepts connections there may be no server of use.  It lives in the I/O thread's selector and
never blocks there: connects are non-blocking, and a name (not an address) is looked up in a thread
of its own, because a look-up can take half a minute and cannot be cancelled.
"""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
import threading

from zkwire.session.outcomes import RESET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext
    from typing import Any

    from zkwire.net.tls import TlsFilter
    from zkwire.session.hosts import Address

    Resolver = Callable[[str, int], list[Address]]


# Of one name, for one client: a look-up cannot be ended, and one that hangs says nothing about the
# next, which may ask another name server.
MOST_LOOK_UPS = 3

_HANDSHAKE_BYTES = 16 * 1024
_CONNECTING = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)  # the last is Windows' word for it
_LONGEST_POLL = 1e6  # seconds; the system call takes a 32-bit number of milliseconds


def resolve(host: str, port: int) -> list[Address]:
    """Every stream address of ``host``, IPv6 and IPv4; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _literal(host: str, port: int) -> list[Address]:
    """The address that ``host`` is, when it is no name; for a str Python would load IDNA."""
    try:
        numeric = host.encode("ascii")
        flags = socket.AI_NUMERICHOST
        found = socket.getaddrinfo(numeric, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, ValueError):  # ValueError: it cannot even be the name of anything
        return []
    return [(family, address) for family, _, _, _, address in found]


class LookUp:
    """The look-ups of one name, each in a thread of its own; ``wake`` is called at each one's end.

    ``found``: what the first to end has found, until an attempt has ``used`` it and the next one
    asks.  The clock ``now`` is in seconds.
    """

    def __init__(
        self,
        target: tuple[str, int],
        resolver: Resolver,
        wake: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.found: list[Address] | str | None = None  # str: why there is nothing
        self.used: bool = False
        self._target, self._resolver, self._wake, self._now = target, resolver, wake, now
        self._running: list[float] = []  # when each has begun, the oldest first

    def ask(self) -> None:
        """Begin another look-up unless one has found something, or MOST_LOOK_UPS are running."""
        if self.used:
            self.forget()
        if self.found is not None or len(self._running) >= MOST_LOOK_UPS:
            return
        begun = self._now()
        self._running.append(begun)
        try:
            threading.Thread(
                target=self._run, args=(begun,), name="zkwire-resolve", daemon=True
            ).start()
        except RuntimeError as error:
            self._running.remove(begun)
            self.found = str(error)

    def forget(self) -> None:
        """What was found is of no use any more."""
        self.found, self.used = None, False

    @property
    def seconds(self) -> float:
        """For how long the oldest look-up has been running; 0 if there is none."""
        oldest = next(iter(self._running), None)
        return 0.0 if oldest is None else self._now() - oldest

    def __str__(self) -> str:
        return (
            f"the look-up of the name {self._target[0]} has been running for {self.seconds:.1f} s"
        )

    def _run(self, begun: float) -> None:
        found: list[Address] | str
        try:
            found = self._resolver(*self._target)
        except (OSError, ValueError) as error:
            found = f"cannot resolve the name: {error}"
        self._running.remove(begun)
        if self.found is None:
            self.found = found
        self._wake()


class Dialer:
    """One attempt to reach ``host``; ends with ``connected`` or with ``failure`` set.

    ``look_up(target)`` begins or joins a look-up.  ``listen(dialer, sock, events)`` has the owner's
    selector call :meth:`ready`; with no events it stops.  With ``secure`` a connection counts once
    its TLS handshake is done, and ``tls`` is its filter.  ``arrange`` puts the addresses of a name
    in order, ``first``: begin with this one, if the name still has it.
    """

    def __init__(
        self,
        target: tuple[str, int],
        look_up: Callable[[tuple[str, int]], LookUp],
        listen: Callable[[Any, socket.socket, int], None],
        secure: SSLContext | None,
        arrange: Callable[[list[Address]], list[Address]],
        first: Address | None,
    ) -> None:
        self.target = target
        self.address: Address | None = None  # the one in hand
        self.connected: socket.socket | None = None
        self.tls: TlsFilter | None = None
        self.failure: str | None = None
        self._listen = listen
        self._secure = secure
        self._sock: socket.socket | None = None
        self._backlog = b""
        self._reasons: list[str] = []
        self._arrange, self._first = arrange, first
        self._addresses: list[Address] | None = _literal(*target) or None
        self._order = tuple(self._addresses or ())
        self._look_up = None if self._addresses else look_up(target)
        self._give_up = 0.0

    def advance(self, now: float, until: float) -> float | None:
        """Go on as far as possible without blocking; returns when to be called again at the latest.

        ``until`` is when the whole attempt ends; the addresses that are left share what is left.
        """
        if self.connected is not None:
            return None
        if self._addresses is None:
            look_up = self._look_up
            if look_up is None or (found := look_up.found) is None:
                return None
            look_up.used = True
            if isinstance(found, str):
                self.failure = found
                return None
            found = self._arrange(found)
            at = found.index(self._first) if self._first in found else 0
            self._addresses = [*found[at:], *found[:at]]
            self._order = tuple(self._addresses)
        if self._sock is not None and now >= self._give_up:
            self._next("no answer")
        while self._sock is None and self._addresses:
            share = (until - now) / len(self._addresses)
            self._give_up = now + max(share, 0.0)
            self.address = self._addresses.pop(0)
            self._connect(*self.address)
        if self._sock is None and self.failure is None:
            self.failure = "; ".join(dict.fromkeys(self._reasons)) or "the name has no address"
        return self._give_up

    @property
    def following(self) -> Address | None:
        """The address behind the one in hand, around the circle; None if there is none."""
        return next(iter(self._addresses or self._order), None)

    @property
    def stage(self) -> str:
        """What became of the attempt so far, if it ends now."""
        if self._addresses is None:
            here = str(self._look_up)
        elif self.tls is not None:
            here = "no answer to the TLS handshake"
        else:
            here = "no answer"
        return "; ".join(dict.fromkeys([*self._reasons, here]))

    def _connect(self, family: int, address: Any) -> None:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._reasons.append(str(error))
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code not in _CONNECTING:
            sock.close()
            self._reasons.append(_words_for(code))
            return
        self._sock, self.tls = sock, None
        self._listen(self, sock, selectors.EVENT_WRITE)

    def _next(self, reason: str) -> None:
        """Continue with the next address, for this ``reason``."""
        self._reasons.append(reason)
        if self._sock is not None:
            self._listen(self, self._sock, 0)
            self._sock.close()
            self._sock = None

    def ready(self, events: int) -> None:
        """The selector says that something can be done on the socket."""
        sock = self._sock
        if sock is None or self.connected is not None:
            return
        if self.tls is not None:
            self._shake_hands(sock, self.tls, bool(events & selectors.EVENT_READ))
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._next(_words_for(code))
        elif self._secure is None:
            self._succeed(sock)
        else:
            from zkwire.net.tls import TlsFilter

            try:
                self.tls, self._backlog = TlsFilter(self._secure, self.target[0]), b""
            except ValueError as error:  # the name cannot be a certificate's
                self._next(f"TLS: {error}")
            else:
                self._shake_hands(sock, self.tls, False)

    def _shake_hands(self, sock: socket.socket, tls: TlsFilter, readable: bool) -> None:
        """Go on with the TLS handshake as far as possible without blocking."""
        import ssl

        from zkwire.net.tls import describe

        try:
            if readable:
                data = sock.recv(_HANDSHAKE_BYTES)
                if not data:
                    self._next(
                        "TLS: the other side ended the connection; perhaps it does not speak TLS"
                    )
                    return
                tls.feed(data)
            done = tls.handshake()
            self._backlog += tls.take_output()
            self._backlog = self._backlog[sock.send(self._backlog) :] if self._backlog else b""
        except BlockingIOError:
            done = False
        except ssl.SSLError as error:
            try:
                sock.send(tls.take_output())  # the alert that tells the server why
            except OSError:
                pass
            self._next(describe(error))
            return
        except OSError as error:
            self._next(f"TLS: {error.strerror or error}")
            return
        if done and not self._backlog:
            self._succeed(sock)
        else:
            writing = selectors.EVENT_WRITE if self._backlog else 0
            self._listen(self, sock, selectors.EVENT_READ | writing)

    def _succeed(self, sock: socket.socket) -> None:
        self._listen(self, sock, 0)  # and it never blocks: gevent's sockets know no MSG_DONTWAIT
        self._sock, self.connected = None, sock

    def cancel(self) -> None:
        """End the whole attempt; a look-up that is under way ends without an effect."""
        if self._sock is not None:
            self._listen(self, self._sock, 0)
        self.close_sockets()

    def close_sockets(self) -> None:
        """Close the sockets and nothing else: in a forked child the selector is the parent's."""
        for sock in (self._sock, self.connected):
            if sock is not None:
                sock.close()
        self._sock = None


def _words_for(code: int) -> str:
    """What went wrong; Windows has its errors of sockets in a table of its own."""
    table: dict[int, str] = getattr(socket, "errorTab", {})
    return table.get(code) or os.strerror(code)


def kernel_says(error: OSError) -> str:
    """What went wrong with a socket.  A broken pipe is a reset that was read before.

    An OSError without a number is not the kernel's: a signal handler has raised it (TimeoutError is
    one), so it is raised again.
    """
    if error.errno is None:
        raise error
    if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return RESET
    return error.strerror or str(error)


def shut_down(sock: socket.socket) -> None:
    """End a connection without closing its descriptor, which another thread may be using."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the peer was faster


def readable_within(sock: socket.socket, seconds: float | None) -> bool:
    """Whether there is something to read, or the end of the stream, in that time (None: ever)."""
    limit = None if seconds is None else min(max(0.0, seconds), _LONGEST_POLL)
    if not hasattr(select, "poll"):  # on Windows, and under eventlet's patch
        return bool(select.select([sock], [], [], limit)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(limit if limit is None else limit * 1000))
