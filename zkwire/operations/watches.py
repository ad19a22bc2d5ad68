"""The operations on watches alone: persistent watches, and the removal of watches.

Decides what they send.  It must not know which watches are set:
:mod:`zkwire.session.watch_table` does.
"""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.operations.base import Requests
from zkwire.operations.checks import check_flag
from zkwire.wire import ops
from zkwire.wire.model import WatchType
from zkwire.wire.ops import WatchKind

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from zkwire.operations.base import AnyWatch, Reply
    from zkwire.session.watch import Watch

_PERSISTENT, _RECURSIVE = 0, 1


class Watches(Requests):
    """The operations on watches alone."""

    def add_watch(self, path: str, watch: AnyWatch, *, recursive: bool = False) -> Reply[Watch]:
        """Watch a path, with or without a node, until the watch is closed; returns the watch.

        A callable that has a watch there already gets no second one: the first is returned.

        The watch fires at every creation, change and deletion of the node, and whenever a child of
        it is created or deleted.  ``recursive``: instead, at every creation, change and deletion of
        the node and of all nodes below it.  Nodes that the client may not read send no events (from
        3.8.4 and 3.9.2 on; servers before that send them, CVE-2024-23944).

        A watch that is set outlives a lost connection: it is set again and gets an event of type
        REREAD, since a server does not report what happened meanwhile.  A path can have persistent
        or recursive watches of one client, not both (RuntimeError).

        Refused with: UnimplementedError (servers before 3.6).

        Lost connection before the answer: call it again; the lost request has not set the watch.

        Time limit or cancellation: once sent, it still sets the watch; close the watch to end it.
        """
        full = self._full(path)
        mode = _RECURSIVE if check_flag("recursive", recursive) else _PERSISTENT
        body = r.AddWatchRequest.pack(full, mode)
        kind = WatchKind.RECURSIVE if recursive else WatchKind.PERSISTENT
        return self._send_watching(ops.ADD_WATCH, path, body, None, watch, full, kind)

    def remove_watches(self, path: str, which: WatchType = WatchType.ANY) -> Reply[None]:
        """Remove all watches of this client on a path, of one type or of any.

        Each gets a last event, of type ``..._WATCH_REMOVED``.  To end one of several watches, close
        that one.

        Refused with: NoWatcherError (there is none); UnimplementedError (servers before 3.5).

        Lost connection, time limit, cancellation or UnimplementedError: the client has removed the
        watches, and a new connection does not set them again; nothing is left to do.
        """
        body = r.RemoveWatchesRequest.pack(self._full(path), WatchType(which))
        return self._send(ops.REMOVE_WATCHES, path, body)
