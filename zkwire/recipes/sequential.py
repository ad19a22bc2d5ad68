"""The fair lock: an ephemeral sequential child per contender, the lowest number holds.

Every other contender watches only the child right before its own.  A release wakes one waiter, in
order of arrival.  The death or the timeout of a contender also wakes a waiter, so a waiter that
wakes looks again instead of believing that it is its turn.  A waiter that had only one child ahead
does not have to look: no later child gets a lower number.  It watches its own child, too: if an
outsider has taken away its place in the queue, it learns that before the event of the other child.

If its owner lets no other client read a child, the child cannot be watched: since CVE-2024-23944,
servers keep its events from a client that may not read it, and later servers answer no ``exists``
of it either.  The waiter after such a child watches the list of all children.

**The child.**  A sequential create is not idempotent: repeating it blindly leaves an orphan in the
queue that blocks everything after it.  So the child's name has the session's id and the attempt's
id.  After a lost reply the child is looked up, with a ``sync`` before the listing, because the
server that answers may be behind the others.

    /path/<session id>-<attempt id>-lock-<sequence>

The create and the first listing leave in one write; the session's order makes the listing contain
the new child, so this costs one round trip.  A server before 3.5 refuses the kind of create that
answers with the stat, once for each connection; there a plain one is followed by a look.

``lock-`` and ten digits is what Curator, go-zookeeper and (told the pattern ``-lock-``) kazoo
understand, ``__lock__`` what kazoo does by itself.  Every child that ends in ten digits counts as a
contender here, whatever client has made it.  If such a child is not ephemeral, the waiter right
after it ends with an error instead of waiting without end.

The election is a queue of candidates, of which the first leads: leadership is a fair lock.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from functools import partial

from zkwire import errors
from zkwire.jute.record import Record
from zkwire.jute.records import ACL, Stat
from zkwire.operations.sequence import behind, highest_number, next_number, used_up
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes._node import (
    RETRYABLE,
    Attempt,
    OwnNodeWatch,
    encoded,
    former,
    is_permanent,
    permanent,
)
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.runtime import newest, runtime_of, unwrap_multi_error
from zkwire.session.waitable import Watch
from zkwire.wire.model import EventType
from zkwire.wire.paths import LAST_SEQUENCE, SEQUENCE_DIGITS, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, TypeAlias

    from zkwire.operations import Operations
    from zkwire.recipes.runtime import AsyncClientLike, Runtime

    Names: TypeAlias = Literal["zkwire", "kazoo"]

    Place = tuple[int, str]  # number and name of a contender

UNKNOWN = Stat(*[0] * 11)


class Contender(Record):
    """One contender: its place in the order, its session, and the text that it has left.

    The first is the holder of a lock, or the leader.  Of a node that may not be read ``text`` is
    None, and ``session_id`` is 0 where the server (3.8.4, 3.9.2 and later) hides that, too.
    """

    path: str
    sequence: int
    session_id: int
    text: str | None


async def contenders(runtime: Runtime, path: str, *, numbered: bool = True) -> list[Contender]:
    """The contenders below ``path`` in order; no snapshot, some may be gone by now.

    Without ``numbered`` each child is one, and the transaction that has made it is its number.
    Raises OperationTimeoutError after the ``operation_timeout`` (two session timeouts if the client
    has none).
    """
    deadline = runtime.in_time(None)
    try:
        names = await runtime.retry(deadline, runtime.operations.get_children, path)
    except errors.NoNodeError:
        return []
    numbers = {f"{path}/{name}": sequence_number(name) if numbered else 0 for name in names}
    replies = {
        n: runtime.operations.get_data(n) for n, number in numbers.items() if number is not None
    }
    found: list[Contender] = []
    for node, reply in replies.items():
        with suppress(errors.NoNodeError):  # gone meanwhile
            try:
                try:
                    data, stat = await runtime.until(reply, deadline)
                except errors.ConnectionLossError:
                    data, stat = await runtime.retry(deadline, runtime.operations.get_data, node)
            except errors.NoAuthError:
                text, stat = None, await _stat(runtime, deadline, node)
            else:
                text = data.decode("utf-8", "replace")
            number = numbers[node] or (0 if numbered else stat.czxid)
            found.append(Contender(node, number, stat.ephemeral_owner, text))
    return sorted(found, key=lambda contender: contender.sequence)


async def _stat(runtime: Runtime, deadline: float, node: str) -> Stat:
    """The stat of a node; all zeros if the server does not tell.  NoNodeError if it is gone."""
    try:
        stat = await runtime.retry(deadline, runtime.operations.exists, node)
    except errors.NoAuthError:
        return UNKNOWN
    if stat is None:
        raise errors.NoNodeError(op="exists", path=node)
    return stat


class Contended:
    """What contenders queue for, below its path."""

    _runtime: Runtime
    _path: str
    _numbered = True  # by a sequence number in the name of each

    async def contenders(self) -> list[Contender]:
        """The contenders in the queue, in order: session and text of each.  Not a snapshot.

        The first is the holder; so are all readers before the first writer.  (From a lease it is
        what :meth:`zkwire.Semaphore.holders` returns.)  It only reads, so you may repeat it after
        an error; a lost connection is not one.  OperationTimeoutError after the
        ``operation_timeout`` (two session timeouts if the client has none).
        """
        return await contenders(self._runtime, self._path, numbered=self._numbered)


# At the end of the counter a 3.8 server hands out the same number again and again, and two
# contenders would hold (DataTree.createNode).  Stop well before: others are creating at the same
# time.
SPARE_NUMBERS = 1000
_LAST_DIGITS = f"{LAST_SEQUENCE - SPARE_NUMBERS:010d}"


def of_kazoo(names: str) -> bool:
    """Whether nodes are to be named as kazoo names them; ValueError for an unknown way."""
    if names not in ("zkwire", "kazoo"):
        raise ValueError(f"names must be 'zkwire' or 'kazoo', not {names!r}")
    return names == "kazoo"


KAZOO = re.compile("[0-9a-f]{32}__r?lock__[0-9]{10}")
"""The name of a node of kazoo's locks."""


async def catch_up(runtime: Runtime, path: str, most: int, deadline: float | None) -> int:
    """Bring the counter of ``path`` past the names of its children; returns where it stands.

    NodeExistsError if more than ``most`` numbers are missing; nothing is changed then.  A lost
    connection is not an error, and uses up no number twice.  OperationTimeoutError at the deadline:
    the next call goes on from where this one was.
    """
    read = runtime.operations.get_children_with_stat
    names, stat = await runtime.retry(deadline, read, path)
    number, highest = next_number(stat.cversion, stat.num_children), highest_number(names)
    if number > highest:
        return number
    missing = highest + 1 - number
    if missing > most:
        message = f"{behind(path, number, highest)}; {missing} numbers are missing, and a client "
        message += f"uses up {most} at most by itself"
        raise errors.NodeExistsError(message, path=path)
    runtime.warn(f"{behind(path, number, highest)}: it is brought past that")
    while number <= highest:
        pairs = used_up(path, highest + 1 - number)
        try:
            used = runtime.operations.multi(pairs)
            await unwrap_multi_error(runtime.until, used, deadline)
            number += len(pairs) // 2
        except errors.ConnectionLossError:  # it may be executed
            number = await _counter(runtime, path, deadline)
    return number


async def _counter(runtime: Runtime, path: str, deadline: float | None) -> int:
    """Where the counter of ``path`` stands, after all that this client has asked for."""
    sync, exists = runtime.operations.sync, runtime.operations.exists
    _, stat = await runtime.answers(deadline, lambda: (sync(path), exists(path)))
    if stat is None:
        raise errors.NoNodeError(op="exists", path=path)
    return next_number(stat.cversion, stat.num_children)


class AsyncQueueLock(Contended, AsyncPathLock):
    """A lock whose contenders queue: a child of the path for each, with a ``_label`` and a number.

    ``text`` stands in the child.
    """

    _label = "lock-"
    _kazoo_label = "__lock__"
    _places = 1  # how many hold at a time
    _warned = False  # of kazoo's names
    _on_position: Callable[[int], object] | None = None

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        super().__init__(client, path, acl=acl)
        self._data = encoded(text)
        if of_kazoo(names):
            self._label = self._kazoo_label
            self._containers = False  # an object of kazoo's makes its path once

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """Create the attempt's child, exactly once; returns a list of children made after it.

        There is no stat yet where the server has no create2 (before 3.5).
        """
        runtime, operations = self._runtime, self._runtime.drafts
        path, plain = f"{self._path}/{attempt.id}-{self._label}", False
        while True:
            attempt.entered = True
            make = operations.create if plain else operations.create_with_stat
            create = make(path, self._data, self._acl, ephemeral=True, sequential=True)
            listing = operations.get_children(self._path)
            try:
                made = await runtime.exchange(deadline, create, listing)
                attempt.node, attempt.stat = (made, None) if plain else made
                self._check_sequence(attempt.node[len(path) :])
                return await runtime.until(listing, deadline)
            except errors.UnimplementedError:
                if plain:
                    raise
                plain = True
            except errors.NoNodeError:
                attempt.node = None
                await self._provide(self._path, deadline)
            except errors.ServerError:
                attempt.entered = attempt.node is not None
                raise
            except errors.ConnectionLossError as lost:
                if attempt.node is not None:
                    return await self._list(deadline)
                if isinstance(lost, errors.NotSentError):
                    continue
                names = await self._find(attempt, deadline)
                if attempt.node is not None:
                    self._check_sequence(attempt.node[len(path) :])
                    return names

    async def _find(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """Look for the child whose create was not answered; returns the children."""
        runtime, operations = self._runtime, self._runtime.operations
        names = await self._list(deadline, sync=True)
        for name in names:
            if attempt.node is None and name.startswith(attempt.id):
                path = f"{self._path}/{name}"
                stat = await runtime.retry(deadline, operations.exists, path)
                if stat is not None and stat.ephemeral_owner == runtime.session_id:
                    attempt.node, attempt.stat = path, stat
        return names

    async def _prune(self, attempt: Attempt, names: list[str], deadline: float | None) -> None:
        """Delete all children of the attempt but one: it would wait for the others."""
        own = self._name(attempt)
        for name in [name for name in names if name.startswith(attempt.id) and name != own]:
            await self._runtime.ensure_gone(deadline, f"{self._path}/{name}")
            names.remove(name)

    async def _list(self, deadline: float | None, *, sync: bool = False) -> list[str]:
        """The children of the lock's node; none if it is gone."""
        path, operations = self._path, self._runtime.operations
        asked = [operations.sync] * sync + [operations.get_children]
        try:
            found = await self._runtime.answers(deadline, lambda: [ask(path) for ask in asked])
        except errors.NoNodeError:
            return []
        return found[-1]

    async def _leave_queue(self, attempt: Attempt, deadline: float | None) -> None:
        """Leave the queue and see it done, if that is possible in time."""
        try:
            await self._runtime.until(self._runtime.operations.delete(attempt.node), deadline)
        except errors.NoNodeError:
            pass
        except (errors.ConnectionLossError, errors.OperationTimeoutError, *RETRYABLE):
            self._clean_up_after(attempt)
        attempt.entered = False

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        with suppress(errors.NoNodeError):
            if attempt.node is not None:
                await operations.delete(attempt.node)
                return
            for name in await newest(operations, operations.get_children, self._path):
                if name.startswith(attempt.id):
                    await operations.delete(f"{self._path}/{name}")

    def _name(self, attempt: Attempt) -> str:
        return attempt.node[len(self._path) + 1 :]

    def _check_sequence(self, digits: str) -> None:
        if not "0" <= digits <= _LAST_DIGITS:  # a number below 0 begins with a sign
            raise errors.SequenceExhaustedError(
                f"{self._path}: the sequence counter stands at {int(digits)} and ends at "
                f"{LAST_SEQUENCE}; delete the node when it is not in use, or take another path"
            )

    async def acquire(
        self, timeout: float | None = None, *, on_position: Callable[[int], object] | None = None
    ) -> bool:
        """Acquire the lock; True when it is held, False if ``timeout`` seconds pass first.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is not an error here: the client finds out on the next one
        whether its node was created, and goes on within the time limit.

        When this returns False, raises (SessionExpiredError, ClientClosedError, NoAuthError, ...)
        or is cancelled or interrupted, nothing is held, no node is left, and the caller may
        try again at once: the deletion has been asked for when this ends, and without a connection
        the node is deleted on the next one, or goes with the session.  If an error (a full stack,
        memory that has run out) keeps this call from asking for it, the client does so by itself,
        at once if it can, and at the latest with its next heartbeat.

        NodeExistsError names a node that it would wait for and that is not ephemeral.
        LockInUseError if this object holds the lock already, or is being acquired or released.

        ``on_position`` is called, in the client's callback thread or event loop, with the number of
        contenders ahead: when this one has its place in the queue, and whenever the one right ahead
        has gone.
        """
        if on_position is None:
            return await super().acquire(timeout)
        if not callable(on_position):
            raise TypeError(f"on_position must be callable, not {on_position!r}")
        self._refuse_two()  # or this call would take the listener of the other away
        self._on_position = on_position
        try:
            return await super().acquire(timeout)
        finally:
            self._on_position = None  # interrupt-safe: last, the lock may be held

    def _ahead(self, names: list[str], own: str) -> list[Place]:
        """The contenders to wait for, in no order; none if it is this one's turn."""
        return before(names, own)

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        names = await self._join(attempt, deadline)
        while True:
            own = self._name(attempt)
            if attempt.stat is None:  # the create has told none
                exists = self._runtime.operations.exists
                attempt.stat = await self._runtime.retry(deadline, exists, attempt.node)
            if own not in names or attempt.stat is None:
                # An outsider has deleted the node and with it the place in the queue.
                self._end_claim()
                attempt.node = None
                names = await self._join(attempt, deadline)
                continue
            ahead: list[Place] = []
            if len(names) > 1:
                await self._prune(attempt, names, deadline)
                ahead = self._ahead(names, own)
            if self._on_position is not None:
                self._runtime.dispatch(partial(self._on_position, len(before(names, own))))
            if not ahead:
                watch = self._own_watch
                if watch is not None and watch.refused and watch.request is not None:
                    await self._runtime.until(watch.request, deadline)  # raises it
                return True
            self._warn_of_kazoo(names)
            last = max(ahead)[1]
            if not (wait or last.startswith(attempt.pending_cleanups)):
                await self._leave_queue(attempt, deadline)
                await self._expect_one_to_go(ahead, deadline)
                return False
            self._seen_taken = True
            if self._runtime.session.resumed:
                in_the_way = [*(name for _, name in before(names, last)), last]
                await self._refuse_former(attempt, in_the_way, deadline)
            names = await self._look_again(attempt, names, ahead, deadline)

    async def _refuse_former(
        self, attempt: Attempt, names: list[str], deadline: float | None
    ) -> None:
        """Raise NodeExistsError if nodes from before this session was resumed take all places."""
        left = self._places
        for name in filter(attempt.is_former, names):
            path = f"{self._path}/{name}"
            stat = await self._runtime.retry(deadline, self._runtime.operations.exists, path)
            left -= stat is not None and stat.ephemeral_owner == self._runtime.session_id
            if left == 0:
                raise former(path)

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: list[Place], deadline: float | None
    ) -> list[str]:
        """The children, as soon as it may be this one's turn; ``names`` is what was seen.

        Takes out of both lists what a wait does not need: thousands may wait, each for long.
        """
        own, last = self._name(attempt), max(ahead)[1]
        is_next = len(ahead) == 1 and self._leaves_its_place(last)
        if is_next and self._own_watch is None:
            self._own_watch = OwnNodeWatch()
            self._watch_own_node(attempt, self._own_watch)
        connection = self._runtime.session.connection
        ahead[:] = [max(ahead)]
        names[:] = [own, *(name for _, name in before(names, own))] if is_next else [own, last]
        try:
            gone = await self._wait_for(last, deadline)
        except errors.NoAuthError:
            await self._expect_one_to_go(ahead, deadline)
            return await self._await_change(names, deadline)
        # After a reconnection events come in another order than the changes.
        if is_next and gone and connection is self._runtime.session.connection and self._lasts:
            return [name for name in names if name != last]
        return await self._list(deadline)

    def _leaves_its_place(self, ahead: str) -> bool:
        """Whether no contender to wait for can stand there later: a writer can leave a reader."""
        return ahead[:-SEQUENCE_DIGITS].endswith(f"-{self._label}")

    def _warn_of_kazoo(self, names: list[str]) -> None:
        """Say once that kazoo's locks on this path do not see this one."""
        if (
            self._label != self._kazoo_label
            and not self._warned
            and any(map(KAZOO.fullmatch, names))
        ):
            self._warned = True
            self._runtime.warn(
                f"{self._path}: locks of kazoo contend here, and do not see this lock unless they "
                f"were given extra_lock_patterns: both can hold at once; give it names='kazoo'"
            )

    async def _wait_for(self, ahead: str, deadline: float | None) -> bool:
        """Return when the contender ``ahead`` may be gone; True if it is."""
        path, watch = f"{self._path}/{ahead}", Watch()
        try:
            # get_data and not exists: it leaves no watch on a node that is gone.
            read = self._runtime.operations.get_data
            seen = await self._runtime.retry(deadline, read, path, watch=watch)
            if seen.stat.ephemeral_owner == 0:
                raise permanent(path)
            event = await self._runtime.event(watch, deadline)
            return event.type is EventType.NODE_DELETED
        except errors.NoNodeError:
            return True  # gone between the listing and the look: no event would come
        finally:
            watch.close()

    async def _expect_one_to_go(self, ahead: list[Place], deadline: float | None) -> None:
        """Raise NodeExistsError if a wait would never end: the one right ahead does not go."""
        node = f"{self._path}/{max(ahead)[1]}"
        if await is_permanent(self._runtime, deadline, node):
            raise permanent(node)

    async def _await_change(self, names: list[str], deadline: float | None) -> list[str]:
        """The children, as soon as they change, at once if one of ``names`` is not among them."""
        # Without a node all of it was deleted; the list will say so.
        with suppress(errors.NoNodeError), closing(Watch()) as watch:
            read = self._runtime.operations.get_children
            now = await self._runtime.retry(deadline, read, self._path, watch=watch)
            stand = set(names).issubset(now)
            del now
            if stand:
                await self._runtime.event(watch, deadline)
        return await self._list(deadline)

    async def _step_out(self, deadline: float | None) -> None:
        """Delete the node, if it is held, and see it done if possible in time.

        ``_release_in_background`` is to follow.
        """
        if self._granted is not None:
            await self._leave_queue(self._granted, deadline)

    @property
    def _node_name(self) -> str | None:
        """The name of the node while the lock is held."""
        return None if self._granted is None else self._name(self._granted)


class AsyncSequentialLock(AsyncQueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

        async with AsyncSequentialLock(client, "/locks/report") as lock:
            await storage.write(data, fence=lock.fence)  # yours to write

    A lost connection is not an error: a waiter keeps its place in the queue and a holder keeps the
    lock, as long as their session lives; ``held`` turns False when the lease ends, at the latest.

    Not re-entrant, and one object is for one contender: tasks that compete need one each.
    ``text`` is shown to others, see :meth:`contenders`.  ``names="kazoo"`` names the nodes as
    kazoo's own locks do, because these see no others: all contenders on such a path must be
    kazoo's, or have this argument.
    ``acl``: for its nodes and for the missing ones above, which the server removes when they are
    empty (None: the client's ``default_acl``).  It protects nothing that exists already.

    **What it can promise.**  ``held`` is True for at most one contender at any moment, with these
    exceptions:

    * An outsider deletes a holder's node or ends its session: ``held`` stays True until the holder
      hears of it.
    * A holder's server is cut off from its leader: it goes on answering for up to syncLimit times
      tickTime, and meanwhile the leader may end the session.
    * A holder's server crashes right after an answer, and the client has no ``lease_margin``.

    :mod:`zkwire.session.liveness` says more about the last two.  No lock can stop a process that
    pauses between looking at ``held`` and acting on it.  So give ``fence`` to whatever the lock
    guards, and have that refuse a fence lower than one it has seen.
    """


AsyncLock = AsyncSequentialLock


class OrderQueue(AsyncQueueLock):
    """A lock for order and quiet alone: its node is not watched, since its loss changes nothing."""

    def _watch_own_node_later(self, attempt: Attempt) -> None:
        pass


def before(names: list[str], own: str) -> list[Place]:
    """The contenders before ``own``, in no order, each with its number.

    Order is by number alone: prefixes differ between sessions and between implementations
    (ZOOKEEPER-2931).  Children that end in no sequence number are not contenders.
    """
    digits = own[-SEQUENCE_DIGITS:]  # all numbers have as many, so their texts have their order
    return [
        (number, name)
        for name in names
        if name[-SEQUENCE_DIGITS:] < digits and (number := sequence_number(name)) is not None
    ]


class Queued(HasPath):
    """What has fair locks, or others with a queue, on one path."""

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._runtime = runtime_of(client)
        self._new: Callable[[type[Any]], Any] = lambda kind: kind(
            client, path, text, acl=acl, names=names
        )
        self._path: str = self._new(AsyncSequentialLock)._path  # which checks the arguments
        self._make()

    def _make(self) -> None:
        """Make what else there is."""


class AsyncElection(Queued):
    """One leader at a time; leadership is lost exactly as a lock is.

        election = AsyncElection(client, "/election", "worker-7")
        async with election.lead() as leadership, leadership.cancel_on_loss():
            ...

    ``text`` tells others which candidate this is.
    """

    def lead(self) -> AsyncSequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter or acquire it to run."""
        return self._new(AsyncSequentialLock)

    async def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot.

        It only reads, so you may repeat it after an error; a lost connection is not one.
        OperationTimeoutError after the ``operation_timeout`` (two session timeouts if the client
        has none).
        """
        return await contenders(self._runtime, self._path)

    async def leader(self) -> Contender | None:
        """The leader at this moment, as far as the server that was asked knows; None if none.

        Errors are those of :meth:`candidates`.
        """
        return next(iter(await self.candidates()), None)
