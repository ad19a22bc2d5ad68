"""The thread between clients and server: it moves the bytes of all connections.

Decides when sockets are read and closed; must not know which fault belongs to which frame (the
proxy chooses the steps) nor how bytes are split into frames (`conversation`).

Rules of this file:

* Only the relay's thread touches sockets, selector and connections.  :meth:`Relay.call` runs
  commands of other threads between two rounds, so that no event of a round is for a socket that a
  command has closed.
* Nothing blocks but the one ``select``.
* The end of a stream is a step like any other: bytes that were received before it leave before it.
* A cut is a FIN and no reset.  Closing a socket with unread input sends a reset, so the relay
  closes a cut socket for writing and reads it until its peer closes, `_LINGER` seconds at most.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import EALREADY, EINPROGRESS, EISCONN, EWOULDBLOCK
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from zkwire.testing.proxy.conversation import Conversation
from zkwire.testing.proxy.faults import (
    Action,
    BlackHole,
    Cut,
    HalfClose,
    Send,
    Step,
)
from zkwire.testing.proxy.flow import Flow
from zkwire.testing.proxy.frames import Frame

Address: TypeAlias = tuple[socket.AddressFamily, Any]
ChooseSteps: TypeAlias = Callable[
    [Iterable[tuple[Frame, Action | None]]], list[tuple[Frame, tuple[Step, ...]]]
]
Handler: TypeAlias = Callable[[int], None]
Observe: TypeAlias = Callable[[int, str, str], None]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_RESET = struct.pack("ii", 1, 0)
_CHUNK = 64 * 1024
_LINGER = 1.0
_LONGEST_WAIT = 86400.0  # a selector takes no more than 24 days


class ProxiedConnection:
    """One client's connection to the proxy, and the proxy's connection to the server for it."""

    def __init__(self, relay: Relay, client: socket.socket, number: int) -> None:
        family, self._address = relay.upstream
        self.number = number
        self._relay = relay
        self._client = client
        self._server = socket.socket(family, socket.SOCK_STREAM)
        self._conversation = Conversation(number)
        self._requests = Flow("c2s", client, self._server, relay.wake)
        self._replies = Flow("s2c", self._server, client, relay.wake)
        self._on_client = partial(self._on_event, self._requests, self._replies)
        self._on_server = partial(self._on_event, self._replies, self._requests)
        self._connected = False
        self._black_hole = False
        self._watched = (0, 0)
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
            match flow.perform(now):
                case Cut(reset):
                    self.cut(reset=reset)
                    return
                case BlackHole():
                    self._black_hole = True
                    self._watch(0, 0)
                    return
                case None:
                    pass
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
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._relay.close_socket(end)
            else:
                self._relay.drain(end)

    def close(self) -> None:
        """Close both sockets at once."""
        self._relay.close_socket(self._client)
        self._relay.close_socket(self._server)

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
        if self._watched == (client_events, server_events):
            return
        self._watched = (client_events, server_events)
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
            data = flow.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            flow.ended = True
            self._relay.observe(self.number, "ended", flow.direction)
            flow.add((Cut(reset=True),))
            return
        if not data:
            flow.ended = True
            self._relay.observe(self.number, "ended", flow.direction)
            flow.add(Send(rest) for rest in self._conversation.rest(flow.direction))
            flow.add((HalfClose(),))
            return
        arrivals = self._conversation.receive(flow.direction, data, monotonic())
        for frame, steps in self._relay.choose_steps(arrivals):
            flow.add(steps)
            if flow.direction == "s2c":
                continue
            for step in steps:
                if isinstance(step, Send):
                    self._conversation.expect(frame, step.data, step.reply)


class Relay:
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
        self.upstream = upstream
        self.observe = observe
        self.frozen = False
        self.refusing = False
        self.connections: list[ProxiedConnection] = []
        self.choose_steps = choose_steps
        self._changed = changed
        self._accepted = 0
        self._draining: dict[socket.socket, float] = {}
        self._commands: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._woken = False
        self._closing = False
        self._closed = False
        self._closed_lock = threading.Lock()
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._listener = socket.create_server(listen, family=family, backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, _READ, self._accept)
        self._selector.register(self._wake_in, _READ, self._on_wake)
        self._thread = threading.Thread(target=self._run, name="zkwire-proxy", daemon=True)
        self._thread.start()

    # --- from any thread ---

    def wake(self) -> None:
        """Have the thread check every connection, since a gate or a setting has changed."""
        # A full pipe wakes the thread as well; if it is closed, the thread has ended.
        with suppress(OSError):
            self._wake_out.send(b"\0")

    def call(self, command: Callable[[], None]) -> None:
        """Have the relay's thread run ``command``, and wait for it.

        If the relay's own thread calls this (in a rule or an action), the command runs at the end
        of the round.
        """
        done = threading.Event()
        with self._closed_lock:
            if self._closed:
                raise RuntimeError("the proxy is closed")
            self._commands.append((command, done))
        if threading.current_thread() is self._thread:
            self._woken = True
            return
        self.wake()
        done.wait()

    def close(self) -> None:
        """Close everything and end the thread; a second call does nothing."""
        self._closing = True
        self.wake()
        self._thread.join()

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

    def watch(self, end: socket.socket, events: int, handler: Handler) -> None:
        """Call ``handler`` for exactly these events from now on."""
        key = self._selector.get_map().get(end)
        if key is None:
            if events:
                self._selector.register(end, events, handler)
        elif not events:
            self._selector.unregister(end)
        elif key.events != events or key.data is not handler:
            self._selector.modify(end, events, handler)

    def close_socket(self, end: socket.socket) -> None:
        """Close a socket of a connection."""
        if end in self._selector.get_map():
            self._selector.unregister(end)
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

    def _run(self) -> None:
        deadline = 0.0
        try:
            while not self._closing:
                left = min(max(0.0, deadline - monotonic()), _LONGEST_WAIT)
                for key, events in self._selector.select(None if deadline == math.inf else left):
                    key.data(events)
                if self._woken:
                    self._run_commands()
                deadline = self._advance(monotonic())
        finally:
            self._close_all()

    def _run_commands(self) -> None:
        self._woken = False
        while self._commands:
            command, done = self._commands.popleft()
            command()
            done.set()
        # A gate may be open now, or the black hole may have ended.
        for connection in self.connections:
            connection.deadline = 0.0

    def _advance(self, now: float) -> float:
        for end in [end for end, until in self._draining.items() if until <= now]:
            self.close_socket(end)
        for connection in self.connections.copy():
            if connection.deadline <= now:
                connection.advance(now)
        deadlines = [connection.deadline for connection in self.connections]
        return min([*deadlines, *self._draining.values()], default=math.inf)

    def _accept(self, events: int) -> None:
        try:
            client, address = self._listener.accept()
        except OSError:  # the client is gone already
            return
        if self.refusing:
            client.setblocking(False)
            self.drain(client)
            return
        self.connections.append(ProxiedConnection(self, client, self._accepted))
        self.observe(self._accepted, "open", f"{address[0]}:{address[1]}")
        self._accepted += 1
        self._changed()

    def _on_wake(self, events: int) -> None:
        self._wake_in.recv(_CHUNK)
        self._woken = True

    def _on_drain(self, end: socket.socket, events: int) -> None:
        try:
            if end.recv(_CHUNK):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close_socket(end)

    def _close_all(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        for end in [*self._draining, self._listener, self._wake_in, self._wake_out]:
            end.close()
        self._selector.close()
        with self._closed_lock:
            self._closed = True
        for _, done in self._commands:
            done.set()
        self._changed()
