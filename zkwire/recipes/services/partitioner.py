"""Items shared out among the members of a group, each to one member at a time.

    <path>/members/<name>   a member; in its data a digest of the items
    <path>/items/<item>     the fair lock of an item, with its contenders

Each member computes by itself, from the members' names, which items are to be whose
(:mod:`zkwire.recipes.services.allotment`).  Members may see different groups for a while, so
that is a wish alone; an item belongs to the member that holds its lock
(:mod:`zkwire.recipes.services.tenure`).

Invariants:

* Before a lock is released, its item is in no share: it was never given out, or the member has
  confirmed that work on it has stopped, by asking for the next share.
* What is confirmed is what the member has been told: items that the share before left out, and
  those that it has named as leaving.  What is revoked meanwhile waits for the next one.
* An item that was lost comes back in a later share, with a higher fence, and only behind a
  confirmation that work under the lost one has stopped.
* The items are those of the oldest member; one with other items ends with an error.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire.errors import BUSY, ConnectionLossError, NoNodeError, ServerError
from zkwire.recipes.runtime import persist
from zkwire.recipes.services.partition import Partition
from zkwire.recipes.services.problem import Problem
from zkwire.recipes.services.service import sessions_of
from zkwire.recipes.services.sharing import Sharing
from zkwire.recipes.view import PathView, ServiceView
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Literal

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Service
    from zkwire.recipes.services.tenure import Tenure

    State = Literal["allocating", "acquired", "releasing", "failed", "closed"]


class PartitionerView(PathView, ServiceView):
    """What a partitioner shows; nothing here waits, or asks a server."""

    @property
    def name(self) -> str | None:
        """The member's name; None if none was given and none has been made yet."""
        return self._algorithm._partition.name

    @property
    def state(self) -> State:
        """What it is doing.

        * ``"allocating"``: it waits for a session, or for items that are to be its own.  (After the
          end of a Client's session none comes: each wait raises that end.)
        * ``"acquired"``: it has all items that are to be its own.
        * ``"releasing"``: it waits until work is confirmed to have stopped on some that are not.
        * ``"failed"``: it has ended with an error, which each wait raises.
        * ``"closed"``: ``close`` was called, or this is a forked child.
        """
        algorithm = self._algorithm
        if algorithm._sessions.forked:
            return "closed"
        if algorithm._error is not None:
            return "failed"
        return "closed" if algorithm._leaving else algorithm._state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.state}>"


class AsyncPartitioner(PartitionerView, Sharing):
    """Shares out items among all members that have been given the same ones.

        async with AsyncPartitioner(supervisor, "/crawl", ["a", "b", "c"]) as partitioner:
            async for share in partitioner:
                workers.start(share)
                await share.wait()
                await workers.stop(share.leaving)

    An item is in the hands of one member at a time: that which holds its lock.  ``share[item]`` is
    its fence, higher than those of all owners before.  When members come, leave or die, the items
    are shared out anew, evenly, and few of them move.  One that is to move goes on being this
    member's until the loop asks for the next share: that confirms that work on it has stopped.

    ``client``: a client, or a supervisor, with which it goes on in the next session.  When the
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
        client: AsyncClientLike,
        path: str,
        items: Iterable[str],
        *,
        name: str | None = None,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._partition = partition = Partition(path, items, name, acl)
        super().__init__(sessions_of(client), partition.path, on_problem)
        self._member: Any = None
        self._plan: frozenset[str] | None = None  # the items to be had; None while it is no member
        self._tenures: dict[str, Tenure] = {}
        self._troubles: dict[str, Problem] = {}  # of the items, and of the member: ""
        self._begin()

    # --- the session's side -----------------------------------------------------------------------

    def _parts(self) -> Iterable[Service]:
        member = self._member
        if self._leaving:  # what is given up is no problem any more
            return [member] if member is not None and member._leaving else []
        return [part for part in (member, *list(self._tenures.values())) if part is not None]

    def _trouble_of(self, part: str) -> Problem:
        """What a part is refused: each session has another part, and it is the same problem."""
        if part not in self._troubles:
            self._troubles[part] = Problem(self._part_problem, self._sessions.dispatch)
        return self._troubles[part]

    @property
    def _is_refused(self) -> bool:
        wanted = [tenure for tenure in list(self._tenures.values()) if tenure.wanted]
        return super()._is_refused and all(tenure.settled for tenure in wanted)

    @property
    def _problem(self) -> Exception | None:
        troubles = [self._trouble, *list(self._troubles.values())]
        return next((trouble.error for trouble in troubles if trouble.error is not None), None)

    async def _serve(self, runtime: Any) -> None:
        if not self._serving:
            self._member = self._partition.join(runtime, self._tell, self._trouble_of(""))
            self._serving = True
        member = self._member
        roll: dict[str, tuple[int, bytes]] = {}
        while not self._leaving:
            stat, self._dirty = member._stat, False
            # Only reads are asked for: those that a lost connection ends are repeated.
            with suppress(ConnectionLossError, *BUSY), closing(Watch()) as watch:
                self._plan = await self._look(runtime, watch, roll)
                self._is_right()
                signals = [self._todo] if self._plan is None else [self._todo, watch]
                while member._stat is stat and not (self._leaving or signals[-1].ready):
                    self._step(runtime)
                    await runtime.wait_for(*signals)
                    self._dirty = False
        self._step(runtime)
        with suppress(ServerError):  # the locks are released before this is answered
            await persist(runtime, None, runtime.operations.sync, self._path)
        member._leave()
        while not member._over:
            await runtime.wait_for(self._todo)
            self._dirty = False
        self._end_well()

    async def _look(
        self, runtime: Any, watch: Watch, roll: dict[str, tuple[int, bytes]]
    ) -> frozenset[str] | None:
        """The items to be had; ``roll`` is what is known of the members: age and data of each."""
        partition, operations = self._partition, runtime.operations
        if self._member._stat is None:
            return None
        try:
            names = await operations.get_children(partition.members, watch=watch)
        except NoNodeError:
            return None
        new = {n: operations.get_data(f"{partition.members}/{n}") for n in names if n not in roll}
        for name in roll.keys() - set(names):
            del roll[name]
        for name, read in new.items():
            with suppress(NoNodeError):
                data, stat = await read
                roll[name] = stat.czxid, data
        return partition.allotted(roll)

    def _step(self, runtime: Any) -> None:
        """Do what follows from the plan and from what the reader has confirmed."""
        if self._leaving:
            self._plan = None
        self._confirm()
        if self._member._error is not None:
            raise self._member._error
        for item, tenure in tuple(self._tenures.items()):
            if tenure._error is not None:
                raise tenure._error
            tenure.wanted = item in (self._plan or ())
            if tenure.ended or not (tenure.wanted or self._given.get(item) is tenure):
                del self._tenures[item]
                runtime.dismiss(tenure)
        for item in sorted((self._plan or frozenset()) - self._tenures.keys()):
            self._tenures[item] = self._partition.tenure(
                runtime, item, self._tell, self._trouble_of(item)
            )
        if self._plan is not None or self._leaving:
            for item in self._troubles.keys() - {"", *(self._plan or ())}:
                self._troubles.pop(item).is_over()  # it is another member's matter
        wanted = {item: tenure for item, tenure in self._tenures.items() if tenure.wanted}
        self._hand_out(wanted)
        if self._plan is None and self._state == "acquired":
            self._state = "allocating"
        self._changed()

    def _session_ended(self) -> None:
        if self._member is not None:
            self._member._leave()
        for tenure in self._tenures.values():
            tenure._sessions.dismiss(tenure)
        self._tenures, self._plan, self._member = {}, None, None
        super()._session_ended()
