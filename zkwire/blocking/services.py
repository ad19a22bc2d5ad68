"""The recipes, for threads.  Written by `tools/generate.py`: do not edit.

Each class runs the coroutines of the class ``Async…`` of the same name in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkwire.blocking.sync import With, complete, core_of, each_wrapped, iterate, wrapped
from zkwire.recipes._recipe import Recipe
from zkwire.recipes.cache import AsyncCache, AsyncCacheEvents
from zkwire.recipes.membership import AsyncGroup
from zkwire.recipes.partitioner import AsyncPartitioner, AsyncShare
from zkwire.recipes.persistent_node import AsyncPersistentNode
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from zkwire.blocking.sync import ClientLike
    from zkwire.jute.records import ACL, Stat
    from zkwire.recipes._cache_tree import CachedNode
    from zkwire.recipes._service import OnProblem
    from zkwire.recipes.cache import CacheEvent
    from zkwire.recipes.membership import Member
    from zkwire.recipes.partitioner import State
    from zkwire.recipes.watching import ChildrenCallback, DataCallback, SeenChildren, SeenData


class CacheEvents(Recipe):
    """The changes of a cache for one reader; see :meth:`Cache.events`."""

    _algorithm: AsyncCacheEvents

    def next(self, timeout: float | None = None) -> CacheEvent | None:
        """The next event; None if ``timeout`` seconds pass without one.

        A lost connection is not an error.  Raises what ended the client, the supervisor or the
        cache; NoAuthError if the cache's own node may not be read, and a later call may succeed;
        ClientClosedError after ``close``.
        """
        return complete(self._algorithm.next, timeout)

    def __iter__(self) -> Iterator[CacheEvent]:
        return iterate(self._algorithm.__aiter__())

    def close(self) -> None:
        """Events are kept no longer.  Idempotent."""
        self._algorithm.close()


class Cache(Recipe, With):
    """A mirror of a node (``depth=0``), its children (1) or its whole tree (None).

        with Cache(client, "/services") as services:
            services.wait_ready(10)
            print(services.children("/services"))
            for event in services.events():
                print(event.kind, event.path, event.data)

    It starts at once, reads in the background, and is kept up to date by watches: a lost connection
    is not an error, and with a supervisor neither is the end of a session.  It shows what its
    server has told, a moment later than the ensemble.  A node's ``data`` and ``stat`` are of one
    moment; two nodes may be of different moments.

    Where ``skip(path)`` returns true, the cache leaves out that node and all nodes below it.  The
    thread that does I/O calls it, so it must be quick and use no client.  ``max_bytes`` is a limit
    to the bytes of all paths and data: CacheFullError ends the cache.  ``decode`` makes ``value``
    of a node's data, when that is asked for.  ``on_event`` is called with each :class:`CacheEvent`,
    one call at a time, in the callback thread (under asyncio in the loop; it may be a coroutine
    function).  ``on_problem``, ``problem``: see docs/supervisor.md#refusals.

    A node that the client may not read is left out.  A new access list alone does not count as a
    change.  The number of children in a stat is right if the children belong to the cache.

    While the cache is not ``fresh``, a look (``get``, ``children``, ``in``, ``len``, the paths)
    finds what was read last.  It is not fresh while the connection is lost, between two sessions of
    a supervisor, and after a refusal.  Before the cache is ``ready``, a look finds what has been
    read so far, or raises the refusal.  When nothing will be read any more, a look raises
    ClientClosedError after ``close`` (in a forked child ForkedError, a subclass of it), else what
    has ended the cache, its client or its supervisor.  No look waits for a server.

    Raises ValueError for a path that is not absolute or a negative limit, TypeError for what is no
    function, ClientClosedError or the like if the client has ended.
    """

    _algorithm: AsyncCache

    def __init__(
        self,
        client: ClientLike,
        path: str,
        *,
        depth: int | None = None,
        skip: Callable[[str], object] | None = None,
        max_bytes: int | None = None,
        decode: Callable[[bytes], Any] | None = None,
        on_event: Callable[[CacheEvent], object] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._algorithm = AsyncCache(
            core_of(client),
            path,
            depth=depth,
            skip=skip,
            max_bytes=max_bytes,
            decode=decode,
            on_event=on_event,
            on_problem=on_problem,
        )

    def get(self, path: str) -> CachedNode | None:
        """The node as it was read last; None if there is none.

        ValueError if the path is not the cache's or below it.  Raises what has ended the cache.
        """
        return self._algorithm.get(path)

    def children(self, path: str) -> list[str]:
        """The names of the node's children in the cache, sorted; none if there is no such node."""
        return self._algorithm.children(path)

    def __contains__(self, path: object) -> bool:
        return self._algorithm.__contains__(path)

    def __len__(self) -> int:
        return self._algorithm.__len__()

    def __iter__(self) -> Iterator[str]:
        return self._algorithm.__iter__()

    def __bool__(self) -> bool:
        return self._algorithm.__bool__()

    @property
    def ready(self) -> bool:
        """Whether the tree has been read once; from then on the cache is never half empty."""
        return self._algorithm.ready

    @property
    def fresh(self) -> bool:
        """Whether the cache shows what the connected server has told, and nothing is to be read.

        False while the connection is lost, between two sessions, and until all differences are
        read again; while the server refuses that (``problem``); and when the cache has ended.  The
        nodes stay readable meanwhile.  ``wait_fresh`` waits for it.
        """
        return self._algorithm.fresh

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the tree has been read once, at most ``timeout`` seconds; whether it has.

        Raises NoAuthError if the cache's own node may not be read, and a later call may succeed;
        what has ended the cache (ClientClosedError, CacheFullError), and what has ended the client
        or the supervisor before that.
        """
        return complete(self._algorithm.wait_ready, timeout)

    def wait_fresh(self, timeout: float | None = None) -> bool:
        """Wait until the cache is ``fresh``, at most ``timeout`` seconds; whether it is.

        After an outage: until the differences have been read.  Raises what :meth:`wait_ready`
        raises.
        """
        return complete(self._algorithm.wait_fresh, timeout)

    def events(self) -> CacheEvents:
        """The changes, forever: an iterator of :class:`CacheEvent`.

        First each node that is there is ``added``; then follows what changes.  Changes of a path
        that are not taken yet become one; a reader that is too slow gets ``resynced``.  Each
        iterator gets all events, and ends with the cache.  ``next(timeout)`` waits for one event.
        """
        return wrapped(CacheEvents, self._algorithm.events())

    def close(self) -> None:
        """Stop: no watch stays on the server, iterators end, and nothing is answered any more.

        Idempotent.
        """
        self._algorithm.close()

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        return self._algorithm.problem


class PersistentNode(Recipe, With):
    """A node that is there for as long as this object wants it, whatever deletes it.

        with PersistentNode(client, "/services/db", b"10.0.0.5:5432") as node:
            serve()  # yours to write

    It is put back when an outsider has deleted it and, with a supervisor, in each new session;
    missing nodes above it are made, as nodes that the server removes when they are empty.  The
    constructor does not wait for the node; ``wait_present`` does.  A foreign node in its place is
    never overwritten (``conflict``), and replaced when it is gone.  If a process ends without
    closing its client, the node that it leaves is foreign, too, until that process's session times
    out.  Data that an outsider writes into it stay until ``set_data``, or until it is put back.  A
    forked child has no node: the node is the parent's.

    ``ephemeral=False``: a node that stays when the session ends, but not after ``close``.
    ``acl``: for the node and the missing ones above (None: the client's ``default_acl``).
    ``on_problem``, ``problem``: a refusal does not end it; see docs/supervisor.md#refusals.
    """

    _algorithm: AsyncPersistentNode

    def __init__(
        self,
        client: ClientLike,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = True,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._algorithm = AsyncPersistentNode(
            core_of(client), path, data, ephemeral=ephemeral, acl=acl, on_problem=on_problem
        )

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self._algorithm.name

    @property
    def present(self) -> bool:
        """Whether the node is there, as far as is known here.

        It stays True while the connection is lost, and until the client hears that the node was
        deleted or that the session has expired.
        """
        return self._algorithm.present

    @property
    def stat(self) -> Stat | None:
        """The stat of its own node, as last seen; None unless ``present``.

        ``czxid`` is another number, a higher one, each time the node is put back.
        """
        return self._algorithm.stat

    @property
    def conflict(self) -> Stat | None:
        """The stat of a foreign node that is in its place; None if there is none.

        It is never overwritten; its own node follows when it is gone.  ``ephemeral_owner`` says
        which session it belongs to: 0 if to none, so that it will not go by itself.
        """
        return self._algorithm.conflict

    def __repr__(self) -> str:
        return self._algorithm.__repr__().replace("Async", "", 1)

    def wait_present(self, timeout: float | None = None) -> bool:
        """Wait until the node is there; False if ``timeout`` seconds pass without it.

        Then ``conflict`` says whether a foreign node is in its place.  Raises the error that has
        ended the client or the supervisor; NoAuthError, or any other refusal of the node by a
        server; NodeExistsError while another object of the same client keeps this path.  After a
        refusal the object goes on trying, and a later call may succeed.
        """
        return complete(self._algorithm.wait_present, timeout)

    def set_data(self, data: bytes, timeout: float | None = None) -> None:
        """Change the node's data for good; returns when this or later data is on the server.

        OperationTimeoutError if ``timeout`` seconds pass before that; the data is still written as
        soon as that is possible.  A lost connection is not an error.  Raises what
        :meth:`wait_present` raises, and NoAuthError or QuotaExceededError if a server refuses the
        data; then the node keeps the data it had.  ValueError, and nothing is tried, if the data is
        more than this client can send.
        """
        complete(self._algorithm.set_data, data, timeout)

    def close(self, timeout: float | None = 10.0) -> None:
        """Stop keeping the node, and delete it if it is this object's own.  Idempotent.

        OperationTimeoutError if that takes longer than ``timeout`` seconds: it goes on in the
        background, and an ephemeral node goes with the session at the latest.  It also goes on
        after a refusal, which this raises: NoAuthError if the node may not be deleted,
        NotEmptyError if a node that is not ephemeral has children.  For a node that is not
        ephemeral, it also raises the error that has ended the session or the client before.
        """
        complete(self._algorithm.close, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        return self._algorithm.problem


class Group(Recipe, With):
    """The members of a group, each with its data: to join them, and to know them.

        with Group(supervisor, "/services/web") as group:
            group.join(b"10.0.0.5:8080")
            for members in group.changes():
                balance(members)  # yours to write

    A member is an ephemeral node below ``path``, kept as an :class:`PersistentNode` is;
    kazoo's Party and Curator's GroupMember see the same members.  ``acl``: for the nodes of the
    members and for the missing ones above (None: the client's ``default_acl``).  ``on_problem`` and
    ``problem`` tell what is refused of the memberships too; see docs/supervisor.md#refusals.
    """

    _algorithm: AsyncGroup

    def __init__(
        self,
        client: ClientLike,
        path: str,
        *,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._algorithm = AsyncGroup(core_of(client), path, acl=acl, on_problem=on_problem)

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        return self._algorithm.problem

    def join(
        self, data: bytes = b"", name: str | None = None, timeout: float | None = None
    ) -> PersistentNode:
        """Be a member from now on, in each session; returns the membership, a PersistentNode.

        It waits for the node to be there, at most ``timeout`` seconds, and returns the membership
        in either case (``present`` tells).  ``name``: None makes one; while a foreign node has the
        name, the membership waits for it (``conflict``).  ``close`` of the membership, or
        :meth:`leave`, ends it.

        ValueError for a name that is empty or has a ``/``.  NodeExistsError if this client has a
        member of that name already.  Raises the error that has ended the client or the supervisor,
        or with which a server refuses the node; there is no membership then, and nothing of it
        stays.  A later refusal does not end a membership: its ``problem`` and the group's report
        it.
        """
        return wrapped(PersistentNode, complete(self._algorithm.join, data, name, timeout))

    def leave(self, timeout: float | None = 10.0) -> None:
        """End all memberships that this object has joined; like ``PersistentNode.close``."""
        complete(self._algorithm.leave, timeout)

    def members(self, timeout: float | None = None) -> list[Member]:
        """The members as the server has them, at this call or later; the oldest member first.

        Only what has changed since the last call is read again: from this call until :meth:`close`
        the group is watched.  A lost connection is not an error.  OperationTimeoutError after
        ``timeout`` seconds.  Raises what has ended the client, or the supervisor; NoAuthError if
        the group may not be read, and a later call may succeed.  A member that may not be read is
        left out, with a warning in the log.
        """
        return complete(self._algorithm.members, timeout)

    def changes(self) -> Iterator[list[Member]]:
        """The list of members as it is now, and then each newer list, forever.

        A slow reader gets the newest list when it asks, and not the lists before it.  A change of a
        member's data counts as a change.  It ends after :meth:`close`; errors as of
        :meth:`members`.
        """
        return iterate(self._algorithm.changes())

    def wait_for(self, count: int, timeout: float | None = None) -> bool:
        """Wait until there are ``count`` members, or more; False after ``timeout`` seconds."""
        return complete(self._algorithm.wait_for, count, timeout)

    def close(self, timeout: float | None = 10.0) -> None:
        """:meth:`leave`, and watch no longer.  Idempotent."""
        complete(self._algorithm.close, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class Share(Recipe, Mapping[str, int]):
    """The items of one member, each with its fence, as an :class:`Partitioner` has them."""

    _algorithm: AsyncShare

    def __getitem__(self, item: str) -> int:
        return self._algorithm.__getitem__(item)

    def __iter__(self) -> Iterator[str]:
        return self._algorithm.__iter__()

    def __len__(self) -> int:
        return self._algorithm.__len__()

    def __repr__(self) -> str:
        return self._algorithm.__repr__().replace("Async", "", 1)

    @property
    def changed(self) -> bool:
        """Whether there is another share to ask for.  Once True it stays True.

        Items are to be given up (``leaving``), or more are there.
        """
        return self._algorithm.changed

    @property
    def leaving(self) -> frozenset[str]:
        """The items that are to be given up, or are lost: work on them has to stop.

        None before the share has ``changed``; from then on always the same.  The next ``next``
        confirms that the work has stopped, and only then another member gets the items.
        """
        return self._algorithm.leaving

    @property
    def lost(self) -> frozenset[str]:
        """The items that are another member's now, or may be: the session or the lock is gone.

        It is exact at this moment, even if no other thread of this process has run since.
        """
        return self._algorithm.lost

    def check(self, item: str) -> None:
        """Raise LockLostError unless the item is surely this member's; KeyError if it never was."""
        self._algorithm.check(item)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the share has ``changed``, at most ``timeout`` seconds; whether it has.

        It has, too, when the session or the client is over: then all items are lost.
        """
        return complete(self._algorithm.wait, timeout)


class Partitioner(Recipe, With):
    """Shares out items among all members that have been given the same ones.

        with Partitioner(supervisor, "/crawl", ["a", "b", "c"]) as partitioner:
            for share in partitioner:
                workers.start(share)  # yours to write
                share.wait()
                workers.stop(share.leaving)  # yours to write

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

    _algorithm: AsyncPartitioner

    def __init__(
        self,
        client: ClientLike,
        path: str,
        items: Iterable[str],
        *,
        name: str | None = None,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._algorithm = AsyncPartitioner(
            core_of(client), path, items, name=name, acl=acl, on_problem=on_problem
        )

    @property
    def name(self) -> str | None:
        """The member's name; None if none was given and none has been made yet."""
        return self._algorithm.name

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
        return self._algorithm.state

    def __repr__(self) -> str:
        return self._algorithm.__repr__().replace("Async", "", 1)

    def next(self, timeout: float | None = None) -> Share | None:
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
        return wrapped(Share, complete(self._algorithm.next, timeout))

    def __iter__(self) -> Iterator[Share]:
        return each_wrapped(Share, iterate(self._algorithm.__aiter__()))

    def close(self, timeout: float | None = 10.0) -> None:
        """Let all items go and leave the group.  Idempotent.

        To be called when work on all items has stopped: it confirms that.  OperationTimeoutError if
        it takes longer than ``timeout`` seconds: it goes on in the background, and ends with the
        session at the latest.
        """
        complete(self._algorithm.close, timeout)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        return self._algorithm.problem


class DataWatch(Recipe, With):
    """The data of a node forever; see :meth:`zkwire.Client.watch_data`."""

    _algorithm: AsyncDataWatch

    def __init__(
        self,
        client: ClientLike,
        path: str,
        callback: DataCallback | None = None,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> None:
        self._algorithm = AsyncDataWatch(core_of(client), path, callback, on_problem, with_event)

    def close(self) -> None:
        """Watch no longer: no watch stays on the server, no callback is called.  Idempotent."""
        self._algorithm.close()

    def next(self, timeout: float | None = None) -> SeenData | None:
        """The next state, the first one at once; None if ``timeout`` seconds pass without one.

        A state that comes after the time limit is kept for the next call.  A lost connection is not
        an error: the state is read again on the next one.  Raises what ended the client, or the
        supervisor; NoAuthError if the node may not be read, and a later call may succeed;
        ClientClosedError after :meth:`close`; RuntimeError while another reader waits, or if there
        is a callback.
        """
        return complete(self._algorithm.next, timeout)

    def wait_called(self, timeout: float | None = None) -> bool:
        """Wait until the callback has returned for the first time; False after ``timeout`` seconds.

            watch = client.watch_data("/config", configure)  # yours to write
            watch.wait_called(5.0)  # from here on it is configured

        Raises what ended the client, or the supervisor; NoAuthError if the node may not be read;
        RuntimeError if there is no callback.
        """
        return complete(self._algorithm.wait_called, timeout)

    def __iter__(self) -> Iterator[SeenData]:
        return iterate(self._algorithm.__aiter__())

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        return self._algorithm.problem


class ChildrenWatch(Recipe, With):
    """The names of a node's children forever; see :meth:`zkwire.Client.watch_children`."""

    _algorithm: AsyncChildrenWatch

    def __init__(
        self,
        client: ClientLike,
        path: str,
        callback: ChildrenCallback | None = None,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> None:
        self._algorithm = AsyncChildrenWatch(
            core_of(client), path, callback, on_problem, with_event
        )

    def close(self) -> None:
        """Watch no longer: no watch stays on the server, no callback is called.  Idempotent."""
        self._algorithm.close()

    def next(self, timeout: float | None = None) -> SeenChildren | None:
        """The next state, the first one at once; None if ``timeout`` seconds pass without one.

        A state that comes after the time limit is kept for the next call.  A lost connection is not
        an error: the state is read again on the next one.  Raises what ended the client, or the
        supervisor; NoAuthError if the node may not be read, and a later call may succeed;
        ClientClosedError after :meth:`close`; RuntimeError while another reader waits, or if there
        is a callback.
        """
        return complete(self._algorithm.next, timeout)

    def wait_called(self, timeout: float | None = None) -> bool:
        """Wait until the callback has returned for the first time; False after ``timeout`` seconds.

            watch = client.watch_data("/config", configure)  # yours to write
            watch.wait_called(5.0)  # from here on it is configured

        Raises what ended the client, or the supervisor; NoAuthError if the node may not be read;
        RuntimeError if there is no callback.
        """
        return complete(self._algorithm.wait_called, timeout)

    def __iter__(self) -> Iterator[SeenChildren]:
        return iterate(self._algorithm.__aiter__())

    @property
    def problem(self) -> Exception | None:
        """What the server refuses at this moment, or what has ended it; None while all is right.

        A refusal is tried again by itself; see docs/supervisor.md#refusals.
        """
        return self._algorithm.problem
