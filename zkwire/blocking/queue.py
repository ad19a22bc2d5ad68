"""The queue for threads."""

from __future__ import annotations

from zkwire.blocking.faces import runtime_of
from zkwire.blocking.run import blocking, complete, iterate
from zkwire.recipes.classic.queue import ItemQueue
from zkwire.recipes.classic.queue_taking import Taking
from zkwire.recipes.public import public
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Final

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL
    from zkwire.recipes.classic.queue_items import QueueItem


@public
class Queue(PathView):
    """A queue in which each item is put once, and removed by one consumer.

        queue = Queue(client, "/jobs")
        queue.put(b"resize image 7")

        with queue.take() as item:
            work(item.data)

    Any number of threads and processes put and take; one object serves all threads of a client.
    A lost connection is no error of any call: what became of a request is found out on the next
    one.  ``get`` removes an item at once, ``take`` when the work on it is done.

    ``flat``: the items are children of ``path`` itself, as those of kazoo's Queue are; else the
    layout is that of kazoo's LockingQueue.  ``max_items``: a put that would exceed it is refused.
    ``acl``: the access list of all nodes, None for the client's.

    A queue lives in the memory of every server, and all its names go into one reply: it is for
    thousands of small items, not for millions.
    """

    _algorithm: ItemQueue

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        flat: bool = False,
        max_items: int | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = ItemQueue(
            runtime_of(client), path, flat=flat, max_items=max_items, acl=acl
        )

    def __repr__(self) -> str:
        return f"<Queue {self.path}>"

    put: Final = blocking(ItemQueue.put)
    put_many: Final = blocking(ItemQueue.put_many)
    get: Final = blocking(ItemQueue.get)
    peek: Final = blocking(ItemQueue.peek)
    size: Final = blocking(ItemQueue.size)

    def take(self, timeout: float | None = None) -> AbstractContextManager[QueueItem]:
        """The first item, claimed for the body of a ``with`` and removed when that ends well.

            with queue.take() as item:
                work(item.data)

        The ``with`` waits for an item as :meth:`get` does: QueueEmptyError, before the body, when
        ``timeout`` seconds have passed without one.  Other consumers leave out an item that is
        claimed.

        When the body raises, the item is given back, at its place in the order.  So it is when this
        program ends or its session expires: the claim is an ephemeral node.  The work may then be
        done twice, which ``item.deliveries`` shows.

        The end of the ``with`` removes item and claim in one request that proves the claim.
        LockLostError: the claim was lost before that (the session had expired, an outsider has
        deleted it), the item was not removed, and another consumer may have it.  (With
        ``maybe_applied`` the session has expired in that moment, and it may be removed.)
        OperationTimeoutError: no server has answered within the ``operation_timeout``, and it is in
        doubt whether the item was removed; if not, it is given back in the background.
        """
        return QueueTaking(Taking(self._algorithm, timeout))

    def __iter__(self) -> Iterator[QueueItem]:
        return iterate(self._algorithm.__aiter__())

    __iter__.__doc__ = ItemQueue.__aiter__.__doc__

    def __len__(self) -> int:
        """How many items there are, claimed ones included; asks a server, as :meth:`size` does."""
        return complete(self._algorithm.size)

    def __bool__(self) -> bool:
        """True, as of any object: asks no server."""
        return True


class QueueTaking:
    """One item, for one ``with``; see :meth:`Queue.take`."""

    __slots__ = ("_algorithm",)

    def __init__(self, taking: Taking) -> None:
        self._algorithm = taking

    def __enter__(self) -> QueueItem:
        try:
            return complete(self._algorithm._enter)
        except BaseException:
            self._algorithm._exit_later()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            complete(self._algorithm._exit, kind is None)
        except BaseException:
            self._algorithm._exit_later()
            raise
