"""Items shared out among the members of a group, for threads."""

from __future__ import annotations

from zkwire.blocking.following import check_callback
from zkwire.blocking.membership import Closing
from zkwire.blocking.run import in_thread, iterate, run
from zkwire.blocking.watching import sessions_of
from zkwire.recipes.services.partition import Partition
from zkwire.recipes.services.partitioner import PartitionerView, Partitioning
from zkwire.recipes.services.share import AsyncShare, ShareView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Final

    from zkwire.blocking.watching import ThreadNodeWatches
    from zkwire.jute.records import ACL
    from zkwire.recipes.services.problem import OnProblem


class Share(ShareView):
    """The items of one member, each with its fence: a mapping that a :class:`Partitioner` makes."""

    wait: Final = in_thread(AsyncShare.wait)


class Partitioner(PartitionerView, Closing):
    """Shares out items among all members that have been given the same ones.

        with Partitioner(supervisor, "/crawl", ["a", "b", "c"]) as partitioner:
            for share in partitioner:
                workers.start(share)
                share.wait()
                workers.stop(share.leaving)

    An item is in the hands of one member at a time: that which holds its lock.  ``share[item]`` is
    its fence, higher than those of all owners before.  When members come, leave or die, the items
    are shared out anew, evenly, and few of them move.  One that is to move goes on being this
    member's until the loop asks for the next share: that confirms that work on it has stopped.

    ``client``: a Client, or a Supervisor, with which it goes on in the next session.  When the
    session is lost all items are (``share.lost``, ``share.check``), and ``share.wait`` returns.
    ``items``: names without a slash, the same for all members.  ``name``: this member's (None: one
    is made); while another session has a member of that name, this one waits.  ``acl``: for the
    nodes that it makes (None: the client's ``default_acl``).  ``on_problem``, ``problem``: see
    docs/supervisor.md#refusals; an item whose lock is refused is in no share, the others are.

    Raises ValueError for no items, an item that is there twice, a name that cannot be a node's;
    TypeError for what is no str.
    """

    def __init__(
        self,
        client: ThreadNodeWatches,
        path: str,
        items: Iterable[str],
        *,
        name: str | None = None,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        check_callback(on_problem)
        partition = Partition(path, items, name, acl)
        self._algorithm = Partitioning(sessions_of(client), partition, Share, on_problem)

    def next(self, timeout: float | None = None) -> Share | None:
        return run(self._algorithm.next(timeout))

    def close(self, timeout: float | None = 10.0) -> None:
        run(self._algorithm.close(timeout))

    next.__doc__ = Partitioning.next.__doc__
    close.__doc__ = Partitioning.close.__doc__

    def __iter__(self) -> Iterator[Share]:
        return iterate(self._algorithm.__aiter__())
