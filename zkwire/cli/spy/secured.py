"""A tap between clients and servers of which some speak TLS; see :mod:`zkwire.cli.spy.tunnels`.

The tap itself sees plain bytes, on the loopback interface of this machine alone.
"""

from __future__ import annotations

import ssl

from zkwire.cli.context import unusable
from zkwire.cli.spy.tap import Tap
from zkwire.cli.spy.tunnels import Tunnels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.cli.spy.faults import Faults

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
        return f"[{host}]:{opened}" if ":" in host else f"{host}:{opened}"


def shown_to_clients(certificate: str, key: str | None) -> ssl.SSLContext:
    """The context of a server with this certificate; OSError if the files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise unusable(error, certificate, key) from None
    return context
