"""What stands where in a queue, and what an item is.

    /path/entries/entry-<priority>-<number>   an item; its data is the node's
    /path/taken/entry-<priority>-<number>     its claim, ephemeral
    /path/marks, /path/waiting                see `mark` and `queue_choice`

That is the layout of kazoo's LockingQueue.  ``flat`` is that of kazoo's Queue: the items stand in
the path itself, and the rest below ``<path>-zkwire-queue``.

Names of items, put in order, are in the order of priorities and, within one, of puts.  So nothing
else can stand in a name: no id of an attempt, by which kazoo would order.
"""

from __future__ import annotations

from zkwire.errors import OperationTimeoutError, ZooKeeperError
from zkwire.jute.record import Record
from zkwire.operations.checks import check_data, check_flag
from zkwire.recipes.runtime import in_time
from zkwire.recipes.trees import ensure_above
from zkwire.wire.paths import SEQUENCE_DIGITS, check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL, Stat
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.runtime import Runtime

_PREFIX = "entry-"
_PRIORITY = slice(len(_PREFIX), len(_PREFIX) + 3)
_LOWEST = 999
_NAME_LENGTH = len(_PREFIX) + len("100-") + SEQUENCE_DIGITS
_OTHER_BYTES = 8192


class QueueEmptyError(OperationTimeoutError):
    """There was no item to take until the time limit passed."""


class QueueFullError(ZooKeeperError):
    """The queue has ``max_items`` items, or would have more with these; none was put."""


class QueueItem(Record):
    """An item of a queue.

    ``name`` is that of its node, unlike that of any other.  ``zxid`` is what its ``put`` has
    returned.  ``deliveries``: how often it has been taken, this time included; 0 from ``get`` and
    ``peek`` if it never was.

    ``lost``, of an item that ``take`` has claimed: the loss of the claim, as that of a lock, to
    wait or be called for.  It tells that the session is over, or may be; of a claim that an
    outsider has deleted only the end of the ``with`` tells.  A copy in another process has none.
    """

    data: bytes
    priority: int
    name: str
    zxid: int
    deliveries: int
    lost: Lost | None = None

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return QueueItem, tuple(self)[:-1]  # pyright: ignore


class Layout:
    """The paths of a queue."""

    __slots__ = ("flat", "items", "marks", "path", "taken", "waiting")

    def __init__(self, path: str, flat: bool) -> None:
        path = check_below_root(path, "a queue")
        self.flat: bool = check_flag("flat", flat)
        side = f"{path}-zkwire-queue" if flat else path
        self.path: str = path
        self.items: str = path if flat else f"{path}/entries"
        self.taken: str = f"{side}/taken"
        self.marks: str = f"{side}/marks"
        self.waiting: str = f"{side}/waiting"

    async def provide(
        self, runtime: Runtime, acl: Sequence[ACL] | None, deadline: float | None
    ) -> None:
        """Create what is missing; kazoo expects that ``entries`` and ``taken`` stay."""
        limit = in_time(runtime, deadline)
        await ensure_above(runtime, self.items, acl, limit)
        await ensure_above(runtime, self.taken, acl, limit, containers=self.flat)


def prefix(priority: int) -> str:
    """The beginning of the name of an item."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise TypeError(f"priority must be an int, not {type(priority).__name__}")
    if not 0 <= priority <= _LOWEST:
        raise ValueError(f"priority must be 0 (first) to {_LOWEST}, not {priority}")
    return f"{_PREFIX}{priority:03d}-"


def is_item(name: str) -> bool:
    """Whether a child of this name is an item, and not another client's node."""
    if len(name) != _NAME_LENGTH or not name.startswith(_PREFIX):
        return False
    digits = name[_PRIORITY] + name[-SEQUENCE_DIGITS:]
    return digits.isdigit() and digits.isascii()


def item(name: str, data: bytes, stat: Stat, lost: Lost | None = None) -> QueueItem:
    deliveries = stat.version + (lost is not None)  # a claim counts
    return QueueItem(data, int(name[_PRIORITY]), name, stat.czxid, deliveries, lost)


def most_bytes(send_limit: int) -> int:
    """Of an item, where requests have so many; the rest is for paths and access lists."""
    return send_limit - min(_OTHER_BYTES, send_limit // 2)


def check_item(data: bytes, send_limit: int) -> bytes:
    """``data`` if it can be an item, where requests have so many bytes."""
    most = most_bytes(send_limit)
    if len(check_data(data)) > most:
        raise ValueError(
            f"with this client's send_limit, {send_limit}, an item has at most {most} bytes, not "
            f"{len(data)}: put the data elsewhere, and its name into the queue"
        )
    return data
