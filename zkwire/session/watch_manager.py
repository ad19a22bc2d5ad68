"""When a watch gets into the table and out of it, and what a server must be told about that.

Invariants:

* A watch is in the table exactly while the server has it or will be told of it in the next
  handshake; it gets in with the reply that sets it, in the order of the wire.
* Nobody else's watch is disturbed: a server is told to forget what no watch here needs any more.
* Before 3.9 a server keeps *one mode* for each path of a connection and the last request wins
  (``WatcherModeManager``): a read with a watch would end a persistent watch on the same path.  A
  persistent watch sends every event that the one-shot watch waits for, so a read on a path that it
  covers asks for no watch, and the event is shared out here.  What cannot be shared (a persistent
  and a recursive watch on one path; a read behind an ``add_watch`` that is not answered yet) is
  refused in the caller.
"""

from __future__ import annotations

from zkwire.errors import (
    REJECTIONS,
    SESSION_EXPIRED,
    NoNodeError,
    RequestTimeoutError,
    SessionMovedError,
    ThrottledOpError,
)
from zkwire.jute.records import RemoveWatchesRequest, SetWatches
from zkwire.session.request import Request
from zkwire.session.watch_table import WatchTable
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State, WatchType
from zkwire.wire.ops import LASTING, WatchKind
from zkwire.wire.paths import strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from zkwire.session.waitable import Waker
    from zkwire.session.watch import Watch
    from zkwire.session.watch_table import Place, Spent, Told

_new: Callable[..., Event] = tuple.__new__  # pyright: ignore
_TYPES = {int(known): known for known in EventType}
_NO_NODE = NoNodeError.code
_NOT_NOW = (RequestTimeoutError.code, ThrottledOpError.code)
_OF_THE_SESSION = (SESSION_EXPIRED, SessionMovedError.code, *REJECTIONS)
_NO_WATCH = b"\0"  # the last field of every read that can set a watch

_ONE_SHOT = (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD)

# Which persistent watches send all that a one-shot watch on the same path waits for.
_COVERED_BY = {
    WatchKind.DATA: (WatchKind.PERSISTENT, WatchKind.RECURSIVE),
    WatchKind.EXIST: (WatchKind.PERSISTENT, WatchKind.RECURSIVE),
    WatchKind.CHILD: (WatchKind.PERSISTENT,),
}
_OTHER_MODE = {
    WatchKind.PERSISTENT: WatchKind.RECURSIVE,
    WatchKind.RECURSIVE: WatchKind.PERSISTENT,
}
_SERVER_TABLES = (
    (WatchType.DATA, (WatchKind.DATA, WatchKind.EXIST)),
    (WatchType.CHILDREN, (WatchKind.CHILD,)),
)
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

_LASTING_TYPES = (
    (WatchKind.PERSISTENT, WatchType.PERSISTENT),
    (WatchKind.RECURSIVE, WatchType.PERSISTENT_RECURSIVE),
)


def _again(request: Request, body: bytes) -> Request:
    """The same question."""
    place = request.watch_path, request.watch_kind
    return Request(request.op, request.path, body, None, request.watch, *place, request.guards)


class WatchManager:
    """See the module's docstring.  ``callbacks`` is the automaton's list of functions to call."""

    __slots__ = (
        "_callbacks",
        "_chroot",
        "_doubted",
        "_expected",
        "_firing",
        "_owed",
        "requests",
        "state",
        "table",
    )  # fmt: skip

    def __init__(self, chroot: str, callbacks: list[Waker]) -> None:
        self.table = WatchTable()
        self.requests: list[Request] = []  # what the server must be told, if there is one
        self.state = State.CONNECTED  # in which events arrive
        self._chroot = chroot
        self._callbacks = callbacks
        self._expected: dict[Place, list[Request]] = {}  # requests under way that may set a watch
        self._doubted: list[Request] = []  # guards that no server has answered
        self._owed: set[str] = set()  # paths with a persistent watch that nobody needs any more
        self._firing: tuple[str, Event, list[Told], list[Spent]] | None = None

    # --- a request that sets a watch --------------------------------------------------------------

    def expect(self, request: Request, watch: Watch) -> None:
        """The call is being submitted.  Raises RuntimeError if it must not be."""
        kind, path = request.watch_kind, request.watch_path
        self._check_mix(kind, path)
        if self._covered(kind, path):
            request.body, request.covered = request.body[:-1] + _NO_WATCH, True
        watch.arm(lasting=kind in LASTING)
        self._expected.setdefault((kind, path), []).append(request)
        if request.guards is not None:
            self.table.add(kind, path, watch)

    def _check_mix(self, kind: WatchKind, path: str) -> None:
        other = _OTHER_MODE.get(kind)
        if other is not None and ((other, path) in self._expected or self.table.has(other, path)):
            raise RuntimeError(
                f"{strip(self._chroot, path)} cannot have a persistent and a recursive watch of "
                "one client: servers before 3.9 would drop one"
            )
        for lasting in _COVERED_BY.get(kind, ()):
            if (lasting, path) in self._expected and not self.table.has(lasting, path):
                raise RuntimeError(
                    f"an add_watch on {strip(self._chroot, path)} has not been answered yet: wait "
                    "for it before you set another watch there"
                )

    def _covered(self, kind: WatchKind, path: str) -> bool:
        return any(self.table.has(lasting, path) for lasting in _COVERED_BY.get(kind, ()))

    def _ended(self, request: Request) -> bool:
        """The call sets nothing any more; False if that was known (an interrupt came after it)."""
        place = request.watch_kind, request.watch_path
        requests = self._expected.get(place, [])
        known = request not in requests
        if not known:
            requests.remove(request)
        if not requests:
            self._expected.pop(place, None)
        return not known

    def answered(self, request: Request, watch: Watch, code: int, record: Any, zxid: int) -> None:
        """The call has been answered: register its watch, or let go of it."""
        kind, path = request.watch_kind, request.watch_path
        self._ended(request)
        if request.guards is not None:
            self._settle_guard(request, watch, code, record)
        elif code == 0:
            # An exists on a node that is there waits for its end, as get_data does.
            self._register(
                WatchKind.DATA if kind is WatchKind.EXIST else kind, request, watch, zxid
            )
        elif code == _NO_NODE and kind is WatchKind.EXIST:
            self._register(kind, request, watch, zxid)
        else:
            watch.disarm(lasting=kind in LASTING)
            self._callbacks += watch.take_wakers()
        if watch.closed:  # given up while its request was under way
            self.remove(watch, zxid)
        if path in self._owed:
            self._release(path, set(), zxid)

    def _settle_guard(self, request: Request, watch: Watch, code: int, record: Any) -> None:
        """Only the node itself lets a holder go on; who has not looked for it is asked again."""
        is_own = code == 0 and record.stat.czxid == request.guards
        if code in _OF_THE_SESSION:
            self._doubted.append(request)
        elif code in _NOT_NOW and watch.places:
            self.requests.append(_again(request, request.body))
        elif not is_own and self.table.discard(request.watch_kind, request.watch_path, watch):
            gone = code in (0, _NO_NODE)
            what = EventType.NODE_DELETED if gone else EventType.CHILD_WATCH_REMOVED
            self._deliver(watch, self._event(what, request.watch_path))

    def _register(self, kind: WatchKind, request: Request, watch: Watch, zxid: int) -> None:
        path = request.watch_path
        request.watch = self.table.add(kind, path, watch)
        if request.covered and path not in self._owed and not self._needed(path, _COVERED_BY[kind]):
            # Another kind of persistent watch is there now, which does not cover it.
            self._set_again(path, (kind,), zxid)
        if kind is WatchKind.RECURSIVE:
            # Before 3.9 it has just replaced a child watch, whose event it does not get.
            self._set_again(path, (WatchKind.CHILD,), zxid)

    def fail(self, request: Request, watch: Watch, zxid: int, *, given_up: bool = False) -> None:
        """The call has ended without an answer: no watch, but for a guard's."""
        ended = self._ended(request)
        if request.guards is not None:
            if not given_up:  # as the guard of every lock is that is held for a moment only
                self._doubted.append(request)
        elif ended:
            watch.disarm(lasting=request.watch_kind in LASTING)
            self._callbacks += watch.take_wakers()
        if request.watch_path in self._owed:
            self._release(request.watch_path, set(), zxid)

    def doubts(self) -> list[Request]:
        """What to ask again on a new connection, which has the watches.

        Its server tells only of what this client has not heard of.  A guarded node can have gone,
        and one of somebody else's come, before that: only an answer says whose it is.
        """
        doubted, self._doubted = self._doubted, []
        return [
            _again(request, request.body[:-1] + _NO_WATCH)
            for request in doubted
            if request.watch is not None and request.watch.places
        ]

    # --- events -----------------------------------------------------------------------------------

    def _event(self, number: int, path: str, zxid: int | None = None) -> Event:
        # A fifth of the cost of an event: the class's own ways look at what is known here.
        return _new(Event, (_TYPES[number], strip(self._chroot, path), self.state, zxid))

    def _deliver(self, watch: Watch, event: Event, spent: bool = True) -> None:
        watch.deliver(event, spent)
        if watch.wakers or watch.callback is not None:
            self._callbacks += watch.take_wakers()

    def receive(self, number: int, path: str, zxid: int) -> None:
        """The server says that something has happened to ``path``."""
        told, spent = self.table.concerned(number, path)
        if told:
            # A server before 3.9 sends no zxid, and none sends one for what it catches up with.
            event = self._event(number, path, zxid if zxid > 0 else None)
            self._firing = path, event, told, spent
            self.fire()

    def fire(self) -> None:
        """Tell the watches of the event in hand, also of one that an interrupt has left there.

        Each is told once, however often this begins; only then they are taken out.
        """
        if self._firing is not None:
            path, event, told, spent = self._firing
            for watch, spends in told:
                self._deliver(watch, event, spends)
            self.table.take_out(path, spent)
            self._firing = None

    def reread(self) -> None:
        """A new connection has the watches; what happened in between, persistent ones missed."""
        for kind in LASTING:
            for path in self.table.paths(kind):
                event = self._event(EventType.REREAD, path)
                for watch in self.table.at(kind, path):
                    self._deliver(watch, event, spent=False)

    # --- the end of watches -----------------------------------------------------------------------

    def remove(self, watch: Watch, zxid: int) -> None:
        """Take a watch out everywhere; ``zxid`` is the last one that the server is known to have.

        A watch that is not closed may be set again.
        """
        kinds: dict[str, set[WatchKind]] = {}
        for kind, path in sorted(watch.places):
            self.table.discard(kind, path, watch)
            kinds.setdefault(path, set()).add(kind)
        for path, touched in kinds.items():
            self._release(path, touched, zxid)
        self._callbacks += watch.take_wakers()

    def drop(self, watch: Watch) -> None:
        """Take a watch out everywhere, on this side only: its nodes are about to go."""
        for kind, path in list(watch.places):
            self.table.discard(kind, path, watch)
        self._callbacks += watch.take_wakers()

    def remove_at(self, path: str, which: WatchType, zxid: int) -> bool:
        """Take all watches of a type on a path out, and tell them; False if there were none."""
        kinds = {kind for kind in _OF_TYPE[which] if self.table.has(kind, path)}
        for kind in sorted(kinds):
            event = self._event(_REMOVED[kind], path)
            for watch in self.table.at(kind, path):
                self.table.discard(kind, path, watch)
                watch.disarm(lasting=kind in LASTING)
                self._deliver(watch, event, spent=False)
        self._release(path, kinds, zxid)
        return bool(kinds)

    def end_lasting(self, zxid: int) -> None:
        """No server knows persistent watches: each is told that it has been removed."""
        for kind, which in _LASTING_TYPES:
            for path in self.table.paths(kind):
                self.remove_at(path, which, zxid)

    def _release(self, path: str, kinds: set[WatchKind], zxid: int) -> None:
        """Make the server forget what nobody here needs any more on ``path``."""
        if self._needed(path, LASTING):
            self._owed.discard(path)  # it covers the others, and has replaced what was owed
        elif kinds.intersection(LASTING) or path in self._owed:
            if any((kind, path) in self._expected for kind in _ONE_SHOT):
                # Only when they are answered it is known what they have set.
                self._owed.add(path)
                return
            self._owed.discard(path)
            # The only type that takes a persistent watch away on every server; and all the others.
            self._forget(path, WatchType.ANY)
            self._set_again(path, _ONE_SHOT, zxid)
        else:
            for which, table in _SERVER_TABLES:
                if kinds.intersection(table) and not self._needed(path, table):
                    self._forget(path, which)

    def forget_server(self) -> None:
        """The connection is gone, and with it all that the server had."""
        self.requests.clear()
        self._owed.clear()

    def _needed(self, path: str, kinds: Iterable[WatchKind]) -> bool:
        return any((k, path) in self._expected or self.table.has(k, path) for k in kinds)

    def _forget(self, path: str, which: WatchType) -> None:
        body = RemoveWatchesRequest.pack(path, which)
        self.requests.append(Request(ops.REMOVE_WATCHES, strip(self._chroot, path), body))

    def _set_again(self, path: str, kinds: Iterable[WatchKind], zxid: int) -> None:
        """Set the one-shot watches on ``path`` again; changes after ``zxid`` fire them."""
        lists = [
            [path] if kind in kinds and self.table.has(kind, path) else [] for kind in _ONE_SHOT
        ]
        if any(lists):
            body = SetWatches.pack(zxid, *lists)
            self.requests.append(Request(ops.SET_WATCHES, strip(self._chroot, path), body))

    def all_told(self) -> list[Watch]:
        """All watches; the event in hand has been handed out."""
        self.fire()
        return self.table.all()

    def expect_nothing(self, but: Collection[Request]) -> None:
        """No request is under way: what an interrupt has left here is not expected any more."""
        for request in [request for requests in self._expected.values() for request in requests]:
            assert request.watch is not None
            if request not in but:
                self.fail(request, request.watch, 0, given_up=True)
        self._expected = {place: requests for place, requests in self._expected.items() if requests}
