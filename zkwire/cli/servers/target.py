"""What is examined: one address of one server."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.context import Context
    from zkwire.session.hosts import Address


class Target:
    """One address of a server of the list, and the chroot that clients have there."""

    def __init__(
        self, server: tuple[str, int], chroot: str, address: Address, context: Context
    ) -> None:
        self.server: tuple[str, int] = server
        self.chroot: str = chroot
        self.address: Address = address
        self.context: Context = context

    @property
    def name(self) -> str:
        """The server as the list names it."""
        return host_port(*self.server)

    @property
    def where(self) -> str:
        """The address and the port."""
        return host_port(*self.address[1][:2])


def host_port(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
