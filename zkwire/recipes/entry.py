"""A node of one's own: made for one attempt, and cleaned up for certain.

It decides what happens to a node that an attempt may have left: a clean-up that is repeated on
every connection, and after each refusal, until it is done or the session is over.  What the node
means, how it is made and
how it is found again is a subclass's matter.

Invariants:

* A clean-up is bound to this session and to the attempt's own id, so it can never touch a node of
  another attempt's.  Its first request is on its way when the call returns, before anything that
  the caller asks for next.
* An attempt is ``_pending_cleanup`` until that clean-up has it.  If something keeps the caller from
  handing it over (a full stack, memory that has run out), the next call of the object does it, or
  a thread of the client's own, soon.
* Nothing awaits in the handling of an interrupt or a cancellation.  An interrupt that comes while
  something is cleaned up is raised when that is done.
"""

from __future__ import annotations

import contextlib
from functools import partial

from zkwire.errors import (
    BUSY,
    BadVersionError,
    ConnectionLossError,
    NoNodeError,
    NotReadOnlyError,
    OperationTimeoutError,
    ServerError,
    ZooKeeperError,
)
from zkwire.operations.checks import check_acl
from zkwire.recipes.insist import insist
from zkwire.recipes.runtime import one_refusal
from zkwire.recipes.trees import ensure_path
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.runtime import Runtime


FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between a deletion that was refused and the next try: doubled each time."""


class Entry:
    """The attempts of one object on one path, of which at most one may have left a node."""

    _kept = "/"  # a parent that stays when its last child has gone
    _containers = True  # the others go

    def __init__(self, runtime: Runtime, path: str, acl: Sequence[ACL] | None = None) -> None:
        self._runtime = runtime
        self._path = check_below_root(path, "a lock")
        self._acl = None if acl is None else check_acl(acl)  # None: the client's own
        self._busy = False  # an attempt is being made
        self._releasing = False
        self._pending_cleanup: Attempt | None = None  # may have left a node that is in no hands

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        """Delete whatever the attempt has left on the server, if that is its own.

        Raises ConnectionLossError and what the server refuses it with.
        """
        raise NotImplementedError

    def _end_claim(self) -> None:
        """From here on the attempt means nothing any more: called before its node is deleted."""

    def _part_with_claim(self) -> Callable[[], None]:
        """Be ready for another attempt; called under the mutex.

        Returns what then ends the claim of the one before, while that other may begin.
        """
        return self._end_claim

    @property
    def _owned(self) -> bool:
        """Whether the node of an attempt that succeeded is still wanted."""
        raise NotImplementedError

    @property
    def _engaged(self) -> bool:
        """Whether a node of it may stand on the server that no clean-up takes care of."""
        pending = self._pending_cleanup is not None
        return pending or self._busy or self._releasing or self._owned

    def _disengage(self) -> None:
        """At the end of a call: leave to the client what this could not hand over."""
        if self._pending_cleanup is not None and not (self._busy or self._releasing):
            self._runtime.unfinished = True
            self._runtime.wake()
        elif not self._engaged:
            self._runtime.engaged.discard(self)

    async def _provide(self, path: str, deadline: float | None) -> None:
        """Create what is missing of a path, however long that takes if there is no deadline.

        The server removes these nodes when they have no child any more, perhaps before the caller
        has one: then its create ends with NoNodeError, and this is to be repeated.
        """
        while True:
            try:
                await ensure_path(
                    self._runtime,
                    path,
                    self._acl,
                    deadline,
                    containers=self._containers,
                    kept=self._kept,
                )
                return
            except OperationTimeoutError:
                if deadline is not None:
                    raise

    def _resume_cleanup(self) -> None:
        """Clean up what an interrupt, or an error, has kept from being cleaned up."""
        if self._busy or self._releasing:
            return  # that call leaves nothing behind
        try:
            self._clean_up_pending()
        finally:
            self._disengage()

    def _take_over(self) -> None:
        """The same, by a thread of the client's own, which nothing interrupts.

        The next call of this object may come at any moment of it.
        """
        with self._runtime.mutex:
            attempt = self._pending_cleanup
            if self._busy or self._releasing or attempt is None:
                return
            end_claim = self._part_with_claim()
            if attempt.entered:
                self._runtime.going.add(attempt.id)
            self._pending_cleanup = None
            self._disengage()
        with contextlib.suppress(ZooKeeperError):
            end_claim()
            if attempt.entered:
                self._runtime.spawn(partial(self._clean_up, attempt=attempt))

    def _clean_up_pending(self) -> None:
        """Clean up after an attempt that did not end well."""
        if self._pending_cleanup is not None:
            self._clean_up_after(self._pending_cleanup)

    def _clean_up_after(self, attempt: Attempt) -> None:
        """Clean up after an attempt, in the background; called where nothing may await."""
        self._pending_cleanup = attempt
        insist(partial(self._hand_over, attempt))

    def _hand_over(self, attempt: Attempt) -> None:
        # What is over ends the session's nodes, too.
        with contextlib.suppress(ZooKeeperError):
            self._end_claim()
            if attempt.entered:
                self._runtime.going.add(attempt.id)
                self._runtime.spawn(partial(self._clean_up, attempt=attempt))
        self._pending_cleanup = None

    async def _clean_up(self, operations: Operations, attempt: Attempt) -> None:
        try:
            await self._leave_surely(operations, attempt)
        finally:
            self._runtime.going.discard(attempt.id)

    async def _leave_surely(self, operations: Operations, attempt: Attempt) -> None:
        refusals = 0
        while True:
            try:
                await one_refusal(self._leave, operations, attempt)
                return
            except (ConnectionLossError, BadVersionError):
                pass  # on the next connection, for which each try waits; or after another look
            except NotReadOnlyError:
                await self._runtime.another_state()
            except BUSY:
                pass  # a server that takes its time to refuse is asked again at once
            except NoNodeError:
                return
            except ServerError as refusal:
                if not refusals:
                    self._not_left(attempt, refusal)
                refusals += 1
                await self._pause(refusals)
            except ZooKeeperError:
                return  # the session is over, and the node with it

    def _not_left(self, attempt: Attempt, refusal: ServerError) -> None:
        """A server refuses to delete the node: contenders need not wait for the next try."""
        self._runtime.going.discard(attempt.id)
        self._runtime.warn(
            f"{self._path}: a node stays until this session ends, or until a server no longer "
            f"refuses to delete it, which is tried again: {refusal}"
        )

    async def _pause(self, refusals: int) -> None:
        """Let some time pass, longer after each refusal."""
        runtime, seconds = self._runtime, min(FIRST_PAUSE * 2 ** (refusals - 1), LONGEST_PAUSE)
        with contextlib.suppress(ZooKeeperError):  # the next try raises what has ended the session
            await runtime.pause(seconds * runtime.jitter())
