"""The rounds of a double barrier: what its nodes say, and how a round begins and ends.

    /path                  persistent; its version is the number of rounds that have begun
    /path/<member>         ephemeral, whatever its name; kazoo, Curator and zkwire make them alike
    /path/ready            there while a round is on

A round has the zxid of its ``ready``.  Its members are the children that are older than that.  It
is on while ``ready`` and a member are there; a ``ready`` without one is what a round has left
whose last member has died, and it is deleted.

Invariants:

* A round begins in a multi that checks that ``count`` members are there, and raises the version of
  the path: so of two that begin one at once, one does.
* ``ready`` is deleted only together with a check of that version, or with a member of its round.
"""

from __future__ import annotations

from zkwire.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError
from zkwire.operations.multi import Check, Create, Delete, SetData
from zkwire.recipes.runtime import one_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import Runtime
    from zkwire.session.watch import Watch

READY = "ready"
ANY = 1 << 63  # a round that is known to have begun, and no more: all that stand there are in it


class Seen:
    """The children of a double barrier, at one moment: ``round`` is 0 if none has begun."""

    def __init__(self, names: list[str], version: int, round: int) -> None:
        self.names: list[str] = sorted(name for name in names if name != READY)
        self.version = version
        self.round = round


class Rounds:
    """What members read and write together."""

    def __init__(self, runtime: Runtime, path: str, acl: Sequence[ACL] | None) -> None:
        self._runtime = runtime
        self._path = path
        self._acl = acl

    async def look(self, deadline: float | None, watch: Watch | None = None) -> Seen:
        """The children; ``watch`` tells when ``ready`` comes or goes.  NoNodeError without a path.

        The list is read first: a member of the round that it does not show is gone for good.
        """
        operations, until = self._runtime.operations, self._runtime.until
        while True:
            listing = operations.get_children_with_stat(self._path)
            ready = operations.exists(f"{self._path}/{READY}", watch=watch)
            try:
                names, stat = await until(listing, deadline)
                found = await until(ready, deadline)
                return Seen(names, stat.version, 0 if found is None else found.czxid)
            except ConnectionLossError:
                pass

    async def members(self, seen: Seen, round: int, deadline: float | None) -> list[str]:
        """The members of a round that are there, sorted.

        Every time anew: a name may be there again that an outsider has deleted.
        """
        exists, until = self._runtime.operations.exists, self._runtime.until
        while True:
            replies = [exists(f"{self._path}/{name}") for name in seen.names]
            try:
                stats = [await until(reply, deadline) for reply in replies]
            except ConnectionLossError:
                continue
            there = zip(seen.names, stats, strict=True)
            return [name for name, stat in there if stat is not None and stat.czxid < round]

    async def begin(self, seen: Seen, deadline: float | None) -> int:
        """Begin a round of all that were seen; its zxid, or 0: a look says why not."""
        checks = [Check(f"{self._path}/{name}") for name in seen.names]
        steps = [
            SetData(self._path, b"", seen.version),
            Create(f"{self._path}/{READY}", b"", self._acl),
        ]
        results = await self._unless_changed([*checks, *steps], deadline)
        return int(results[-2].mzxid) if results else 0

    async def end(self, seen: Seen, own: str | None, deadline: float | None) -> bool:
        """Delete ``ready``, and with it the own node; False: a look says what has changed."""
        steps = [Check(self._path, seen.version), Delete(f"{self._path}/{READY}")]
        if own is not None:
            steps.insert(1, Delete(f"{self._path}/{own}"))
        return bool(await self._unless_changed(steps, deadline))

    async def _unless_changed(
        self, steps: list[Operation], deadline: float | None
    ) -> list[Any] | None:
        """The results of a multi; None if it was refused for what has changed, or is in doubt."""
        try:
            multi = self._runtime.operations.multi(steps)
            return await one_refusal(self._runtime.until, multi, deadline)
        except (ConnectionLossError, BadVersionError, NodeExistsError, NoNodeError):
            return None
