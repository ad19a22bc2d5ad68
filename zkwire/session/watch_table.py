"""The table of all watches that are set, and what a server must be told about them.

A server keeps a watch per *connection*; :class:`WatchTable` outlives the connection, so that
:meth:`WatchTable.frames` can set them again.  It decides when a watch enters and leaves it, and
which watches an event concerns (``ZKWatchManager`` in the Java client).  It does not know when a
request is sent, or whether there is a connection: what the server must be told stands in
``requests`` until the session queues or drops it.

Invariants:

* ``Watch._places`` holds exactly the kinds and paths at which the table has the watch.
* A watch is in the table exactly while the server has it or is to be told of it in the next
  handshake.  It enters with the reply that sets it, in the order of the wire.
* When a watch ends, the others are not disturbed: a server is told to forget only what no other
  watch needs.
* Before 3.9 a server keeps *one mode* for each path of a connection and the last request wins
  (``WatcherModeManager``): a read with a watch would end a persistent watch on the same path.  A
  persistent watch sends every event that the one-shot watch waits for, so a read on a path that it
  covers asks for no watch, and both get the event here.  What cannot be combined (a persistent and
  a recursive watch on one path; a read sent while an ``add_watch`` is unanswered) is refused when
  it is submitted.

The *own-node watch* of a lock (a request with ``own_czxid``) reports the end of one node that the
client has created.  It is in the table from its submission on, so that a lost connection does not
hide that end, and its answer decides whether the node there is still that one.
"""

from __future__ import annotations

from zkwire import errors
from zkwire.jute.frames import SEND_LIMIT
from zkwire.jute.records import RemoveWatchesRequest, SetWatches, SetWatches2
from zkwire.session.request import ANSWERED, Answered, Refused, Request
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State, WatchType
from zkwire.wire.ops import LASTING, WatchKind
from zkwire.wire.paths import strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
    from typing import Any

    from zkwire.session.waitable import Waker, Watch

    Place = tuple[WatchKind, str]
    Batch = tuple[list[str], list[str], list[str], list[str], list[str]]


# A set_watches frame must stay far below a server's limit of 1 MiB (ZOOKEEPER-706).
BATCH_BYTES = 128 * 1024
# Of such a frame, beside the paths: the header, a zxid and the lengths of five lists.
OTHER_BYTES = 8 + 8 + 5 * 4
_LAST = (WatchKind.CHILD, True)  # a child watch on the path of a recursive one

_new: Callable[..., Event] = tuple.__new__  # pyright: ignore
_TYPES = {int(known): known for known in EventType}
_NO_NODE = errors.NoNodeError.code
_TRY_AGAIN = (errors.RequestTimeoutError.code, errors.ThrottledOpError.code)
_OF_THE_SESSION = (errors.SESSION_EXPIRED, errors.SessionMovedError.code, *errors.REJECTIONS)
_NO_WATCHER = Refused(errors.NoWatcherError.code)
_NO_WATCH = b"\0"  # the last field of every read that can set a watch

# The one-shot watches that each event concerns and spends; it concerns persistent watches, too.
_SPENT_BY: dict[int, tuple[WatchKind, ...]] = {
    EventType.NODE_CREATED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILD,),
    EventType.NODE_DELETED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD),
}
_ONE_SHOT = (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD)

# The persistent watches that send every event of a one-shot watch on the same path.
_COVERED_BY = {
    WatchKind.DATA: LASTING,
    WatchKind.EXIST: LASTING,
    WatchKind.CHILD: (WatchKind.PERSISTENT,),
}
_REMOVED = {
    WatchKind.DATA: EventType.DATA_WATCH_REMOVED,
    WatchKind.EXIST: EventType.DATA_WATCH_REMOVED,
    WatchKind.CHILD: EventType.CHILD_WATCH_REMOVED,
    WatchKind.PERSISTENT: EventType.PERSISTENT_WATCH_REMOVED,
    WatchKind.RECURSIVE: EventType.PERSISTENT_WATCH_REMOVED,
}
_OF_TYPE = {
    WatchType.CHILDREN: {WatchKind.CHILD},
    WatchType.DATA: {WatchKind.DATA, WatchKind.EXIST},
    WatchType.ANY: set(WatchKind),
    WatchType.PERSISTENT: {WatchKind.PERSISTENT},
    WatchType.PERSISTENT_RECURSIVE: {WatchKind.RECURSIVE},
}


class WatchTable:
    """All watches that are set, by kind and by the server's path.

    ``callbacks`` is the state machine's list of functions to call.  ``requests`` are what the
    server must be told.
    """

    __slots__ = (
        "_batch_bytes", "_callbacks", "_chroot", "_expected", "_firing", "_recursive", "_set",
        "_state", "_to_release", "_to_repeat", "observer", "requests",
    )  # fmt: skip

    def __init__(self, chroot: str, callbacks: list[Waker], send_limit: int = SEND_LIMIT) -> None:
        self.requests: list[Request] = []
        self._batch_bytes = min(BATCH_BYTES, send_limit - OTHER_BYTES)
        self._chroot = chroot
        self._callbacks = callbacks
        self._state = State.CONNECTED  # in which events arrive
        # By path, and there by identity.
        self._set: dict[WatchKind, dict[str, dict[Hashable, Watch]]] = {k: {} for k in WatchKind}
        self._recursive = self._set[WatchKind.RECURSIVE]
        self._expected: dict[Place, list[Request]] = {}  # requests under way that may set a watch
        self._to_repeat: list[Request] = []  # of own-node watches, without an answer
        # Paths with a persistent watch that is not needed: released after the requests under way.
        self._to_release: set[str] = set()
        self._firing: tuple[str, Event, list[Watch]] | None = None
        self.observer: Callable[[Event], Waker] | None = None  # returns what tells it

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Watch]:
        for paths in self._set.values():
            for watches in paths.values():
                yield from watches.values()

    def clear(self) -> None:
        """Forget all watches."""
        for paths in self._set.values():
            paths.clear()

    def _at(self, kind: WatchKind, path: str) -> list[Watch]:
        """The watches of this kind on exactly this path."""
        return list(self._set[kind].get(path, {}).values())

    def add(self, kind: WatchKind, path: str, watch: Watch) -> Watch:
        """Register ``watch``; a second one of the same identity on the same path changes nothing.

        Returns the watch that is registered now.
        """
        watches = self._set[kind].setdefault(path, {})
        if watch._identity not in watches:
            watch._places = watch._places or set()
            watches[watch._identity] = watch
            watch._places.add((kind, path))
        return watches[watch._identity]

    def _concerned(self, event: int, path: str) -> list[Watch]:
        """The watches that an event of this type on ``path`` concerns, each once."""
        if event not in _SPENT_BY:
            return []
        found: list[Watch] = []
        for kind in (*_SPENT_BY[event], WatchKind.PERSISTENT):
            watches = self._set[kind]
            if path in watches:
                found += watches[path].values()
        recursive = self._recursive
        # A change of children is sent for a child watch; recursive watches do not get it.
        if recursive and event != EventType.NODE_CHILDREN_CHANGED:
            for above in self._above(path):
                if above in recursive:
                    found += recursive[above].values()
        return found if len(found) < 2 else _each_once(found)

    def _above(self, path: str) -> Iterable[str]:
        """Where recursive watches that see ``path`` may stand, deepest first; fast for 1 MB too."""
        if path.count("/") <= len(self._recursive):
            return ancestors(path)
        seeing = [at for at in self._recursive if path.startswith(at if at == "/" else f"{at}/")]
        seeing += [path] * (path in self._recursive)
        return sorted(seeing, key=len, reverse=True)

    def _take_out(self, event: int, path: str) -> None:
        """Remove the watches that an event on ``path`` has spent.  Idempotent."""
        for kind in _SPENT_BY[event]:
            for watch in self._set[kind].get(path, {}).values():
                watch._places.discard((kind, path))
            self._set[kind].pop(path, None)  # interrupt-safe: last

    def discard(self, kind: WatchKind, path: str, watch: Watch) -> bool:
        """Remove one registration; False if it is not there."""
        watches = self._set[kind].get(path, {})
        if watch._places:
            watch._places.discard((kind, path))
        found = watches.pop(watch._identity, None) is not None
        if not watches:
            self._set[kind].pop(path, None)
        return found

    def batches(self) -> Iterator[Batch]:
        """The paths to set again, by kind, in batches of limited size; a longer path stands alone.

        Before 3.9 a server keeps one mode for each path of a connection, and the last one wins.  So
        persistent watches come last.  Only a child watch on the path of a recursive watch comes
        after them, since the recursive watch does not get its event.
        """
        recursive = self._recursive
        last = [path for path in self._set[WatchKind.CHILD] if path in recursive]
        first = ((k, p) for k in WatchKind for p in self._set[k] if (k, p in recursive) != _LAST)
        yield from _pieces(first, self._batch_bytes)
        yield from _pieces(((WatchKind.CHILD, path) for path in last), self._batch_bytes)

    def frames(self, last_zxid: int) -> Iterator[bytes]:
        """The frames that set all watches again; a server answers each.

        ``set_watches2`` is used only for persistent watches: a server before 3.6 does not know it
        and closes the connection.
        """
        xid = ops.SET_WATCHES_XID
        for lists in self.batches():
            if any(lists[3:]):
                body = SetWatches2.pack(last_zxid, *lists)
                yield ops.encode(xid, ops.SET_WATCHES2, body)
            else:
                body = SetWatches.pack(last_zxid, *lists[:3])
                yield ops.encode(xid, ops.SET_WATCHES, body)

    # --- a request that sets a watch --------------------------------------------------------------

    def expect(self, request: Request, watch: Watch) -> None:
        """The request is being submitted.  RuntimeError if its watch cannot stand beside others."""
        kind, path = request.watch_kind, request.watch_path
        self._check_mix(kind, path)
        if any(path in self._set[lasting] for lasting in _COVERED_BY.get(kind, ())):
            request.body, request.covered = request.body[:-1] + _NO_WATCH, True
        watch._pending += 1
        self._expected.setdefault((kind, path), []).append(request)
        if request.own_czxid is not None:
            self.add(kind, path, watch)

    def _check_mix(self, kind: WatchKind, path: str) -> None:
        if kind in LASTING and self._needed(path, {*LASTING} - {kind}):
            raise RuntimeError(
                f"{strip(self._chroot, path)} cannot have a persistent and a recursive watch of "
                "one client: servers before 3.9 would drop one"
            )
        for lasting in _COVERED_BY.get(kind, ()):
            if (lasting, path) in self._expected and path not in self._set[lasting]:
                raise RuntimeError(
                    f"an add_watch on {strip(self._chroot, path)} has not been answered yet: wait "
                    "for it before you set another watch there"
                )

    def _ended(self, request: Request, watch: Watch) -> bool:
        """The request sets no watch any more; False if that was noted before an interrupt."""
        place = request.watch_kind, request.watch_path
        requests = self._expected.get(place, [])
        found = request in requests
        if found:
            watch._pending -= 1
            requests.remove(request)
        if not requests:
            self._expected.pop(place, None)
        return found

    def answered(self, request: Request, watch: Watch, code: int, record: Any, zxid: int) -> None:
        """The request has been answered: register its watch, or forget it."""
        kind, path = request.watch_kind, request.watch_path
        self._ended(request, watch)
        if request.own_czxid is not None:
            self._own_node_answered(request, watch, code, record)
        elif code == 0 and kind is WatchKind.EXIST:
            # It waits for the end of a node that is there, as get_data does.
            self._register(WatchKind.DATA, request, watch, zxid)
        elif code == 0 or (code == _NO_NODE and kind is WatchKind.EXIST):
            self._register(kind, request, watch, zxid)
        else:
            self._callbacks += watch._take_wakers()
        if watch.closed:  # while its request was under way
            self.remove(watch, zxid)
        if path in self._to_release:
            self._release(path, set(), zxid)

    def _own_node_answered(self, request: Request, watch: Watch, code: int, record: Any) -> None:
        """The watch stays if the node is the client's own; ask again if that is not known."""
        is_own = code == 0 and record.stat.czxid == request.own_czxid
        if code in _OF_THE_SESSION:
            self._to_repeat.append(request)
        elif code in _TRY_AGAIN and watch._places:
            self.requests.append(_repeated(request, request.body))
        elif not is_own and self.discard(request.watch_kind, request.watch_path, watch):
            deleted = code in (0, _NO_NODE)
            what = EventType.NODE_DELETED if deleted else EventType.CHILD_WATCH_REMOVED
            self._deliver(watch, self._event(what, request.watch_path))

    def _register(self, kind: WatchKind, request: Request, watch: Watch, zxid: int) -> None:
        path = request.watch_path
        request.watch = self.add(kind, path, watch)
        covered = request.covered and path not in self._to_release
        if covered and not self._needed(path, _COVERED_BY[kind]):
            # There is a persistent watch of another kind now, which does not cover this watch.
            self._set_again(path, (kind,), zxid)
        if kind is WatchKind.RECURSIVE:
            # Before 3.9 it has just replaced a child watch, and does not get its events.
            self._set_again(path, (WatchKind.CHILD,), zxid)

    def fail(self, request: Request, watch: Watch, zxid: int, *, withdrawn: bool = False) -> None:
        """The request has ended without an answer: only an own-node watch stays set."""
        ended = self._ended(request, watch)
        if request.own_czxid is not None:
            if not withdrawn:  # withdrawn: the lock is released already
                self._to_repeat.append(request)
        elif ended:
            self._callbacks += watch._take_wakers()
        if request.watch_path in self._to_release:
            self._release(request.watch_path, set(), zxid)

    def take_repeats(self) -> list[Request]:
        """The requests of own-node watches to repeat on a new connection, which has the watches.

        Its server reports only what is newer than this client's last zxid.  Before that the own
        node may have been deleted, and another one created in its place: only an answer tells.
        """
        requests, self._to_repeat = self._to_repeat, []
        return [
            _repeated(request, request.body[:-1] + _NO_WATCH)
            for request in requests
            if request.watch is not None and request.watch._places
        ]

    # --- events -----------------------------------------------------------------------------------

    def _event(self, number: int, path: str, zxid: int | None = None) -> Event:
        # Without Event.__new__, whose checks are a fifth of the cost of an event.
        return _new(Event, (_TYPES[number], strip(self._chroot, path), self._state, zxid))

    def _deliver(self, watch: Watch, event: Event) -> None:
        watch._deliver(event)
        if watch._wakers or watch.callback is not None:
            self._callbacks += watch._take_wakers()
        if self.observer is not None:
            self._callbacks.append(self.observer(event))

    def receive(self, number: int, path: str, zxid: int) -> None:
        """The server says that something has happened to ``path``."""
        told = self._concerned(number, path)
        if told:
            # Servers before 3.9 send no zxid, and no server does for events after set_watches.
            self._firing = path, self._event(number, path, zxid if zxid > 0 else None), told
            self.fire()

    def fire(self) -> None:
        """Deliver the event at hand, which an interrupt may have left half delivered.

        Each watch gets it once, however often this begins; then spent watches leave the table.
        """
        if self._firing is not None:
            path, event, told = self._firing
            for watch in told:
                self._deliver(watch, event)
            self._take_out(event.type, path)
            self._firing = None

    def reread(self, state: State) -> None:
        """A new connection has the watches; persistent ones may have missed events."""
        self._state = state
        for kind in LASTING:
            for path in list(self._set[kind]):
                event = self._event(EventType.REREAD, path)
                for watch in self._at(kind, path):
                    self._deliver(watch, event)

    # --- the end of watches -----------------------------------------------------------------------

    def remove(self, watch: Watch, zxid: int) -> None:
        """Remove a watch from every path; ``zxid`` is the last one that the client has seen.

        A watch that is not closed may be set again.
        """
        kinds: dict[str, set[WatchKind]] = {}
        for kind, path in sorted(watch._places):
            self.discard(kind, path, watch)
            kinds.setdefault(path, set()).add(kind)
        for path, touched in kinds.items():
            self._release(path, touched, zxid)
        self._callbacks += watch._take_wakers()

    def drop(self, watch: Watch) -> None:
        """Remove a watch from every path, on this side only: its nodes are about to be deleted."""
        for kind, path in list(watch._places):
            self.discard(kind, path, watch)
        self._callbacks += watch._take_wakers()

    def remove_asked(
        self, request: Request, zxid: int, connected: bool
    ) -> Answered | Refused | None:
        """Do a ``remove_watches`` request here: how it ends, or None if the server must be told.

        Its body is what the server must be told then.
        """
        asked = RemoveWatchesRequest.decode(request.body)
        found = self._remove_at(asked.path, _OF_TYPE[WatchType(asked.type)], zxid)
        if not (connected and self.requests):
            return ANSWERED if found else _NO_WATCHER
        request.body = self.requests.pop(0).body
        return None

    def _remove_at(self, path: str, which: Iterable[WatchKind], zxid: int) -> bool:
        """Remove the watches of some kinds on a path and tell them; False if there were none."""
        kinds = {kind for kind in which if path in self._set[kind]}
        for kind in sorted(kinds):
            event = self._event(_REMOVED[kind], path)
            for watch in self._at(kind, path):
                self.discard(kind, path, watch)
                self._deliver(watch, event)
        self._release(path, kinds, zxid)
        return bool(kinds)

    def end_lasting(self, zxid: int) -> None:
        """The server knows no persistent watches: each gets the event that it is removed."""
        for kind in LASTING:
            for path in list(self._set[kind]):
                self._remove_at(path, (kind,), zxid)

    def _release(self, path: str, kinds: set[WatchKind], zxid: int) -> None:
        """Make the server forget what no watch on ``path`` needs."""
        if self._needed(path, LASTING):
            self._to_release.discard(path)  # the new one has replaced the old one
        elif kinds.intersection(LASTING) or path in self._to_release:
            if any((kind, path) in self._expected for kind in _ONE_SHOT):
                # Their answers tell which watches they have set.
                self._to_release.add(path)
                return
            self._to_release.discard(path)
            # Only this type removes a persistent watch on every server; it removes the others, too.
            self._forget(path, WatchType.ANY)
            self._set_again(path, _ONE_SHOT, zxid)
        else:
            for which in (WatchType.DATA, WatchType.CHILDREN):  # a server has a table for each
                table = _OF_TYPE[which]
                if kinds.intersection(table) and not self._needed(path, table):
                    self._forget(path, which)

    def forget_server(self) -> None:
        """The connection has ended, and with it every watch that the server had."""
        self.requests.clear()
        self._to_release.clear()

    def _needed(self, path: str, kinds: Iterable[WatchKind]) -> bool:
        return any((k, path) in self._expected or path in self._set[k] for k in kinds)

    def _forget(self, path: str, which: WatchType) -> None:
        body = RemoveWatchesRequest.pack(path, which)
        self.requests.append(Request(ops.REMOVE_WATCHES, strip(self._chroot, path), body))

    def _set_again(self, path: str, kinds: Iterable[WatchKind], zxid: int) -> None:
        """Set the one-shot watches on ``path`` again; changes after ``zxid`` fire them."""
        lists = [[path] if kind in kinds and path in self._set[kind] else [] for kind in _ONE_SHOT]
        if any(lists):
            body = SetWatches.pack(zxid, *lists)
            self.requests.append(Request(ops.SET_WATCHES, strip(self._chroot, path), body))

    def expect_nothing(self, but: Collection[Request]) -> None:
        """No request ``but`` these is under way: forget what an interrupt has left."""
        for request in [request for requests in self._expected.values() for request in requests]:
            assert request.watch is not None
            if request not in but:
                self.fail(request, request.watch, 0, withdrawn=True)
        self._expected = {place: requests for place, requests in self._expected.items() if requests}


def _repeated(request: Request, body: bytes) -> Request:
    """The request of an own-node watch once more."""
    place = request.watch_path, request.watch_kind
    return Request(request.op, request.path, body, None, request.watch, *place, request.own_czxid)


def _each_once(found: list[Watch]) -> list[Watch]:
    """The first of each identity."""
    once: dict[Hashable, Watch] = {}
    for watch in found:
        once.setdefault(watch._identity, watch)
    return list(once.values())


def _pieces(places: Iterable[Place], most: int) -> Iterator[Batch]:
    lists, size = _no_paths(), 0
    for kind, path in places:
        cost = len(path.encode()) + 4
        if size and size + cost > most:
            yield lists
            lists, size = _no_paths(), 0
        lists[kind].append(path)
        size += cost
    if size:
        yield lists


def ancestors(path: str) -> Iterator[str]:
    """``path`` itself and every path above it, up to the root."""
    while path != "/":
        yield path
        path = path[: path.rfind("/")] or "/"
    yield path


def _no_paths() -> Batch:
    return [], [], [], [], []
