"""How a request ends if no server has answered it, or if the server does not know it.

Decides which error it ends with, whether it may have been executed, and what the message tells the
caller to do next.  It must not know when that happens; all of these texts stand here.
"""

from __future__ import annotations

from zkwire import errors
from zkwire.session.request import ANSWERED, Answered, Failed, Refused, Request
from zkwire.wire import ops
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.wire.ops import Op


# What an error adds for its reader.  The log does not: a supervisor has made the next client.
NEW_CLIENT = "; make a new Client, or ask the supervisor for its next"
# How a terminal state ends every request that has not ended.
TERMINAL: dict[State, tuple[type[errors.ZooKeeperError], str]] = {
    State.EXPIRED: (
        errors.SessionExpiredError,
        f"the session has expired: its ephemeral nodes, locks and watches are gone{NEW_CLIENT}",
    ),
    State.AUTH_FAILED: (errors.AuthFailedError, "the server rejected the credentials"),
    State.CLOSED: (errors.ClientClosedError, "the client is closed"),
}
NOT_RESUMED = (
    f"the session cannot be resumed: it is over, or these are not its id and password{NEW_CLIENT}"
)
CLOSED = "the server closed it"
RESET = "the server reset it"
UNANSWERED = "no answer to the connection attempt"
SILENT = "no answer to the greeting (perhaps it is no ZooKeeper server, or it expects TLS)"
UNGREETED = (
    " before it greeted (perhaps it expects TLS or a certificate, is not yet up, is full, or has "
    "no quorum, for which read_only=True is)"
)
UNGREETED_AGAIN = " before it greeted (perhaps it is not yet up, is full, or has no quorum)"
# A server closes such a connection without a word.  So does a server that restarts, which is far
# more common and soon over.  So only an error about a search that has lasted too long says it.
_OLDER_DATA = (
    "; perhaps the data of a server are older than zxid {:#x}, which this client has seen, as "
    "after a restart without them: then a new client is the way out"
)
_UNPROVEN = (
    " and did not answer the SASL login (perhaps the user name or the password is wrong, to which "
    "ZooKeeper 3.4 says nothing)"
)
_TOO_LARGE = ", perhaps because of the {} bytes of this request: servers do so above jute.maxbuffer"
_LARGE = 64 * 1024  # bytes; hardly any server's limit is below
_HEADER_BYTES = 8
CLOSING = "the client is being closed"
WITHDRAWN = Failed(errors.NotSentError, "withdrawn before it was sent", False)


def unmet(why: str, last_zxid: int, *, greeted: bool) -> str:
    """``why`` a connection ended before a greeting or a token was answered, with usual reasons."""
    if why not in (CLOSED, RESET):
        return why
    ungreeted = UNGREETED_AGAIN if last_zxid > 0 else UNGREETED
    return why + (_UNPROVEN if greeted else ungreeted)


def perhaps_older(last_failure: str, last_zxid: int) -> str:
    """What an error adds to the last failure of a search that has lasted too long."""
    return _OLDER_DATA.format(last_zxid) if last_failure.endswith(UNGREETED_AGAIN) else ""


def terminal(state: State, request: Request, why: str | None) -> Answered | Failed:
    """The session has ended in ``state``; ``why`` says more than the state, where more is known."""
    if request.op is ops.CLOSE_SESSION:
        return ANSWERED
    kind, message = TERMINAL[state]
    return Failed(kind, why or message, request.sent)


def unreadable(error: errors.ProtocolError) -> Failed:
    """The request's own reply cannot be read, or is too large."""
    if isinstance(error, errors.ReplyTooLargeError):
        return Failed(errors.ReplyTooLargeError, str(error), True)
    return Failed(errors.ProtocolError, f"its reply cannot be read: {error}", True)


def unreachable(seconds: float, last_failure: str, last_zxid: int) -> Failed:
    """The request has waited for a connection for a session timeout, in ``seconds``."""
    return Failed(
        errors.NotSentError,
        f"no server could be reached for {seconds:.1f} s (last: {last_failure}); it was not sent: "
        f"repeat it freely{perhaps_older(last_failure, last_zxid)}",
        False,
    )


def broken(request: Request, written: int, why: str, garbled: bool) -> Failed:
    """The connection that the request was given to has broken.

    ``written`` is how many bytes of that connection the kernel has taken, at most.  A server
    executes whole frames only, so a request whose last byte was not taken is not executed.
    ``garbled``: the reason was bytes that are not the protocol's.
    """
    size = len(request.body) + _HEADER_BYTES
    if size >= _LARGE and why in (CLOSED, RESET):
        why += _TOO_LARGE.format(size)
    if not (request.sent and request.end <= written):
        message = f"the connection broke ({why}) before it was sent: repeat it freely"
        return Failed(errors.NotSentError, message, False)
    advice = (
        "it may have been executed; look before you repeat it"
        if request.op.changes
        else "repeat it freely, it changes nothing"
    )
    message = f"the connection broke ({why}) after it was sent, before the answer: {advice}"
    return Failed(errors.GarbledError if garbled else errors.OutcomeUnknownError, message, True)


# Operations for which it is not enough to send a request.
_LOCAL = (ops.AUTH, ops.REMOVE_WATCHES)

_NO_ZXID = -1
UNKNOWN = Refused(errors.UnimplementedError.code)


def says_unknown(zxid: int, code: int) -> bool:
    """Whether an answer is the refusal of an unknown operation."""
    return code == errors.UnimplementedError.code and zxid == _NO_ZXID


class UnknownOperations:
    """The operations that the connected server does not know.

    Apache's server refuses such an operation outside its pipeline
    (``UnimplementedRequestProcessor``): the refusal has no zxid, overtakes the answers to earlier
    requests, and the server then closes the connection.  Seen on 3.4.14, 3.6.2, 3.8.0 and 3.9.5:
    answers to other requests may arrive after the refusal; of the requests after the unknown one,
    none, some or all are executed.  An operation that a server knows and has switched off (TTL
    nodes, ``reconfig``) is refused in its turn, with a zxid, and closes nothing.

    A refusal costs a connection.  So all operations that came with the same release, or later, then
    count as unknown, too.  That is remembered for the next connection only, and only if it follows
    at once and leads to the same server: the protocol does not name a release, and an upgrade ends
    all connections.

    ``ops`` are the unknown operations.  ``local`` are these and all other operations for which it
    is not enough to send a request.
    """

    __slots__ = ("local", "ops")

    def __init__(self) -> None:
        self.ops: tuple[Op, ...] = ()
        self.local: tuple[Op, ...] = _LOCAL

    def learn(self, op: Op) -> None:
        """The server does not know ``op``, nor what came with the same release or later."""
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
