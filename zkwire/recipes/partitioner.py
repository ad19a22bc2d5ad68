"""Items shared out among the members of a group, each to one member at a time.

    <path>/members/<name>   a member; in its data a digest of the items
    <path>/items/<item>     the fair lock of an item, with its contenders

Each member computes by itself, from the names alone, which member is to have which items
(rendezvous hashing).  Each pair of an item and a member has a score, a hash of both names.  Pairs
are formed in the order of their scores, the best first, until a member has as many items as it may
have.  So most pairs stay when a member comes or goes: with five members, a quarter more items move
than have to.

Members may see different groups for a while, so this is only a wish: an item belongs to the member
that holds its lock.  All members must be given the same items.  If they are not, the items of the
oldest member count: a member with other items ends with an error, and the remaining members share
out all items without it.

Invariants:

* Before a lock is released, its item is in no share: it was never given out, or the member has
  confirmed that work on it has stopped, by asking for the next share.
* A member confirms only what it has been told: items that the last share left out, and items that
  the share has named as leaving.  Items that are revoked meanwhile wait for the next share.
* A share never changes: what changes is whether it still counts.  What is to be given up is fixed
  when the member is told of it.
* What a reader has confirmed counts until it takes the next share.
* An item that was lost comes back in a later share, with a higher fence, and only after it was
  confirmed that work under the lost lock has stopped.
* Background steps alone change ``_given``: what the program may be working on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import sha256

from zkwire import errors
from zkwire.operations.nodes import check_acl
from zkwire.recipes import _service
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.membership import check_name
from zkwire.recipes.persistent_node import AsyncPersistentNode
from zkwire.recipes.runtime import REPEATABLE
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.session.waitable import Bound, Watch, check_timeout
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from zkwire.jute.records import ACL
    from zkwire.recipes._node import Attempt
    from zkwire.recipes._service import Background, OnProblem
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.sequential import Place

    State = Literal["allocating", "acquired", "releasing", "failed", "closed"]


def rendezvous_assign(items: Iterable[str], members: Iterable[str]) -> dict[str, str]:
    """The member of each item; there must be a member.  None has two items more than another."""
    items, counts = sorted(items), dict.fromkeys(members, 0)
    each, larger = divmod(len(items), len(counts))
    pairs = ((sha256(f"{item}/{member}".encode()).digest(), item, member)
             for item in items for member in counts)  # fmt: skip
    owners: dict[str, str] = {}
    for _, item, member in sorted(pairs):
        has = counts[member]
        if item in owners or has > each or (has == each and not larger):
            continue
        larger -= has == each
        counts[member] = has + 1
        owners[item] = member
    return owners


MARK = b"zkwire partition of "
"""What the data of a member begins with."""
LISTED = 8192
"""Bytes: up to so many a member's data names the items, in a second line."""
_SHOWN = 5


def digest(items: Iterable[str]) -> bytes:
    """What stands in a member's node: a line about the items, and if they are few their names."""
    names = sorted(items)
    text = "/".join(names).encode()
    line = b"%s%d items %s" % (MARK, len(names), sha256(text).hexdigest().encode())
    return line + b"\n" + text if len(text) <= LISTED else line


def same(data: bytes, other: bytes) -> bool:
    """Whether two members share out the same items."""
    return data.partition(b"\n")[0] == other.partition(b"\n")[0]


def difference(items: Iterable[str], other: bytes) -> str:
    """How the items differ from those of which ``other``, another member's data, tells."""
    mine = set(items)
    line, _, text = other.partition(b"\n")
    if not text:
        return f"{line[:60]!r}, and this one has {len(mine)}"
    theirs = set(text.decode("utf-8", "replace").split("/"))
    parts = {"it alone has": theirs - mine, "it has not": mine - theirs}
    return "; ".join(f"{what} {_shown(sorted(names))}" for what, names in parts.items() if names)


def _shown(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(f"{name[:60]!r}" for name in names[:_SHOWN]) + (
        f" and {more} more" if more > 0 else ""
    )


class ItemLock(AsyncSequentialLock):
    """The lock of one item; ``tell`` is called when another member is seen to hold it."""

    tell: Callable[[], object]

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: list[Place], deadline: float | None
    ) -> list[str]:
        self.tell()
        return await super()._look_again(attempt, names, ahead, deadline)


class ItemOwnership(_service.Service):
    """The lock of an item, for as long as this member is to have it.

    It belongs to one session and is not begun anew.  Dismissed, it lets the lock go.  ``wanted``:
    the item is still to be this member's.
    """

    _called = "lock of an item"

    def __init__(self, runtime: Any, partitioner: AsyncPartitioner, item: str) -> None:
        super().__init__(runtime)  # its driver runs services
        self._path = f"{partitioner.path}/items/{item}"
        self._tell, self._trouble = partitioner._wake, partitioner._trouble_of(item)
        text, acl = partitioner.name or "", partitioner._acl
        self.lock: ItemLock = ItemLock(runtime, self._path, text, acl=acl)
        self.lock.tell = self._in_line
        self.wanted: bool = True
        self.ended: bool = False
        self._begin()

    async def _serve(self, runtime: Background) -> None:
        try:
            await self.lock.acquire()
            self._in_line()
            await runtime.wait_for(self.lock.lost)
        except errors.LockLostError:
            pass  # in the moment it was acquired
        finally:
            self.lock._release_in_background()

    def _in_line(self) -> None:
        self._is_right()
        self._changed()

    def _session_ended(self, runtime: Background) -> None:
        self.ended = True

    @property
    def held(self) -> bool:
        """Whether the item is surely this member's at this moment; asks nothing."""
        return self.lock.held

    @property
    def kept(self) -> bool:
        """Whether it is, and is still to be."""
        return self.wanted and self.held

    @property
    def settled(self) -> bool:
        """Whether the lock is held, or is not for this member to have now.

        Another member has to let it go first, or the server refuses it.
        """
        return self.lock._seen_taken or self.lock._owned or self._problem is not None


class MemberKeeper(AsyncPersistentNode):
    """The node of a member."""

    _called = "Partitioner's node"


class AsyncShare(Bound, Mapping[str, int]):
    """The items of one member, each with its fence, as an :class:`AsyncPartitioner` has them."""

    def __init__(self, partitioning: Any, tenures: dict[str, ItemOwnership]) -> None:
        self._partitioning = partitioning
        self._ownerships = tenures
        self._fences = {item: own.lock.fence for item, own in sorted(tenures.items())}
        self._told: list[frozenset[str]] = []  # the first one counts

    def __getitem__(self, item: str) -> int:
        return self._fences[item]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fences)

    def __len__(self) -> int:
        return len(self._fences)

    def __repr__(self) -> str:
        changed = " changed" * bool(self._told)
        return f"<{type(self).__name__} {', '.join(self)}{changed}>"

    @property
    def changed(self) -> bool:
        """Whether there is another share to ask for.  Once True it stays True.

        Items are to be given up (``leaving``), or more are there.
        """
        if not self._told and self._stale:
            left = (item for item, own in self._ownerships.items() if not self._keeps(own))
            self._told.append(frozenset(left))
        return bool(self._told)

    @property
    def leaving(self) -> frozenset[str]:
        """The items that are to be given up, or are lost: work on them has to stop.

        None before the share has ``changed``; from then on always the same.  The next ``next``
        confirms that the work has stopped, and only then another member gets the items.
        """
        return self._told[0] if self.changed else frozenset()

    @property
    def lost(self) -> frozenset[str]:
        """The items that are another member's now, or may be: the session or the lock is gone.

        It is exact at this moment, even if no other thread of this process has run since.
        """
        return frozenset(item for item, own in self._ownerships.items() if not own.held)

    def check(self, item: str) -> None:
        """Raise LockLostError unless the item is surely this member's; KeyError if it never was."""
        ownership = self._ownerships[item]
        if not ownership.held:
            why = f"{item!r} is no longer this member's"
            raise errors.LockLostError(why, session_id=ownership.lock._runtime.session_id)

    @property
    def _stale(self) -> bool:
        partitioning = self._partitioning
        # A share without items has no lock that tells of the end of the session, or of a close.
        over = partitioning._leaving or partitioning._member is None
        return (
            over
            or partitioning._share is not self
            or partitioning._next not in (None, self)
            or partitioning._news
            or not all(map(self._keeps, self._ownerships.values()))
        )

    def _keeps(self, ownership: ItemOwnership) -> bool:
        return ownership.kept and not self._partitioning._leaving

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the share has ``changed``, at most ``timeout`` seconds; whether it has.

        It has, too, when the session or the client is over: then all items are lost.
        """
        partitioning = self._partitioning
        with _service.Condition(lambda: self._stale, partitioning._waiting) as stale:
            await partitioning._sessions.holds(stale, check_timeout("timeout", timeout))
        return self.changed


class ShareRequest:
    """A reader's wish for the share after this one.

    ``keep`` is what the reader may go on working on meanwhile.  ``changed``: it has seen the share
    changed, and is to get another one in any case.
    """

    def __init__(self, share: AsyncShare | None) -> None:
        told = [] if share is None else share._told[:1]
        self.share: AsyncShare | None = share
        self.keep: frozenset[str] = frozenset(share or ()).difference(*told)
        self.changed: bool = bool(told)


class AsyncPartitioner(HasPath, _service.ObservableService):
    """Shares out items among all members that have been given the same ones.

        async with AsyncPartitioner(supervisor, "/crawl", ["a", "b", "c"]) as partitioner:
            async for share in partitioner:
                workers.start(share)  # yours to write
                await share.wait()
                await workers.stop(share.leaving)  # yours to write

    An item belongs to one member at a time, the holder of its lock.  ``share[item]`` is its fence,
    higher than the fences of all earlier owners.  When members come, leave or die, the items are
    shared out anew, evenly, and few of them move.  An item that is to move stays this member's
    until the loop asks for the next share: that confirms that work on it has stopped.

    ``client``: a client, or a supervisor, with which it goes on in the next session.  When the
    session is lost, all items are lost (``share.lost``, ``share.check``), and ``share.wait``
    returns.  ``items``: names without a slash, the same for all members.  ``name``: this member's
    (None: one is made); while another session has a member of that name, this one waits.
    ``acl``: for the nodes that it makes (None: the client's ``default_acl``).  ``on_problem``,
    ``problem``: see docs/supervisor.md#refusals; an item whose lock is refused is in no share, the
    others are.

    Raises ValueError for no items, an item that is there twice, a name that cannot be a node's;
    TypeError for what is no str.
    """

    _called = "Partitioner"

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        items: Iterable[str],
        *,
        name: str | None = None,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise TypeError(f"the items must be a list of names, not {items!r}")
        self._path = check_below_root(path, "a partitioner")
        self._members = f"{self._path}/members"
        self._items = tuple(check_name("an item", item) for item in items)
        if not self._items:
            raise ValueError("there are no items to share out")
        if len(set(self._items)) < len(self._items):
            twice = next(item for item in self._items if self._items.count(item) > 1)
            raise ValueError(f"the item {twice!r} is there twice")
        self._name = None if name is None else check_name("a member's name", name)
        self._acl = None if acl is None else check_acl(acl)
        self._data = digest(self._items)
        super().__init__(_service.sessions_of(client), on_problem)
        self._member: Any = None  # a MemberKeeper; None while there is no session
        self._plan: frozenset[str] | None = None  # the items to be had; None while it is no member
        self._ownerships: dict[str, ItemOwnership] = {}
        self._troubles: dict[str, _service.Problem] = {}  # of the items, and of the member: ""
        self._share: AsyncShare | None = None  # that the reader has
        self._next: AsyncShare | None = None  # the one after it, until the reader takes it
        self._asked: ShareRequest | None = None
        self._reading = False
        self._given: dict[str, ItemOwnership] = {}  # what the program may be working on
        self._news = False  # there is something that the reader's share does not say
        self._dirty = False
        self._todo = _service.Condition(lambda: self._dirty)
        self._begin()

    @property
    def name(self) -> str | None:
        """The member's name; None if none was given and none has been made yet."""
        return self._name

    @property
    def state(self) -> State:
        """What it is doing.

        * ``"allocating"``: it waits for a session, or for items that are to be its own.  (After the
          end of a Client's session none comes: each wait raises that end.)
        * ``"acquired"``: it has all items that are to be its own.
        * ``"releasing"``: it waits for the confirmation that work on other items has stopped.
        * ``"failed"``: it has ended with an error, which each wait raises.
        * ``"closed"``: ``close`` was called, or this is a forked child.
        """
        if self._sessions.forked:
            return "closed"
        if self._error is not None:
            return "failed"
        if self._leaving:
            return "closed"
        if self._member is None:
            return "allocating"
        if not all(ownership.kept for ownership in list(self._given.values())):
            return "releasing"
        ownerships = list(self._ownerships.items())
        owned = frozenset(item for item, ownership in ownerships if ownership.kept)
        return "acquired" if owned == self._plan else "allocating"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.state}>"

    # --- the reader's side: shares, each confirmed by the next ------------------------------------

    def _wake(self) -> None:
        self._dirty = True
        self._todo.notify()

    async def next(self, timeout: float | None = None) -> AsyncShare | None:
        """The next share; None if ``timeout`` seconds pass without one.

        It is empty only if all work has to stop, and the program has not yet confirmed that.

        Asking for it confirms that work has stopped on every item that was in an earlier share and
        not in the last one, and on those that the last one has named as ``leaving``.  The lock of
        such an item is released then, and not before.  When this returns None, the last share still
        counts, without these items.  With a ``timeout`` of 0 a later call gets the answer.

        A lost connection is not an error.  Raises what ended the client, or the supervisor;
        ValueError if older members share out other items; NoAuthError or another refusal by a
        server, unless there is a share to return (a later call may have one); ClientClosedError
        after :meth:`close`; RuntimeError while another reader waits.
        """
        limit = check_timeout("timeout", timeout)
        if self._reading:
            raise RuntimeError("the shares go to one reader")
        self._check()
        self._reading = True
        try:
            while True:
                if self._next is None:
                    self._asked = ShareRequest(self._share)
                    self._wake()
                if not await self._until(lambda: self._next is not None, limit):
                    return None
                taken = self._next
                if taken is not None:  # else its session has just ended
                    self._share = taken
                    self._next = None  # last: what was asked for is answered by now
                    return taken
        finally:
            self._reading = False

    def __aiter__(self) -> AsyncGenerator[AsyncShare, None]:
        return _service.until_closed(self.next, lambda: self._leaving)

    async def close(self, timeout: float | None = 10.0) -> None:
        """Let all items go and leave the group.  Idempotent.

        To be called when work on all items has stopped: it confirms that.  OperationTimeoutError if
        it takes longer than ``timeout`` seconds: it goes on in the background, and ends with the
        session at the latest.
        """
        await super().close(timeout)

    def _leave(self) -> None:
        self._leaving = True
        self._wake()
        self._retry()
        if self._member is None:
            self._end_well()

    def _confirm(self) -> None:
        """Take what the reader has confirmed to be over from what is given."""
        if self._leaving:
            self._next = None
            self._given.clear()
        asked = self._current
        if asked is not None:
            for item in self._given.keys() - asked.keep:
                del self._given[item]

    @property
    def _current(self) -> ShareRequest | None:
        """What the reader asks for, unless it has been answered."""
        asked, next_one = self._asked, self._next  # in this order: a reader that takes one
        if asked is None or next_one is not None or asked.share is not self._share:
            return None
        return asked

    def _hand_out(self) -> None:
        """Make a share of what is held, if the reader waits for one, and note what has changed."""
        wanted = {item: own for item, own in self._ownerships.items() if own.wanted}
        owned = {item: own for item, own in wanted.items() if own.held}
        kept = {item: own for item, own in owned.items() if self._given.get(item) is own}
        gains = {item: own for item, own in owned.items() if item not in self._given}
        if not all(own.settled for own in wanted.values()):
            gains = {}  # a moment later there are more of them
        now = {**kept, **gains}
        asked, share = self._current, self._share
        differs = share is None or now != share._ownerships
        if asked is not None and (now or self._given) and (asked.changed or differs):
            self._given.update(gains)
            self._next, gains = AsyncShare(self, now), {}
        latest = share if self._next is None else self._next
        self._news = bool(gains) or any(item not in (latest or ()) for item in self._given)

    # --- the session's side -----------------------------------------------------------------------

    def _parts(self) -> list[_service.Service]:
        """The services that it consists of."""
        member = self._member
        if self._leaving:  # what is given up is no problem any more
            return [member] if member is not None and member._leaving else []
        return [part for part in (member, *list(self._ownerships.values())) if part is not None]

    def _retry(self) -> None:
        super()._retry()
        for part in self._parts():
            part._retry()

    def _trouble_of(self, part: str) -> _service.Problem:
        """What a part is refused: each session has another part, and it is the same problem."""
        if part not in self._troubles:
            self._troubles[part] = _service.Problem(self._part_problem, self._sessions.dispatch)
        return self._troubles[part]

    @property
    def _is_refused(self) -> bool:
        wanted = {item: own for item, own in list(self._ownerships.items()) if own.wanted}
        if not all(own.settled for own in wanted.values()):
            return False
        if super()._is_refused:
            return True
        # A caller looks at any moment: also between the step that acquires an item and the one that
        # hands it out, in a share that is to be returned instead.  (No step comes after a refusal
        # of its own.)
        had = {} if self._share is None else self._share._ownerships
        new = any(own.held and had.get(item) is not own for item, own in wanted.items())
        return not new and any(part._is_refused for part in self._parts())

    @property
    def _problem(self) -> Exception | None:
        troubles = [self._trouble, *list(self._troubles.values())]
        return next((trouble.error for trouble in troubles if trouble.error is not None), None)

    async def _serve(self, runtime: Any) -> None:
        member = self._member = self._member or self._join(runtime)
        roll: dict[str, tuple[int, bytes]] = {}
        while not self._leaving:
            stat, self._dirty = member._stat, False
            # Only reads are asked for: those that a lost connection ends are repeated.
            with suppress(*REPEATABLE), closing(Watch()) as watch:
                self._plan = await self._look(runtime, watch, roll)
                self._is_right()
                signals = [self._todo] if self._plan is None else [self._todo, watch]
                while member._stat is stat and not (self._leaving or signals[-1].ready):
                    self._step(runtime)
                    await runtime.wait_for(*signals)
                    self._dirty = False
        self._step(runtime)
        with suppress(errors.ServerError):  # the locks are released before this is answered
            await runtime.retry(None, runtime.operations.sync, self._path)
        member._leave()
        with _service.Condition(lambda: member._over, member._waiting) as gone:
            await runtime.wait_for(gone)
        self._end_well()

    def _join(self, runtime: Any) -> MemberKeeper:
        """Make the member's node in this session, and keep it."""
        self._name = self._name or runtime.unique()
        member = MemberKeeper(runtime, f"{self._members}/{self._name}", self._data, acl=self._acl)
        member._tell, member._trouble = self._wake, self._trouble_of("")
        return member

    async def _look(
        self, runtime: Any, watch: Watch, roll: dict[str, tuple[int, bytes]]
    ) -> frozenset[str] | None:
        """The items to be had; ``roll`` is what is known of the members: age and data of each."""
        operations = runtime.operations
        if self._member._stat is None:
            return None
        try:
            names = await operations.get_children(self._members, watch=watch)
        except errors.NoNodeError:
            return None
        new = {n: operations.get_data(f"{self._members}/{n}") for n in names if n not in roll}
        for name in roll.keys() - set(names):
            del roll[name]
        for name, read in new.items():
            with suppress(errors.NoNodeError):
                data, stat = await read
                roll[name] = stat.czxid, data
        return self._assigned(roll)

    def _assigned(self, roll: dict[str, tuple[int, bytes]]) -> frozenset[str] | None:
        """The items of this member; ``roll``: the czxid and the data of each member.

        None if it is no member itself.  ValueError if the oldest member has other items.
        """
        members = {name: seen for name, seen in roll.items() if seen[1].startswith(MARK)}
        if self._name not in members:
            return None
        oldest = min(members, key=lambda name: members[name])
        if not same(members[oldest][1], self._data):
            raise ValueError(
                f"{self._path}: member {oldest!r}, the oldest, shares out other items than this "
                f"one: {difference(self._items, members[oldest][1])}"
            )
        sharing = [name for name, (_, data) in members.items() if same(data, self._data)]
        owners = rendezvous_assign(self._items, sharing)
        return frozenset(item for item, owner in owners.items() if owner == self._name)

    def _step(self, runtime: Any) -> None:
        """Do what follows from the plan and from what the reader has confirmed."""
        if self._leaving:
            self._plan = None
        self._confirm()
        if self._member._error is not None:
            raise self._member._error
        for item, ownership in tuple(self._ownerships.items()):
            if ownership._error is not None:
                raise ownership._error
            ownership.wanted = item in (self._plan or ())
            if ownership.ended or not (ownership.wanted or self._given.get(item) is ownership):
                del self._ownerships[item]
                runtime.dismiss(ownership)
        for item in sorted((self._plan or frozenset()) - self._ownerships.keys()):
            self._ownerships[item] = ItemOwnership(runtime, self, item)
        if self._plan is not None or self._leaving:
            for item in self._troubles.keys() - {"", *(self._plan or ())}:
                self._troubles.pop(item).is_over()  # it is another member's matter
        self._hand_out()
        self._changed()

    def _session_ended(self, runtime: Background) -> None:
        if self._member is not None:
            self._member._leave()
        for ownership in self._ownerships.values():
            ownership._sessions.dismiss(ownership)
        self._ownerships, self._plan, self._member = {}, None, None
        self._next, self._news = None, False
        if self._leaving and not self._closed:
            self._end()
