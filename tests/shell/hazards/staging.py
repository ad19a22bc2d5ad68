"""A stage whose server is the embedded one, so that a test can also be the server's fault."""

from __future__ import annotations

from tests.support.embedded_servers import EmbeddedServer
from tests.support.family_helpers import soon
from tests.support.lock_frames import meaning
from tests.support.lock_helpers import PATIENCE, Lock, Stage, requests
from zkwire import Client, testing
from zkwire.jute.frames import frame as pack_frame
from zkwire.jute.records import GetChildrenResponse, ReplyHeader
from zkwire.testing.proxy import Frame, rewrite

_EMPTY = pack_frame(ReplyHeader(0, 0, 0).encode() + GetChildrenResponse(()).encode())
nothing_there = rewrite(lambda raw: _EMPTY[:4] + raw[4:20] + _EMPTY[20:])
"""The reply to a listing as a server gives it that is behind."""


def _nothing() -> None:
    """The fixture ends the server."""


class EmbeddedStage(Stage):
    """See the module."""

    def __init__(self, embedded: testing.Server) -> None:
        self.embedded = embedded
        super().__init__(EmbeddedServer(embedded, _nothing))

    def end(self, client: Client) -> None:
        """The server ends the session, as its time-out would, and the client has to find out."""
        assert self.embedded.expire(client.session_id)

    @property
    def watches(self) -> int:
        """How many watches the server has, of all clients."""
        loop = self.embedded._running()
        return loop.call(lambda: len(self.embedded._processor.state.watchers))

    def sent(self, op: str) -> list[Frame]:
        """The requests of an operation that went through the proxy."""
        return [frame for frame in requests(self.proxy.frames()) if meaning(frame) == op]

    def wait_sent(self, op: str, count: int = 1) -> None:
        """Wait until the proxy has seen so many requests of an operation."""
        self.proxy.wait_for(lambda frames: _number(frames, op) >= count, PATIENCE)

    def wait_queued(self, path: str, count: int) -> None:
        """Wait until so many contenders have a node."""
        soon(f"{count} queue", lambda: len(self.nodes(path)) == count, PATIENCE)


def _number(frames: list[Frame], op: str) -> int:
    return sum(meaning(frame) == op and frame.direction == "c2s" for frame in frames)


def node_of(stage: Stage, lock: Lock) -> str:
    """The one node of a lock that is held and that nobody else wants."""
    (node,) = stage.nodes(lock.path)
    return node
