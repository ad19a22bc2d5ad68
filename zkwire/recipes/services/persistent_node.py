"""A node that is there for as long as its owner wants it, whatever deletes it.

It decides which node is its own, and so when to create, to write, and to delete.

A node is its own if its czxid is that of a node that this object has made.  Where a connection was
lost on a create the czxid is unknown; then the node is its own if it belongs to this session, since
of the objects of one client only one keeps a path.  Every other node is foreign: it is reported,
watched, and replaced when it is gone; it is never written and never deleted.

Invariants:

* One change is under way at a time.  A lost one is repeated behind a look only, and changes nothing
  if it comes late: a write and a delete name the version that the look has seen.
* ``_doubt`` is True from a create that may have made the node until a look has told.
* The value that was set last is on the server when its ``set_data`` returns, or a later one.

**Of no session** (:class:`StandingKeeper`): a node that stays when a session ends, and is known
again in the next.  Its owner is 0 like that of every such node, so what makes it makes a token in
the same transaction: an ephemeral node beside it, named by an id of its own, with the same czxid.
The token proves which node is its own, even if the reply to the create was lost, and is deleted
when that is known.  The token ends with the session.  So if a session expires after a lost reply to
a create, a node that this create has made is foreign in the next session: it is reported, and
stays.

A server compares versions, not czxids.  So if an outsider deletes the node and another contender
creates one in the same round trip in which this object writes or deletes, and both nodes have the
same version, the other contender's is hit.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire.errors import (
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotReadOnlyError,
    ZooKeeperError,
)
from zkwire.operations.base import rehearse
from zkwire.operations.checks import check_flag
from zkwire.operations.multi import Create
from zkwire.recipes.runtime import newest
from zkwire.recipes.services.node_owner import ID_LIKE, LOOK_AGAIN, NodeOwner
from zkwire.recipes.services.service import sessions_of
from zkwire.recipes.trees import ensure_path
from zkwire.session.watch import Watch
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import Any, Self

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.services.problem import OnProblem


class AsyncPersistentNode(NodeOwner):
    """A node that is there for as long as this object wants it, whatever deletes it.

        async with AsyncPersistentNode(client, "/services/db", b"10.0.0.5:5432") as node:
            await serve()

    It is put back when an outsider has deleted it and, with a supervisor, in each new session;
    missing nodes above it are made, as nodes that the server removes when they are empty.  Nothing
    waits for that: ``wait_present`` does.  A foreign node in its place is never overwritten
    (``conflict``), and replaced when it is gone.  One that a process has left which has ended
    without closing its client is foreign, too, until that process's session times out.  Data that
    an outsider writes into it stay until ``set_data``, or until it is put back.

    ``ephemeral=False``: a node that stays when the session ends, but not after ``close``.
    ``acl``: for the node and the missing ones above (None: the client's ``default_acl``).
    ``on_problem``, ``problem``: a refusal does not end it; see docs/supervisor.md#refusals.
    """

    def __new__(cls, *_: Any, ephemeral: bool = True, **__: Any) -> Self:  # pyright: ignore[reportInconsistentConstructor]
        kind: type[Any] = cls if check_flag("ephemeral", ephemeral) else StandingKeeper
        return object.__new__(kind)

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = True,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        super().__init__(sessions_of(client), path, data, acl, on_problem)

    _czxid = 0  # of its own node, if one may stand there
    _doubt = False
    _engaged_in: set[Any] | None = None  # of the session, from its first step in it on

    async def _serve(self, runtime: Any) -> None:
        engaged: set[Any] = runtime.engaged
        others = [k for k in list(engaged) if isinstance(k, AsyncPersistentNode) and k is not self]
        if any(other._path == self._path for other in others) and not self._leaving:
            raise NodeExistsError(f"{self._path}: another object of this client keeps this node")
        engaged.add(self)
        self._engaged_in = engaged
        while not self._leaving:
            await self._keep(runtime)
        while self._czxid or self._doubt:
            await self._delete(runtime)
        engaged.discard(self)  # first: behind its end another object may keep the node
        self._end_well()

    async def _keep(self, runtime: Any) -> None:
        """Provide the node, and wait until it has to be looked at again."""
        try:
            with closing(Watch()) as watch:
                settled = await self._provide(runtime, watch)
                if settled:
                    self._is_right()
                self._changed()
                while settled and not (self._leaving or watch.ready):
                    await runtime.wait_for(watch, self._todo)
                    if self._stat is not None and self._wishes:
                        await self._write(runtime.operations, self._stat)
        except NotReadOnlyError:
            await runtime.another_state()
        except (NoNodeError, *LOOK_AGAIN):
            pass

    async def _provide(self, runtime: Any, watch: Watch) -> bool:
        """Create the node if it is missing; whether one is there, watched and looked at."""
        wishes, made = tuple(self._wishes), False
        data = wishes[-1].data if wishes else self._data
        if self._stat is not None:
            stat = await runtime.operations.exists(self._path, watch=watch)
        else:
            try:
                made, stat = await self._create(runtime, data, watch)
            except NoNodeError:
                above = parent(self._path)
                await ensure_path(runtime, above, self._acl, None, containers=True)
                return False
        if not await self._is_own(runtime, stat) or stat is None:
            self._stat = None
            self._czxid, self._doubt = 0, False
            if stat is not None and (self._conflict is None or self._conflict.czxid != stat.czxid):
                runtime.warn(f"{self._path}: a node of another owner is there: waiting for its end")
            self._conflict = stat
            return stat is not None
        if made:  # what a lost create has written is still wished for, and written again
            self._settle(wishes)
        self._stat, self._conflict = stat, None
        return True

    async def _create(self, runtime: Any, data: bytes, watch: Watch) -> tuple[bool, Stat | None]:
        """Whether it was created just now, and the stat of what is there."""
        created = self._make(runtime, data)
        look = runtime.operations.exists(self._path, watch=watch)
        made = False
        try:
            await created
            made = self._doubt = True  # until the look has told its czxid
        except NodeExistsError:
            pass
        except ZooKeeperError as error:
            self._doubt = self._doubt or error.maybe_applied
            raise
        return made, await look

    def _make(self, runtime: Any, data: bytes) -> Awaitable[object]:
        """Ask for the node."""
        return runtime.operations.create(self._path, data, self._acl, ephemeral=True)

    async def _is_own(self, runtime: Any, stat: Stat | None) -> bool:
        if stat is None:
            return False
        doubted = self._doubt and stat.ephemeral_owner == runtime.session_id
        if stat.czxid != self._czxid and not doubted:
            return False
        self._czxid, self._doubt = stat.czxid, False
        return True

    async def _delete(self, runtime: Any) -> None:
        """Delete the node if it is still there; to be repeated while there is one."""
        operations = runtime.operations
        try:
            stat = await newest(operations, operations.exists, self._path)
            if await self._is_own(runtime, stat) and stat is not None:
                await operations.delete(self._path, stat.version)
        except NotReadOnlyError:
            await runtime.another_state()
            return
        except LOOK_AGAIN:
            return
        except NoNodeError:
            pass
        self._czxid, self._doubt = 0, False

    def _session_ended(self) -> None:
        if self._engaged_in is not None:
            self._engaged_in.discard(self)
        self._stat = self._conflict = None
        self._doubt = False
        if self._ephemeral:
            self._czxid = 0
        if self._leaving and not self._czxid:
            self._end()


TOKEN = "-zkwire-"
"""What stands between the node's name and the id in the name of a token."""


class StandingKeeper(AsyncPersistentNode):
    """A node of no session; see the module's docstring."""

    _ephemeral = False
    _token = ""  # the path of a token that may be there

    def _make(self, runtime: Any, data: bytes) -> Awaitable[object]:
        if not self._token:
            self._token = f"{self._path}{TOKEN}{runtime.unique()}"
        return self._both_made(runtime, runtime.operations.multi(self._both(data, self._token)))

    def _both(self, data: bytes, token: str) -> list[Operation]:
        return [Create(self._path, data, self._acl), Create(token, b"", self._acl, ephemeral=True)]

    def _rehearse(self, data: bytes) -> None:
        token = f"{self._path}{TOKEN}{ID_LIKE}"
        rehearse(self._sessions.operations).multi(self._both(data, token))

    async def _both_made(self, runtime: Any, made: Awaitable[object]) -> None:
        try:
            await made
        except MultiError as error:
            if error.index == 1:  # of an earlier create, whose node is gone
                await self._drop_token(runtime)
            raise error._culprit from None

    async def _is_own(self, runtime: Any, stat: Stat | None) -> bool:
        if self._token:
            token = await runtime.operations.exists(self._token)
            if stat is not None and token is not None and token.czxid == stat.czxid:
                self._czxid = stat.czxid
            await self._drop_token(runtime)
        self._doubt = False
        return stat is not None and stat.czxid == self._czxid

    async def _drop_token(self, runtime: Any) -> None:
        with suppress(NoNodeError):
            await runtime.operations.delete(self._token)
        self._token = ""

    def _session_ended(self) -> None:
        self._token = ""
        super()._session_ended()
