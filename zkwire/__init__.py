"""zkwire: a ZooKeeper client in pure Python, from the wire protocol up, and locks on it.

Everything public is importable from here; importing it starts nothing.
"""

from zkwire.client import Client, Transaction
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
from zkwire.model import (
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
)
from zkwire.verbs.multi import Check, Create, Delete, GetChildren, GetData, SetData
from zkwire.watches import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.aio.client import AsyncClient as AsyncClient
    from zkwire.aio.client import AsyncTransaction as AsyncTransaction
    from zkwire.digest import digest_auth as digest_auth
    from zkwire.digest import digest_id as digest_id
    from zkwire.recipes.async_family import AsyncElection as AsyncElection
    from zkwire.recipes.async_family import AsyncLease as AsyncLease
    from zkwire.recipes.async_family import AsyncMultiLock as AsyncMultiLock
    from zkwire.recipes.async_family import AsyncReadWriteLock as AsyncReadWriteLock
    from zkwire.recipes.async_family import AsyncReentrantLock as AsyncReentrantLock
    from zkwire.recipes.async_family import AsyncSemaphore as AsyncSemaphore
    from zkwire.recipes.async_locks import AsyncBlockingLock as AsyncBlockingLock
    from zkwire.recipes.async_locks import AsyncLock as AsyncLock
    from zkwire.recipes.async_locks import AsyncNonBlockingLock as AsyncNonBlockingLock
    from zkwire.recipes.async_locks import AsyncSequentialLock as AsyncSequentialLock
    from zkwire.recipes.contenders import Contender as Contender
    from zkwire.recipes.family import Election as Election
    from zkwire.recipes.family import Lease as Lease
    from zkwire.recipes.family import MultiLock as MultiLock
    from zkwire.recipes.family import ReadWriteLock as ReadWriteLock
    from zkwire.recipes.family import ReentrantLock as ReentrantLock
    from zkwire.recipes.family import Semaphore as Semaphore
    from zkwire.recipes.locks import BlockingLock as BlockingLock
    from zkwire.recipes.locks import Lock as Lock
    from zkwire.recipes.locks import NonBlockingLock as NonBlockingLock
    from zkwire.recipes.locks import SequentialLock as SequentialLock
    from zkwire.recipes.lost import Lost as Lost
    from zkwire.sasl import DigestMD5 as DigestMD5
    from zkwire.trace import TraceFrame as TraceFrame

__version__ = "0.1.0"

# Loaded when they are first asked for: asyncio is expensive, and nobody needs all of the rest.
_LATE = {
    "AsyncBlockingLock": "zkwire.recipes.async_locks",
    "AsyncClient": "zkwire.aio.client",
    "AsyncElection": "zkwire.recipes.async_family",
    "AsyncLease": "zkwire.recipes.async_family",
    "AsyncLock": "zkwire.recipes.async_locks",
    "AsyncMultiLock": "zkwire.recipes.async_family",
    "AsyncNonBlockingLock": "zkwire.recipes.async_locks",
    "AsyncReadWriteLock": "zkwire.recipes.async_family",
    "AsyncReentrantLock": "zkwire.recipes.async_family",
    "AsyncSemaphore": "zkwire.recipes.async_family",
    "AsyncSequentialLock": "zkwire.recipes.async_locks",
    "AsyncTransaction": "zkwire.aio.client",
    "BlockingLock": "zkwire.recipes.locks",
    "Contender": "zkwire.recipes.contenders",
    "DigestMD5": "zkwire.sasl",
    "Election": "zkwire.recipes.family",
    "Lease": "zkwire.recipes.family",
    "Lock": "zkwire.recipes.locks",
    "Lost": "zkwire.recipes.lost",
    "MultiLock": "zkwire.recipes.family",
    "NonBlockingLock": "zkwire.recipes.locks",
    "ReadWriteLock": "zkwire.recipes.family",
    "ReentrantLock": "zkwire.recipes.family",
    "Semaphore": "zkwire.recipes.family",
    "SequentialLock": "zkwire.recipes.locks",
    "TraceFrame": "zkwire.trace",
    "digest_auth": "zkwire.digest",
    "digest_id": "zkwire.digest",
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
