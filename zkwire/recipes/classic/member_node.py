"""The node of a member of a double barrier: made once, waited for, deleted for certain."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial

from zkwire.errors import NodeExistsError, NoNodeError, OperationTimeoutError
from zkwire.operations.multi import Check, Delete
from zkwire.recipes.classic.rounds import READY, Rounds, Seen
from zkwire.recipes.entry import Entry
from zkwire.recipes.locks.sequential_entry import encoded
from zkwire.recipes.runtime import persist
from zkwire.recipes.view import PathView
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.runtime import Runtime
    from zkwire.wire.model import Event


class MemberNode(PathView, Entry):
    """One child of the path, named by its attempt; ``text`` stands in it."""

    def __init__(self, runtime: Runtime, path: str, text: str, acl: Sequence[ACL] | None) -> None:
        super().__init__(runtime, path, acl)
        self._kept = self._path
        self._data = encoded(text)
        self._rounds = Rounds(runtime, self._path, self._acl)
        self._inside: Attempt | None = None

    async def _stand(self, attempt: Attempt, deadline: float | None, watch: Watch) -> Seen:
        """What is there, the own node included."""
        runtime, operations, node = self._runtime, self._runtime.operations, attempt.node or ""
        create = partial(operations.create, ephemeral=True)
        while True:
            try:
                if attempt.stat is None:
                    with suppress(NodeExistsError):  # the reply was lost
                        await persist(runtime, deadline, create, node, self._data, self._acl)
                    attempt.stat = await persist(runtime, deadline, operations.exists, node)
                seen = await self._rounds.look(deadline, watch)
                if attempt.stat is not None and attempt.id in seen.names:
                    return seen
                attempt.stat = None  # an outsider has deleted it
            except NoNodeError:
                await self._provide(self._path, deadline)
                attempt.stat = None

    async def _gone(self, name: str, deadline: float | None) -> None:
        """Wait until a member has gone, or something has happened to it."""
        with suppress(NoNodeError), closing(Watch()) as watch:
            read, path = self._runtime.operations.get_data, f"{self._path}/{name}"
            await persist(self._runtime, deadline, read, path, watch=watch)
            await self._event(watch, deadline)

    async def _event(self, watch: Watch, deadline: float | None) -> Event:
        event = await self._runtime.event(watch, deadline)
        if event is None:
            raise OperationTimeoutError("the other members were not there in time")
        return event

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        with suppress(NoNodeError):
            await operations.delete(attempt.node or "")
        names, stat = await operations.get_children_with_stat(self._path)
        if names == [READY]:
            ready = Delete(f"{self._path}/{READY}")
            await operations.multi([Check(self._path, stat.version), ready])

    def _abandon(self) -> None:
        """Leave without a wait; called where nothing may await."""
        if self._inside is not None and not self._busy:
            self._pending_cleanup = self._inside
            self._inside = None
        self._resume_cleanup()

    @property
    def _owned(self) -> bool:
        return self._inside is not None
