"""A sequential child of one's own: created exactly once, whatever becomes of the connection.

It decides how the child is created, how it is found again after a reply that was lost, and how it
is deleted.  What its number is good for is a subclass's matter.

A sequential create is not idempotent: repeating it blindly leaves an orphan in the queue that
blocks everything behind it.  The child's name carries the session's id and the attempt's; after a
lost reply it is looked up, with a ``sync`` before the listing because the server that answers may
be behind.

    /path/<session id>-<attempt id>-lock-<sequence>

The create and the first listing leave in one write; the session's order makes the listing contain
the new child, so this costs one round trip.  A server before 3.5 refuses the kind of create that
answers with the stat, once for each connection; there a plain one is followed by a look.
"""

from __future__ import annotations

import contextlib

from zkwire.errors import (
    ConnectionLossError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    SequenceExhaustedError,
    ServerError,
    UnimplementedError,
)
from zkwire.operations.checks import check_text
from zkwire.recipes.attempt import NOT_NOW, Attempt
from zkwire.recipes.entry import Entry
from zkwire.recipes.runtime import newest, persist
from zkwire.wire.paths import LAST_SEQUENCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypeAlias

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations, Reply
    from zkwire.recipes.runtime import Runtime

    Names: TypeAlias = Literal["zkwire", "kazoo"]

# At the end of the counter a 3.8 server hands out the same number again and again, and two
# contenders would hold (DataTree.createNode).  Stop well before: others are creating at the same
# time.
SPARE_NUMBERS = 1000


class SequentialEntry(Entry):
    """One child of the path, named by a ``_label`` and a number; ``text`` stands in it."""

    _label = "lock-"
    _kazoo_label = "__lock__"

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        text: str = "",
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        super().__init__(runtime, path, acl)
        self._data = encoded(text)
        if of_kazoo(names):
            self._label = self._kazoo_label
            self._containers = False  # an object of kazoo's makes its path once

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """Create the attempt's child, exactly once; returns a list of children made after it."""
        names = await self._create(attempt, deadline)
        if attempt.stat is None:
            assert attempt.node is not None
            exists = self._runtime.operations.exists
            attempt.stat = await persist(self._runtime, deadline, exists, attempt.node)
            if attempt.stat is None:  # an outsider has deleted it since it was listed
                return [name for name in names if name != self._name(attempt)]
        return names

    async def _create(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """As :meth:`_join`; there is no stat where the server has no create2 (before 3.5)."""
        runtime, operations = self._runtime, self._runtime.operations
        path, plain = f"{self._path}/{attempt.id}-{self._label}", False
        while True:
            attempt.entered = True
            make = operations.create if plain else operations.create_with_stat
            create: Reply[Any] = make(path, self._data, self._acl, ephemeral=True, sequential=True)
            listing = operations.get_children(self._path)
            try:
                made = await runtime.until(create, deadline)
                attempt.node, attempt.stat = (made, None) if plain else made
                self._check_sequence(attempt)
                return await runtime.until(listing, deadline)
            except UnimplementedError:
                if plain:
                    raise
                plain = True
            except NoNodeError:
                attempt.node = None
                await self._provide(self._path, deadline)
            except ServerError:
                attempt.entered = attempt.node is not None
                raise
            except NotSentError:
                if attempt.node is not None:
                    return await self._list(deadline)
            except OutcomeUnknownError:
                if attempt.node is not None:
                    return await self._list(deadline)
                names = await self._find(attempt, deadline)
                if attempt.node is not None:
                    self._check_sequence(attempt)
                    return names

    async def _find(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """Look for the child whose create was not answered; returns the children."""
        runtime, operations = self._runtime, self._runtime.operations
        names = await self._list(deadline, sync=True)
        for name in names:
            if attempt.node is None and name.startswith(attempt.id):
                path = f"{self._path}/{name}"
                stat = await persist(runtime, deadline, operations.exists, path)
                if stat is not None and stat.ephemeral_owner == runtime.session_id:
                    attempt.node, attempt.stat = path, stat
        return names

    async def _prune(self, attempt: Attempt, names: list[str], deadline: float | None) -> None:
        """Delete all children of the attempt but one: it would wait for the others."""
        for name in [name for name in names if name.startswith(attempt.id)]:
            path = f"{self._path}/{name}"
            if path != attempt.node:
                with contextlib.suppress(NoNodeError):
                    await persist(self._runtime, deadline, self._runtime.operations.delete, path)
                names.remove(name)

    async def _list(self, deadline: float | None, *, sync: bool = False) -> list[str]:
        """The children of the lock's node; none if it is gone."""
        runtime, operations = self._runtime, self._runtime.operations
        while True:
            synced = operations.sync(self._path) if sync else None
            listing = operations.get_children(self._path)
            try:
                if synced is not None:
                    await runtime.until(synced, deadline)
                return await runtime.until(listing, deadline)
            except NoNodeError:
                return []
            except ConnectionLossError:
                pass

    async def _step_back(self, attempt: Attempt, deadline: float | None) -> None:
        """Leave the queue and see it done, if that is possible in time."""
        assert attempt.node is not None
        try:
            await self._runtime.until(self._runtime.operations.delete(attempt.node), deadline)
        except NoNodeError:
            pass
        except (ConnectionLossError, OperationTimeoutError, *NOT_NOW):
            self._clean_up_after(attempt)
        attempt.entered = False

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        with contextlib.suppress(NoNodeError):
            if attempt.node is not None:
                await operations.delete(attempt.node)
                return
            for name in await newest(operations, operations.get_children, self._path):
                if name.startswith(attempt.id):
                    await operations.delete(f"{self._path}/{name}")

    def _name(self, attempt: Attempt) -> str:
        assert attempt.node is not None
        return attempt.node[len(self._path) + 1 :]

    def _check_sequence(self, attempt: Attempt) -> None:
        number = int(self._name(attempt)[len(attempt.id) + 1 + len(self._label) :])
        if not 0 <= number <= LAST_SEQUENCE - SPARE_NUMBERS:
            raise SequenceExhaustedError(
                f"{self._path}: the sequence counter stands at {number} and ends at "
                f"{LAST_SEQUENCE}; delete the node when it is not in use, or take another path"
            )


def of_kazoo(names: str) -> bool:
    """Whether nodes are to be named as kazoo names them; ValueError for an unknown way."""
    if names not in ("zkwire", "kazoo"):
        raise ValueError(f"names must be 'zkwire' or 'kazoo', not {names!r}")
    return names == "kazoo"


def encoded(text: str) -> bytes:
    """What stands in the node of a contender that shows ``text``."""
    try:
        return check_text("text", text).encode()
    except UnicodeEncodeError:
        raise ValueError(f"text contains a surrogate, which is no character: {text!r}") from None
