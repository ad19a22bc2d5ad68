"""Reaching a server: names resolved anew at each attempt, every address of a name tried.

One :class:`Dialer` is one attempt.  The next attempt begins with the address after the one that was
reached: whatever accepts connections there may not be a server that works.  A dialer lives in the
I/O thread's selector and never blocks there: connects are non-blocking, and a name (not an address)
is looked up in a thread of its own, because a look-up can take half a minute and cannot be
cancelled.
"""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
import threading
from contextlib import suppress

from zkwire.session.outcomes import RESET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeVar

    from zkwire.net.tls import TlsFilter
    from zkwire.session.hosts import Address

    T = TypeVar("T")
    Resolver = Callable[[str, int], list[Address]]
    # Each step yields the events that it waits for, 0 for a look-up, and gets those that have come.
    Steps = Generator[int, int | None, T]


# For one name and one client.  A look-up cannot be ended; if one hangs, the next may still work, as
# it may ask another name server.
MOST_LOOK_UPS = 3

_HANDSHAKE_BYTES = 16 * 1024
_ANSWER_BYTES = 4096  # to a question: one TLS record at least, though a word is expected
_CONNECTING = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)  # the last is Windows' word for it
_ENDED = "the other side ended the connection"
_LONGEST_POLL = 1e6  # seconds; the system call takes a 32-bit number of milliseconds


def resolve(host: str | bytes, port: int, flags: int = 0) -> list[Address]:
    """Every stream address of ``host``, IPv6 and IPv4; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _literal(host: str, port: int) -> list[Address]:
    """The address that ``host`` is, when it is no name; for a str Python would load IDNA."""
    try:
        return resolve(host.encode("ascii"), port, socket.AI_NUMERICHOST)
    except (OSError, ValueError):  # ValueError: it cannot even be the name of anything
        return []


class LookUp:
    """The look-ups of one name, each in a thread of its own; the driver is woken at each one's end.

    ``found``: what the first look-up to end has found.  It stays until an attempt has ``used`` it
    and the next attempt asks.
    """

    def __init__(self, target: tuple[str, int], driver: Any) -> None:
        self.found: list[Address] | str | None = None  # str: why there is nothing
        self.used: bool = False
        self._target, self._driver = target, driver
        self._running: list[float] = []  # when each has begun, the oldest first

    def ask(self) -> None:
        """Begin another look-up unless one has found something, or MOST_LOOK_UPS are running.

        A look-up may never end; if it takes longer than an attempt, the next attempt can use it.
        """
        if self.used:
            self.forget()
        if self.found is not None or len(self._running) >= MOST_LOOK_UPS:
            return
        begun = self._driver.now()
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
        return 0.0 if oldest is None else self._driver.now() - oldest

    def __str__(self) -> str:
        return (
            f"the look-up of the name {self._target[0]} has been running for {self.seconds:.1f} s"
        )

    def _run(self, begun: float) -> None:
        found: list[Address] | str
        try:
            found = self._driver.resolver(*self._target)
        except (OSError, ValueError) as error:
            found = f"cannot resolve the name: {error}"
        self._running.remove(begun)
        if self.found is None:
            self.found = found
        self._driver.wake()


class Dialer:
    """One attempt to reach ``target``, until the time ``until``: its addresses share what is left.

    ``over``: it has ended, with ``connected`` or with a ``failure``; before that it goes on when
    something can be done on ``sock``, and at the time ``due``.  ``listen(sock, before, events)``
    has the owner's selector listen for these events, and not for those before.  ``first``: begin
    with this address, if the name still has it.  If the driver has a TLS context, a connection
    counts once its handshake is done, and ``tls`` is its filter.

    With a ``question`` it asks the server that and no more; ``answer`` is b"" if there was none.
    """

    def __init__(
        self,
        target: tuple[str, int],
        driver: Any,
        listen: Callable[[socket.socket, int, int], None],
        first: Address | None,
        until: float,
        question: bytes = b"",
    ) -> None:
        self.target: tuple[str, int] = target
        self.due: float = until
        self.address: Address | None = None  # the one in hand
        self.over: bool = False
        self.connected: socket.socket | None = None
        self.tls: TlsFilter | None = None
        self.answer: bytes = b""
        self._driver, self._listen = driver, listen
        self._first, self._until, self._question = first, until, question
        self.sock: socket.socket | None = None
        self._events = 0  # that are listened for on it
        self._reasons: list[str] = []
        self._addresses: list[Address] = []  # not tried yet
        self._order: tuple[Address, ...] = ()
        self._look_up: LookUp | None = None
        self._steps = self._run()

    def advance(self) -> None:
        """Go on as far as possible without blocking."""
        if not self.over and (not self._events or self._driver.now() >= self.due):
            self._go_on(None)

    def ready(self, events: int) -> None:
        """The selector says that something can be done on the socket."""
        if self._events:
            self._go_on(events)

    def _go_on(self, events: int | None) -> None:
        """Take the next step, with what can be done on the socket; None: its time is over."""
        try:
            wanted = self._steps.send(events)
        except StopIteration:
            wanted, self.over = 0, True
        self._hear(wanted)

    def _hear(self, events: int) -> None:
        if self.sock is not None:
            before, self._events = self._events, events
            self._listen(self.sock, before, events)

    @property
    def failure(self) -> str:
        """Why the attempt has failed."""
        return "; ".join(dict.fromkeys(self._reasons)) or "the attempt was interrupted"

    @property
    def following(self) -> Address | None:
        """The address after the one in hand; after the last, the first.  None if there is none."""
        return next(iter(self._addresses or self._order), None)

    @property
    def stage(self) -> str:
        """What became of the attempt so far, if it ends now."""
        if not self._order:
            here = str(self._look_up)
        elif self.tls is not None:
            here = "no answer to the TLS handshake"
        else:
            here = "no answer"
        return "; ".join(dict.fromkeys([*self._reasons, here]))

    # --- the attempt, step by step: each yields the events that it waits for ----------------------

    def _run(self) -> Steps[None]:
        found = _literal(*self.target) or (yield from self._resolve())
        if not (found or self._reasons):
            self._reasons.append("the name has no address")
        at = found.index(self._first) if self._first in found else 0
        self._addresses = [*found[at:], *found[:at]]
        self._order = tuple(self._addresses)
        while self._addresses and self.connected is None:
            now = self._driver.now()
            share = (self._until - now) / len(self._addresses)
            self.due = now + max(share, 0.0)
            self.address = self._addresses.pop(0)
            failure = yield from self._connect(*self.address)
            if failure is not None:
                self._reasons.append(failure)
                self._drop()
            elif self._question:
                self.answer = yield from self._ask()
                return
            else:
                self.connected = self.sock

    def _resolve(self) -> Steps[list[Address]]:
        """The addresses of the name; none, for a reason, if it has none."""
        known = self._driver.look_ups
        look_up = self._look_up = known.setdefault(self.target, LookUp(self.target, self._driver))
        look_up.ask()
        while (found := look_up.found) is None:
            if self._driver.now() >= self._until:
                self._reasons.append(str(look_up))
                return []
            yield 0
        look_up.used = True
        if isinstance(found, str):
            self._reasons.append(found)
            return []
        return self._driver.session.hosts.arrange(found)

    def _connect(self, family: int, address: Any) -> Steps[str | None]:
        """Connect to one address; returns why that has failed."""
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            return str(error)
        self.sock, self.tls = sock, None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code in _CONNECTING:
            if (yield selectors.EVENT_WRITE) is None:
                return "no answer"
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return _words_for(code)
        return None if self._driver.tls is None else (yield from self._shake_hands(sock))

    def _shake_hands(self, sock: socket.socket) -> Steps[str | None]:
        """Go through the TLS handshake; returns why that has failed."""
        import ssl

        from zkwire.net.tls import TlsFilter, describe

        try:
            tls = self.tls = TlsFilter(self._driver.tls, self.target[0])
        except ValueError as error:  # the name cannot be a certificate's
            return f"TLS: {error}"
        backlog = b""
        events: int | None = 0
        while events is not None:
            try:
                if events & selectors.EVENT_READ:
                    data = sock.recv(_HANDSHAKE_BYTES)
                    if not data:
                        return f"TLS: {_ENDED}; perhaps it does not speak TLS"
                    tls.feed(data)
                done = tls.handshake()
                backlog += tls.take_output()
                backlog = backlog[sock.send(backlog) :] if backlog else b""
            except BlockingIOError:
                done = False
            except ssl.SSLError as error:
                with suppress(OSError):
                    sock.send(tls.take_output())  # the alert that tells the server why
                return describe(error)
            except OSError as error:
                return f"TLS: {error.strerror or error}"
            if done and not backlog:
                return None
            writing = selectors.EVENT_WRITE if backlog else 0
            events = yield selectors.EVENT_READ | writing
        return "no answer"

    def _ask(self) -> Steps[bytes]:
        """Ask the question on the connection; returns the answer, b"" for none."""
        sock, tls, self.due = self.sock, self.tls, self._until
        assert sock is not None
        try:
            sock.send(self._question if tls is None else tls.encrypt(self._question))
            while (yield selectors.EVENT_READ) is not None:
                with suppress(BlockingIOError):
                    data = sock.recv(_ANSWER_BYTES)
                    said = data if tls is None else tls.feed(data)
                    if said or not data:
                        return said
        except OSError:
            pass
        return b""

    # --- its end ----------------------------------------------------------------------------------

    def _drop(self) -> None:
        self._hear(0)
        self.close_socket()

    def cancel(self) -> None:
        """End the whole attempt; a look-up that is under way ends without an effect."""
        self._drop()
        self._steps.close()

    def close_socket(self) -> None:
        """Close the socket and nothing else: in a forked child the selector is the parent's."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None


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
    """Whether there is something to read, or the end of the stream, in time (None: no limit)."""
    limit = None if seconds is None else min(max(0.0, seconds), _LONGEST_POLL)
    if not hasattr(select, "poll"):  # on Windows, and under eventlet's patch
        return bool(select.select([sock], [], [], limit)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(limit if limit is None else limit * 1000))
