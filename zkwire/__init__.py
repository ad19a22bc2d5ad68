"""zkwire: a ZooKeeper client in pure Python, from the wire protocol up, and locks on it.

Everything public is importable from here, and loaded when it is first asked for.  The table has it
in groups: clients; locks, for threads and under asyncio; what operations take and return; watches
and states; the errors that a program handles; the refusals of a server, a class for each code.
"""

__version__ = "0.1.0"

# The table: each name stands here once, and the line behind it says which module has it.  Python
# loads that module; a type checker reads `__all__`, and the imports at the end.
_HOMES: "dict[str, str]" = {}  # quoted for Pythons so old that __main__ refuses them


def _from(module: str) -> None:
    """Say which module has the names that stand in ``__all__`` since the last call."""
    _HOMES.update(dict.fromkeys(__all__[len(_HOMES) :], f"zkwire.{module}"))


__all__ = ["Client", "Transaction"]
_from("blocking.client")
__all__ += ["AsyncClient", "AsyncTransaction"]
_from("aio.client")
__all__ += ["DigestMD5"]
_from("net.sasl")

__all__ += [
    "BlockingLock", "Election", "Lease", "Lock", "MultiLock", "NonBlockingLock", "ReadWriteLock",
    "ReentrantLock", "Semaphore", "SequentialLock",
]  # fmt: skip
_from("blocking.locks")
__all__ += [
    "AsyncBlockingLock", "AsyncElection", "AsyncLease", "AsyncLock", "AsyncMultiLock",
    "AsyncNonBlockingLock", "AsyncReadWriteLock", "AsyncReentrantLock", "AsyncSemaphore",
    "AsyncSequentialLock",
]  # fmt: skip
_from("aio.locks")
__all__ += ["Lost"]
_from("recipes.lost")
__all__ += ["Contender"]
_from("recipes.locks.contenders")
__all__ += ["SeenChildren", "SeenData"]
_from("recipes.services.seen")
__all__ += ["Leadership"]
_from("recipes.services.leadership")
__all__ += ["Supervisor"]
_from("blocking.supervisor")
__all__ += ["AsyncSupervisor"]
_from("aio.supervisor")
__all__ += ["ChildrenWatch", "DataWatch"]
_from("blocking.following")
__all__ += ["Member"]
_from("recipes.services.member")
__all__ += ["Group", "PersistentNode"]
_from("blocking.membership")
__all__ += ["AsyncChildrenWatch", "AsyncDataWatch"]
_from("aio.following")
__all__ += ["CacheEvent"]
_from("recipes.services.cache_event")
__all__ += ["CacheFullError", "CachedNode"]
_from("recipes.services.cache_tree")
__all__ += ["Barrier", "DoubleBarrier"]
_from("blocking.barriers")
__all__ += ["AsyncBarrier", "AsyncDoubleBarrier"]
_from("aio.barriers")
__all__ += ["Counter"]
_from("blocking.counter")
__all__ += ["AsyncCounter"]
_from("aio.counter")
__all__ += ["OncePer"]
_from("blocking.once_per")
__all__ += ["AsyncOncePer"]
_from("aio.once_per")
__all__ += ["Cache"]
_from("blocking.cache")
__all__ += ["AsyncCache"]
_from("aio.cache")
__all__ += ["AsyncGroup", "AsyncPersistentNode"]
_from("aio.membership")
__all__ += ["AsyncShare"]
_from("recipes.services.share")
__all__ += ["Partitioner", "Share"]
_from("blocking.partitioner")
__all__ += ["AsyncPartitioner"]
_from("aio.partitioner")
__all__ += ["QueueEmptyError", "QueueFullError", "QueueItem"]
_from("recipes.classic.queue_items")
__all__ += ["Queue"]
_from("blocking.queue")
__all__ += ["AsyncQueue"]
_from("aio.queue")

__all__ += ["ACL", "ClientInfo", "Id", "Stat"]
_from("jute.records")
__all__ += [
    "CREATOR_ALL_ACL", "OPEN_ACL_UNSAFE", "READ_ACL_UNSAFE", "AclAndStat", "ChildrenAndStat",
    "Credentials", "DataAndStat", "PathAndStat", "Perms",
]  # fmt: skip
__all__ += ["digest_auth", "digest_id"]
_from("wire.model")
__all__ += ["Check", "Create", "Delete", "GetChildren", "GetData", "SetData"]
_from("operations.multi")

__all__ += ["Watch"]
_from("session.watch")
__all__ += ["Event", "EventType", "State", "WatchType"]
_from("wire.model")
__all__ += ["TraceFrame"]
_from("session.trace")

__all__ += [
    "AuthFailedError", "ClientClosedError", "ConnectionLossError", "ForkedError", "GarbledError",
    "LockLostError", "LockTakenError", "LockTimeoutError", "NotSentError", "OperationTimeoutError",
    "OutcomeUnknownError", "ProtocolError", "ReplyTooLargeError", "SequenceExhaustedError",
    "SessionExpiredError", "UnreachableError", "ZooKeeperError",
]  # fmt: skip
__all__ += [
    "BadArgumentsError", "BadVersionError", "DataInconsistencyError",
    "EphemeralOnLocalSessionError", "InvalidACLError", "MarshallingError", "MultiError",
    "NewConfigNoQuorumError", "NoAuthError", "NoChildrenForEphemeralsError", "NoNodeError",
    "NoWatcherError", "NodeExistsError", "NotEmptyError", "NotReadOnlyError", "QuotaExceededError",
    "ReconfigDisabledError", "ReconfigInProgressError", "RequestTimeoutError",
    "RuntimeInconsistencyError", "ServerError", "ServerTimeoutError", "SessionMovedError",
    "ThrottledOpError", "UnimplementedError", "UnknownSessionError",
]  # fmt: skip
_from("errors")

TYPE_CHECKING = False  # pyright: ignore[reportConstantRedefinition]  # each module has one
if TYPE_CHECKING:
    from zkwire.aio.barriers import *
    from zkwire.aio.cache import *
    from zkwire.aio.client import *
    from zkwire.aio.counter import *
    from zkwire.aio.following import *
    from zkwire.aio.locks import *
    from zkwire.aio.membership import *
    from zkwire.aio.once_per import *
    from zkwire.aio.partitioner import *
    from zkwire.aio.queue import *
    from zkwire.aio.supervisor import *
    from zkwire.blocking.barriers import *
    from zkwire.blocking.cache import *
    from zkwire.blocking.client import *
    from zkwire.blocking.counter import *
    from zkwire.blocking.following import *
    from zkwire.blocking.locks import *
    from zkwire.blocking.membership import *
    from zkwire.blocking.once_per import *
    from zkwire.blocking.partitioner import *
    from zkwire.blocking.queue import *
    from zkwire.blocking.supervisor import *
    from zkwire.errors import *
    from zkwire.jute.records import *
    from zkwire.net.sasl import *
    from zkwire.operations.multi import *
    from zkwire.recipes.classic.queue_items import *
    from zkwire.recipes.locks.contenders import *
    from zkwire.recipes.lost import *
    from zkwire.recipes.services.cache_event import *
    from zkwire.recipes.services.cache_tree import *
    from zkwire.recipes.services.leadership import *
    from zkwire.recipes.services.member import *
    from zkwire.recipes.services.seen import *
    from zkwire.recipes.services.share import *
    from zkwire.session.trace import *
    from zkwire.session.watch import *
    from zkwire.wire.model import *
else:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(__import__(_HOMES[name], fromlist=[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> "list[str]":
        return sorted({*globals(), *__all__})
