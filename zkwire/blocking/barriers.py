"""Barriers, for threads."""

from __future__ import annotations

from zkwire.blocking.faces import runtime_of
from zkwire.blocking.run import blocking
from zkwire.recipes.attempt import LockInUseError
from zkwire.recipes.classic.barrier import NodeBarrier
from zkwire.recipes.classic.double_barrier import Member
from zkwire.recipes.public import public
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, Self

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL


@public
class Barrier(PathView):
    """A barrier that holds up all that come while it is closed.

        barrier = Barrier(client, "/maintenance")
        barrier.close()       # from here on the others wait
        ...
        barrier.open()

        barrier.wait(60)      # the others: True when it is open

    It is closed while its node is there, whatever becomes of the client that has closed it.  Any
    client may close or open it.  kazoo's Barrier and Curator's DistributedBarrier are the same.

    Raises ValueError for a bad path.
    """

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = NodeBarrier(runtime_of(client), path, acl)

    close: Final = blocking(NodeBarrier.close)
    open: Final = blocking(NodeBarrier.open)
    wait: Final = blocking(NodeBarrier.wait)


@public
class DoubleBarrier(PathView):
    """One member of a group that begins a piece of work together and ends it together.

        with DoubleBarrier(client, "/step-1", 16):
            work()

    ``enter`` returns when ``count`` members are there at one moment, ``leave`` when all of them
    have left or died.  An error in the body of the ``with`` leaves without a wait for the others.
    An object is one member: each thread has its own, and may enter again when it has left.

    ``text`` stands in the member's node.  Raises ValueError for a bad path or a count below 1.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = Member(runtime_of(client), path, count, text, acl)

    enter: Final = blocking(Member.enter)
    leave: Final = blocking(Member.leave)

    def __enter__(self) -> Self:
        try:
            self.enter()
        except LockInUseError:
            raise
        except BaseException:
            self._algorithm._give_up()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.leave()
        else:
            self._algorithm._give_up()
