"""The server's side of watches: which connection wants to hear of which path, and how often.

Two tables, as in ``DataTree``: data watches (left by get_data and exists) and child watches.  A
watch of ``add_watch`` stands in both.  It decides who gets an event; must not know nodes, access
lists or frames.

A connection has one entry per path in each table.  Up to 3.8 an entry is of one mode, and the last
call decides (``WatcherModeManager``); from 3.9 it may be of several (``WatchStats``).

Invariants: a one-shot watch that has fired is gone; one change reaches a connection at most once
per path and type, so a delete that is seen by a data and a child watch is one event
(``WatchManager`` gets the watchers of the first table to suppress them in the second).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Final, TypeVar

from zkwire.errors import MarshallingError
from zkwire.testing.server.connection import Connection
from zkwire.testing.server.tree import Event
from zkwire.wire.model import EventType

_K = TypeVar("_K")
_V = TypeVar("_V")
_W = TypeVar("_W")


class Mode(IntFlag):
    """How long a watch lives and how far it sees; the last two are those of ``add_watch``."""

    ONE_SHOT = 1
    PERSISTENT = 2
    RECURSIVE = 4


_ALL: Final = Mode.ONE_SHOT | Mode.PERSISTENT | Mode.RECURSIVE


class Kind(IntEnum):
    """What ``check_watches`` and ``remove_watches`` are about (``Watcher.WatcherType``)."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    RECURSIVE = 5


# From 3.9 on; before, the first three are about entries of any mode.
_MODES: Final = {
    Kind.CHILDREN: Mode.ONE_SHOT,
    Kind.DATA: Mode.ONE_SHOT,
    Kind.ANY: _ALL,
    Kind.PERSISTENT: Mode.PERSISTENT,
    Kind.RECURSIVE: Mode.RECURSIVE,
}


class _Table:
    """Modes by path and connection; insertion order, so that runs repeat."""

    def __init__(self, *, one_mode: bool) -> None:
        self.watchers: dict[str, dict[Connection, Mode]] = {}
        self.paths: dict[Connection, dict[str, None]] = {}
        self.recursive = 0  # entries of that mode: without one, no parent need be looked at
        self._one_mode = one_mode

    def add(self, path: str, connection: Connection, mode: Mode) -> None:
        old = self.modes(path, connection)
        self._set(path, connection, mode if self._one_mode else old | mode)

    def modes(self, path: str, connection: Connection) -> Mode:
        return self.watchers.get(path, {}).get(connection, Mode(0))

    def is_watched(self, path: str) -> bool:
        """Whether anybody watches a path, as 3.8 finds out: on its way from the path to the root.

        It does not start from "", and breaks down where the way does not end at a slash.
        """
        found = path != "" and path in self.watchers
        goes_on = self.recursive and not found
        if path and not path.startswith("/") and ("/" not in path or goes_on):
            raise MarshallingError
        return found

    def remove(self, path: str, connection: Connection, modes: Mode = _ALL) -> bool:
        """Forget these modes of one entry; whether it had one of them."""
        old = self.modes(path, connection)
        self._set(path, connection, old & ~modes)
        return bool(old & modes)

    def fire(self, event: Event) -> dict[Connection, None]:
        """The connections that hear of an event; one-shot watches of it are forgotten."""
        told: dict[Connection, None] = {}
        children = event.type is EventType.NODE_CHILDREN_CHANGED
        for connection, modes in list(self.watchers.get(event.path, {}).items()):
            if modes != Mode.RECURSIVE or not children:
                told[connection] = None
                self._set(event.path, connection, modes & ~Mode.ONE_SHOT)
        if self.recursive and not children:
            for above in _ancestors(event.path):
                watchers = self.watchers.get(above, {})
                told.update((c, None) for c, modes in watchers.items() if modes & Mode.RECURSIVE)
        return told

    def forget(self, connection: Connection) -> None:
        for path in list(self.paths.get(connection, ())):
            self._set(path, connection, Mode(0))

    def _set(self, path: str, connection: Connection, modes: Mode) -> None:
        old = self.modes(path, connection)
        self.recursive += (Mode.RECURSIVE in modes) - (Mode.RECURSIVE in old)
        if modes:
            self.watchers.setdefault(path, {})[connection] = modes
            self.paths.setdefault(connection, {})[path] = None
        elif old:
            _discard(self.watchers, path, connection)
            _discard(self.paths, connection, path)


class Watchers:
    """The data watches and the child watches of all connections."""

    def __init__(self, *, one_mode: bool = True) -> None:
        self.one_mode = one_mode
        self._data = _Table(one_mode=one_mode)
        self._child = _Table(one_mode=one_mode)

    def __len__(self) -> int:
        return sum(len(w) for t in (self._data, self._child) for w in t.watchers.values())

    def watch_data(self, path: str, connection: Connection) -> None:
        """Tell ``connection`` once when the node is created, changed or deleted."""
        self._data.add(path, connection, Mode.ONE_SHOT)

    def watch_children(self, path: str, connection: Connection) -> None:
        """Tell ``connection`` once when a child comes or goes, or the node itself goes."""
        self._child.add(path, connection, Mode.ONE_SHOT)

    def watch_always(self, path: str, connection: Connection, *, recursive: bool) -> None:
        """Tell ``connection`` of every change of a node, or of it and all below.

        Up to 3.8 a recursive watch stands in the child table, too, where it hears of deletes only,
        and of those it hears already; but one that is overwritten there or here lives on in the
        other.
        """
        mode = Mode.RECURSIVE if recursive else Mode.PERSISTENT
        self._data.add(path, connection, mode)
        if self.one_mode or not recursive:
            self._child.add(path, connection, mode)

    def has(self, path: str, connection: Connection, kind: Kind) -> bool:
        """Whether there is a watch of one of the asked kinds.

        Up to 3.8 everybody's watches count (``WatchManager.containsWatcher``).
        """
        if self.one_mode:
            found = [table.is_watched(path) for table in self._tables(kind)]
            return any(found)
        return any(t.modes(path, connection) & _MODES[kind] for t in self._tables(kind))

    def remove(self, path: str, connection: Connection, kind: Kind) -> bool:
        """Forget the watches of the asked kinds; whether there was one."""
        modes = _ALL if self.one_mode else _MODES[kind]
        removed = [table.remove(path, connection, modes) for table in self._tables(kind)]
        return any(removed)

    def fire(self, event: Event) -> Iterator[Connection]:
        """The connections that an event goes to; their one-shot watches are used up."""
        if event.type is EventType.NODE_CHILDREN_CHANGED:
            yield from self._child.fire(event)
            return
        told = self._data.fire(event)
        yield from told
        if event.type is EventType.NODE_DELETED:
            yield from (c for c in self._child.fire(event) if c not in told)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and its watches with it."""
        self._data.forget(connection)
        self._child.forget(connection)

    def _tables(self, kind: Kind) -> tuple[_Table, ...]:
        if kind is Kind.CHILDREN:
            return (self._child,)
        return (self._data,) if kind is Kind.DATA else (self._child, self._data)


def _ancestors(path: str) -> Iterator[str]:
    """The paths above ``path``, up to the root."""
    while path != "/":
        path = path[: path.rindex("/")] or "/"
        yield path


def _discard(table: dict[_K, dict[_V, _W]], key: _K, value: _V) -> None:
    values = table.get(key)
    if values is not None:
        values.pop(value, None)
        if not values:
            del table[key]
