"""The fair lock: an ephemeral sequential child per contender, the lowest number holds.

Everybody else watches only the child right before its own.  A release wakes one waiter, in order of
arrival; so does the death or the timeout of a contender, which is why a waiter that wakes looks
again instead of believing that it is its turn.  The one that had only one child ahead need not: no
later child gets a lower number.  It watches its own child too, so that it would know, before that
event, if somebody had taken away its place in the queue.

The create and the first listing leave in one write; the session's order makes the listing contain
the new child, so a free lock costs one round trip.

A sequential create is not idempotent: repeating it blindly leaves an orphan in the queue that
blocks everybody behind it.  The child's name carries the session's id and the attempt's; after a
lost reply it is looked up, with a ``sync`` before the listing because the server that answers may
be behind.

    /path/<session id>-<attempt id>-lock-<sequence>

``lock-`` and ten digits is what Curator, go-zookeeper and (told the pattern ``-lock-``) kazoo
understand; every child that ends in ten digits counts as a contender here, whoever made it.  The
waiter right behind one that is not ephemeral ends with an error instead of waiting for ever.
"""

from __future__ import annotations

import contextlib
from functools import partial

from zkwire.errors import (
    ConnectionLossError,
    LockTimeoutError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    SequenceExhaustedError,
    ServerError,
)
from zkwire.recipes.attempt import NOT_NOW, Attempt, former, permanent
from zkwire.recipes.lock import Lock
from zkwire.recipes.lost import OwnNodeWatch
from zkwire.recipes.runtime import persist
from zkwire.session.watch import Watch
from zkwire.wire.model import EventType
from zkwire.wire.paths import LAST_SEQUENCE, SEQUENCE_DIGITS, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.recipes.runtime import Runtime

# At the end of the counter a 3.8 server hands out the same number again and again, and two
# contenders would hold (DataTree.createNode).  Stop well before: others are creating at the same
# time.
SPARE_NUMBERS = 1000


class SequentialQueue(Lock):
    """The algorithm of the sequential lock.

    ``text`` stands in the node, for whoever wants to know who is waiting there.  Subclasses have
    another ``label``, or wait for somebody else.
    """

    label = "lock-"
    _places = 1  # how many hold at a time

    def __init__(
        self, world: Runtime, path: str, text: str = "", acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(world, path, acl)
        self.data: bytes = encoded(text)
        self.on_position: Callable[[int], object] | None = None

    def _ahead(self, names: list[str], own: str) -> str | None:
        """The contender to wait for; None if it is this one's turn."""
        return predecessor(names, own)

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        names = await self._enter(attempt, deadline)
        while True:
            own = self._name(attempt)
            if own not in names:
                # Somebody has deleted the node and with it the place in the queue.
                self._release_claim()
                attempt.node = None
                names = await self._enter(attempt, deadline)
                continue
            await self._prune(attempt, names, deadline)
            self._tell_position(names, own)
            ahead = self._ahead(names, own)
            if ahead is None:
                return True
            if not (wait or ahead.startswith(attempt.going)):
                await self._step_back(attempt, deadline)
                return False
            in_the_way = [*(name for _, name in before(names, ahead)), ahead]
            await self._refuse_former(attempt, in_the_way, deadline)
            names = await self._look_again(attempt, names, ahead, deadline)

    async def _refuse_former(
        self, attempt: Attempt, names: list[str], deadline: float | None
    ) -> None:
        """Raise NodeExistsError if nodes from before this session was resumed take all places."""
        left = self._places
        for name in filter(attempt.is_former, names):
            path = f"{self.path}/{name}"
            stat = await persist(self.world, deadline, self.world.operations.exists, path)
            left -= stat is not None and stat.ephemeral_owner == self.world.session_id
            if left == 0:
                raise former(path)

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: str, deadline: float | None
    ) -> list[str]:
        """The children, as soon as it may be this one's turn; ``names`` is what was seen."""
        left = [name for name in names if name != ahead]
        is_next = self._leaves_its_place(ahead) and self._ahead(left, self._name(attempt)) is None
        if is_next and self._guard is None:
            self._guard = OwnNodeWatch()
            self._stand_guard(attempt, self._guard)
        connection = self.world.connection
        gone = await self._wait_for(ahead, deadline)
        # After a reconnection events come in another order than the changes.
        if is_next and gone and connection is self.world.connection and self._lasts:
            return left
        return await self._list(deadline)

    def _leaves_its_place(self, ahead: str) -> bool:
        """Whether nobody to wait for can stand there later: a writer can leave a reader."""
        return ahead[:-SEQUENCE_DIGITS].endswith(f"-{self.label}")

    def _tell_position(self, names: list[str], own: str) -> None:
        if self.on_position is not None:
            self.world.dispatch(partial(self.on_position, len(before(names, own))))

    async def _enter(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """Create the attempt's child, exactly once; returns a list of children made after it."""
        world, operations = self.world, self.world.operations
        while True:
            attempt.entered = True
            create = operations.create_with_stat(
                f"{self.path}/{attempt.id}-{self.label}",
                self.data,
                self.acl,
                ephemeral=True,
                sequential=True,
            )
            listing = operations.get_children(self.path)
            try:
                attempt.node, attempt.stat = await world.until(create, deadline)
                self._check_sequence(attempt)
                return await world.until(listing, deadline)
            except NoNodeError:
                attempt.node = None
                await self._provide(self.path, deadline)
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
        world, operations = self.world, self.world.operations
        names = await self._list(deadline, sync=True)
        for name in names:
            if attempt.node is None and name.startswith(attempt.id):
                path = f"{self.path}/{name}"
                stat = await persist(world, deadline, operations.exists, path)
                if stat is not None and stat.ephemeral_owner == world.session_id:
                    attempt.node, attempt.stat = path, stat
        return names

    async def _prune(self, attempt: Attempt, names: list[str], deadline: float | None) -> None:
        """Delete all children of the attempt but one: the others would block it like everybody."""
        for name in [name for name in names if name.startswith(attempt.id)]:
            path = f"{self.path}/{name}"
            if path != attempt.node:
                with contextlib.suppress(NoNodeError):
                    await persist(self.world, deadline, self.world.operations.delete, path)
                names.remove(name)

    async def _list(self, deadline: float | None, *, sync: bool = False) -> list[str]:
        """The children of the lock's node; none if it is gone."""
        world, operations = self.world, self.world.operations
        while True:
            synced = operations.sync(self.path) if sync else None
            listing = operations.get_children(self.path)
            try:
                if synced is not None:
                    await world.until(synced, deadline)
                return await world.until(listing, deadline)
            except NoNodeError:
                return []
            except ConnectionLossError:
                pass

    async def _wait_for(self, ahead: str, deadline: float | None) -> bool:
        """Return when the contender ``ahead`` may be gone; True if it is."""
        path, watch = f"{self.path}/{ahead}", Watch()
        try:
            # get_data and not exists: it leaves no watch behind on a node that is gone.
            read = self.world.operations.get_data
            seen = await persist(self.world, deadline, read, path, watch=watch)
            if seen.stat.ephemeral_owner == 0:
                raise permanent(path)
            event = await self.world.event(watch, deadline)
            if event is None:
                raise LockTimeoutError(f"{self.path} was not free in time")
            return event.type is EventType.NODE_DELETED
        except NoNodeError:
            return True  # gone between the listing and the look: nobody would ever wake us
        finally:
            watch.close()

    async def leave(self, deadline: float | None) -> None:
        """Delete the node, if it is held, and see it done if possible in time; then ``give_up``."""
        if self._granted is not None:
            await self._step_back(self._granted, deadline)

    async def _step_back(self, attempt: Attempt, deadline: float | None) -> None:
        """Leave the queue and see it done, if that is possible in time."""
        assert attempt.node is not None
        try:
            await self.world.until(self.world.operations.delete(attempt.node), deadline)
        except NoNodeError:
            pass
        except (ConnectionLossError, OperationTimeoutError, *NOT_NOW):
            self._withdraw(attempt)
        attempt.entered = False

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        try:
            if attempt.node is not None:
                await operations.delete(attempt.node)
                return
            sync, listing = operations.sync(self.path), operations.get_children(self.path)
            await sync
            for name in await listing:
                if name.startswith(attempt.id):
                    await operations.delete(f"{self.path}/{name}")
        except NoNodeError:
            pass

    @property
    def node_name(self) -> str | None:
        """The name of the node while the lock is held."""
        return None if self._granted is None else self._name(self._granted)

    def _name(self, attempt: Attempt) -> str:
        assert attempt.node is not None
        return attempt.node[len(self.path) + 1 :]

    def _check_sequence(self, attempt: Attempt) -> None:
        number = int(self._name(attempt)[len(attempt.id) + 1 + len(self.label) :])
        if not 0 <= number <= LAST_SEQUENCE - SPARE_NUMBERS:
            raise SequenceExhaustedError(
                f"{self.path}: the sequence counter stands at {number} and ends at "
                f"{LAST_SEQUENCE}; delete the node when nobody uses it, or take another path"
            )


def encoded(text: str) -> bytes:
    """What stands in the node of a contender that shows ``text``."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"text contains a surrogate, which is no character: {text!r}") from None


def predecessor(names: list[str], own: str) -> str | None:
    """The contender right before ``own``; None if there is none.

    Order is by number alone: prefixes differ between sessions and between implementations
    (ZOOKEEPER-2931).  Children that end in no sequence number are not contenders.
    """
    ahead = before(names, own)
    return max(ahead)[1] if ahead else None


def before(names: list[str], own: str) -> list[tuple[int, str]]:
    """The contenders before ``own``, in no order, each with its number."""
    place = sequence_number(own)
    assert place is not None
    return [
        (number, name)
        for name in names
        if (number := sequence_number(name)) is not None and number < place
    ]
