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
from contextlib import suppress
from functools import partial

from zkwire import AsyncClient, ConnectionLossError, OperationTimeoutError, State, ZooKeeperError
from zkwire.cli.lessons.event import FRAME, GO, SERVER, STOP, Event
from zkwire.cli.lessons.record import Record
from zkwire.cli.lessons.server_lane import Lane, ServerWire
from zkwire.cli.lessons.words import described
from zkwire.jute.frames import frame as frame_of
from zkwire.jute.records import ConnectRequest, ConnectResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from zkwire import Credentials
    from zkwire.testing.proxy.frames import Frame

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
        whole = self._run(lesson)
        try:
            asyncio.run(whole)
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
