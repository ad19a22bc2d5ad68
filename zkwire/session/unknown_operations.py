"""The operations that the connected server does not know.

Decides which answer says so and for how long that is remembered.  Apache's server refuses such an
operation outside its pipeline (``UnimplementedRequestProcessor``): the refusal has no zxid,
overtakes the answers to earlier requests, and the server then closes the connection.  Seen on
3.4.14, 3.6.2, 3.8.0 and 3.9.5: answers to requests before and behind it may arrive after it, and of
those behind it none, some or all are executed.  An operation that a server knows and has switched
off (TTL nodes, ``reconfig``) is refused in its turn, with a zxid, and closes nothing.

A refusal costs a connection, so it tells of all operations that came with that one or later.
It is remembered for the next connection only, and only if that one follows at once and leads
to the same server: the protocol does not name a release, and an upgrade ends all connections.
"""

from __future__ import annotations

from zkwire.errors import UnimplementedError
from zkwire.session.request import Refused
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.request import Request
    from zkwire.wire.ops import Op

# Operations that need more than to be sent.
_LOCAL = (ops.AUTH, ops.REMOVE_WATCHES)

_NO_ZXID = -1
UNKNOWN = Refused(UnimplementedError.code)


def says_unknown(zxid: int, code: int) -> bool:
    """Whether an answer is the refusal of an unknown operation."""
    return code == UnimplementedError.code and zxid == _NO_ZXID


class UnknownOperations:
    """See the module's docstring.

    ``ops`` are the unknown operations, ``local`` these and all others that need more than to be
    sent.
    """

    __slots__ = ("_peer", "local", "ops")

    def __init__(self) -> None:
        self._peer: object = None  # the server
        self.ops: tuple[Op, ...] = ()
        self.local: tuple[Op, ...] = _LOCAL

    def connected(self, peer: object) -> None:
        """A connection to this server has been made."""
        if peer != self._peer:
            self._peer = peer
            self.forget()

    def learn(self, op: Op) -> None:
        """The server does not know ``op``, so it is older than what came with it or later."""
        later = [o for o in ops.OPS.values() if o.release >= op.release > (3, 0) and o is not op]
        self.ops = (*self.ops, *later, op)
        self.local = (*_LOCAL, *self.ops)

    def forget(self) -> None:
        """The next server may be another one."""
        self.ops, self.local = (), _LOCAL

    def known(self, requests: list[Request]) -> list[Request]:
        """Those of the requests that the server knows."""
        return [request for request in requests if request.op not in self.ops]

    def refusal(self) -> str:
        """Why the connection has ended: the last operation that the server did not know."""
        name = self.ops[-1].name
        return f"the server does not know {name} and ends a connection on which it is asked for"
