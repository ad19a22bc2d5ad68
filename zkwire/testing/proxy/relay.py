"""Between clients and server: bytes are taken apart into frames, and the steps of faults performed.

Decides when sockets are read and closed; must not know which fault belongs to which frame: the
proxy chooses the steps.  A `Conversation` takes the two byte streams of a connection apart, each
reply with its request; a `Flow` performs the steps of one direction; the `Relay` is the thread.

Replies are matched by xid, not by order: replies to authentication and pings overtake others, and
the proxy must show this.

Invariants: no byte is lost or added, whatever the peers send.  The time is linear in the bytes,
however small the pieces.  From the first impossible length on, the bytes of a direction are passed
on without being parsed.  Steps are performed in the order in which they were added, and a step that
ends the direction comes after the bytes that were received before it.  If `HIGH_WATER` bytes wait
for a receiver, nothing more is read from the sender; the other connections go on.

Rules of this file:

* Only the relay's thread touches connections.
* The end of a stream is a step like any other: bytes that were received before it leave before it.
* A cut is a FIN and no reset.  Closing a socket with unread input sends a reset, so the relay
  closes a cut socket for writing and reads it until its peer closes, `_LINGER` seconds at most.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EALREADY, EINPROGRESS, EISCONN, EWOULDBLOCK
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, TypeAlias, assert_never

from zkwire.errors import ProtocolError
from zkwire.jute.frames import FrameSplitter
from zkwire.testing import socket_thread
from zkwire.testing.proxy import faults, frames
from zkwire.testing.proxy.frames import Direction, Frame
from zkwire.testing.socket_thread import CHUNK, HIGH_WATER, RESET, SocketThread, listening_socket

Address: TypeAlias = tuple[socket.AddressFamily, Any]
_Arrival: TypeAlias = tuple[Frame, faults.Action | None]
"""A frame that has come; and for a reply the action that its request has left."""
ChooseSteps: TypeAlias = Callable[[Iterable[_Arrival]], list[tuple[Frame, tuple[faults.Step, ...]]]]
Observe: TypeAlias = Callable[[int, str, str], None]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LINGER = 1.0
# Sends of one direction in one round: a frame in single bytes must not keep the others waiting.
_ROUND = 64
# Far above what any server sends, and below the lengths that four ASCII letters encode.
_LONGEST = 64 * 1024 * 1024


class Conversation:
    """One connection as the proxy sees it."""

    def __init__(self, connection: int) -> None:
        self._connection = connection
        both: tuple[Direction, ...] = ("c2s", "s2c")
        self._splitters = {direction: FrameSplitter(_LONGEST) for direction in both}
        self._unparsed: set[Direction] = set()
        # The directions in which a frame has passed: there the handshake is over.
        self._begun: set[Direction] = set()
        # By xid; None is for the handshake.  Requests with the same xid are answered in order.
        self._expected: dict[int | None, deque[_Arrival]] = {}

    def receive(self, direction: Direction, data: bytes, now: float) -> Iterator[_Arrival]:
        """Yield each frame that ``data`` completes, and for a reply the action of its request.

        The iterator must be exhausted before the next call.
        """
        splitter = self._splitters[direction]
        if direction not in self._unparsed:
            whole, at = splitter.join(data), 0
            try:
                for _, _, end in splitter.cut(whole):
                    yield self._frame(direction, whole[at:end], now)
                    at = end
                return
            except ProtocolError:
                self._unparsed.add(direction)
                data = whole[at:]
        for raw in (*self.rest(direction), data):
            yield self._raw(direction, raw, now), None

    def rest(self, direction: Direction) -> list[bytes]:
        """Remove and return the incomplete frame of a direction: no piece or one."""
        splitter = self._splitters[direction]
        rest, splitter.partial = bytes(splitter.partial), bytearray()
        return [rest] if rest else []

    def expect(self, request: Frame, sent: bytes, action: faults.Action | None) -> None:
        """Note that ``sent`` goes to the server for ``request``; ``action`` is for the reply."""
        if request.kind in ("command", "raw"):
            return
        xid = None if request.kind == "connect" else frames.sent_xid(sent)
        self._expected.setdefault(xid, deque()).append((request, action))

    def _frame(self, direction: Direction, raw: bytes, now: float) -> _Arrival:
        first = direction not in self._begun
        self._begun.add(direction)
        request, action = None, None
        if direction == "s2c":
            request, action = self._answered(None if first else frames.reply_xid(raw))
        if first:
            frame = Frame(
                direction, self._connection, "connect", "connect", raw, now, request=request
            )
        elif direction == "c2s":
            frame = frames.request_frame(self._connection, raw, now)
        else:
            frame = frames.reply_frame(self._connection, raw, now, request)
        return frame, action

    def _answered(self, xid: int | None) -> _Arrival | tuple[None, None]:
        waiting = self._expected.get(xid)
        if not waiting:
            return None, None
        expected = waiting.popleft()
        if not waiting:
            del self._expected[xid]
        return expected

    def _raw(self, direction: Direction, raw: bytes, now: float) -> Frame:
        first = direction not in self._begun
        self._begun.add(direction)
        word = raw[:4].decode("latin-1")
        if direction == "c2s" and first and word.isascii() and word.isalpha():
            # The answer to a four-letter word is text: its first bytes are no length.
            self._unparsed.add("s2c")
            return Frame(direction, self._connection, "command", word, raw, now)
        return Frame(direction, self._connection, "raw", "raw", raw, now)


@dataclass(slots=True, eq=False)
class Flow:
    """One direction of a connection: steps in, bytes out."""

    direction: Direction
    source: socket.socket
    target: socket.socket
    wake: Callable[[], None]
    ended: bool = False  # the source has no more bytes
    closed: bool = False  # the target takes no more bytes
    blocked: bool = False  # the target takes no bytes now
    _steps: deque[faults.Step] = field(default_factory=deque[faults.Step])
    _backlog: int = 0
    _offset: int = 0  # the bytes of the first step that are sent
    _due: float = 0.0
    _gate: faults.Gate | None = None

    def add(self, steps: Iterable[faults.Step]) -> None:
        """Perform ``steps`` after all earlier ones."""
        for step in steps:
            self._steps.append(step)
            if isinstance(step, faults.Send):
                self._backlog += len(step.data)

    @property
    def readable(self) -> bool:
        """Whether more bytes may be read from the source."""
        return not self.ended and self._backlog < HIGH_WATER

    @property
    def deadline(self) -> float:
        """When the next step can be performed without an event: a time, or infinity."""
        if not self._steps or self.blocked or (self._gate and not self._gate.is_open):
            return math.inf
        return self._due

    def perform(self, now: float) -> faults.Cut | faults.BlackHole | None:
        """Perform the steps that are due; returns a step that is about both directions."""
        for _ in range(_ROUND):
            if self.deadline > now:
                break
            step = self._steps[0]
            if isinstance(step, faults.Send):
                self._send(step, now)
                continue
            self._steps.popleft()
            match step:
                case faults.Wait():
                    self._due = step.until
                case faults.Hold():
                    self._gate = step.gate
                    step.gate.arrive(step.frame, self.wake)
                case faults.HalfClose():
                    self._shut()
                case faults.Cut() | faults.BlackHole():
                    return step
                case _:
                    assert_never(step)
        return None

    def _send(self, step: faults.Send, now: float) -> None:
        if self.closed:
            self._sent(len(step.data) - self._offset)
            return
        try:
            self._sent(self.target.send(self._segment(step)))
        except BlockingIOError:
            self.blocked = True
        except OSError:
            # The other direction reads the reason from this socket, after the remaining bytes.
            self.closed = True
        if step.gap and self._offset and self._offset % step.size == 0:
            self._due = now + step.gap

    def _segment(self, step: faults.Send) -> bytes | memoryview:
        """The bytes of the next call of send: one piece, or several whole frames."""
        if step.size:
            return memoryview(step.data)[self._offset :][: step.size - self._offset % step.size]
        parts = [memoryview(step.data)[self._offset :]]
        size = len(parts[0])
        for following in islice(self._steps, 1, None):
            if not isinstance(following, faults.Send) or following.size or size >= CHUNK:
                break
            parts.append(memoryview(following.data))
            size += len(following.data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _sent(self, count: int) -> None:
        self._backlog -= count
        self._offset += count
        while self._steps and isinstance(step := self._steps[0], faults.Send):
            if self._offset < len(step.data):
                break
            self._offset -= len(step.data)
            self._steps.popleft()

    def _shut(self) -> None:
        self.closed = True
        with suppress(OSError):
            self.target.shutdown(socket.SHUT_WR)


class ProxiedConnection:
    """One client's connection to the proxy, and the proxy's connection to the server for it."""

    def __init__(self, relay: Relay, client: socket.socket, number: int) -> None:
        family, self._address = relay.upstream
        self.number = number
        self._relay = relay
        self._client = client
        self._server = socket.socket(family, socket.SOCK_STREAM)
        self._conversation = Conversation(number)
        self._requests = Flow("c2s", client, self._server, relay._wake_up)
        self._replies = Flow("s2c", self._server, client, relay._wake_up)
        self._on_client = partial(self._on_event, self._requests, self._replies)
        self._on_server = partial(self._on_event, self._replies, self._requests)
        self._connected = False
        self._black_hole = False
        self.deadline: float = 0.0  # the latest time of the next call of advance
        for end in (client, self._server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def advance(self, now: float) -> None:
        """Perform everything that is due."""
        self.deadline = math.inf
        if self._black_hole or self._relay.frozen:
            self._watch(0, 0)
            return
        if not self._connected and not self._connect():
            return
        for flow in (self._requests, self._replies):
            step = flow.perform(now)
            if isinstance(step, faults.Cut):
                self.cut(reset=step.reset)
                return
            if step is not None:
                self._black_hole = True
                self._watch(0, 0)
                return
        if self._requests.closed and self._replies.closed:
            self.cut(reset=False)
            return
        self._watch(
            _READ * self._requests.readable | _WRITE * self._replies.blocked,
            _READ * self._replies.readable | _WRITE * self._requests.blocked,
        )
        self.deadline = min(self._requests.deadline, self._replies.deadline)

    def cut(self, *, reset: bool) -> None:
        """Close both sides now, with RST or (without ``reset``) FIN; unsent bytes are lost."""
        self._relay.forget(self)
        for end in (self._client, self._server):
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self._relay.close_socket(end)
            else:
                self._relay.drain(end)

    def close(self) -> None:
        """Close both sockets at once."""
        self._client.close()
        self._server.close()

    def _connect(self) -> bool:
        # A repeated connect returns the status of the first one.
        status = self._server.connect_ex(self._address)
        if status in (EINPROGRESS, EALREADY, EWOULDBLOCK):
            # Until then the client is not read, so the log has only frames that a server can get.
            self._watch(0, _WRITE)
            return False
        if status not in (0, EISCONN):
            self._relay.observe(self.number, "unreachable", os.strerror(status))
            self.cut(reset=False)
            return False
        self._connected = True
        return True

    def _watch(self, client_events: int, server_events: int) -> None:
        self._relay.watch(self._client, client_events, self._on_client)
        self._relay.watch(self._server, server_events, self._on_server)

    def _on_event(self, incoming: Flow, outgoing: Flow, events: int) -> None:
        self.deadline = 0.0
        if events & _WRITE:
            outgoing.blocked = False
        if events & _READ:
            self._receive(incoming)

    def _receive(self, flow: Flow) -> None:
        try:
            data: bytes | None = flow.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = None
        if not data:
            flow.ended = True
            self._relay.observe(self.number, "ended", flow.direction)
            flow.add(faults.Send(rest) for rest in self._conversation.rest(flow.direction))
            flow.add((faults.HalfClose() if data is not None else faults.Cut(reset=True),))
            return
        arrivals = self._conversation.receive(flow.direction, data, monotonic())
        for frame, steps in self._relay.choose_steps(arrivals):
            flow.add(steps)
            if flow.direction == "s2c":
                continue
            for step in steps:
                if isinstance(step, faults.Send):
                    self._conversation.expect(frame, step.data, step.reply)


class Relay(SocketThread):
    """The listener, the connections, and the thread that serves them.

    ``observe`` is called in that thread with a connection's number and what happens to it:
    "open" and the client's address; "ended" and the direction whose sender has closed it;
    "unreachable" and why; "closed", when the proxy has closed both sides.
    """

    def __init__(
        self,
        upstream: Address,
        choose_steps: ChooseSteps,
        changed: Callable[[], None],
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        observe: Observe = lambda number, what, detail: None,
    ) -> None:
        self._listener = listening_socket(*listen)  # first: it may fail
        super().__init__("zkwire-proxy", "the proxy")
        self.upstream = upstream
        self.observe = observe
        self.frozen = False
        self.refusing = False
        self.connections: list[ProxiedConnection] = []
        self.choose_steps = choose_steps
        self._changed = changed
        self._accepted = 0
        self._draining: dict[socket.socket, float] = {}
        self._deadline = 0.0
        self.port: int = self._listener.getsockname()[1]
        self._selector.register(self._listener, _READ, self._accept)
        self._thread.start()

    # --- from any thread ---

    def call(self, function: Callable[[], Any]) -> Any:
        """As in any such thread; in the thread itself, as in a rule, it runs after this round."""
        if threading.current_thread() is not self._thread:
            return super().call(function)
        return self.post(function)

    # --- in the relay's thread ---

    def cut_all(self, *, reset: bool) -> None:
        """Cut every connection."""
        for connection in self.connections.copy():
            connection.cut(reset=reset)

    def forget(self, connection: ProxiedConnection) -> None:
        """Forget a connection that has ended."""
        self.connections.remove(connection)
        self.observe(connection.number, "closed", "")
        self._changed()

    def close_socket(self, end: socket.socket) -> None:
        """Close a socket of a connection."""
        self.watch(end, 0)
        self._draining.pop(end, None)
        end.close()

    def drain(self, end: socket.socket) -> None:
        """Close a socket of a connection so that its peer sees FIN and never RST."""
        try:
            end.shutdown(socket.SHUT_WR)
        except OSError:
            self.close_socket(end)
            return
        self._draining[end] = monotonic() + _LINGER
        self.watch(end, _READ, partial(self._on_drain, end))

    def _seconds_left(self) -> float:
        return self._deadline - monotonic()

    def _on_woken(self, _: int) -> None:
        super()._on_woken(_)
        for connection in self.connections:
            connection.deadline = 0.0  # a gate may be open now, or the black hole have ended

    def _turn(self) -> None:
        now = monotonic()
        for end in [end for end, until in self._draining.items() if until <= now]:
            self.close_socket(end)
        for connection in self.connections.copy():
            if connection.deadline <= now:
                connection.advance(now)
        deadlines = [connection.deadline for connection in self.connections]
        self._deadline = min([*deadlines, *self._draining.values()], default=math.inf)

    def _accept(self, events: int) -> None:
        accepted = socket_thread.accept(self._listener)
        if accepted is None:
            return
        client, address = accepted
        if self.refusing:
            self.drain(client)
            return
        self.connections.append(ProxiedConnection(self, client, self._accepted))
        self.observe(self._accepted, "open", f"{address[0]}:{address[1]}")
        self._accepted += 1
        self._changed()

    def _on_drain(self, end: socket.socket, events: int) -> None:
        try:
            if end.recv(CHUNK):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close_socket(end)

    def _stop(self) -> None:
        super()._stop()
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        for end in [*self._draining, self._listener]:
            end.close()
        self._changed()
