"""Where a tree is: a path of ``--server``, or ``zk://HOST:PORT,HOST:PORT/PATH``."""

from __future__ import annotations

import posixpath
from contextlib import contextmanager

from zkwire.cli.transfer.node import below
from zkwire.session.hosts import parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from zkwire import Client
    from zkwire.cli.context import Context

SCHEME = "zk://"
SERVERS_OWN = "/zookeeper"


class Place:
    """The root of a tree: ``path`` for this ``client``, whose servers and chroot are ``hosts``."""

    def __init__(self, client: Client, hosts: str, path: str) -> None:
        self.client = client
        self.path = path
        servers, self._chroot = parse_hosts(hosts)
        self._servers = frozenset(servers)

    def is_reserved(self, path: str) -> bool:
        """Whether the node at ``path`` of this tree is the servers' own, ``/zookeeper``."""
        return not self._chroot and below(self.path, path) == SERVERS_OWN

    def is_within(self, other: Place) -> bool:
        """Whether this is the root of ``other`` or below it, as far as the names tell."""
        if self._servers.isdisjoint(other._servers):
            return False
        inside, outside = (below(place._chroot or "/", place.path) for place in (self, other))
        return outside == "/" or f"{inside}/".startswith(f"{outside}/")


def check_place(text: str) -> str:
    """``text`` if it can be a place; ValueError says what is wrong before anything connects."""
    if text.startswith(SCHEME):
        hosts, _ = _split(text)
        parse_hosts(hosts)
    elif "://" in text:
        raise ValueError(f"{text!r} is neither a path nor {SCHEME}HOST:PORT,.../PATH")
    return text


@contextmanager
def at(context: Context, text: str) -> Generator[Place]:
    """The place that ``text`` names, connected."""
    if not text.startswith(SCHEME):
        yield Place(context.client, context.server, context.path(text))
        return
    hosts, path = _split(text)
    client = context.connect(hosts)
    try:
        yield Place(client, hosts, path)
    finally:
        client.close()


def _split(text: str) -> tuple[str, str]:
    hosts, _, path = text.removeprefix(SCHEME).partition("/")
    return hosts, posixpath.normpath("/" + path).replace("//", "/")
