"""The stage of a lesson on a server somewhere else: the same beats, in real time.

All nodes are below one of its own, which the clients of the lesson see as ``/`` and which is
deleted at the end.  Each client has a proxy in front of it, for what is shown and for the faults.
No wait is without a limit; a server that is lost ends the lesson.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from argparse import Namespace
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

import zkwire
from zkwire import AsyncClient, ConnectionLossError, OperationTimeoutError, State, ZooKeeperError
from zkwire.cli.interrupts import handled, interrupt
from zkwire.cli.lessons.events import Event, Record, described
from zkwire.cli.spy.tap import Event as Passed
from zkwire.cli.spy.tap import Faults, Tap
from zkwire.jute.frames import frame as frame_of
from zkwire.jute.records import ConnectRequest, ConnectResponse
from zkwire.testing.proxy.frames import Frame

LONGEST = 300.0  # seconds for a lesson
_LIMIT = 15.0  # for an operation
_QUIET = 0.1  # without a frame: all has arrived
_ANSWER, _NO_ANSWER = 10.0, 1.0  # seconds for the answer to whole bytes, and to others
_COMING = frozenset({State.CONNECTING, State.HANDSHAKE, State.DISCONNECTED})


class StagedClient(AsyncClient):
    """A client of the stage, behind a proxy of its own."""

    def __init__(self, lane: Lane, root: str, **options: Any) -> None:
        super().__init__(lane.tap.hosts[0] + root, operation_timeout=_LIMIT, **options)
        self.name = lane.name
        self.lane = lane

    async def close(self) -> None:
        """End the session, and the proxy."""
        await super().close()
        latest = time.monotonic() + _LIMIT
        while self.lane.tap.connections and time.monotonic() < latest:
            await asyncio.sleep(_QUIET / 10)
        await asyncio.to_thread(self.lane.tap.close)


class ServerStage(Record):
    """What a lesson is given, as by ``Stage``, on ``server`` (HOST:PORT).

    ``connect_timeout``: seconds in which the server must be reached.
    """

    def __init__(self, flags: Namespace, server: str, *, connect_timeout: float = 10.0) -> None:
        super().__init__(lambda event: None)
        self.flags = flags
        self.tick = 0.0
        self.root: str = f"/zkwire-lesson-{secrets.token_hex(4)}"
        self.server = server
        self._connect_timeout = connect_timeout
        self._start = time.monotonic()
        self._over = False
        self._clients: list[StagedClient] = []
        self._wires: list[ServerWire] = []
        self._lanes: list[Lane] = []
        self._auth: list[tuple[str, bytes]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._observer = AsyncClient(server, session_timeout=_LIMIT, operation_timeout=_LIMIT)

    def run(self, lesson: Coroutine[Any, Any, object]) -> None:
        """Run a lesson to its end; raises what has ended it.

        UnreachableError if there is no server, ConnectionLossError if it is lost meanwhile,
        OperationTimeoutError if the lesson has no end.
        """
        whole, came = self._run(lesson), list[int]()

        async def cancellable() -> None:
            """An exception out of a signal's handler would break the connection that it is in."""
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(whole)

            def end(number: int, _: object) -> None:
                came.append(number)
                loop.call_soon_threadsafe(task.cancel)

            with handled(end):
                await task

        try:
            asyncio.run(cancellable())
        except asyncio.CancelledError:
            if came:
                interrupt(came[0])
            raise
        finally:  # an interrupt may come before either has begun
            whole.close()
            lesson.close()

    async def _run(self, lesson: Coroutine[Any, Any, object]) -> None:
        try:
            await self._observer.connect(self._connect_timeout)
            try:
                await self._observer.create(self.root)
                self.tick = await self._shortest_timeout() / 2
                self._start = time.monotonic()
                await self._played(lesson)
            finally:
                self._catch_up()
                self._over = True
                away = asyncio.ensure_future(self._put_away())
                try:
                    await asyncio.shield(away)
                except asyncio.CancelledError:  # an interrupt waits for it
                    await away
                    raise
        finally:
            await self._observer.close()

    async def _shortest_timeout(self) -> float:
        def ask() -> float:
            wire = ServerWire(self.server)
            answers = wire.send(frame_of(ConnectRequest(0, 0, 1, 0, bytes(16), False).encode()))
            wire.close()
            if not answers:
                raise ConnectionLossError(f"{self.server} does not answer a greeting")
            return ConnectResponse.decode(answers[0][4:]).time_out / 1000

        return await asyncio.to_thread(ask)

    async def _played(self, lesson: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(lesson)
        lost = asyncio.ensure_future(
            self._observer.wait_for_state(State.DISCONNECTED, State.EXPIRED)
        )
        self._tasks += [task, lost]
        await asyncio.wait([task, lost], timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        elif lost.done():
            raise ConnectionLossError(
                f"the connection to {self.server} is lost; {self.root} may be left on it"
            )
        else:
            raise OperationTimeoutError(f"{LONGEST:g} s have passed without an end")

    async def _put_away(self) -> None:
        """Leave nothing behind, as far as the server can be reached."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for wire in self._wires:
            await asyncio.to_thread(wire.close)
        for client in self._clients:
            with suppress(ZooKeeperError):
                await client.close()
        for lane in self._lanes:
            await asyncio.to_thread(lane.tap.close)
        if self._observer.state.usable:
            for scheme, secret in self._auth:
                await self._observer.add_auth(scheme, secret)
            await self._observer.delete_tree(self.root)

    # --- clients ----------------------------------------------------------------------------------

    def client(
        self,
        name: str,
        *,
        session_timeout: float = 10.0,
        auth: Sequence[tuple[str, bytes]] = (),
        resume: zkwire.Credentials | None = None,
    ) -> StagedClient:
        """A client, which connects at its first request."""
        self._auth += auth
        options = {"session_timeout": session_timeout, "auth": auth, "resume": resume}
        client = StagedClient(self._lane(name), self.root, **options)
        self._clients.append(client)
        return client

    def start(self, client: StagedClient, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine beside the lesson; await what this returns."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.append(task)
        return task

    def wire(self, name: str) -> ServerWire:
        """A bare connection, for bytes."""
        self._wires.append(ServerWire(self._lane(name).tap.hosts[0]))
        return self._wires[-1]

    def _lane(self, name: str) -> Lane:
        lane = Lane(name, self.server)
        self._lanes.append(lane)
        return lane

    # --- time and faults --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and what is on its way arrive."""
        await asyncio.sleep(seconds)
        await self.settle()

    async def work(self, seconds: float) -> None:
        """Let time pass for the caller, whatever is on its way."""
        await asyncio.sleep(seconds)

    async def settle(self) -> None:
        """Wait until nothing is on its way; OperationTimeoutError if it always is."""
        latest = time.monotonic() + _LIMIT
        await asyncio.sleep(_QUIET)  # for what has just been started
        while self._busy():
            if time.monotonic() > latest:
                raise OperationTimeoutError(f"after {_LIMIT:g} s something is still on its way")
            await asyncio.sleep(_QUIET / 4)

    def _busy(self) -> bool:
        self._catch_up()
        lanes, now = self._lanes, time.monotonic()
        coming = any(client.state in _COMING for client in self._clients)
        return coming or any(lane.busy or now - lane.moved < _QUIET for lane in lanes)

    def silence(self, client: StagedClient, seconds: float) -> None:
        """The client's network carries nothing, in either direction, and says so to no end."""
        self._still(client, on=True)
        asyncio.get_running_loop().call_later(seconds, self._still, client)

    def _still(self, client: StagedClient, *, on: bool = False) -> None:
        kind, does = ("stop", "is silent") if on else ("go", "goes on")
        self._tell_of(client, kind, f"{client.name}'s network {does}")
        with suppress(RuntimeError):  # the lesson has ended before the silence
            client.lane.tap.hold(on)

    async def cut(self, client: StagedClient, *, lost: str = "", after: str = "") -> None:
        """The connection breaks now, and the client knows it, or at a request of this kind."""
        for kind, op in (("cut-before", lost), ("cut-after", after)):
            if op:
                client.lane.faults.aim(kind, op)
        if not (lost or after):
            noticed = asyncio.ensure_future(
                client.wait_for_state(State.DISCONNECTED, timeout=_LIMIT)
            )
            self._tasks.append(noticed)
            await asyncio.sleep(0)  # it begins to wait
            client.lane.tap.cut_all()
            await noticed

    async def expire(self, client: StagedClient) -> None:
        """End the session of the client, by a connection that takes it over and closes it."""
        client.lane.tap.hold(True)
        async with AsyncClient(
            self.server, resume=client.credentials, operation_timeout=_LIMIT
        ) as other:
            await other.connect(self._connect_timeout)
        self._tell_of(client, "server", f"{client.name}'s session is ended")
        client.lane.tap.hold(False)

    async def children(self, path: str) -> list[str]:
        """The children of a node as the server has them now, without a frame of a client."""
        await self._observer.sync(self.root + path)
        return sorted(await self._observer.get_children(self.root + path))

    # --- what has happened ------------------------------------------------------------------------

    def _tell_of(self, client: StagedClient, kind: str, text: str) -> None:
        if not self._over:
            self._tell(Event(self.now, kind, text, client.name, "server"))

    def _catch_up(self) -> None:
        """Tell what has passed the proxies, in the order of time."""
        found: list[tuple[float, Lane, Passed]] = []
        for lane in self._lanes if not self._over else ():
            while not lane.tap.events.empty():
                passed = lane.tap.events.get()
                found.append((passed.time, lane, passed))
        for time_, lane, passed in sorted(found, key=lambda each: each[0]):
            now = time_ - self._start
            for kind, words, detail, frame in lane.told(passed):
                text = words.replace(f"{self.root}/", "/").replace(self.root, "/")  # as clients do
                timed = frame._replace(time=now) if frame is not None else None
                self._add(Event(now, kind, text, lane.name, "server", detail, timed))


class Lane:
    """The way of one client to the server: a proxy, and what is told of what passes it.

    ``busy``: something is on its way, or the connection is lost and the client will come again;
    ``moved`` is the monotonic time of the last event.
    """

    def __init__(self, name: str, server: str) -> None:
        self.name = name
        self.faults = Faults([])
        self.tap = Tap([server], self.faults, ("127.0.0.1", 0))
        self.moved: float = time.monotonic()
        self._waiting: set[int] = set()  # the numbers of requests
        self._away = False
        self._why = "connection cut"
        self._cut: set[int] = set()  # connections of which nothing arrives any more
        self._bye: set[int] = set()  # connections whose session has ended

    @property
    def busy(self) -> bool:
        """See the class's docstring."""
        return self._away or bool(self._waiting)

    def told(self, passed: Passed) -> Iterator[tuple[str, str, str, Frame | None]]:
        """Kind, text, detail and frame of what is to be told of an event of the proxy."""
        self.moved = passed.time
        if passed.what == "open":
            self._away = True
        elif passed.what == "close":
            yield *self._closed(passed), "", None
        elif passed.frame is not None and passed.detail == "lost":
            self._cut.add(passed.connection)
            if passed.frame.direction == "s2c":
                self._why = "connection cut before the answer arrives"
                if not passed.frame.error:
                    words = "executed, and the answer will be lost"
                    yield "server", words, f"zxid {passed.frame.zxid:#x}", None
        elif passed.frame is not None and passed.connection not in self._cut:
            self._note(passed.frame, passed.connection)
            yield "frame", *described(passed.frame), passed.frame

    def _note(self, frame: Frame, connection: int) -> None:
        if frame.direction == "c2s":
            self._waiting.add(frame.number or 0)
            return
        self._waiting.discard(frame.request.number or 0 if frame.request else 0)
        refused = frame.op == "connect" and not any(frame.raw[8:20])  # timeout and session
        if frame.op == "connect":
            self._away = False
        if frame.op == "close_session" or refused:
            self._bye.add(connection)

    def _closed(self, passed: Passed) -> tuple[str, str]:
        self._waiting.clear()
        self._away, why, self._why = True, self._why, "connection cut"
        by, _, problem = passed.detail.partition(": ")
        if by == "spy":
            return "cut", why
        if problem:
            return "end", f"the server cannot be reached: {problem}"
        # Behind the last answer of a session both sides close, in either order.
        if by == "client" or passed.connection in self._bye:
            self._away = False
            return "cut", f"{self.name} ends the connection"
        return "end", f"{self.name} sees the connection end, no word why"


class ServerWire:
    """A bare connection, as :class:`zkwire.cli.lessons.stage.Wire`; ``address`` is a HOST:PORT."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), _ANSWER)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> list[bytes]:
        """Send bytes; returns the frame that the server answers, if it does within a time."""
        whole = len(data) == 4 + int.from_bytes(data[:4], "big")
        self._socket.settimeout(_ANSWER if whole else _NO_ANSWER)
        self._socket.sendall(data)
        try:
            head = self._file.read(4)
            return [head + self._file.read(int.from_bytes(head, "big"))] if head else []
        except TimeoutError:
            return []

    def close(self) -> None:
        """End the session, as well as that can be done here, and the connection."""
        with self._file, self._socket, suppress(OSError):  # a server may wait, or be gone
            self._socket.settimeout(_NO_ANSWER)
            self._socket.sendall(b"\0\0\0\x08\0\0\0\1\xff\xff\xff\xf5")
            while self._socket.recv(65536):
                pass
