"""What the servers of one embedded ensemble share: tree, sessions, the time, and the watches.

It decides which connections get an event, and how.  It must not know requests: `operations`
carries those out on it.

There are two tables of watches, as in ``DataTree``: data watches (set by get_data and exists) and
child watches.  A watch of ``add_watch`` is in both.  A connection has one entry per path in each
table.  Up to 3.8 an entry has one mode, that of the last call (``WatcherModeManager``); from 3.9 on
it may have several (``WatchStats``).

Invariants: a one-shot watch that has fired is gone.  A connection gets at most one event for each
change, path and type: a delete that fires a data and a child watch is one event (``WatchManager``
gets the watchers of the first table and leaves them out of the second).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum, IntFlag
from typing import Final

from zkwire.errors import MarshallingError
from zkwire.jute.records import WatcherEvent
from zkwire.testing.server import java
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.sessions import Connection, Sessions
from zkwire.testing.server.tree import DataTree, Event
from zkwire.wire.model import EventType, Perms
from zkwire.wire.ops import NOTIFICATION_XID


class Mode(IntFlag):
    """How often a watch fires and what it covers; the last two are modes of ``add_watch``."""

    ONE_SHOT = 1
    PERSISTENT = 2
    RECURSIVE = 4


_ALL: Final = Mode.ONE_SHOT | Mode.PERSISTENT | Mode.RECURSIVE


class Kind(IntEnum):
    """The watches that a check_watches or remove_watches names (``Watcher.WatcherType``)."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    RECURSIVE = 5


# From 3.9 on; before, the first three name entries of any mode.
_MODES: Final = {
    Kind.CHILDREN: Mode.ONE_SHOT,
    Kind.DATA: Mode.ONE_SHOT,
    Kind.ANY: _ALL,
    Kind.PERSISTENT: Mode.PERSISTENT,
    Kind.RECURSIVE: Mode.RECURSIVE,
}


class WatchTable:
    """Modes by path and connection, in the order of their insertion, so that runs repeat."""

    def __init__(self, *, one_mode: bool) -> None:
        self.watchers: dict[str, dict[Connection, Mode]] = {}
        self.recursive: int = 0  # the number of recursive entries; with none, parents are skipped
        self._one_mode = one_mode

    def add(self, path: str, connection: Connection, mode: Mode = Mode.ONE_SHOT) -> None:
        """Send ``connection`` the events of this table that the mode is for."""
        old = self.modes(path, connection)
        self._set(path, connection, mode if self._one_mode else old | mode)

    def modes(self, path: str, connection: Connection) -> Mode:
        return self.watchers.get(path, {}).get(connection, Mode(0))

    def is_watched(self, path: str) -> bool:
        """Whether any connection watches a path, as 3.8 computes it, from the path to the root.

        3.8 finds nothing for "", and fails for a path that does not lead to a slash.
        """
        found = path != "" and path in self.watchers
        goes_on = self.recursive and not found
        if path and not path.startswith("/") and ("/" not in path or goes_on):
            raise MarshallingError
        return found

    def remove(self, path: str, connection: Connection, modes: Mode = _ALL) -> bool:
        """Remove these modes of one entry; whether it had one of them."""
        old = self.modes(path, connection)
        self._set(path, connection, old & ~modes)
        return bool(old & modes)

    def fire(self, event: Event) -> dict[Connection, None]:
        """The connections that get an event; its one-shot watches are removed."""
        told: dict[Connection, None] = {}
        children = event.type is EventType.NODE_CHILDREN_CHANGED
        for connection, modes in list(self.watchers.get(event.path, {}).items()):
            if modes != Mode.RECURSIVE or not children:
                told[connection] = None
                self._set(event.path, connection, modes & ~Mode.ONE_SHOT)
        if self.recursive and not children:
            above = event.path
            while above != "/":
                above = above[: above.rindex("/")] or "/"
                watchers = self.watchers.get(above, {})
                told.update((c, None) for c, modes in watchers.items() if modes & Mode.RECURSIVE)
        return told

    def paths(self, connection: Connection) -> list[str]:
        """The paths that a connection watches."""
        return [path for path, watchers in self.watchers.items() if connection in watchers]

    def _set(self, path: str, connection: Connection, modes: Mode) -> None:
        old = self.modes(path, connection)
        self.recursive += (Mode.RECURSIVE in modes) - (Mode.RECURSIVE in old)
        if modes:
            self.watchers.setdefault(path, {})[connection] = modes
        elif old:
            del self.watchers[path][connection]
            if not self.watchers[path]:
                del self.watchers[path]


class Watchers:
    """The watches of all connections.

    Those in ``data`` fire when the node is created, changed or deleted, those in ``child`` when a
    child or the node is created or deleted.
    """

    def __init__(self, *, one_mode: bool = True) -> None:
        self.one_mode = one_mode
        self.data: WatchTable = WatchTable(one_mode=one_mode)
        self.child: WatchTable = WatchTable(one_mode=one_mode)

    def __len__(self) -> int:
        return sum(len(w) for t in (self.data, self.child) for w in t.watchers.values())

    def watch_persistently(self, path: str, connection: Connection, *, recursive: bool) -> None:
        """Send ``connection`` an event at every change of a node, or of it and its descendants.

        Up to 3.8 a recursive watch is in the child table, too.  There it fires only for deletes,
        for which it fires in the data table as well; but if one of the two entries is overwritten,
        the other stays.
        """
        mode = Mode.RECURSIVE if recursive else Mode.PERSISTENT
        self.data.add(path, connection, mode)
        if self.one_mode or not recursive:
            self.child.add(path, connection, mode)

    def has(self, path: str, connection: Connection, kind: Kind) -> bool:
        """Whether the connection has a watch of this kind.

        Up to 3.8 the watches of all connections count (``WatchManager.containsWatcher``).
        """
        if self.one_mode:
            found = [table.is_watched(path) for table in self._tables(kind)]
            return any(found)
        return any(t.modes(path, connection) & _MODES[kind] for t in self._tables(kind))

    def remove(self, path: str, connection: Connection, kind: Kind) -> bool:
        """Remove the watches of this kind; whether there was one."""
        modes = _ALL if self.one_mode else _MODES[kind]
        removed = [table.remove(path, connection, modes) for table in self._tables(kind)]
        return any(removed)

    def fire(self, event: Event) -> Iterator[Connection]:
        """The connections that get an event; their one-shot watches for it are removed."""
        if event.type is EventType.NODE_CHILDREN_CHANGED:
            yield from self.child.fire(event)
            return
        told = self.data.fire(event)
        yield from told
        if event.type is EventType.NODE_DELETED:
            yield from (c for c in self.child.fire(event) if c not in told)

    def paths(self, connection: Connection) -> list[str]:
        """The paths that a connection watches, once for each table."""
        return self.data.paths(connection) + self.child.paths(connection)

    def forget(self, connection: Connection) -> None:
        """Remove all watches of a connection that has ended."""
        for table in (self.data, self.child):
            for path in table.paths(connection):
                table.remove(path, connection)

    def _tables(self, kind: Kind) -> tuple[WatchTable, ...]:
        if kind is Kind.CHILDREN:
            return (self.child,)
        return (self.data,) if kind is Kind.DATA else (self.child, self.data)


_REPLY = struct.Struct(">iiqi")  # length of the rest, xid, zxid, err
_AFTER_LENGTH = _REPLY.size - 4

# Servers before 3.9.0 do not say which transaction caused an event.
_NO_ZXID = -1
_SYNC_CONNECTED = 3  # the only state that a server ever writes


def reply_frame(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """A frame with a reply's header."""
    return _REPLY.pack(_AFTER_LENGTH + len(body), xid, zxid, code) + body


class ServerState:
    """See the module's docstring.  ``now`` is the time of a transaction that begins now.

    ``read_only`` has the members that are without a quorum.
    """

    def __init__(self, tree: DataTree, sessions: Sessions, rules: Rules, members: int) -> None:
        self.members = members
        self.read_only: set[int] = set(range(members)) if rules.read_only else set()
        self.tree = tree
        self.sessions = sessions
        self.rules = rules
        self.watchers: Watchers = Watchers(one_mode=rules.before_39)
        self.now = 0

    @property
    def frozen(self) -> bool:
        """Whether no member has a quorum: then global sessions and old containers stay."""
        return len(self.read_only) == self.members

    def send_events(self, events: Iterable[Event]) -> None:
        """Send each event to the connections that watch for it and may read the node.

        The real server checks the node's ACL as it is at the time of the change (CVE-2024-23944).
        The watch is used up even if the connection may not read the node and gets no event.
        """
        zxid = _NO_ZXID if self.rules.before_39 else self.tree.zxid
        for event in events:
            for connection in self.watchers.fire(event):
                if connection.credentials.allows(event.acl, Perms.READ):
                    self.send_event(connection, event.type, event.path, zxid)

    def send_event(
        self, connection: Connection, kind: int, path: str, zxid: int = _NO_ZXID
    ) -> None:
        """Send one event to one connection; an event that it missed earlier has no zxid."""
        body = java.write(WatcherEvent(kind, _SYNC_CONNECTED, path))
        connection.send(reply_frame(NOTIFICATION_XID, zxid, 0, body))
