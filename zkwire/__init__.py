"""zkwire: a ZooKeeper client in pure Python, from the wire protocol up, and locks on it.

Everything public is importable from here; importing it starts nothing.
"""

from zkwire.blocking.client import Client, Transaction
from zkwire.errors import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    ClientClosedError,
    ConnectionLossError,
    DataInconsistencyError,
    EphemeralOnLocalSessionError,
    ForkedError,
    GarbledError,
    InvalidACLError,
    LockLostError,
    LockTakenError,
    LockTimeoutError,
    MarshallingError,
    MultiError,
    NewConfigNoQuorumError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyError,
    NotSentError,
    NoWatcherError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ProtocolError,
    QuotaExceededError,
    ReconfigDisabledError,
    ReconfigInProgressError,
    ReplyTooLargeError,
    RequestTimeoutError,
    RuntimeInconsistencyError,
    SequenceExhaustedError,
    ServerError,
    ServerTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
    UnimplementedError,
    UnknownSessionError,
    UnreachableError,
    ZooKeeperError,
)
from zkwire.jute.records import ACL, ClientInfo, Id, Stat
from zkwire.operations.multi import Check, Create, Delete, GetChildren, GetData, SetData
from zkwire.session.watch import Watch
from zkwire.wire.model import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    AclAndStat,
    ChildrenAndStat,
    Credentials,
    DataAndStat,
    Event,
    EventType,
    PathAndStat,
    Perms,
    State,
    WatchType,
    digest_auth,
    digest_id,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.aio.client import AsyncClient as AsyncClient
    from zkwire.aio.client import AsyncTransaction as AsyncTransaction
    from zkwire.aio.family import AsyncElection as AsyncElection
    from zkwire.aio.family import AsyncLease as AsyncLease
    from zkwire.aio.family import AsyncMultiLock as AsyncMultiLock
    from zkwire.aio.family import AsyncReadWriteLock as AsyncReadWriteLock
    from zkwire.aio.family import AsyncReentrantLock as AsyncReentrantLock
    from zkwire.aio.family import AsyncSemaphore as AsyncSemaphore
    from zkwire.aio.locks import AsyncBlockingLock as AsyncBlockingLock
    from zkwire.aio.locks import AsyncLock as AsyncLock
    from zkwire.aio.locks import AsyncNonBlockingLock as AsyncNonBlockingLock
    from zkwire.aio.locks import AsyncSequentialLock as AsyncSequentialLock
    from zkwire.blocking.family import Election as Election
    from zkwire.blocking.family import Lease as Lease
    from zkwire.blocking.family import MultiLock as MultiLock
    from zkwire.blocking.family import ReadWriteLock as ReadWriteLock
    from zkwire.blocking.family import ReentrantLock as ReentrantLock
    from zkwire.blocking.family import Semaphore as Semaphore
    from zkwire.blocking.locks import BlockingLock as BlockingLock
    from zkwire.blocking.locks import Lock as Lock
    from zkwire.blocking.locks import NonBlockingLock as NonBlockingLock
    from zkwire.blocking.locks import SequentialLock as SequentialLock
    from zkwire.net.sasl import DigestMD5 as DigestMD5
    from zkwire.recipes.contenders import Contender as Contender
    from zkwire.recipes.lost import Lost as Lost
    from zkwire.session.trace import TraceFrame as TraceFrame

__version__ = "0.1.0"

# Loaded when they are first asked for: asyncio is expensive, and nobody needs all of the rest.
_LATE = {
    "AsyncBlockingLock": "zkwire.aio.locks",
    "AsyncClient": "zkwire.aio.client",
    "AsyncElection": "zkwire.aio.family",
    "AsyncLease": "zkwire.aio.family",
    "AsyncLock": "zkwire.aio.locks",
    "AsyncMultiLock": "zkwire.aio.family",
    "AsyncNonBlockingLock": "zkwire.aio.locks",
    "AsyncReadWriteLock": "zkwire.aio.family",
    "AsyncReentrantLock": "zkwire.aio.family",
    "AsyncSemaphore": "zkwire.aio.family",
    "AsyncSequentialLock": "zkwire.aio.locks",
    "AsyncTransaction": "zkwire.aio.client",
    "BlockingLock": "zkwire.blocking.locks",
    "Contender": "zkwire.recipes.contenders",
    "DigestMD5": "zkwire.net.sasl",
    "Election": "zkwire.blocking.family",
    "Lease": "zkwire.blocking.family",
    "Lock": "zkwire.blocking.locks",
    "Lost": "zkwire.recipes.lost",
    "MultiLock": "zkwire.blocking.family",
    "NonBlockingLock": "zkwire.blocking.locks",
    "ReadWriteLock": "zkwire.blocking.family",
    "ReentrantLock": "zkwire.blocking.family",
    "Semaphore": "zkwire.blocking.family",
    "SequentialLock": "zkwire.blocking.locks",
    "TraceFrame": "zkwire.session.trace",
}

__all__ = [
    "ACL",
    "CREATOR_ALL_ACL",
    "OPEN_ACL_UNSAFE",
    "READ_ACL_UNSAFE",
    "AclAndStat",
    "AsyncBlockingLock",
    "AsyncClient",
    "AsyncElection",
    "AsyncLease",
    "AsyncLock",
    "AsyncMultiLock",
    "AsyncNonBlockingLock",
    "AsyncReadWriteLock",
    "AsyncReentrantLock",
    "AsyncSemaphore",
    "AsyncSequentialLock",
    "AsyncTransaction",
    "AuthFailedError",
    "BadArgumentsError",
    "BadVersionError",
    "BlockingLock",
    "Check",
    "ChildrenAndStat",
    "Client",
    "ClientClosedError",
    "ClientInfo",
    "ConnectionLossError",
    "Contender",
    "Create",
    "Credentials",
    "DataAndStat",
    "DataInconsistencyError",
    "Delete",
    "DigestMD5",
    "Election",
    "EphemeralOnLocalSessionError",
    "Event",
    "EventType",
    "ForkedError",
    "GarbledError",
    "GetChildren",
    "GetData",
    "Id",
    "InvalidACLError",
    "Lease",
    "Lock",
    "LockLostError",
    "LockTakenError",
    "LockTimeoutError",
    "Lost",
    "MarshallingError",
    "MultiError",
    "MultiLock",
    "NewConfigNoQuorumError",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NoWatcherError",
    "NodeExistsError",
    "NonBlockingLock",
    "NotEmptyError",
    "NotReadOnlyError",
    "NotSentError",
    "OperationTimeoutError",
    "OutcomeUnknownError",
    "PathAndStat",
    "Perms",
    "ProtocolError",
    "QuotaExceededError",
    "ReadWriteLock",
    "ReconfigDisabledError",
    "ReconfigInProgressError",
    "ReentrantLock",
    "ReplyTooLargeError",
    "RequestTimeoutError",
    "RuntimeInconsistencyError",
    "Semaphore",
    "SequenceExhaustedError",
    "SequentialLock",
    "ServerError",
    "ServerTimeoutError",
    "SessionExpiredError",
    "SessionMovedError",
    "SetData",
    "Stat",
    "State",
    "ThrottledOpError",
    "TraceFrame",
    "Transaction",
    "UnimplementedError",
    "UnknownSessionError",
    "UnreachableError",
    "Watch",
    "WatchType",
    "ZooKeeperError",
    "digest_auth",
    "digest_id",
]


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
