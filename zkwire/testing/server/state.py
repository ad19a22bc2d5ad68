"""Everything that the servers of one embedded ensemble share: tree, sessions, watches, the time.

It decides how an event reaches the connections that watch for it.  It must not know requests: the
modules `reads` and `writes` carry those out on it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from zkwire.jute.records import WatcherEvent
from zkwire.testing.server import java
from zkwire.testing.server.connection import Connection
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.sessions import Sessions
from zkwire.testing.server.tree import DataTree
from zkwire.testing.server.tree import Event as TreeEvent
from zkwire.testing.server.watchers import Watchers
from zkwire.wire.model import Perms
from zkwire.wire.ops import NOTIFICATION_XID

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

    def send_events(self, events: Iterable[TreeEvent]) -> None:
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
