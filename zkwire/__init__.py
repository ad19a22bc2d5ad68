"""zkwire: a ZooKeeper client in pure Python, from the wire protocol up, and locks on it.

    from zkwire import Client, SequentialLock

    with Client("127.0.0.1:2181") as client:
        client.create("/hello", b"world")
        print(client.get_data("/hello").data)
        with SequentialLock(client, "/locks/report") as lock:
            print("fencing token:", lock.fence)

``help(zkwire.Client)`` has the options and operations, ``help(zkwire.SequentialLock)`` what all
locks have.  Under asyncio these are ``AsyncClient`` and ``AsyncSequentialLock``, under trio
``zkwire.trio.TrioClient``.  For a program that outlives its session there is ``Supervisor``.

When a connection is lost, a request ends with ``NotSentError`` (repeat it) or with
``OutcomeUnknownError`` (look first); both are ``ConnectionLossError``.  When a server refuses a
request, it ends with a ``ServerError``, such as ``NoNodeError``.  These errors are
``ZooKeeperError``.  Wrong arguments are a TypeError or ValueError, and wrong uses of an object a
RuntimeError.

Everything public is importable from here, and loaded when it is first used.
"""

__version__ = "0.1.0"

# Each name stands here once, behind the module that has it.  Python loads that module when the name
# is first used; a type checker reads the imports at the end.
_TABLE = [
    # Clients, and what recipes return.
    ("blocking.client", ["Client", "Transaction"]),
    ("aio.client", ["AsyncClient", "AsyncTransaction"]),
    ("net.sasl", ["DigestMD5"]),
    ("recipes._recipe", ["LockInUseError", "Lost"]),
    ("recipes.sequential", ["Contender"]),
    ("recipes.watching", ["SeenChildren", "SeenData"]),
    ("recipes.supervisor", ["Leadership"]),
    ("blocking.supervisor", ["Supervisor"]),
    ("aio.supervisor", ["AsyncSupervisor"]),
    ("recipes.membership", ["Member"]),
    ("recipes.cache", ["CacheEvent"]),
    ("recipes._cache_tree", ["CacheFullError", "CachedNode"]),
    ("recipes.queue", ["QueueEmptyError", "QueueFullError", "QueueItem"]),
    # <recipes: tools/generate.py>
    ("blocking.classic", ["Barrier", "Counter", "DoubleBarrier", "OncePer", "Queue"]),
    ("recipes.barrier", ["AsyncBarrier", "AsyncDoubleBarrier"]),
    (
        "blocking.locks",
        [
            "BlockingLock",
            "Election",
            "Lease",
            "Lock",
            "MultiLock",
            "NonBlockingLock",
            "ReadWriteLock",
            "ReentrantLock",
            "Semaphore",
            "SequentialLock",
        ],
    ),
    (
        "recipes.locks",
        ["AsyncBlockingLock", "AsyncMultiLock", "AsyncNonBlockingLock", "AsyncReentrantLock"],
    ),
    (
        "blocking.services",
        ["Cache", "ChildrenWatch", "DataWatch", "Group", "Partitioner", "PersistentNode", "Share"],
    ),
    ("recipes.cache", ["AsyncCache"]),
    ("recipes.watching", ["AsyncChildrenWatch", "AsyncDataWatch"]),
    ("recipes.counter", ["AsyncCounter"]),
    ("recipes.sequential", ["AsyncElection", "AsyncLock", "AsyncSequentialLock"]),
    ("recipes.membership", ["AsyncGroup"]),
    ("recipes.semaphore", ["AsyncLease", "AsyncSemaphore"]),
    ("recipes.once_per", ["AsyncOncePer"]),
    ("recipes.partitioner", ["AsyncPartitioner", "AsyncShare"]),
    ("recipes.persistent_node", ["AsyncPersistentNode"]),
    ("recipes.queue", ["AsyncQueue"]),
    ("recipes.read_write", ["AsyncReadWriteLock"]),
    # </recipes>
    # What operations take and return; watches and states.
    ("jute.records", ["ACL", "ClientInfo", "Id", "Stat"]),
    ("wire.model", ["CREATOR_ALL_ACL", "OPEN_ACL_UNSAFE", "READ_ACL_UNSAFE", "AclAndStat"]),
    ("wire.model", ["ChildrenAndStat", "Credentials", "DataAndStat", "PathAndStat", "Perms"]),
    ("wire.model", ["digest_auth", "digest_id"]),
    ("operations.multi", ["Check", "Create", "Delete", "GetChildren", "GetData", "SetData"]),
    ("session.waitable", ["Watch"]),
    ("wire.model", ["Event", "EventType", "State", "WatchType"]),
    ("session.trace", ["TraceFrame"]),
    ("net.observer", ["Observer", "RequestEnd"]),
    # The errors that a program handles; then the refusals of a server, a class for each.
    ("errors", ["AuthFailedError", "ClientClosedError", "ConnectionLossError", "ForkedError"]),
    ("errors", ["GarbledError", "LockCancelledError", "LockLostError", "LockTakenError"]),
    ("errors", ["LockTimeoutError", "NotSentError", "OperationTimeoutError"]),
    ("errors", ["OutcomeUnknownError", "ProtocolError", "ReplyTooLargeError"]),
    ("errors", ["SequenceExhaustedError", "SessionExpiredError", "UnreachableError"]),
    ("errors", ["ZooKeeperError"]),
    ("errors", ["BadArgumentsError", "BadVersionError", "DataInconsistencyError"]),
    ("errors", ["EphemeralOnLocalSessionError", "InvalidACLError", "MarshallingError"]),
    ("errors", ["MultiError", "NewConfigNoQuorumError", "NoAuthError"]),
    ("errors", ["NoChildrenForEphemeralsError", "NoNodeError", "NoWatcherError"]),
    ("errors", ["NodeExistsError", "NotEmptyError", "NotReadOnlyError", "QuotaExceededError"]),
    ("errors", ["ReconfigDisabledError", "ReconfigInProgressError", "RequestTimeoutError"]),
    ("errors", ["RuntimeInconsistencyError", "ServerError", "ServerTimeoutError"]),
    ("errors", ["SessionMovedError", "ThrottledOpError", "UnimplementedError"]),
    ("errors", ["UnknownSessionError"]),
]
_HOMES = {name: f"{__name__}.{module}" for module, names in _TABLE for name in names}
# <all: tools/generate.py>
__all__ = [
    "ACL", "CREATOR_ALL_ACL", "OPEN_ACL_UNSAFE", "READ_ACL_UNSAFE", "AclAndStat",
    "AsyncBarrier", "AsyncBlockingLock", "AsyncCache", "AsyncChildrenWatch", "AsyncClient",
    "AsyncCounter", "AsyncDataWatch", "AsyncDoubleBarrier", "AsyncElection", "AsyncGroup",
    "AsyncLease", "AsyncLock", "AsyncMultiLock", "AsyncNonBlockingLock", "AsyncOncePer",
    "AsyncPartitioner", "AsyncPersistentNode", "AsyncQueue", "AsyncReadWriteLock",
    "AsyncReentrantLock", "AsyncSemaphore", "AsyncSequentialLock", "AsyncShare",
    "AsyncSupervisor", "AsyncTransaction", "AuthFailedError", "BadArgumentsError",
    "BadVersionError", "Barrier", "BlockingLock", "Cache", "CacheEvent", "CacheFullError",
    "CachedNode", "Check", "ChildrenAndStat", "ChildrenWatch", "Client", "ClientClosedError",
    "ClientInfo", "ConnectionLossError", "Contender", "Counter", "Create", "Credentials",
    "DataAndStat", "DataInconsistencyError", "DataWatch", "Delete", "DigestMD5",
    "DoubleBarrier", "Election", "EphemeralOnLocalSessionError", "Event", "EventType",
    "ForkedError", "GarbledError", "GetChildren", "GetData", "Group", "Id", "InvalidACLError",
    "Leadership", "Lease", "Lock", "LockCancelledError", "LockInUseError", "LockLostError",
    "LockTakenError", "LockTimeoutError", "Lost", "MarshallingError", "Member", "MultiError",
    "MultiLock", "NewConfigNoQuorumError", "NoAuthError", "NoChildrenForEphemeralsError",
    "NoNodeError", "NoWatcherError", "NodeExistsError", "NonBlockingLock", "NotEmptyError",
    "NotReadOnlyError", "NotSentError", "Observer", "OncePer", "OperationTimeoutError",
    "OutcomeUnknownError", "Partitioner", "PathAndStat", "Perms", "PersistentNode",
    "ProtocolError", "Queue", "QueueEmptyError", "QueueFullError", "QueueItem",
    "QuotaExceededError", "ReadWriteLock", "ReconfigDisabledError", "ReconfigInProgressError",
    "ReentrantLock", "ReplyTooLargeError", "RequestEnd", "RequestTimeoutError",
    "RuntimeInconsistencyError", "SeenChildren", "SeenData", "Semaphore",
    "SequenceExhaustedError", "SequentialLock", "ServerError", "ServerTimeoutError",
    "SessionExpiredError", "SessionMovedError", "SetData", "Share", "Stat", "State",
    "Supervisor", "ThrottledOpError", "TraceFrame", "Transaction", "UnimplementedError",
    "UnknownSessionError", "UnreachableError", "Watch", "WatchType", "ZooKeeperError",
    "digest_auth", "digest_id",
]  # fmt: skip
# </all>

TYPE_CHECKING = bool()  # pyright: ignore[reportConstantRedefinition]  # each module has one
if TYPE_CHECKING:
    # <names: tools/generate.py>
    from zkwire.aio.client import AsyncClient as AsyncClient
    from zkwire.aio.client import AsyncTransaction as AsyncTransaction
    from zkwire.aio.supervisor import AsyncSupervisor as AsyncSupervisor
    from zkwire.blocking.classic import Barrier as Barrier
    from zkwire.blocking.classic import Counter as Counter
    from zkwire.blocking.classic import DoubleBarrier as DoubleBarrier
    from zkwire.blocking.classic import OncePer as OncePer
    from zkwire.blocking.classic import Queue as Queue
    from zkwire.blocking.client import Client as Client
    from zkwire.blocking.client import Transaction as Transaction
    from zkwire.blocking.locks import BlockingLock as BlockingLock
    from zkwire.blocking.locks import Election as Election
    from zkwire.blocking.locks import Lease as Lease
    from zkwire.blocking.locks import Lock as Lock
    from zkwire.blocking.locks import MultiLock as MultiLock
    from zkwire.blocking.locks import NonBlockingLock as NonBlockingLock
    from zkwire.blocking.locks import ReadWriteLock as ReadWriteLock
    from zkwire.blocking.locks import ReentrantLock as ReentrantLock
    from zkwire.blocking.locks import Semaphore as Semaphore
    from zkwire.blocking.locks import SequentialLock as SequentialLock
    from zkwire.blocking.services import Cache as Cache
    from zkwire.blocking.services import ChildrenWatch as ChildrenWatch
    from zkwire.blocking.services import DataWatch as DataWatch
    from zkwire.blocking.services import Group as Group
    from zkwire.blocking.services import Partitioner as Partitioner
    from zkwire.blocking.services import PersistentNode as PersistentNode
    from zkwire.blocking.services import Share as Share
    from zkwire.blocking.supervisor import Supervisor as Supervisor
    from zkwire.errors import AuthFailedError as AuthFailedError
    from zkwire.errors import BadArgumentsError as BadArgumentsError
    from zkwire.errors import BadVersionError as BadVersionError
    from zkwire.errors import ClientClosedError as ClientClosedError
    from zkwire.errors import ConnectionLossError as ConnectionLossError
    from zkwire.errors import DataInconsistencyError as DataInconsistencyError
    from zkwire.errors import EphemeralOnLocalSessionError as EphemeralOnLocalSessionError
    from zkwire.errors import ForkedError as ForkedError
    from zkwire.errors import GarbledError as GarbledError
    from zkwire.errors import InvalidACLError as InvalidACLError
    from zkwire.errors import LockCancelledError as LockCancelledError
    from zkwire.errors import LockLostError as LockLostError
    from zkwire.errors import LockTakenError as LockTakenError
    from zkwire.errors import LockTimeoutError as LockTimeoutError
    from zkwire.errors import MarshallingError as MarshallingError
    from zkwire.errors import MultiError as MultiError
    from zkwire.errors import NewConfigNoQuorumError as NewConfigNoQuorumError
    from zkwire.errors import NoAuthError as NoAuthError
    from zkwire.errors import NoChildrenForEphemeralsError as NoChildrenForEphemeralsError
    from zkwire.errors import NodeExistsError as NodeExistsError
    from zkwire.errors import NoNodeError as NoNodeError
    from zkwire.errors import NotEmptyError as NotEmptyError
    from zkwire.errors import NotReadOnlyError as NotReadOnlyError
    from zkwire.errors import NotSentError as NotSentError
    from zkwire.errors import NoWatcherError as NoWatcherError
    from zkwire.errors import OperationTimeoutError as OperationTimeoutError
    from zkwire.errors import OutcomeUnknownError as OutcomeUnknownError
    from zkwire.errors import ProtocolError as ProtocolError
    from zkwire.errors import QuotaExceededError as QuotaExceededError
    from zkwire.errors import ReconfigDisabledError as ReconfigDisabledError
    from zkwire.errors import ReconfigInProgressError as ReconfigInProgressError
    from zkwire.errors import ReplyTooLargeError as ReplyTooLargeError
    from zkwire.errors import RequestTimeoutError as RequestTimeoutError
    from zkwire.errors import RuntimeInconsistencyError as RuntimeInconsistencyError
    from zkwire.errors import SequenceExhaustedError as SequenceExhaustedError
    from zkwire.errors import ServerError as ServerError
    from zkwire.errors import ServerTimeoutError as ServerTimeoutError
    from zkwire.errors import SessionExpiredError as SessionExpiredError
    from zkwire.errors import SessionMovedError as SessionMovedError
    from zkwire.errors import ThrottledOpError as ThrottledOpError
    from zkwire.errors import UnimplementedError as UnimplementedError
    from zkwire.errors import UnknownSessionError as UnknownSessionError
    from zkwire.errors import UnreachableError as UnreachableError
    from zkwire.errors import ZooKeeperError as ZooKeeperError
    from zkwire.jute.records import ACL as ACL
    from zkwire.jute.records import ClientInfo as ClientInfo
    from zkwire.jute.records import Id as Id
    from zkwire.jute.records import Stat as Stat
    from zkwire.net.observer import Observer as Observer
    from zkwire.net.observer import RequestEnd as RequestEnd
    from zkwire.net.sasl import DigestMD5 as DigestMD5
    from zkwire.operations.multi import Check as Check
    from zkwire.operations.multi import Create as Create
    from zkwire.operations.multi import Delete as Delete
    from zkwire.operations.multi import GetChildren as GetChildren
    from zkwire.operations.multi import GetData as GetData
    from zkwire.operations.multi import SetData as SetData
    from zkwire.recipes._cache_tree import CachedNode as CachedNode
    from zkwire.recipes._cache_tree import CacheFullError as CacheFullError
    from zkwire.recipes._recipe import LockInUseError as LockInUseError
    from zkwire.recipes._recipe import Lost as Lost
    from zkwire.recipes.barrier import AsyncBarrier as AsyncBarrier
    from zkwire.recipes.barrier import AsyncDoubleBarrier as AsyncDoubleBarrier
    from zkwire.recipes.cache import AsyncCache as AsyncCache
    from zkwire.recipes.cache import CacheEvent as CacheEvent
    from zkwire.recipes.counter import AsyncCounter as AsyncCounter
    from zkwire.recipes.locks import AsyncBlockingLock as AsyncBlockingLock
    from zkwire.recipes.locks import AsyncMultiLock as AsyncMultiLock
    from zkwire.recipes.locks import AsyncNonBlockingLock as AsyncNonBlockingLock
    from zkwire.recipes.locks import AsyncReentrantLock as AsyncReentrantLock
    from zkwire.recipes.membership import AsyncGroup as AsyncGroup
    from zkwire.recipes.membership import Member as Member
    from zkwire.recipes.once_per import AsyncOncePer as AsyncOncePer
    from zkwire.recipes.partitioner import AsyncPartitioner as AsyncPartitioner
    from zkwire.recipes.partitioner import AsyncShare as AsyncShare
    from zkwire.recipes.persistent_node import AsyncPersistentNode as AsyncPersistentNode
    from zkwire.recipes.queue import AsyncQueue as AsyncQueue
    from zkwire.recipes.queue import QueueEmptyError as QueueEmptyError
    from zkwire.recipes.queue import QueueFullError as QueueFullError
    from zkwire.recipes.queue import QueueItem as QueueItem
    from zkwire.recipes.read_write import AsyncReadWriteLock as AsyncReadWriteLock
    from zkwire.recipes.semaphore import AsyncLease as AsyncLease
    from zkwire.recipes.semaphore import AsyncSemaphore as AsyncSemaphore
    from zkwire.recipes.sequential import AsyncElection as AsyncElection
    from zkwire.recipes.sequential import AsyncLock as AsyncLock
    from zkwire.recipes.sequential import AsyncSequentialLock as AsyncSequentialLock
    from zkwire.recipes.sequential import Contender as Contender
    from zkwire.recipes.supervisor import Leadership as Leadership
    from zkwire.recipes.watching import AsyncChildrenWatch as AsyncChildrenWatch
    from zkwire.recipes.watching import AsyncDataWatch as AsyncDataWatch
    from zkwire.recipes.watching import SeenChildren as SeenChildren
    from zkwire.recipes.watching import SeenData as SeenData
    from zkwire.session.trace import TraceFrame as TraceFrame
    from zkwire.session.waitable import Watch as Watch
    from zkwire.wire.model import CREATOR_ALL_ACL as CREATOR_ALL_ACL
    from zkwire.wire.model import OPEN_ACL_UNSAFE as OPEN_ACL_UNSAFE
    from zkwire.wire.model import READ_ACL_UNSAFE as READ_ACL_UNSAFE
    from zkwire.wire.model import AclAndStat as AclAndStat
    from zkwire.wire.model import ChildrenAndStat as ChildrenAndStat
    from zkwire.wire.model import Credentials as Credentials
    from zkwire.wire.model import DataAndStat as DataAndStat
    from zkwire.wire.model import Event as Event
    from zkwire.wire.model import EventType as EventType
    from zkwire.wire.model import PathAndStat as PathAndStat
    from zkwire.wire.model import Perms as Perms
    from zkwire.wire.model import State as State
    from zkwire.wire.model import WatchType as WatchType
    from zkwire.wire.model import digest_auth as digest_auth
    from zkwire.wire.model import digest_id as digest_id
    # </names>
else:
    from _thread import RLock as _RLock

    _lock = _RLock()

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _lock:  # Two threads may not begin to load a package and its module at once.
            value = getattr(__import__(_HOMES[name], fromlist=[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> "list[str]":
        return sorted({*globals(), *__all__})
