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

A server compares versions, not czxids.  So if an outsider deletes the node and another contender
creates one in the same round trip in which this object writes or deletes, and both nodes have the
same version, the other contender's is hit.
"""

from __future__ import annotations

from contextlib import closing

from zkwire.errors import NodeExistsError, NoNodeError, NotReadOnlyError, ZooKeeperError
from zkwire.recipes.runtime import newest
from zkwire.recipes.services.node_owner import LOOK_AGAIN, NodeOwner
from zkwire.recipes.trees import ensure_path
from zkwire.session.watch import Watch
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any

    from zkwire.jute.records import Stat


class NodeKeeper(NodeOwner):
    """An ephemeral node that is kept; see the module's docstring."""

    _czxid = 0  # of its own node, if one may stand there
    _doubt = False
    _engaged_in: set[Any] | None = None  # of the session, from its first step in it on

    async def _serve(self, runtime: Any) -> None:
        engaged: set[Any] = runtime.engaged
        others = [k for k in list(engaged) if isinstance(k, NodeKeeper) and k is not self]
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
