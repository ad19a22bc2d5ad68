"""The table of all watches that are set: which of them an event concerns, which to set again.

A server keeps a watch per *connection*; the table outlives the connection, so that
:meth:`WatchTable.batches` can set them again.  It decides which local watches an event concerns
(``ZKWatchManager`` in the Java client).  It must not know when a watch enters or leaves: that is
:mod:`zkwire.session.watch_manager`.

Invariant: ``Watch._places`` holds exactly the kinds and paths at which the table has the watch.
"""

from __future__ import annotations

from zkwire.wire.model import EventType
from zkwire.wire.ops import LASTING, WatchKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from zkwire.session.watch import Watch

    Place = tuple[WatchKind, str]
    Paths = dict[str, dict[Hashable, Watch]]
    Told = tuple[Watch, bool]
    Spent = tuple[WatchKind, Paths]
    Batch = tuple[list[str], list[str], list[str], list[str], list[str]]

# A set_watches frame must stay far below a server's limit of 1 MiB (ZOOKEEPER-706).
BATCH_BYTES = 128 * 1024
# Of such a frame, beside the paths: the header, a zxid and the lengths of five lists.
OTHER_BYTES = 8 + 8 + 5 * 4
_LAST = (WatchKind.CHILD, True)  # a child watch on the path of a recursive one

_CONCERNED: dict[int, tuple[WatchKind, ...]] = {
    EventType.NODE_CREATED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.PERSISTENT),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.PERSISTENT),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILD, WatchKind.PERSISTENT),
    EventType.NODE_DELETED: (
        WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD, WatchKind.PERSISTENT,
    ),
}  # fmt: skip


class WatchTable:
    """All watches that are set, by kind and by the server's path."""

    __slots__ = ("_batch_bytes", "_concerned", "_recursive", "_set")

    def __init__(self, batch_bytes: int = BATCH_BYTES) -> None:
        self._batch_bytes = batch_bytes
        self._set: dict[WatchKind, Paths] = {kind: {} for kind in WatchKind}
        # For each event: which tables it concerns, and whether it spends their watches.
        self._concerned: dict[int, list[tuple[WatchKind, Paths, bool]]] = {
            event: [(kind, self._set[kind], kind not in LASTING) for kind in kinds]
            for event, kinds in _CONCERNED.items()
        }
        self._recursive = self._set[WatchKind.RECURSIVE]

    def __len__(self) -> int:
        return sum(len(w) for paths in self._set.values() for w in paths.values())

    def has(self, kind: WatchKind, path: str) -> bool:
        """Whether any watch of this kind is set on exactly this path."""
        return path in self._set[kind]

    def at(self, kind: WatchKind, path: str) -> list[Watch]:
        """The watches of this kind on exactly this path."""
        return list(self._set[kind].get(path, {}).values())

    def paths(self, kind: WatchKind) -> list[str]:
        """The paths with a watch of this kind."""
        return list(self._set[kind])

    def add(self, kind: WatchKind, path: str, watch: Watch) -> Watch:
        """Register ``watch``; a second one of the same identity on the same path changes nothing.

        Returns the one that is there now.
        """
        watches = self._set[kind].setdefault(path, {})
        if watch._identity in watches:
            watch._disarm(lasting=kind in LASTING)
        else:
            watch._places = watch._places or set()
            watches[watch._identity] = watch
            watch._places.add((kind, path))
        return watches[watch._identity]

    def concerned(self, event: int, path: str) -> tuple[list[Told], list[Spent]]:
        """The watches that an event of this type on ``path`` concerns, each once.

        Each comes with whether the event spends it; a watch that is only persistent stays set.  The
        second list is where the spent ones are, for :meth:`take_out`.
        """
        found: list[Told] = []
        spent: list[Spent] = []
        for kind, paths, spends in self._concerned.get(event, ()):
            if path in paths:
                for watch in paths[path].values():
                    found.append((watch, spends))
                if spends:
                    spent.append((kind, paths))
        recursive = self._recursive
        # A change of children is sent for a child watch; recursive watches do not get it.
        if recursive and event in _CONCERNED and event != EventType.NODE_CHILDREN_CHANGED:
            for above in self._above(path):
                if above in recursive:
                    found += [(watch, False) for watch in recursive[above].values()]
        return found if len(found) < 2 else _each_once(found), spent

    def _above(self, path: str) -> Iterable[str]:
        """Where recursive watches that see ``path`` may stand, deepest first; fast for 1 MB too."""
        if path.count("/") <= len(self._recursive):
            return ancestors(path)
        seeing = [at for at in self._recursive if path.startswith(at if at == "/" else f"{at}/")]
        seeing += [path] * (path in self._recursive)
        return sorted(seeing, key=len, reverse=True)

    def take_out(self, path: str, spent: list[Spent]) -> None:
        """Remove the watches that an event on ``path`` has spent.  Idempotent."""
        seen: set[Hashable] = set()
        for kind, paths in spent:
            for identity, watch in paths.pop(path, {}).items():
                watch._places.discard((kind, path))
                if identity in seen:
                    watch._disarm()  # set twice, told once
                seen.add(identity)

    def discard(self, kind: WatchKind, path: str, watch: Watch) -> bool:
        """Remove one registration; False if it is not there."""
        watches = self._set[kind].get(path, {})
        if watch._places:
            watch._places.discard((kind, path))
        found = watches.pop(watch._identity, None) is not None
        if not watches:
            self._set[kind].pop(path, None)
        return found

    def all(self) -> list[Watch]:
        """All watches, each once."""
        watches = {id(w): w for ps in self._set.values() for ws in ps.values() for w in ws.values()}
        return list(watches.values())

    def clear(self) -> None:
        """Forget all watches."""
        for paths in self._set.values():
            paths.clear()

    def batches(self) -> Iterator[Batch]:
        """The paths to set again, by kind, in pieces of so many bytes, or of a longer path.

        Before 3.9 a server keeps one mode for each path of a connection, and the last one wins.  So
        persistent watches come last; only a child watch on the path of a recursive one follows, as
        that one does not get its event.
        """
        recursive = self._recursive
        last = [path for path in self._set[WatchKind.CHILD] if path in recursive]
        first = ((k, p) for k in WatchKind for p in self._set[k] if (k, p in recursive) != _LAST)
        yield from _pieces(first, self._batch_bytes)
        yield from _pieces(((WatchKind.CHILD, path) for path in last), self._batch_bytes)


def _each_once(found: list[Told]) -> list[Told]:
    """The first of each identity."""
    once: dict[Hashable, Told] = {}
    for watch, spent in found:
        once.setdefault(watch._identity, (watch, spent))
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
