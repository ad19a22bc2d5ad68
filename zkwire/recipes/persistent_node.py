"""A node that is there for as long as its owner wants it, whatever deletes it.

It decides which node is its own, and so when to create, to write, and to delete.

A node is its own if this object has made a node with that czxid.  If the connection was lost during
a create, the czxid is unknown; then the node is its own if it belongs to this session, since only
one object of a client keeps a path.  Every other node is foreign: it is reported, watched, and
replaced when it is gone; it is never written and never deleted.

Invariants:

* One change is under way at a time.  A lost change is repeated only after a look, and changes
  nothing if it comes late: a write and a delete name the version that the look has seen.
* ``_doubt`` is True from a create that may have made the node until a look has told.
* The value that was set last is on the server when its ``set_data`` returns, or a later one.

**A node that is not ephemeral** (:class:`PersistentModeKeeper`) stays when a session ends, and is
recognised in the next session.  Its owner is 0, as for every such node.  So the transaction that
makes it also makes a token: an ephemeral node beside it, with an id of its own as its name, and
with the same czxid.  The token proves which node is its own, even if the reply to the create was
lost, and is deleted when that is known.  It ends with the session.  So if a session expires after a
lost reply to a create, a node that this create has made is foreign in the next session: it is
reported, and stays.

A server compares versions, not czxids.  So if an outsider deletes the node and another contender
creates one in the same round trip in which this object writes or deletes, and both nodes have the
same version, the other contender's is hit.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire import errors
from zkwire.operations.multi import Create, Operation
from zkwire.operations.nodes import check_acl, check_data, check_flag, drafts
from zkwire.recipes._recipe import HasPath
from zkwire.recipes._service import Condition, ObservableService, sessions_of
from zkwire.recipes.runtime import REPEATABLE, newest
from zkwire.session.waitable import Watch, check_timeout
from zkwire.wire.paths import check_below_root, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import Any, Self

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations import Operations
    from zkwire.recipes._service import Background, OnProblem
    from zkwire.recipes.runtime import AsyncClientLike


ID_LIKE = "0" * 24
"""What is as long as an id that a client makes."""


class Wish:
    """What has become of one call of ``set_data``."""

    done = False
    error: errors.ServerError | None = None


class AsyncPersistentNode(HasPath, ObservableService):
    """A node that is there for as long as this object wants it, whatever deletes it.

        async with AsyncPersistentNode(client, "/services/db", b"10.0.0.5:5432") as node:
            await serve()  # yours to write

    It is put back when an outsider has deleted it and, with a supervisor, in each new session;
    missing nodes above it are made, as nodes that the server removes when they are empty.  The
    constructor does not wait for the node; ``wait_present`` does.  A foreign node in its place is
    never overwritten (``conflict``), and replaced when it is gone.  If a process ends without
    closing its client, the node that it leaves is foreign, too, until that process's session times
    out.  Data that an outsider writes into it stay until ``set_data``, or until it is put back.  A
    forked child has no node: the node is the parent's.

    ``ephemeral=False``: a node that stays when the session ends, but not after ``close``.
    ``acl``: for the node and the missing ones above (None: the client's ``default_acl``).
    ``on_problem``, ``problem``: a refusal does not end it; see docs/supervisor.md#refusals.
    """

    _called = "PersistentNode"
    _is_active = True  # a session with such a node is not to be detached
    _czxid = 0  # of its own node, if one may stand there
    _doubt = False

    def __new__(cls, *_: Any, ephemeral: bool = True, **__: Any) -> Self:  # pyright: ignore[reportInconsistentConstructor]
        kind: type[Any] = cls if check_flag("ephemeral", ephemeral) else PersistentModeKeeper
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
        super().__init__(sessions_of(client), on_problem)
        self._path = check_below_root(path, "kept: it is always there")
        self._data = check_data(data)  # as it was wanted before the wishes
        self._acl = None if acl is None else check_acl(acl)
        self._wishes: list[Wish] = []
        self._wished = data  # by the last one: an outage can have many, and each with much data
        self._stat: Stat | None = None  # of its own node, as last seen
        self._conflict: Stat | None = None
        self._todo = Condition(lambda: self._leaving or bool(self._stat and self._wishes))
        self._rehearse(data)
        self._begin()

    def _rehearse(self, data: bytes) -> None:
        """ValueError if the node could never be sent with these data."""
        rehearsal = drafts(self._sessions.operations)
        rehearsal.create(self._path, data, self._acl, ephemeral=True)  # set_data takes less

    def _refused(self, runtime: Background, refusal: errors.ServerError) -> float:
        self._settle(tuple(self._wishes), refusal)  # perhaps for the data
        return super()._refused(runtime, refusal)

    def _settle(self, wishes: tuple[Wish, ...], error: errors.ServerError | None = None) -> None:
        """The wishes are fulfilled, or refused with this error."""
        del self._wishes[: len(wishes)]
        for wish in wishes:
            wish.done, wish.error = True, error

    async def _write(self, operations: Operations, stat: Stat) -> None:
        wishes, data = tuple(self._wishes), self._wished  # in this order: see set_data
        try:
            self._stat = await operations.set_data(self._path, data, stat.version)
            self._data = data
            self._settle(wishes)
        except (errors.NoNodeError, errors.NotReadOnlyError, errors.BadVersionError, *REPEATABLE):
            raise
        except errors.ServerError as refused:
            self._settle(wishes, refused)
        self._changed()

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path.rpartition("/")[2]

    @property
    def present(self) -> bool:
        """Whether the node is there, as far as is known here.

        It stays True while the connection is lost, and until the client hears that the node was
        deleted or that the session has expired.
        """
        return self.stat is not None

    @property
    def stat(self) -> Stat | None:
        """The stat of its own node, as last seen; None unless ``present``.

        ``czxid`` is another number, a higher one, each time the node is put back.
        """
        return None if self._sessions.forked else self._stat

    @property
    def conflict(self) -> Stat | None:
        """The stat of a foreign node that is in its place; None if there is none.

        It is never overwritten; its own node follows when it is gone.  ``ephemeral_owner`` says
        which session it belongs to: 0 if to none, so that it will not go by itself.
        """
        return None if self._sessions.forked else self._conflict

    def __repr__(self) -> str:
        state = " present" * self.present or " conflict" * (self.conflict is not None)
        return f"<{type(self).__name__} {self.path}{state}>"

    async def wait_present(self, timeout: float | None = None) -> bool:
        """Wait until the node is there; False if ``timeout`` seconds pass without it.

        Then ``conflict`` says whether a foreign node is in its place.  Raises the error that has
        ended the client or the supervisor; NoAuthError, or any other refusal of the node by a
        server; NodeExistsError while another object of the same client keeps this path.  After a
        refusal the object goes on trying, and a later call may succeed.
        """
        return await self._until(lambda: self._stat is not None, timeout)

    async def set_data(self, data: bytes, timeout: float | None = None) -> None:
        """Change the node's data for good; returns when this or later data is on the server.

        OperationTimeoutError if ``timeout`` seconds pass before that; the data is still written as
        soon as that is possible.  A lost connection is not an error.  Raises what
        :meth:`wait_present` raises, and NoAuthError or QuotaExceededError if a server refuses the
        data; then the node keeps the data it had.  ValueError, and nothing is tried, if the data is
        more than this client can send.
        """
        wish, limit, data = Wish(), check_timeout("timeout", timeout), check_data(data)
        self._check()
        self._rehearse(data)
        self._wished = data  # first: a wish is fulfilled by its own data or by later ones
        self._wishes.append(wish)
        self._todo.notify()
        await self._outcome(lambda: wish.done, limit)
        self._check()
        if not wish.done:
            raise errors.OperationTimeoutError(
                "not written in time; it will be as soon as it can be",
                op="set_data",
                path=self._path,
                maybe_applied=True,
            )
        if wish.error is not None:
            raise wish.error

    async def close(self, timeout: float | None = 10.0) -> None:
        """Stop keeping the node, and delete it if it is this object's own.  Idempotent.

        OperationTimeoutError if that takes longer than ``timeout`` seconds: it goes on in the
        background, and an ephemeral node goes with the session at the latest.  It also goes on
        after a refusal, which this raises: NoAuthError if the node may not be deleted,
        NotEmptyError if a node that is not ephemeral has children.  For a node that is not
        ephemeral, it also raises the error that has ended the session or the client before.
        """
        await super().close(timeout)

    def _resume_cleanup(self) -> None:
        """Nothing that the service does not do by itself."""

    _take_over = _resume_cleanup

    def _leave(self) -> None:
        self._leaving = True
        self._todo.notify()
        self._retry()

    async def _serve(self, runtime: Any) -> None:
        active_locks: set[Any] = runtime.active_locks
        others = [
            k for k in list(active_locks) if isinstance(k, AsyncPersistentNode) and k is not self
        ]
        if any(other._path == self._path for other in others) and not self._leaving:
            raise errors.NodeExistsError(
                f"{self._path}: another object of this client keeps this node"
            )
        active_locks.add(self)
        while not self._leaving:
            await self._keep(runtime)
        while self._czxid or self._doubt:
            await self._delete(runtime)
        active_locks.discard(self)  # first: after its end another object may keep the node
        self._end_well()

    async def _keep(self, runtime: Any) -> None:
        """Provide the node, and wait until it has to be looked at again."""
        with suppress(errors.NoNodeError, errors.BadVersionError), closing(Watch()) as watch:
            settled = await self._provide(runtime, watch)
            if settled:
                self._is_right()
            self._changed()
            while settled and not (self._leaving or watch.ready):
                await runtime.wait_for(watch, self._todo)
                if self._stat is not None and self._wishes:
                    await self._write(runtime.operations, self._stat)

    async def _provide(self, runtime: Any, watch: Watch) -> bool:
        """Create the node if it is missing; whether one is there, watched and looked at."""
        wishes, made = tuple(self._wishes), False
        data = self._wished if wishes else self._data
        if self._stat is not None:
            stat = await runtime.operations.exists(self._path, watch=watch)
        else:
            try:
                made, stat = await self._create(runtime, data, watch)
            except errors.NoNodeError:
                above = parent(self._path)
                await runtime.ensure_path(above, self._acl, None, containers=True)
                return False
        if not await self._is_own(runtime, stat) or stat is None:
            self._stat = None
            self._czxid, self._doubt = 0, False
            if stat is not None and (self._conflict is None or self._conflict.czxid != stat.czxid):
                runtime.warn(f"{self._path}: a node of another owner is there: waiting for its end")
            self._conflict = stat
            return stat is not None
        if made:  # what a lost create has written is still wished for, and written again
            self._data = data
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
        except errors.NodeExistsError:
            pass
        except errors.ZooKeeperError as error:
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
        except errors.BadVersionError:
            return
        except errors.NoNodeError:
            pass
        self._czxid, self._doubt = 0, False

    def _session_ended(self, runtime: Background) -> None:
        runtime.active_locks.discard(self)
        self._stat = self._conflict = None
        self._doubt = False
        if self._ephemeral:
            self._czxid = 0
        if self._leaving and not self._czxid:
            self._end()


TOKEN = "-zkwire-"
"""What stands between the node's name and the id in the name of a token."""


class PersistentModeKeeper(AsyncPersistentNode):
    """A node that stays when its session ends, and is known again by its token."""

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
        drafts(self._sessions.operations).multi(self._both(data, token))

    async def _both_made(self, runtime: Any, made: Awaitable[object]) -> None:
        try:
            await made
        except errors.MultiError as error:
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
        with suppress(errors.NoNodeError):
            await runtime.operations.delete(self._token)
        self._token = ""

    def _session_ended(self, runtime: Background) -> None:
        self._token = ""
        super()._session_ended(runtime)
