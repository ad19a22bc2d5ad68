"""One ephemeral node and its token: made at once, found again after a lost reply, deleted at once.

It decides which node is a grant's own and when an earlier grant is over.  What waits for what is a
subclass's matter.

All holders' nodes have one path, and a server compares versions only.  So what makes the node makes
a token as well, in the same multi: an ephemeral child, named by the attempt's id, of a node beside
the lock's (ephemeral nodes have no children).  What deletes the node deletes the token with it:

    /path                              the lock: its content is the attempt's id
    /path-zkwire-grants/<attempt id>   the token

The multi writes the tokens' parent, too, whose stat then says whether there are others: older ones,
left where an outsider has deleted a holder's node.  The grant begins when these are gone and the
node is still its own.

Invariants:

* While a grant lasts its token is there, and no older one, as long as no outsider deletes tokens.
  So a multi that deletes its own token and the node cannot hit the node of a later grant, and one
  that checks its own token is the holder's (``guard``).
* A grant deletes older tokens only, so that none takes a later one's.

A node made by hand, or by a zkwire without tokens, has version 0; one with a token has version 1.

When the connection is lost during the multi, it is not known whether it took effect.  So it is
repeated, and "node exists" leads to a look at its owner: this attempt (the first try had worked),
another one, or none any more (start over).  Each of these steps can lose the connection again.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import (
    BadVersionError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionMovedError,
)
from zkwire.operations.multi import Create, Delete, SetData
from zkwire.recipes.attempt import Attempt, former, permanent
from zkwire.recipes.entry import Entry
from zkwire.recipes.runtime import newest, one_refusal, persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.operations import Operations
    from zkwire.operations.multi import Operation
    from zkwire.wire.model import DataAndStat

_VERSION = 1  # of a node that came with a token
GRANTS = "-zkwire-grants"
"""What the name of the tokens' parent ends in; before that is the lock's path."""


class SingleEntry(Entry):
    """The node at the path itself, and its token."""

    async def _create(self, attempt: Attempt, deadline: float | None) -> bool:
        """Create the node; False if it is another contender's."""
        doubt = False
        while True:
            attempt.entered = True
            try:
                alone = await self._claim(attempt, deadline)
                if alone or await self._outlast(attempt, deadline):
                    return True
            except NodeExistsError:
                if not doubt:
                    attempt.entered = False
                    return False
                try:
                    read = self._runtime.operations.get_data
                    seen = await persist(self._runtime, deadline, read, self._path)
                except NoNodeError:
                    await self._start_over(attempt, deadline)
                    continue  # gone meanwhile, whatever it was
                if not (self._is_own(attempt, seen) and self._adopt(attempt, seen)):
                    await self._start_over(attempt, deadline)
                    attempt.entered = False
                    return False
                if await self._outlast(attempt, deadline):
                    return True
            except NoNodeError:
                await self._provide(self._grants, deadline)
            except (NotSentError, SessionMovedError):
                pass  # nothing was done; the next try waits for the next connection
            except OutcomeUnknownError:
                doubt = True

    async def _claim(self, attempt: Attempt, deadline: float | None) -> bool:
        """Create the node and the token; whether there is no other token."""
        claim = [
            Create(self._path, b"", self._acl, ephemeral=True),
            SetData(self._path, attempt.id.encode()),
            Create(self._token(attempt), b"", self._acl, ephemeral=True),
            SetData(self._grants, b""),
        ]
        multi = self._runtime.operations.multi(claim)
        _, stat, _, grants = await one_refusal(self._runtime.until, multi, deadline)
        attempt.node, attempt.stat = self._path, stat
        return bool(grants.num_children == 1)

    async def _outlast(self, attempt: Attempt, deadline: float | None) -> bool:
        """Delete the tokens of earlier grants; whether the node is still this attempt's then.

        If it is not, an outsider has deleted it, and the attempt is as if it had not begun.
        """
        runtime, operations = self._runtime, self._runtime.operations
        assert attempt.stat is not None
        czxid = attempt.stat.czxid
        with suppress(NoNodeError):
            for name in await persist(runtime, deadline, operations.get_children, self._grants):
                if name == attempt.id:
                    continue
                token = f"{self._grants}/{name}"
                stat = await persist(runtime, deadline, operations.exists, token)
                if stat is not None and stat.czxid < czxid:
                    with suppress(NoNodeError):
                        await persist(runtime, deadline, operations.delete, token)
        stat = await persist(runtime, deadline, operations.exists, self._path)
        if stat is not None and stat.czxid == czxid:
            return True
        await self._start_over(attempt, deadline)
        return False

    async def _start_over(self, attempt: Attempt, deadline: float | None) -> None:
        """Delete the token of a node that is gone."""
        with suppress(NoNodeError):
            await persist(
                self._runtime, deadline, self._runtime.operations.delete, self._token(attempt)
            )
        attempt.node = attempt.stat = None

    def _adopt(self, attempt: Attempt, seen: DataAndStat) -> bool:
        """Whether the node that was seen is this attempt's; then it is taken over.

        NodeExistsError if it belongs to no session: it would go with none, and the wait never end.
        """
        if not self._is_own(attempt, seen):
            if seen.stat.ephemeral_owner == 0:
                raise permanent(self._path)
            own_session = seen.stat.ephemeral_owner == self._runtime.session_id
            if own_session and attempt.is_former(seen.data.decode("ascii", "replace")):
                raise former(self._path)
            return False
        attempt.node, attempt.stat, attempt.entered = self._path, seen.stat, True
        return True

    def _is_own(self, attempt: Attempt, seen: DataAndStat) -> bool:
        if attempt.stat is not None:
            return seen.stat.czxid == attempt.stat.czxid  # whatever has been written into it
        owner = seen.stat.ephemeral_owner
        return owner == self._runtime.session_id and seen.data == attempt.id.encode()

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        version = _VERSION
        while True:
            try:
                await operations.multi(self._end(attempt, version))
                return
            except MultiError as error:
                refusal = error._culprit
                if not isinstance(refusal, (NoNodeError, BadVersionError)):
                    raise refusal from None
                token_gone = error.index == 0
            try:
                seen = await newest(operations, operations.get_data, self._path)
            except NoNodeError:
                seen = None
            if seen is None or not self._is_own(attempt, seen):
                if not token_gone:
                    await operations.delete(self._token(attempt))
                return
            version = seen.stat.version  # written into since; it is still this attempt's
            if token_gone:  # an outsider has deleted it
                await operations.delete(self._path, version)
                return

    def _end(self, attempt: Attempt, version: int) -> list[Operation]:
        return [Delete(self._token(attempt)), Delete(self._path, version)]

    @property
    def _grants(self) -> str:
        return self._path + GRANTS

    def _token(self, attempt: Attempt) -> str:
        return f"{self._grants}/{attempt.id}"
