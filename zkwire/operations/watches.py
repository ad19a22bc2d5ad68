"""Persistent watches, and taking watches away."""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.operations.base import Requests
from zkwire.wire import ops
from zkwire.wire.model import WatchType
from zkwire.wire.ops import WatchKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.operations.base import AnyWatch, Reply
    from zkwire.session.watch import Watch

_PERSISTENT, _RECURSIVE = 0, 1


class Watches(Requests):
    """The operations on watches alone."""

    def add_watch(self, path: str, watch: AnyWatch, *, recursive: bool = False) -> Reply[Watch]:
        """Watch a path, with or without a node, until the watch is closed; returns the watch.

        A callable that has one there already gets no second: that one is returned.

        The watch fires at every creation, change and deletion of the node, and whenever a child of
        it is created or deleted.  ``recursive``: instead, at every creation, change and deletion of
        the node and of all nodes below it.  Nodes that the client may not read send no events.

        After a lost connection the watch is set again and gets an event of type REREAD: a server
        does not tell what happened meanwhile.  A path can have persistent or recursive watches of
        one client, not both (RuntimeError).

        Refused with: UnimplementedError (servers before 3.6).  If the connection is lost: call it
        again; the watch of the lost call was not set.
        """
        full = self._full(path)
        body = r.AddWatchRequest.pack(full, _RECURSIVE if recursive else _PERSISTENT)
        kind = WatchKind.RECURSIVE if recursive else WatchKind.PERSISTENT
        return self._send_watching(ops.ADD_WATCH, path, body, None, watch, full, kind)

    def remove_watches(self, path: str, which: WatchType = WatchType.ANY) -> Reply[None]:
        """Take away all watches of this client on a path, of one type or of any.

        Each gets a last event, of type ``..._WATCH_REMOVED``.  To take back a single one of
        several watches, close that one.

        Refused with: NoWatcherError (there was none).  If the connection is lost: nothing is left
        to do, a new connection is not told of them.
        """
        body = r.RemoveWatchesRequest.pack(self._full(path), WatchType(which))
        return self._send(ops.REMOVE_WATCHES, path, body)
