"""The search for a read-write server while the client is connected to a read-only one.

Decides which server is asked and when: 100 ms after the connection was made, then after pauses that
double up to a minute (Java's ``ClientCnxn.pingRwServer``).  It must not know how: the shell asks,
with the four-letter word ``isro``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.hosts import HostList

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 60.0
READ_WRITE = b"rw"


class ReadWriteSearch:
    """See the module's docstring.

    ``asking`` is the server that the shell must ask now, ``at`` the time in seconds at which the
    next one is asked; both are None outside a search.
    """

    __slots__ = ("_hosts", "_pause", "asking", "at")

    def __init__(self, hosts: HostList) -> None:
        self._hosts = hosts
        self._pause = 0.0
        self.asking: tuple[str, int] | None = None
        self.at: float | None = None

    def start(self, now: float) -> None:
        """The client has connected to a read-only server."""
        self._pause, self.asking, self.at = FIRST_PAUSE, None, now + FIRST_PAUSE

    def stop(self) -> None:
        """The client is no longer connected to a read-only server."""
        self.asking = self.at = None

    def on_deadline(self, now: float) -> None:
        """Ask the next server if that is due."""
        if self.at is not None and now >= self.at:
            self.asking, self.at = self._hosts.next(), None

    def answered(self, answer: bytes, now: float) -> bool:
        """The server's answer, b"" for none; True if it is read-write: it is tried next then."""
        server, self.asking = self.asking, None
        if server is None:
            return False  # the connection has been lost meanwhile
        if answer.startswith(READ_WRITE):
            self._hosts.prefer(server)
            return True
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self.at = now + self._pause
        return False
