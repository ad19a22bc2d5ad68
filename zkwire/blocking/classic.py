"""The recipes, for threads.  Written by `tools/generate.py`: do not edit.

Each class runs the coroutines of the class ``Async…`` of the same name in the caller's thread.
"""

from __future__ import annotations

from zkwire.blocking.sync import Entered, Sized, With, complete, core_of, iterate
from zkwire.recipes._recipe import Recipe
from zkwire.recipes.barrier import AsyncBarrier, AsyncDoubleBarrier
from zkwire.recipes.counter import AsyncCounter
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.recipes.queue import AsyncQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from typing import Literal

    from zkwire.blocking.sync import ClientLike
    from zkwire.jute.records import ACL
    from zkwire.recipes.queue import QueueItem


class Barrier(Recipe):
    """A barrier: while it is closed, all callers of ``wait`` wait.

        barrier = Barrier(client, "/maintenance")
        barrier.close()       # from here on the others wait
        ...
        barrier.open()

        barrier.wait(60)      # the others: True when it is open

    It is closed while its node is there, even if the client that has closed it ends.  Any client
    may close or open it.  kazoo's Barrier and Curator's DistributedBarrier use the same node.

    Raises ValueError for a bad path.
    """

    _algorithm: AsyncBarrier

    def __init__(self, client: ClientLike, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = AsyncBarrier(core_of(client), path, acl=acl)

    def close(self, timeout: float | None = None) -> None:
        """Close the barrier; nothing happens if it is closed.

        A lost connection is not an error: the request is repeated until a server has answered.  If
        the lost request was executed, and another client has opened the barrier since, the
        repetition closes it again.  OperationTimeoutError after ``timeout`` seconds (None: the
        ``operation_timeout``): call it again, or ``open``.
        """
        complete(self._algorithm.close, timeout)

    def open(self, timeout: float | None = None) -> None:
        """Open the barrier for all that wait; nothing happens if it is open.

        Ends as :meth:`close` does; a repetition opens the barrier again if another client has
        closed it since.  NotEmptyError if the node has children: then it is no barrier.
        """
        complete(self._algorithm.open, timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the barrier is open; True then, False if ``timeout`` seconds pass first.

        Without a limit it waits as long as it takes.  With 0 it looks once, and a server has the
        ``operation_timeout`` to answer, or two session timeouts if the client has none.  A lost
        connection is not an error, and no watch is left.
        """
        return complete(self._algorithm.wait, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class DoubleBarrier(Recipe, With):
    """One member of a group that begins a piece of work together and ends it together.

        with DoubleBarrier(client, "/step-1", 16):
            work()  # yours to write

    ``enter`` returns when ``count`` members are there at one moment, ``leave`` when all of them
    have left or died.  After an error in the body of the ``with``, the member leaves without
    waiting for the others.  An object is one member: each thread needs its own.  A member may enter
    again when it has left.

    ``text`` is written into the member's node.  Raises ValueError for a bad path or a count below
    1.
    """

    _algorithm: AsyncDoubleBarrier

    def __init__(
        self,
        client: ClientLike,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncDoubleBarrier(core_of(client), path, count, text, acl=acl)

    def enter(self, timeout: float | None = None) -> bool:
        """Enter together with ``count`` members; False if there was no round within ``timeout``.

        Without a limit it waits as long as it takes.  A lost connection is not an error.  When this
        returns False, raises, is cancelled or interrupted, this object is no member, and its node
        is being deleted.  If a round began at this very moment, the others see a member that has
        left.

        RuntimeError if this object is inside, or in use by another thread or task.
        """
        return complete(self._algorithm.enter, timeout)

    def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all members of the round have left; False if they do not in time.

        This member has left in any case, even when this raises, is cancelled or interrupted: its
        node is deleted, at the latest with its session, and no other member waits for it.  A member
        that has died counts as a member that has left.  RuntimeError if this object is not inside.
        """
        return complete(self._algorithm.leave, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class Counter(Recipe):
    """A number that many clients change; each change is made exactly once.

        counter = Counter(client, "/orders/count")
        number = counter.add(1)

    ``add`` returns the new number, and has added exactly once, however often the connection is
    lost.  Threads may share a counter.  The node is made by the first change; where there is none,
    the number is 0.  Below it there is an ephemeral node for each client that has changed it.

    ``format``: ``"text"`` is decimal digits, of any length, as kazoo's Counter writes them;
    ``"int32"`` and ``"int64"`` are those of Curator's SharedCount and DistributedAtomicLong.

    Raises ValueError for a bad path or format.
    """

    _algorithm: AsyncCounter

    def __init__(
        self,
        client: ClientLike,
        path: str,
        *,
        format: Literal["text", "int32", "int64"] = "text",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncCounter(core_of(client), path, format=format, acl=acl)

    @property
    def version(self) -> int:
        """The zxid of the change that made what this object has read or written last.

        Of two numbers, the one with the higher version is newer, even if the node was deleted and
        created in between; but not if it was moved to another ensemble, which has other zxids.
        RuntimeError before the first call, ForkedError in a forked child.
        """
        return self._algorithm.version

    def get(self, timeout: float | None = None) -> int:
        """The number, as the client's server has it; 0 if there is no node.

        Call ``client.sync(path)`` first to get the newest number.  Raises ValueError if the data is
        no number of this format.  A lost connection is not an error.  OperationTimeoutError after
        ``timeout`` seconds (None: the ``operation_timeout``).
        """
        return complete(self._algorithm.get, timeout)

    def add(self, number: int = 1, timeout: float | None = None) -> int:
        """Add ``number``, which may be negative, exactly once; the new number.

        A lost connection is not an error: on the next one the client finds out whether the change
        was made.  Raises OverflowError if the new number does not fit the format, ValueError if the
        data is no number of it, SequenceExhaustedError after 2**31 - 1 changes of one node; nothing
        is changed then.

        OperationTimeoutError after ``timeout`` seconds (None: the ``operation_timeout``).  This
        error, and an error that ends the session, has ``maybe_applied`` if the change may have been
        made, or may still be made.  A call that was cancelled or interrupted leaves the same doubt.
        Only the number itself can settle it, if the caller knows which numbers are possible.
        """
        return complete(self._algorithm.add, number, timeout)

    def set(self, value: int, timeout: float | None = None) -> None:
        """Set the number, exactly once, whatever it is.  Ends as :meth:`add` does."""
        complete(self._algorithm.set, value, timeout)

    def compare_and_set(self, expected: int, new: int, timeout: float | None = None) -> bool:
        """Set the number to ``new`` if it is ``expected``, exactly once; whether it was.

        Where there is no node the number is 0.  Ends as :meth:`add` does.
        """
        return complete(self._algorithm.compare_and_set, expected, new, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class OncePer(Recipe):
    """Run something at most once per period, over all machines.

        hourly = OncePer(client, "/jobs/clean-up", timedelta(hours=1))
        if hourly.claim():
            clean_up()  # yours to write

    Each machine may ask as often as it likes.  The period is counted on the servers' clock, from
    one claim to the next, even if the client that has claimed ends; ``give_back`` lets another
    machine claim at once.  ``period`` is in seconds, or a timedelta; all machines should name the
    same period.  ``text`` is written into the node, after the claim's id.

    Raises ValueError or TypeError for bad arguments.
    """

    _algorithm: AsyncOncePer

    def __init__(
        self,
        client: ClientLike,
        path: str,
        period: float | timedelta,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncOncePer(core_of(client), path, period, text, acl=acl)

    def claim(self, timeout: float | None = None) -> bool:
        """Whether it is this caller's turn: True once in each period, for only one caller.

        A lost connection is not an error: on the next one the client finds out whether the claim
        was made.  OperationTimeoutError after ``timeout`` seconds (None: the
        ``operation_timeout``).  When this raises, is cancelled or interrupted, nothing is claimed:
        if the claim may have been made, it is given back in the background.  The end of the session
        is the one exception: with ``maybe_applied``, the period may be claimed although its work is
        not done.
        """
        return complete(self._algorithm.claim, timeout)

    def give_back(self, timeout: float | None = None) -> None:
        """Let another caller claim at once: the work was not done.

        Nothing happens if the period is over and another has claimed.  RuntimeError if this object
        has claimed nothing.  Ends as :meth:`claim` does; what is not done in time is done in the
        background.
        """
        complete(self._algorithm.give_back, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class Queue(Recipe, Sized):
    """A queue in which each item is put once, and removed by one consumer.

        queue = Queue(client, "/jobs")
        queue.put(b"resize image 7")

        with queue.take() as item:
            work(item.data)  # yours to write

    Any number of threads and processes put and take; one object serves all threads of a client.
    A lost connection is not an error of any call: on the next connection the client finds out what
    became of a request.  ``get`` removes an item at once, ``take`` when the work on it is done.

    ``flat``: the items are children of ``path`` itself, as in kazoo's Queue; otherwise the layout
    is that of kazoo's LockingQueue.  ``max_items``: a put that would exceed it is refused.
    ``acl``: the access list of all nodes, None for the client's.

    A queue lives in the memory of every server, and all its names go into one reply: it is for
    thousands of small items, not for millions.
    """

    _algorithm: AsyncQueue

    def __init__(
        self,
        client: ClientLike,
        path: str,
        *,
        flat: bool = False,
        max_items: int | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncQueue(core_of(client), path, flat=flat, max_items=max_items, acl=acl)

    def __repr__(self) -> str:
        return self._algorithm.__repr__().replace("Async", "", 1)

    def put(self, data: bytes, priority: int = 100, *, timeout: float | None = None) -> int:
        """Put an item into the queue, exactly once; returns its zxid.

        Items with a lower ``priority``, 0 to 999, come first; items of one priority come in the
        order of their puts.  The zxid rises from put to put, and the consumer's ``item.zxid`` is
        the same.  (This call returns 0 if an outsider has written into the token of the put.)

        A lost connection is not an error: on the next one the client finds out whether the item was
        put, within ``timeout`` seconds, by default the client's ``operation_timeout``.
        OperationTimeoutError, SessionExpiredError or a cancellation leave it in doubt if
        ``maybe_applied``: the item was put once, or not at all.  QueueFullError if there are
        ``max_items`` already; if several producers put at once, there may be more.  ValueError if
        the item is too large.  NodeExistsError in a copied queue whose counter is more than 100,000
        lower than the names of its items; if it is less, the counter is brought past them.
        """
        return complete(self._algorithm.put, data, priority, timeout=timeout)

    def put_many(
        self, items: Iterable[bytes], priority: int = 100, *, timeout: float | None = None
    ) -> list[int]:
        """Put the items in this order, each exactly once; returns the zxid of each.

        Up to 100, or 256 KiB, are put in one request: all of these or none, with one zxid, and
        nothing between them.  ``timeout`` is for each request.  An error says by ``maybe_applied``
        whether some may have been put; these are the first ones.  See :meth:`put`.
        """
        return complete(self._algorithm.put_many, items, priority, timeout=timeout)

    def get(self, timeout: float | None = None) -> QueueItem:
        """Remove the first item, and return it.

        Waits for an item as long as it takes.  With a ``timeout``, QueueEmptyError when that has
        passed; with 0, as soon as a server has said that there is none.  OperationTimeoutError if
        no server has answered in that time (with 0: within the ``operation_timeout``, or two
        session timeouts if the client has none).

        A lost connection is not an error: on the next one the client finds out whether this call
        has removed the item.  But once it is removed, only this program has the item.  It may be
        lost if the program ends before the work is done, or if this call is cancelled or
        interrupted or ends with ``maybe_applied`` (OperationTimeoutError, SessionExpiredError).  If
        no item may be lost, use :meth:`take`.
        """
        return complete(self._algorithm.get, timeout)

    def __iter__(self) -> Iterator[QueueItem]:
        """The items, as they come, each removed from the queue as by :meth:`get`; never ends."""
        return iterate(self._algorithm.__aiter__())

    def take(self, timeout: float | None = None) -> AbstractContextManager[QueueItem]:
        """The first item, claimed for the body of a ``with`` and removed when that ends well.

            with queue.take() as item:
                work(item.data)  # yours to write

        The ``with`` waits for an item as :meth:`get` does: QueueEmptyError, before the body, when
        ``timeout`` seconds have passed without one.  Other consumers leave out an item that is
        claimed.

        When the body raises, the item is given back, at its place in the order.  The same happens
        when this program ends or its session expires, since the claim is an ephemeral node.  The
        work may then be done twice; ``item.deliveries`` shows that.

        The end of the ``with`` removes item and claim in one request that proves the claim.
        LockLostError: the claim was lost before that (the session had expired, an outsider has
        deleted it), the item was not removed, and another consumer may have it.  (With
        ``maybe_applied`` the session has expired in that moment, and it may be removed.)  It comes
        before the body if the session may be over by then, as after a pause of this process.
        OperationTimeoutError: no server has answered within the ``operation_timeout``, and it is in
        doubt whether the item was removed; if not, it is given back in the background.
        """
        return Entered(self._algorithm.take(timeout), self)

    def peek(self, *, timeout: float | None = None) -> QueueItem | None:
        """The first item that no consumer has claimed, or None.  It stays in the queue."""
        return complete(self._algorithm.peek, timeout=timeout)

    def size(self, *, timeout: float | None = None) -> int:
        """How many items there are, claimed ones included."""
        return complete(self._algorithm.size, timeout=timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path
