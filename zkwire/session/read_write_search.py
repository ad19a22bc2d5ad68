"""Looking for a read-write server while connected to a read-only one.

Decides whom to ask and when: 100 ms after the connection was made, then twice as long from time to
time, up to a minute (``ClientCnxn.pingRwServer`` in the Java client).  Asking, with the four-letter
word ``isro``, is the shell's part.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.hosts import HostList

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 60.0
READ_WRITE = b"rw"


class ReadWriteSearch:
    """See the module's docstring.  ``asking`` is the server that the shell must ask now."""

    __slots__ = ("_hosts", "_pause", "asking", "at")

    def __init__(self, hosts: HostList) -> None:
        self._hosts = hosts
        self._pause = 0.0
        self.asking: tuple[str, int] | None = None
        self.at: float | None = None  # when to ask next

    def start(self, now: float) -> None:
        """The client has connected to a read-only server."""
        self._pause, self.asking, self.at = FIRST_PAUSE, None, now + FIRST_PAUSE

    def stop(self) -> None:
        """It is not connected to one any more."""
        self.asking = self.at = None

    def on_deadline(self, now: float) -> None:
        """Ask, if it is time."""
        if self.at is not None and now >= self.at:
            self.asking, self.at = self._hosts.next(), None

    def answered(self, answer: bytes, now: float) -> bool:
        """What the server said, b"" for nothing; True if it is read-write, and to be tried next."""
        server, self.asking = self.asking, None
        if server is None:
            return False  # the connection was lost meanwhile
        if answer.startswith(READ_WRITE):
            self._hosts.prefer(server)
            return True
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self.at = now + self._pause
        return False
