"""What can go wrong, arranged by what the caller may conclude from it.

    ZooKeeperError
    ├── ServerError            the server REFUSED the request: nothing was changed
    │   ├── NoNodeError, NodeExistsError, BadVersionError, ...   one class for each code
    │   └── MultiError              one operation of a multi was refused, so all were
    ├── ConnectionLossError    the connection broke before an answer arrived
    │   ├── NotSentError            it was not sent as a whole: repeating it is safe
    │   │   └── UnreachableError      (also an OperationTimeoutError) ``connect`` timed out
    │   └── OutcomeUnknownError     it was sent: it may or may not have been executed
    │       └── GarbledError          the connection broke because of bytes that are no answer
    ├── OperationTimeoutError  the caller's own time limit passed (also a TimeoutError)
    │   └── LockTimeoutError        (also a LockTakenError) another holder had the lock
    ├── SessionExpiredError    the session has ended, its ephemeral nodes are or will be deleted
    ├── AuthFailedError        the server rejected the credentials; the client is done
    ├── ClientClosedError      close() was called
    │   └── ForkedError             this is the copy of a client in a forked child
    ├── ProtocolError          the answer to this request cannot be read
    │   └── ReplyTooLargeError      it is longer than the limit
    ├── LockLostError          a lock is no longer held although it was not released
    ├── LockTakenError         a ``with`` found the lock taken
    ├── LockCancelledError     ``cancel`` has ended the acquisition
    └── SequenceExhaustedError a lock, queue or counter has used up its numbers

Every error has ``op`` and ``path`` of the operation that it ended (None if there is none) and
``maybe_applied``: whether the server may have changed something for it.  A read never has
``maybe_applied`` set.  The message says what to do next.
Wrong arguments are the ordinary TypeError and ValueError, raised before anything is sent.

The codes are those of Java's ``KeeperException.Code``.  This module decides which class a code is
and what its message adds; it must not know sessions or connections.
"""

from __future__ import annotations


class ZooKeeperError(Exception):
    """The root of all errors that zkwire raises about the outside world."""

    def __init__(
        self,
        message: str = "",
        *,
        op: str | None = None,
        path: str | None = None,
        maybe_applied: bool = False,
    ) -> None:
        super().__init__(message)
        self.op = op
        self.path = path
        self.maybe_applied = maybe_applied

    def __str__(self) -> str:
        message = super().__str__()
        if self.op is None:
            return message
        return f"{self.op} {self.path or ''}".rstrip() + f": {message}"


# --- the server refused ---------------------------------------------------------------------------


class ServerError(ZooKeeperError):
    """The server refused the request and changed nothing.  ``code`` is its error code.

    An error code that zkwire does not know raises this class itself.
    For a change refused with -122, -7, -5 or -4 ``maybe_applied`` is True: some servers send these
    for a request that may be executed all the same (Apache's -5 if it fails after the commit,
    ClickHouse Keeper -7 and -4 if it has not seen the commit).
    """

    code: int = 0

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        if code is not None:
            self.code = code
        text = message or (type(self).__doc__ or type(self).__name__).strip().splitlines()[0]
        if type(self) is ServerError:
            doubt = "; a change may still be executed" if self.code in UNCERTAIN else ""
            text = message or f"refused with error code {self.code}, unknown to this client{doubt}"
        super().__init__(text, op=op, path=path)


class RuntimeInconsistencyError(ServerError):
    """Not attempted, because another operation of the same multi was refused."""

    code = -2


class DataInconsistencyError(ServerError):
    """The server found its data inconsistent."""

    code = -3


class MarshallingError(ServerError):
    """The server could not read the request, or failed inside, perhaps after executing it."""

    code = -5


class UnimplementedError(ServerError):
    """This server does not know the operation, or it is switched off there."""

    code = -6


class ServerTimeoutError(ServerError):
    """The server timed out; a change may still be executed."""

    code = -7


class BadArgumentsError(ServerError):
    """The server does not accept the arguments."""

    code = -8


class UnknownSessionError(ServerError):
    """The server does not know the session."""

    code = -12


class NewConfigNoQuorumError(ServerError):
    """No quorum of the new configuration is connected; retry later."""

    code = -13


class ReconfigInProgressError(ServerError):
    """Another reconfiguration is under way; retry later."""

    code = -14


class NoNodeError(ServerError):
    """There is no such node."""

    code = -101


class NoAuthError(ServerError):
    """The ACL (of the parent for create and delete) does not allow it; perhaps add_auth first."""

    code = -102


class BadVersionError(ServerError):
    """The node has another version, perhaps by a lost request of your own: read it, decide anew."""

    code = -103


class NoChildrenForEphemeralsError(ServerError):
    """Ephemeral nodes cannot have children."""

    code = -108


class NodeExistsError(ServerError):
    """The node exists already."""

    code = -110


class NotEmptyError(ServerError):
    """The node has children; delete them first.  Those of a counter are its clients' marks."""

    code = -111


class InvalidACLError(ServerError):
    """The ACL is empty, malformed, of an unknown scheme, or CREATOR_ALL_ACL without credentials."""

    code = -114


class SessionMovedError(ServerError):
    """The session has moved to another server; repeat it once the client has reconnected."""

    code = -118


class NotReadOnlyError(ServerError):
    """The server is read-only at the moment."""

    code = -119


class EphemeralOnLocalSessionError(ServerError):
    """A local session cannot own ephemeral nodes."""

    code = -120


class NoWatcherError(ServerError):
    """There is no such watch."""

    code = -121


class RequestTimeoutError(ServerError):
    """The server's time limit for requests passed; a change may still be executed."""

    code = -122


class ReconfigDisabledError(ServerError):
    """Reconfiguration is disabled on this ensemble."""

    code = -123


class QuotaExceededError(ServerError):
    """A quota on the path or above it is used up."""

    code = -125


class ThrottledOpError(ServerError):
    """The server throttles requests and did not execute it; repeat it after a pause."""

    code = -127


# --- the connection broke -------------------------------------------------------------------------


class ConnectionLossError(ZooKeeperError):
    """The connection broke.  The two subclasses say whether it may have been executed."""


class NotSentError(ConnectionLossError):
    """The request was not sent whole, so the server has not executed it: repeating it is safe."""


class OutcomeUnknownError(ConnectionLossError):
    """The request was sent and its answer was lost: it may have been executed, or may soon be.

    Of the requests lost with one connection, the executed ones come first, in order: if one has
    taken effect, so have all before it.
    """


class GarbledError(OutcomeUnknownError):
    """The connection broke because bytes came on it that are not ZooKeeper's protocol.

    Those bytes were no answer to this request: an answer that cannot be read is a ProtocolError.
    """


class OperationTimeoutError(ZooKeeperError, TimeoutError):
    """The caller's time limit passed.  ``maybe_applied``: a change was sent, or may yet be.

    From ``release`` or the end of a ``with`` it is True: the lock is not ``held``, and perhaps not
    free.  There is nothing to do: its node is deleted in the background, or with the session.
    """


class UnreachableError(NotSentError, OperationTimeoutError):
    """``connect`` has found no server in time; the client continues to search for one."""


# --- the session or the client is over ------------------------------------------------------------


class SessionExpiredError(ZooKeeperError):
    """The server has ended the session: its ephemeral nodes are deleted, or will be in a moment.

    Its locks and watches end with it.  Terminal: make a new Client, and new locks on it.
    """


class AuthFailedError(ZooKeeperError):
    """The server rejected the credentials.  Terminal: make a new Client with the right ones.

    The server keeps the session, with its ephemeral nodes and locks, until its timeout.
    """


class ClientClosedError(ZooKeeperError):
    """This program has closed the client.  ``maybe_applied``: a change had been sent by then."""


class ForkedError(ClientClosedError):
    """This is a forked child's copy of its parent's client: make a Client of your own here."""


class ProtocolError(ZooKeeperError):
    """The peer sent bytes that are not ZooKeeper's protocol, or more than the limit allows."""


class ReplyTooLargeError(ProtocolError):
    """The reply is longer than ``receive_limit``; a repetition breaks the connection again."""


# --- recipes --------------------------------------------------------------------------------------


class LockLostError(ZooKeeperError):
    """The lock is no longer held although it was not released: stop using what it protects.

    ``session_id`` is that of the session that held it; 0 if none did.
    """

    def __init__(
        self,
        message: str = "",
        *,
        session_id: int = 0,
        op: str | None = None,
        path: str | None = None,
        maybe_applied: bool = False,
    ) -> None:
        super().__init__(message, op=op, path=path, maybe_applied=maybe_applied)
        self.session_id = session_id


class LockTakenError(ZooKeeperError):
    """A ``with`` found the lock taken, or no lease free."""


class LockTimeoutError(LockTakenError, OperationTimeoutError):
    """Another holder was seen to have the lock when the time limit passed, or at the one try.

    An OperationTimeoutError of another class means that no server has answered in time.
    """


class LockCancelledError(ZooKeeperError):
    """``cancel`` has ended the acquisition: nothing is held, and no node stays behind."""


class SequenceExhaustedError(ZooKeeperError):
    """The server has no more numbers for a node: it would give a number twice, or none.

    The numbers are those of a lock's or queue's sequence, or of a counter's version.  Nothing is
    held or changed.  Use another path, or delete this one (a lock's or queue's when it is empty),
    and the numbers start again.
    """


SERVER_ERRORS: dict[int, type[ServerError]] = {c.code: c for c in ServerError.__subclasses__()}


class MultiError(ServerError):
    """A multi was refused: nothing of it was executed.

    ``index`` is the operation that failed, ``code`` its code and ``__cause__`` its error.
    ``results`` has each one's error (RuntimeInconsistencyError if it was not attempted), or None.
    """

    __cause__: BaseException | None

    def __init__(self, results: list[ServerError | None], index: int) -> None:
        culprit = results[index]
        assert culprit is not None
        message = f"operation {index} was refused ({culprit}); nothing of the multi was done"
        super().__init__(message, code=culprit.code, op="multi")
        self.results = results
        self.index = index
        self._culprit = self.__cause__ = culprit

    def __reduce__(self) -> tuple[type[MultiError], tuple[list[ServerError | None], int]]:
        return MultiError, (self.results, self.index)


SESSION_EXPIRED = -112
AUTH_FAILED = -115
SESSION_CLOSED_REQUIRE_AUTH = -124
# The server does not accept the client's identity.
REJECTIONS = {
    AUTH_FAILED: "the server rejected the credentials",
    SESSION_CLOSED_REQUIRE_AUTH: (
        "the server requires an authentication that this client has not given: sasl=..., or "
        "auth=[...] by one of its enforce.auth.schemes"
    ),
}
_MISSING_CHROOT = "the chroot does not exist; ensure_path('/') creates it"
TAKEN_NUMBER = (
    "there is a node already with this name and the server's next number: the parent's counter is "
    "behind the names of its children, as in a copied or restored tree, or at its end"
)
# What an overloaded server answers, sometimes late; a repetition after a pause may succeed.
BUSY = (RequestTimeoutError, SessionMovedError, ThrottledOpError)
# Some servers send these for a write that they may still execute.
UNCERTAIN = frozenset({-4, MarshallingError.code, -7, RequestTimeoutError.code})
LOCAL_SESSION = (
    "this session is a local one, which cannot own ephemeral nodes: the servers need "
    "localSessionsUpgradingEnabled=true, or must be without localSessionsEnabled"
)
# Seen with 3.8.0 and 3.9.5 at followers; the leader refuses that operation of the multi with -120.
AS_IF_EXPIRED = (
    f"the server answered as if the session had expired, but serves it; perhaps {LOCAL_SESSION}"
)


def error_for(
    code: int, op: str | None, path: str | None, sequential: bool = False
) -> ZooKeeperError:
    """The error for a code in a reply's header; an unknown code keeps its number.

    ``sequential``: the request is a create that appends a number to ``path``.
    """
    if code == SESSION_EXPIRED:
        return SessionExpiredError("the session has expired", op=op, path=path)
    if code in REJECTIONS:
        return AuthFailedError(REJECTIONS[code], op=op, path=path)
    kind = SERVER_ERRORS.get(code)
    if kind is None:
        return ServerError(code=code, op=op, path=path)
    cure = _cure(code, op or "", path or "")
    if sequential and code == NodeExistsError.code:
        cure = TAKEN_NUMBER
    return kind(cure, op=op, path=path)


def _cure(code: int, op: str, path: str) -> str:
    """What the message adds for this request to the text of its class; "" for nothing."""
    if code == NoNodeError.code:
        above = path.rpartition("/")[0] or "/"
        if path == "/" or (above == "/" and op.startswith("create")):
            return _MISSING_CHROOT
        if op.startswith("create"):
            return f"the parent {above} does not exist; ensure_path({above!r}) creates it"
        if path == "/zookeeper/config":
            return "there is no such node; perhaps the server is older than 3.5, which brought it"
    if code == EphemeralOnLocalSessionError.code:
        return LOCAL_SESSION
    if code == BadArgumentsError.code and op == "delete" and f"{path}/".startswith("/zookeeper/"):
        return "the server keeps this node for itself; no client can delete it"
    if code == MarshallingError.code and op == "multi":
        return (
            "the server could not read it, or failed inside; perhaps it is older than 3.5, which "
            "brought container and TTL nodes"
        )
    return ""
