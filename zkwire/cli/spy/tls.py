"""A tap between clients and servers of which some speak TLS; see :mod:`zkwire.cli.spy.tls`.

The tap itself sees plain bytes, on the loopback interface of this machine alone.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from zkwire.cli.context import unusable
from zkwire.cli.output import host_port
from zkwire.cli.spy.tap import Faults, Tap
from zkwire.net.tls import describe

Place = tuple[str, int]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


_HERE = "127.0.0.1"


class SecuredTap(Tap):
    """``servers``: how to speak TLS to the servers; ``clients``: how to speak it to the clients."""

    def __init__(
        self,
        upstreams: list[str],
        faults: Faults,
        listen: tuple[str, int],
        *,
        servers: ssl.SSLContext | None,
        clients: ssl.SSLContext | None,
        report: Callable[[str], object],
    ) -> None:
        self._tunnels = Tunnels(report)
        try:
            if servers is not None:
                upstreams = [self._to(upstream, servers) for upstream in upstreams]
        except BaseException:
            self._tunnels.close()
            raise
        super().__init__(upstreams, faults, listen if clients is None else (_HERE, 0))
        try:
            if clients is not None:
                self.hosts = [self._from(h, i, listen, clients) for i, h in enumerate(self.hosts)]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all connections and threads."""
        super().close()
        self._tunnels.close()

    def _to(self, upstream: str, context: ssl.SSLContext) -> str:
        host, _, port = upstream.rpartition(":")
        where = host.strip("[]"), int(port)
        return f"{_HERE}:{self._tunnels.open((_HERE, 0), where, connect=context)}"

    def _from(self, tap: str, index: int, listen: tuple[str, int], context: ssl.SSLContext) -> str:
        host, port = listen
        plain = _HERE, int(tap.rpartition(":")[2])
        opened = self._tunnels.open((host, port + index if port else 0), plain, accept=context)
        return host_port(host, opened)


def shown_to_clients(certificate: str, key: str | None) -> ssl.SSLContext:
    """The context of a server with this certificate; OSError if the files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise unusable(error, certificate, key) from None
    return context


# --- tunnels --------------------------------------------------------------------------------------
# Tunnels for the TLS that the proxy of the spy does not speak: TLS on one side, plain on one.
#
# A tunnel listens, and connects to one address for each connection that comes.  Bytes pass
# untouched; the end of one direction is that of the connection.  What goes wrong is told by
# ``report``, one line each; the connection then ends as one to a server that is gone.
#
# All tunnels of a run live in the thread of one event loop.

_CHUNK = 64 * 1024
_SECONDS = 10.0  # for a handshake
_PAUSE = 0.1


class Tunnels:
    """See the module's docstring."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tunnels", daemon=True)
        self._thread.start()

    def open(
        self,
        listen: Place,
        target: Place,
        *,
        accept: ssl.SSLContext | None = None,
        connect: ssl.SSLContext | None = None,
    ) -> int:
        """The port of a new tunnel; OSError if it cannot listen there.

        ``accept``: clients speak TLS.  ``connect``: the target does, with a certificate for its
        host.
        """
        return self._call(self._open(listen, target, accept, connect))

    def close(self) -> None:
        """End all connections and the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # --- in the thread of the loop ----------------------------------------------------------------

    async def _open(
        self,
        listen: Place,
        target: Place,
        accept: ssl.SSLContext | None,
        connect: ssl.SSLContext | None,
    ) -> int:
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        listener = socket.create_server(listen, family=family, backlog=128)
        listener.setblocking(False)
        self._start(self._accept_all(listener, partial(self._carry, target, accept, connect)))
        port: int = listener.getsockname()[1]
        return port

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_all(
        self,
        listener: socket.socket,
        carry: Callable[[socket.socket, Any], Coroutine[Any, Any, None]],
    ) -> None:
        with listener:
            while True:
                try:
                    client, address = await self._loop.sock_accept(listener)
                except OSError:  # there are too many descriptors for now
                    await asyncio.sleep(_PAUSE)
                    continue
                self._start(carry(client, address))

    async def _carry(
        self,
        target: Place,
        accept: ssl.SSLContext | None,
        connect: ssl.SSLContext | None,
        client: socket.socket,
        address: Any,
    ) -> None:
        """Both handshakes, and then all bytes of one connection."""
        with ExitStack() as ends, suppress(OSError):
            ends.callback(client.close)
            near = await self._accepted(client, address, accept)
            ends.callback(near[1].transport.abort)
            far = await self._connected(target, connect)
            ends.callback(far[1].transport.abort)
            await asyncio.gather(_pump(near[0], far[1]), _pump(far[0], near[1]))

    async def _accepted(
        self, client: socket.socket, address: Any, accept: ssl.SSLContext | None
    ) -> Ends:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        limit = None if accept is None else _SECONDS
        with self._reporting(address):
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, client, ssl=accept, ssl_handshake_timeout=limit
            )
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _connected(self, target: Place, connect: ssl.SSLContext | None) -> Ends:
        limit = None if connect is None else _SECONDS
        with self._reporting(target):
            return await asyncio.open_connection(*target, ssl=connect, ssl_handshake_timeout=limit)

    @contextmanager
    def _reporting(self, peer: Any) -> Generator[None]:
        try:
            yield
        except OSError as error:
            words = describe(error) if isinstance(error, ssl.SSLError) else error
            self._report(f"{peer[0]}:{peer[1]}: {words}")
            raise

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until one side has ended; what has been read is written before the end."""
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
