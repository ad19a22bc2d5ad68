"""The stage of a lesson on a server somewhere else: the same beats, in real time.

All nodes are below one of its own, which the clients of the lesson see as ``/`` and which is
deleted at the end.  Each client has a proxy in front of it, for what is shown and for the faults.
No wait is without a limit; a server that is lost ends the lesson.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from zkwire import AsyncClient, ConnectionLossError, OperationTimeoutError, State, ZooKeeperError
from zkwire.cli.interrupts import handled, interrupt
from zkwire.cli.lessons.events import CUT, END, FRAME, GO, SERVER, STOP, Event, Record, described
from zkwire.jute.frames import frame as frame_of
from zkwire.jute.records import ConnectRequest, ConnectResponse
from zkwire.testing.proxy.faults import Cut, Send
from zkwire.testing.proxy.proxy import resolve
from zkwire.testing.proxy.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire import Credentials
    from zkwire.testing.proxy.faults import Action, Step
    from zkwire.testing.proxy.frames import Frame

    # A kind of event, words, a detail, a frame.
    Tell = Callable[[str, str, str, Frame | None], object]


LONGEST = 300.0  # seconds for a lesson
_LIMIT = 15.0  # for an operation
_QUIET = 0.1  # without a frame: all has arrived
_COMING = frozenset({State.CONNECTING, State.HANDSHAKE, State.DISCONNECTED})


class StagedClient(AsyncClient):
    """A client of the stage, behind a proxy of its own."""

    def __init__(self, name: str, lane: Lane, root: str, **options: Any) -> None:
        super().__init__(lane.hosts + root, operation_timeout=_LIMIT, **options)
        self.name = name
        self.lane = lane

    async def close(self) -> None:
        """End the session, and the proxy."""
        await super().close()
        latest = time.monotonic() + _LIMIT
        while self.lane.connected and time.monotonic() < latest:
            await asyncio.sleep(_QUIET / 10)
        await asyncio.to_thread(self.lane.close)


class ServerStage(Record):
    """What a lesson is given, as by ``Stage``, on ``server`` (HOST:PORT).

    ``connect_timeout``: seconds in which the server must be reached.
    """

    def __init__(
        self,
        flags: Namespace,
        tell: Callable[[Event], object],
        server: str,
        *,
        connect_timeout: float = 10.0,
    ) -> None:
        super().__init__(tell)
        self.flags = flags
        self.tick = 0.0
        self.root: str = f"/zkwire-lesson-{secrets.token_hex(4)}"
        self._server = server
        self._connect_timeout = connect_timeout
        self._start = time.monotonic()
        self._lock = threading.Lock()  # proxies tell in their own threads
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
            wire = ServerWire(self._server)
            answers = wire.send(frame_of(ConnectRequest(0, 0, 1, 0, bytes(16), False).encode()))
            wire.close()
            if not answers:
                raise ConnectionLossError(f"{self._server} does not answer a greeting")
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
                f"the connection to {self._server} is lost; {self.root} may be left on it"
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
            await asyncio.to_thread(lane.close)
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
        resume: Credentials | None = None,
    ) -> StagedClient:
        """A client, which connects at its first request."""
        self._auth += auth
        options = {"session_timeout": session_timeout, "auth": auth, "resume": resume}
        client = StagedClient(name, self._lane(name), self.root, **options)
        self._clients.append(client)
        return client

    def start(self, client: StagedClient, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine beside the lesson; await what this returns."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.append(task)
        return task

    def wire(self, name: str) -> ServerWire:
        """A bare connection, for bytes."""
        self._wires.append(ServerWire(self._lane(name).hosts))
        return self._wires[-1]

    def _lane(self, name: str) -> Lane:
        lane = Lane(name, self._server, partial(self._tell_of, name))
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
        lanes, now = self._lanes, time.monotonic()
        coming = any(client.state in _COMING for client in self._clients)
        return coming or any(lane.busy or now - lane.moved < _QUIET for lane in lanes)

    def silence(self, client: StagedClient, seconds: float) -> None:
        """The client's network carries nothing, in either direction, and says so to no end."""
        self._still(client, on=True)
        asyncio.get_running_loop().call_later(seconds, self._still, client)

    def _still(self, client: StagedClient, *, on: bool = False) -> None:
        kind, does = (STOP, "is silent") if on else (GO, "goes on")
        self._tell_of(client.name, kind, f"{client.name}'s network {does}")
        with suppress(RuntimeError):  # the lesson has ended before the silence
            client.lane.freeze(on)

    async def cut(self, client: StagedClient, *, lost: str = "", after: str = "") -> None:
        """The connection breaks now, and the client knows it, or at a request of this kind."""
        for when, op in (("lost", lost), ("after", after)):
            if op:
                client.lane.cut(when, op)
        if not (lost or after):
            noticed = asyncio.ensure_future(
                client.wait_for_state(State.DISCONNECTED, timeout=_LIMIT)
            )
            self._tasks.append(noticed)
            await asyncio.sleep(0)  # it begins to wait
            client.lane.cut_now()
            await noticed

    async def expire(self, client: StagedClient) -> None:
        """End the session of the client, by a connection that takes it over and closes it."""
        client.lane.freeze(True)
        async with AsyncClient(
            self._server, resume=client.credentials, operation_timeout=_LIMIT
        ) as other:
            await other.connect(self._connect_timeout)
        self._tell_of(client.name, SERVER, f"{client.name}'s session is ended")
        client.lane.freeze(False)

    async def children(self, path: str) -> list[str]:
        """The children of a node as the server has them now, without a frame of a client."""
        await self._observer.sync(self.root + path)
        return sorted(await self._observer.get_children(self.root + path))

    # --- what has happened ------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        with self._lock:
            if not self._over:
                super()._tell(event)

    def _tell_of(
        self, name: str, kind: str, text: str, detail: str = "", frame: Frame | None = None
    ) -> None:
        """Tell of a client, with paths as it sees them."""
        now = self.now
        if frame is not None:
            text, detail = described(frame)
            text = text.replace(f"{self.root}/", "/").replace(self.root, "/")
            frame = frame._replace(time=now)
        assert (kind == FRAME) is (frame is not None)
        self._tell(Event(now, kind, text, name, "server", detail, frame))


# --- server lane ----------------------------------------------------------------------------------
# The way of one client to a server somewhere else: a proxy that tells what passes, and breaks it.
#
# Its thread tells each frame before it lets it go on, so what a client does about a frame is told
# behind it.  This module must not know what a lesson is.

_NO_SESSION = bytes(12)  # timeout and id in the answer to a greeting


class Lane:
    """See the module's docstring.  OSError if the server's name has no address.

    ``busy``: something is on its way, or the connection is lost and the client will come again;
    ``moved`` is the monotonic time of the last event.
    """

    def __init__(self, name: str, server: str, tell: Tell) -> None:
        self.name = name
        self.moved: float = time.monotonic()
        self._tell_stage = tell
        self._cuts: list[tuple[str, str]] = []
        self._marked: Frame | None = None  # the request whose answer will be lost
        self._waiting: list[Frame] = []
        self._away = False
        self._opened: set[int] = set()
        self._over: set[int] = set()  # connections whose end has been told
        self._bye: set[int] = set()  # connections whose session has ended
        self._relay = Relay(resolve(server), self._choose, lambda: None, observe=self._observe)
        self.hosts: str = f"127.0.0.1:{self._relay.port}"

    @property
    def busy(self) -> bool:
        """See the class's docstring."""
        return self._away or bool(self._waiting)

    @property
    def connected(self) -> bool:
        """Whether a connection is there whose end has not been told."""
        return bool(self._opened - self._over)

    def cut(self, when: str, op: str) -> None:
        """Cut at the next request of this kind: ``lost`` on its way, or ``after`` its execution."""
        self._relay.call(lambda: self._cuts.append((when, op)))

    def cut_now(self) -> None:
        """Cut the connection."""
        self._relay.call(self._cut_now)

    def freeze(self, on: bool) -> None:
        """Let nothing pass, or go on; what has been sent meanwhile arrives then."""
        self._relay.call(lambda: setattr(self._relay, "frozen", on))

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._relay.close()

    # --- in the thread of the proxy ---------------------------------------------------------------

    def _tell(self, kind: str, text: str, detail: str = "", frame: Frame | None = None) -> None:
        self.moved = time.monotonic()
        self._tell_stage(kind, text, detail, frame)

    def _cut_now(self) -> None:
        for connection in self._relay.connections:
            self._end(connection.number, CUT, "connection cut")
        self._relay.cut_all(reset=False)

    def _end(self, number: int, kind: str, text: str, *, away: bool = True) -> None:
        self._over.add(number)
        self._waiting.clear()
        self._away = away
        self._tell(kind, text)

    def _choose(
        self, arrivals: Iterable[tuple[Frame, Action | None]]
    ) -> list[tuple[Frame, tuple[Step, ...]]]:
        return [(frame, self._steps(frame)) for frame, _ in arrivals]

    def _steps(self, frame: Frame) -> tuple[Step, ...]:
        number = frame.connection
        if number in self._over:
            return ()
        passed = self._request(frame) if frame.direction == "c2s" else self._answer(frame)
        return (Send(frame.raw),) if passed else (Cut(),)

    def _request(self, frame: Frame) -> bool:
        due = [cut for cut in self._cuts if cut[1] == frame.op][:1]
        for cut in due:
            self._cuts.remove(cut)
            if cut[0] == "lost":
                self._end(frame.connection, CUT, "connection cut")
                return False
            self._marked = frame
        self._waiting.append(frame)
        self._tell(FRAME, "", "", frame)
        return True

    def _answer(self, frame: Frame) -> bool:
        if self._marked is not None and frame.request is self._marked:
            self._marked = None
            if not frame.error:
                words = "executed, and the answer will be lost"
                self._tell(SERVER, words, f"zxid {frame.zxid:#x}")
            self._end(frame.connection, CUT, "connection cut before the answer arrives")
            return False
        self._waiting = [request for request in self._waiting if request is not frame.request]
        if frame.op == "connect":
            self._away = False
        if frame.op == "close_session" or (
            frame.op == "connect" and frame.raw[8:20] == _NO_SESSION
        ):
            self._bye.add(frame.connection)
        self._tell(FRAME, "", "", frame)
        return True

    def _observe(self, number: int, what: str, detail: str) -> None:
        if what == "open":
            self._opened.add(number)
            self._away = True
        elif what == "unreachable":
            self._end(number, END, f"the server cannot be reached: {detail}")
        elif what == "ended" and number not in self._over:
            # Behind the last answer of a session both sides close, in either order.
            if number in self._bye or detail == "c2s":
                self._end(number, CUT, f"{self.name} ends the connection", away=False)
            else:
                self._end(number, END, f"{self.name} sees the connection end, no word why")


class ServerWire:
    """A bare connection, as :class:`zkwire.cli.lessons.stage.Wire`; ``address`` is a HOST:PORT."""

    def __init__(self, address: str) -> None:
        import socket

        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), _ANSWER)

    def send(self, data: bytes) -> list[bytes]:
        """Send bytes; returns the frame that the server answers, if it does within a time."""
        self._socket.settimeout(_ANSWER if _whole(data) else _NO_ANSWER)
        self._socket.sendall(data)
        try:
            head = self._exactly(4)
            return [head + self._exactly(int.from_bytes(head, "big"))]
        except (TimeoutError, EOFError):
            return []

    def close(self) -> None:
        """End the session, as well as that can be done here, and the connection."""
        try:
            self._socket.settimeout(_NO_ANSWER)
            self._socket.sendall(b"\0\0\0\x08\0\0\0\1\xff\xff\xff\xf5")
            while self._socket.recv(65536):
                pass
        except OSError:  # a server that waits for the rest of a frame, or is gone
            pass
        finally:
            self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data


_ANSWER, _NO_ANSWER = 10.0, 1.0  # seconds


def _whole(data: bytes) -> bool:
    return len(data) == 4 + int.from_bytes(data[:4], "big")
