"""The fair lock: an ephemeral sequential child per contender, the lowest number holds.

Every other contender watches only the child right before its own.  A release wakes one waiter, in
order of arrival; so does the death or the timeout of a contender, which is why a waiter that wakes
looks again instead of believing that it is its turn.  The one that had only one child ahead need
not: no later child gets a lower number.  It watches its own child too, so that it would know,
before that event, if an outsider had taken away its place in the queue.

A child that its owner lets no other read cannot be watched: since CVE-2024-23944 servers keep its
events from a client that may not read it, and later ones answer no ``exists`` of it.  Behind such a
child the waiter watches the list of all.

How the child is created and found is in :mod:`zkwire.recipes.locks.sequential_entry`.  ``lock-``
and ten digits is what Curator, go-zookeeper and (told the pattern ``-lock-``) kazoo understand,
``__lock__`` what kazoo does by itself.  Every child that ends in ten digits counts as a contender
here, whatever client has made it.  The waiter right behind one that is not ephemeral ends with an
error instead of waiting for ever.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from functools import partial

from zkwire.errors import NoAuthError, NoNodeError
from zkwire.recipes.attempt import Attempt, former, is_permanent, permanent
from zkwire.recipes.locks.contenders import Contended
from zkwire.recipes.locks.lock import AsyncPathLock
from zkwire.recipes.locks.sequential_entry import SequentialEntry
from zkwire.recipes.lost import OwnNodeWatch
from zkwire.recipes.runtime import persist, runtime_of
from zkwire.session.watch import Watch
from zkwire.wire.model import EventType
from zkwire.wire.paths import SEQUENCE_DIGITS, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.sequential_entry import Names
    from zkwire.recipes.runtime import AsyncClientLike

    Place = tuple[int, str]  # number and name of a contender


KAZOO = re.compile("[0-9a-f]{32}__r?lock__[0-9]{10}")
"""The name of a node of kazoo's locks."""


class AsyncQueueLock(Contended, SequentialEntry, AsyncPathLock):
    """A lock whose contenders queue, each with a node of its own."""

    _places = 1  # how many hold at a time
    _warned = False  # of kazoo's names
    _on_position: Callable[[int], object] | None = None

    async def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: Callable[[int], object] | None = None,
    ) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is no error here: the client finds out on the next one
        whether its node was created, and goes on within the time limit.

        When this returns False, raises (SessionExpiredError, ClientClosedError, NoAuthError, ...)
        or is cancelled or interrupted, nothing is held, no node stays behind, and the caller may
        try again at once: the deletion has been asked for when this ends, and without a connection
        the node is deleted on the next one, or goes with the session.  What an error keeps from
        being asked for (a full stack, memory that has run out) the client asks for by itself, at
        once if it can, and at the latest with its next heartbeat.

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
            if own not in names:
                # An outsider has deleted the node and with it the place in the queue.
                self._end_claim()
                attempt.node = None
                names = await self._join(attempt, deadline)
                continue
            await self._prune(attempt, names, deadline)
            self._tell_position(names, own)
            ahead = self._ahead(names, own)
            if not ahead:
                await self._see_guard(deadline)
                return True
            self._warn_of_kazoo(names)
            last = max(ahead)[1]
            if not (wait or last.startswith(attempt.going)):
                await self._step_back(attempt, deadline)
                await self._expect_one_to_go(ahead, deadline)
                return False
            self._seen_taken = True
            if self._runtime.resumed:
                in_the_way = [*(name for _, name in before(names, last)), last]
                await self._refuse_former(attempt, in_the_way, deadline)
            names = await self._look_again(attempt, names, ahead, deadline)

    async def _see_guard(self, deadline: float | None) -> None:
        """Raise what the watch of the own node was refused with, if it was, while this waited."""
        guard = self._guard
        if guard is not None and guard.refused and guard.request is not None:
            await self._runtime.until(guard.request, deadline)

    async def _refuse_former(
        self, attempt: Attempt, names: list[str], deadline: float | None
    ) -> None:
        """Raise NodeExistsError if nodes from before this session was resumed take all places."""
        left = self._places
        for name in filter(attempt.is_former, names):
            path = f"{self._path}/{name}"
            stat = await persist(self._runtime, deadline, self._runtime.operations.exists, path)
            left -= stat is not None and stat.ephemeral_owner == self._runtime.session_id
            if left == 0:
                raise former(path)

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: list[Place], deadline: float | None
    ) -> list[str]:
        """The children, as soon as it may be this one's turn; ``names`` is what was seen."""
        last = max(ahead)[1]
        is_next = len(ahead) == 1 and self._leaves_its_place(last)
        if is_next and self._guard is None:
            self._guard = OwnNodeWatch()
            self._stand_guard(attempt, self._guard)
        connection = self._runtime.connection
        try:
            gone = await self._wait_for(last, deadline)
        except NoAuthError:
            await self._expect_one_to_go(ahead, deadline)
            return await self._await_change(names, deadline)
        # After a reconnection events come in another order than the changes.
        if is_next and gone and connection is self._runtime.connection and self._lasts:
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

    def _tell_position(self, names: list[str], own: str) -> None:
        if self._on_position is not None:
            self._runtime.dispatch(partial(self._on_position, len(before(names, own))))

    async def _wait_for(self, ahead: str, deadline: float | None) -> bool:
        """Return when the contender ``ahead`` may be gone; True if it is."""
        path, watch = f"{self._path}/{ahead}", Watch()
        try:
            # get_data and not exists: it leaves no watch behind on a node that is gone.
            read = self._runtime.operations.get_data
            seen = await persist(self._runtime, deadline, read, path, watch=watch)
            if seen.stat.ephemeral_owner == 0:
                raise permanent(path)
            event = await self._runtime.event(watch, deadline)
            if event is None:
                raise self._taken_error(deadline)
            return event.type is EventType.NODE_DELETED
        except NoNodeError:
            return True  # gone between the listing and the look: no event would come
        finally:
            watch.close()

    async def _expect_one_to_go(self, ahead: list[Place], deadline: float | None) -> None:
        """Raise NodeExistsError if a wait would never end: the one right ahead does not go."""
        node = f"{self._path}/{max(ahead)[1]}"
        if await is_permanent(self._runtime, deadline, node):
            raise permanent(node)

    async def _await_change(self, names: list[str], deadline: float | None) -> list[str]:
        """The children, as soon as they are others than ``names``."""
        # Without a node all of it was deleted; the list will say so.
        with suppress(NoNodeError), closing(Watch()) as watch:
            read = self._runtime.operations.get_children
            now = await persist(self._runtime, deadline, read, self._path, watch=watch)
            if sorted(now) == sorted(names) and not await self._runtime.event(watch, deadline):
                raise self._taken_error(deadline)
        return await self._list(deadline)

    async def _step_out(self, deadline: float | None) -> None:
        """Delete the node, if it is held, and see it done if possible in time.

        ``_release_later`` is to follow.
        """
        if self._granted is not None:
            await self._step_back(self._granted, deadline)

    @property
    def _node_name(self) -> str | None:
        """The name of the node while the lock is held."""
        return None if self._granted is None else self._name(self._granted)


class AsyncSequentialLock(AsyncQueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

        async with AsyncSequentialLock(client, "/locks/report") as lock:
            await storage.write(data, fence=lock.fence)

    A lost connection is no error: a waiter keeps its place in the queue and a holder the lock, as
    long as their session lives; ``held`` is False when the lease ends, at the latest.

    Not re-entrant, and one object is for one contender: tasks that compete need one each.
    ``text`` is shown to others, see :meth:`contenders`.  ``names="kazoo"`` names the nodes as
    kazoo's own locks do, which see no others: each contender on such a path then needs it, or
    kazoo.
    ``acl``: for its nodes and for the missing ones above, which the server removes when they are
    empty (None: the client's ``default_acl``).  It protects nothing that exists already.

    **What it can promise.**  At most one contender's ``held`` is True at any moment, unless an
    outsider deletes a holder's node or ends its session (then until the holder hears of it), or a
    holder's server is cut off from its leader: that one goes on answering for up to syncLimit times
    tickTime, while the leader may end the session; or, without a ``lease_margin`` of the client,
    crashes right after an answer (see :mod:`zkwire.session.liveness` for both).  No lock can stop
    a process that pauses between looking at ``held`` and acting on it, so give ``fence`` to
    whatever the lock guards and let that refuse a fence lower than one it has seen.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        super().__init__(runtime_of(client), path, text, acl, names)


AsyncLock = AsyncSequentialLock


class OrderQueue(AsyncQueueLock):
    """A lock for order and quiet alone: no guard stands for it, since its loss changes nothing."""

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
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
