"""The operations that the server in hand does not know.

Apache's server refuses them past its pipeline (``UnimplementedRequestProcessor``): the refusal has
no zxid, overtakes the answers to earlier requests, and closes the connection behind itself.  Seen
on 3.4.14, 3.6.2, 3.8.0 and 3.9.5: answers to requests before and behind it may come after it, and
of those behind it none to all are executed.  What a server knows and has switched off (TTL nodes,
``reconfig``) is refused in its turn, with a zxid, and closes nothing.

What was refused is remembered for the next connection only, and only if that follows at once and
leads to the same server: the protocol does not tell a release, and an upgrade ends all connections.
"""

from __future__ import annotations

from zkwire.errors import UnimplementedError
from zkwire.session.request import Refused
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.request import Request
    from zkwire.wire.ops import Op

# Operations that do more than to send a request.
_LOCAL = (ops.AUTH, ops.REMOVE_WATCHES)

_NO_ZXID = -1
UNKNOWN = Refused(UnimplementedError.code)


def says_unknown(zxid: int, code: int) -> bool:
    """Whether this answer is such a refusal."""
    return code == UnimplementedError.code and zxid == _NO_ZXID


class Unknown:
    """See the module's docstring.  ``local`` are all operations that are not just to be sent."""

    __slots__ = ("_peer", "local", "ops")

    def __init__(self) -> None:
        self._peer: object = None
        self.ops: tuple[Op, ...] = ()
        self.local: tuple[Op, ...] = _LOCAL

    def connected(self, peer: object) -> None:
        """A connection to this server has been made."""
        if peer != self._peer:
            self._peer = peer
            self.forget()

    def learn(self, op: Op) -> None:
        """The server does not know this one."""
        self.ops = (*self.ops, op)
        self.local = (*_LOCAL, *self.ops)

    def forget(self) -> None:
        """Another server may be next."""
        self.ops, self.local = (), _LOCAL

    def known(self, requests: list[Request]) -> list[Request]:
        """Those of the calls that the server knows."""
        return [request for request in requests if request.op not in self.ops]

    def refusal(self) -> str:
        """Why the connection has ended, by the last that the server did not know."""
        name = self.ops[-1].name
        return f"the server does not know {name} and ends a connection on which it is asked for"
