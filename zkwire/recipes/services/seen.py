"""What watching for ever shows, and the methods of clients and supervisors that begin it.

How the states are found is in :mod:`zkwire.recipes.services.following`.
"""

from __future__ import annotations

from zkwire.jute.record import Record
from zkwire.session.waitable import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.jute.records import Stat
    from zkwire.recipes.services.problem import OnProblem


class SeenData(Record):
    """A state of a node: its data and stat, None while it does not exist.

    ``skipped``: states between the one before and this one may have been missed.  With a watch that
    fires once a reader cannot see each of two changes that follow one another; False is a proof.
    """

    data: bytes | None
    stat: Stat | None
    skipped: bool


class SeenChildren(Record):
    """A state of a node's children: their names, sorted, and the node's stat.

    None while the node does not exist; ``skipped`` as in :class:`SeenData`.
    """

    children: list[str] | None
    stat: Stat | None
    skipped: bool


class NodeWatches(Bound):
    """What clients and supervisors have in common: watches for ever."""

    def watch_data(
        self,
        path: str,
        callback: Callable[[SeenData], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> Any:
        """The data of a node, for ever: an iterator of :class:`SeenData`.

            for seen in client.watch_data("/config"):
                configure(seen.data)

        It yields the state at this moment first, then each newer one, and ``data`` is None while
        the node does not exist.  The last state is never missed, and none comes behind a newer one.
        A reader that is slow gets the newest state when it asks for it, not those between
        (``skipped`` says so).  Leaving the loop, or ``close``, ends the watch, here and on the
        server.  ``next(timeout)`` waits for one state only.

        With a ``callback`` each state goes to that, one call at a time, in the callback thread
        (under asyncio in the loop, and it may be a coroutine function); ``close`` ends it.

        A lost connection is no error.  From a client it raises what ended the session; from a
        supervisor it goes on in the next session.  Raises NoAuthError if the node may not be read;
        with a ``callback`` that is logged, and the read is repeated.  ``problem`` and
        ``on_problem``: see docs/supervisor.md#refusals.
        """
        raise NotImplementedError

    def watch_children(
        self,
        path: str,
        callback: Callable[[SeenChildren], object] | None = None,
        *,
        on_problem: OnProblem | None = None,
    ) -> Any:
        """The names of a node's children, for ever: an iterator of :class:`SeenChildren`.

        Like :meth:`watch_data`; ``children`` is None while the node does not exist.
        """
        raise NotImplementedError
