"""A node of one's own: made for one attempt, and cleaned up for certain.

It decides what happens to a node that an attempt may have left: a clean-up that is repeated on
every connection, and after each refusal, until it is done or the session is over.  What the node
means, how it is made and how it is found again is a subclass's matter.

Invariants:

* An attempt's id is unlike that of any other attempt in the world, and it stands in the name or the
  data of each node that is made for the attempt.
* A clean-up is bound to this session and to the attempt's own id, so it can never touch the node of
  another attempt.  Its first request is on its way when the call returns, before anything that
  the caller asks for next.
* An attempt is ``_pending_cleanup`` until that clean-up has it.  If something keeps the caller from
  handing it over (a full stack, memory that has run out), the next call of the object does it, or
  a thread of the client's own, soon.
* Nothing awaits in the handling of an interrupt or a cancellation.  An interrupt that comes while
  something is cleaned up is raised when that is done.

**An idempotency token** is a node of one's own that tells, after a lost reply, whether a change was
made.  A multi makes a change and writes a value, which no other change has, into an ephemeral node,
the token.  The token belongs to this client, and only one call uses it at a time.  Each try of a
change names the same version of the token, so only one try can take effect, even if a try arrives
late; and one look at the token says whether a try has taken effect.  The token's mzxid is the zxid
of the change.  To look for what the change has made would not tell: another client may have removed
it by then.

A client keeps the tokens that no call uses, ``KEPT`` of them at most, for the next calls.  A token
whose state is unknown is deleted.  All tokens go with the session.  Only the client itself should
delete its tokens.  If an outsider deletes one, a change that is in doubt raises an error that says
so; but a change that had to make its token may then be made twice.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, partial

from zkwire import errors
from zkwire.operations.multi import Create, Operation, SetData
from zkwire.operations.nodes import check_acl, check_text
from zkwire.recipes._recipe import Lost, shield_from_interrupts
from zkwire.recipes._service import Problem
from zkwire.recipes.runtime import CHANGED, runtime_of, unwrap_multi_error
from zkwire.session.waitable import Watch
from zkwire.wire.model import Event, EventType, State
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations import Operations, Reply
    from zkwire.recipes.runtime import AsyncClientLike, Runtime


RETRYABLE = (*errors.BUSY, errors.NotReadOnlyError)
"""Refusals that say nothing about the node."""


@lru_cache(maxsize=64)
def _in_names(session_id: int) -> str:
    """A session's id as it stands in the names of nodes."""
    return f"{session_id & 0xFFFFFFFFFFFFFFFF:016x}"


class Attempt:
    """One try to get the lock: its id, and what is known of its node.

    The id begins with the session's; then comes what all attempts of a client begin with.
    ``pending_cleanups``: attempts of the same client that were being cleaned up when this began.
    """

    __slots__ = ("entered", "id", "node", "pending_cleanups", "stat")
    _SESSION, _CLIENT = 17, 33  # characters

    def __init__(self, runtime: Runtime) -> None:
        self.id: str = f"{_in_names(runtime.session.session_id)}-{runtime.unique()}"
        self.pending_cleanups: tuple[str, ...] = (*runtime.pending_cleanups,)
        self.entered: bool = False  # a create may be on its way, or done
        self.node: Any = None  # its path, and its stat, when they are known
        self.stat: Any = None

    def is_former(self, other: str) -> bool:
        """Whether the id is of this session and another client: from before it was resumed."""
        return other.startswith(self.id[: self._SESSION]) and not other.startswith(
            self.id[: self._CLIENT]
        )


def former(path: str) -> errors.NodeExistsError:
    """The error for a node that lives as long as the very session that would wait for its end."""
    return errors.NodeExistsError(
        f"{path} is this session's own, from before this client has resumed it, and stays as long "
        "as the session: delete it if no work is done under it any more",
        path=path,
    )


def permanent(path: str) -> errors.NodeExistsError:
    """The error for a node that does not end with a session: to wait for its end has no end."""
    message = f"{path} is no lock: the node there is not ephemeral, and does not go by itself"
    return errors.NodeExistsError(message, path=path)


async def is_permanent(runtime: Runtime, deadline: float | None, path: str) -> bool:
    """Whether the node at the path is seen not to be ephemeral.

    False if the connection is lost or the time is over.  From 3.8.4 and 3.9.2 on, a server shows
    the owner of a node only to clients that may read the node.
    """
    with suppress(errors.ConnectionLossError, errors.NoAuthError, errors.OperationTimeoutError):
        stat = await runtime.until(runtime.operations.exists(path), deadline)
        return stat is not None and stat.ephemeral_owner == 0
    return False


def encoded(text: str) -> bytes:
    """What stands in the node of a contender that shows ``text``."""
    try:
        return check_text("text", text).encode()
    except UnicodeEncodeError:
        raise ValueError(f"text contains a surrogate, which is no character: {text!r}") from None


class OwnNodeWatch(Watch):
    """The watch of a holder, or of the next one in line, on its own node.

    What deletes it takes the lock away, or the place: ``gone``; so it is if the watch is refused.
    ``lost`` is for a holder.  ``stands``: its ``request`` has been asked for, or is just being.
    """

    __slots__ = ("gone", "lost", "refused", "request", "stands")

    def __init__(self) -> None:
        super().__init__()
        self.gone: bool = False
        self.refused: bool = False
        self.lost: Lost | None = None
        self.stands: bool = False
        self.request: Reply[object] | None = None

    def dismiss(self) -> None:
        """From here on it is not to be asked for."""
        self._closed = True

    def _deliver(self, event: Event) -> None:
        """Lose the lock: whatever has happened to the children, the node is not this lock's.

        An ephemeral node has none.  After a reconnection NODE_CHILDREN_CHANGED means that the node
        has been deleted and made anew by another contender.
        """
        self.refused = event.type is EventType.CHILD_WATCH_REMOVED
        self.gone = True  # first: a caller that becomes a holder meanwhile says so, and then looks
        if self.lost is not None:
            what = "may not be watched" if self.refused else "was deleted"
            self._wakers = (*self._wakers, *self.lost._lose(f"its node {event.path} {what}"))

    def _end(self, state: State, error: Callable[[], errors.ZooKeeperError]) -> None:
        """The end of the session reaches the lock as a hold."""


class OwnedNode:
    """The attempts of one object on one path, of which at most one may have left a node."""

    _kept = "/"  # a parent that stays when its last child has gone
    _containers = True  # the others go

    def __init__(
        self, client: AsyncClientLike, path: str, *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._runtime = runtime_of(client)
        self._path = check_below_root(path, "a lock")
        self._acl = None if acl is None else check_acl(acl)  # None: the client's own
        self._busy = False  # an attempt is being made
        self._releasing = False
        self._granted: Attempt | None = None  # that has succeeded, and whose node is wanted
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
        return self._granted is not None

    def _release_in_background(self) -> None:
        if not (self._busy or self._releasing) and self._granted is not None:
            self._pending_cleanup, self._granted = self._granted, None
        self._resume_cleanup()

    @property
    def _is_active(self) -> bool:
        """Whether a node of it may stand on the server that no clean-up takes care of."""
        has_node = self._pending_cleanup is not None or self._granted is not None
        return has_node or self._busy or self._releasing

    def _set_inactive(self) -> None:
        """At the end of a call: leave to the client what this could not hand over."""
        if self._pending_cleanup is not None and not (self._busy or self._releasing):
            self._runtime.unfinished = True
            self._runtime.wake()
        elif not self._is_active:
            self._runtime.active_locks.discard(self)

    async def _provide(self, path: str, deadline: float | None) -> None:
        """Create what is missing of a path, however long that takes if there is no deadline.

        The server removes these nodes when they have no child any more, perhaps before the caller
        has one: then its create ends with NoNodeError, and this is to be repeated.
        """
        ensure = partial(self._runtime.ensure_path, containers=self._containers, kept=self._kept)
        while True:
            try:
                return await ensure(path, self._acl, deadline)
            except errors.OperationTimeoutError:
                if deadline is not None:
                    raise

    def _resume_cleanup(self) -> None:
        """Clean up what an interrupt, or an error, has kept from being cleaned up."""
        if self._busy or self._releasing:
            return  # that call leaves nothing behind
        try:
            self._clean_up_pending()
        finally:
            self._set_inactive()

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
                self._runtime.pending_cleanups.add(attempt.id)
            self._pending_cleanup = None
            self._set_inactive()
        with suppress(errors.ZooKeeperError):
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
        shield_from_interrupts(partial(self._hand_over, attempt))

    def _hand_over(self, attempt: Attempt) -> None:
        # What is over ends the session's nodes, too.
        with suppress(errors.ZooKeeperError):
            self._end_claim()
            if attempt.entered:
                self._runtime.pending_cleanups.add(attempt.id)
                self._runtime.spawn(partial(self._clean_up, attempt=attempt))
        self._pending_cleanup = None

    async def _clean_up(self, operations: Operations, attempt: Attempt) -> None:
        """Delete what the attempt has left, until it is gone or the session is over."""
        runtime = self._runtime
        problem = Problem(None, runtime.dispatch)
        try:
            while True:
                try:
                    await unwrap_multi_error(self._leave, operations, attempt)
                    return
                except (errors.ConnectionLossError, errors.BadVersionError):
                    pass  # on the next connection, for which each try waits; or after another look
                except errors.NotReadOnlyError:
                    await runtime.another_state()
                except errors.BUSY:
                    pass  # a server that takes its time to refuse is asked again at once
                except errors.NoNodeError:
                    return
                except errors.ServerError as refusal:
                    runtime.pending_cleanups.discard(attempt.id)  # contenders need not wait for it
                    what = (
                        f"{self._path}: a node stays until this session ends, or until a server "
                        "no longer refuses to delete it, which is tried again"
                    )
                    pause = problem.stands(what, refusal, runtime.warn)
                    # The next try raises what has ended the session.
                    with suppress(errors.ZooKeeperError):
                        await runtime.pause(pause * runtime.jitter())
                except errors.ZooKeeperError:
                    return  # the session is over, and the node with it
        finally:
            runtime.pending_cleanups.discard(attempt.id)


KEPT = 64
USES = 1_000_000
"""Of one token: a version has 31 bits."""


class Token(Attempt):
    """A token in one folder; ``version`` is -1 while it is not there.

    ``in_doubt``: its state is unknown.  ``seen``: what a change has left for the next one to begin
    with, the data and version of the folder's own node.
    """

    __slots__ = ("folder", "in_doubt", "seen", "version")

    def __init__(self, runtime: Runtime, folder: str) -> None:
        super().__init__(runtime)
        self.folder: str = folder
        self.node = f"{folder}/{self.id}-mark"
        self.version: int = -1
        self.in_doubt: bool = False
        self.seen: tuple[bytes, int] | None = None

    def written(self, value: bytes, acl: Sequence[ACL] | None) -> list[Operation]:
        """What writes the value into it; the last of these has a stat for its result."""
        node = self.node
        if self.version >= 0:
            return [SetData(node, value, self.version)]
        return [Create(node, b"", acl, ephemeral=True), SetData(node, value, 0)]


class TokenPool(OwnedNode):
    """The tokens of one client in one folder."""

    async def acquire(self, deadline: float | None) -> Token:
        """A token that no other call uses; :meth:`release` is to follow."""
        await self._runtime.connected(deadline)  # its name begins with the session
        return self._take() or Token(self._runtime, self._path)

    def _take(self) -> Token | None:
        idle = self._runtime.idle_tokens
        for token in reversed(tuple(idle)):
            if token.folder == self._path:
                with suppress(ValueError):  # another thread has taken it
                    idle.remove(token)
                    return token
        return None

    def release(self, token: Token) -> None:
        """The call is over: the token is for the next one if it is there for sure."""
        idle = self._runtime.idle_tokens
        if token.in_doubt or token.version > USES:
            self._clean_up_after(token)
        elif token.version >= 0:
            idle.append(token)
        if len(idle) > KEPT:
            with suppress(IndexError):  # other threads have taken them
                self._clean_up_after(idle.pop(0))

    async def execute(
        self, token: Token, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        """Execute the operations exactly once; returns their results and the zxid.

        There are no results after a lost reply.  The zxid is 0 if an outsider has written into the
        token since.  MultiError if one of the operations is refused, NoNodeError if an outsider has
        deleted the token, or written into it, or if there is no folder: nothing was executed.  Any
        other error says by ``maybe_applied`` whether the operations may have been executed.
        """
        runtime, value = self._runtime, self._runtime.unique().encode()
        marking = token.written(value, self._acl)
        steps = [*operations, *marking]  # an operation may have several results
        tried = doubt = False
        refusal: errors.MultiError | None = None
        token.entered = token.in_doubt = True
        try:
            while True:
                try:
                    results = await runtime.exchange(deadline, runtime.drafts.multi(steps))
                    return self._done(token, results[-1], results[: -len(marking)])
                except errors.NotSentError:
                    continue
                except errors.BUSY as error:
                    # A server that takes its time to refuse is asked again.
                    tried, doubt = True, doubt or error.maybe_applied
                    continue
                except errors.OutcomeUnknownError:
                    tried = doubt = True
                except errors.MultiError as error:
                    refusal = error
                if tried:
                    stat = await self._look(token, value, deadline)
                    if stat is not None:
                        return self._done(token, stat, [])
                    doubt = False
                else:
                    token.entered, token.in_doubt = token.version >= 0, False
                if refusal is not None:
                    raise _meaning(refusal, len(refusal.results) - len(marking), token)
        except errors.ZooKeeperError as error:
            error.maybe_applied = error.maybe_applied or doubt
            raise
        finally:
            refusal = None  # or else its traceback leads back to it

    def _done(self, token: Token, stat: Stat, results: list[Any]) -> tuple[list[Any], int]:
        zxid = stat.mzxid if stat.version == max(0, token.version) + 1 else 0
        token.version, token.in_doubt = stat.version, False
        return results, zxid

    async def _look(self, token: Token, value: bytes, deadline: float | None) -> Stat | None:
        """The token's stat if the change has been made."""
        operations, node = self._runtime.operations, token.node or ""
        while True:
            # sync: a server that is behind could still show the token as it was before.
            synced, read = operations.sync(node), operations.get_data(node)
            try:
                await self._runtime.until(synced, deadline)
                data, stat = await self._runtime.until(read, deadline)
                return stat if data == value else None
            except errors.ConnectionLossError:
                continue
            except errors.OperationTimeoutError:
                self._runtime.withdraw(read)
                raise
            except errors.NoNodeError:
                if token.version < 0:
                    return None
                raise errors.OutcomeUnknownError(
                    "its mark was deleted, perhaps with all of the node: read it and decide",
                    path=self._path,
                ) from None

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        await operations.delete(attempt.node)


def _meaning(refusal: errors.MultiError, count: int, token: Token) -> errors.ZooKeeperError:
    """The refusal itself if it is among the first ``count``, else what the token's is."""
    if refusal.index < count:
        return refusal
    error = refusal._culprit
    if isinstance(error, CHANGED):
        return errors.NoNodeError(path=token.node)
    return error


class TemporaryTokens(TokenPool):
    """Tokens in a folder of their own, deleted some milliseconds after the last call.

    The folder goes with its last token; ``_kept``, which is above it, stays.  No change depends on
    what an earlier change has left.  So a token that an outsider has deleted is made anew, and a
    token that an outsider has written into is used as it is.
    """

    async def execute(
        self, token: Token, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        while True:
            try:
                return await super().execute(token, operations, deadline)
            except errors.NoNodeError:
                look = self._runtime.operations.exists
                stat = await self._runtime.retry(deadline, look, token.node)
                token.version = -1 if stat is None else stat.version
                await self.make(token, deadline)

    async def make(self, token: Token, deadline: float | None) -> None:
        """Create the token if it is not there: so its first change is as certain as later ones."""
        create, node = self._runtime.operations.create, token.node
        try:
            while token.version < 0:
                token.entered = token.in_doubt = True
                try:
                    await self._runtime.retry(deadline, create, node, acl=self._acl, ephemeral=True)
                except errors.NodeExistsError:
                    pass  # made by a try whose reply was lost
                except errors.NoNodeError:
                    await self._provide(self._path, deadline)
                    continue
                token.version, token.in_doubt = 0, False
        except errors.ZooKeeperError as error:
            error.maybe_applied = False  # but for the token itself
            raise

    def release(self, token: Token) -> None:
        super().release(token)
        with suppress(errors.ZooKeeperError):  # the session is over, and its tokens with it
            self._runtime.check_open()
            self._runtime.defer(self._tidy)

    def _tidy(self) -> None:
        while (token := self._take()) is not None:
            self._clean_up_after(token)
