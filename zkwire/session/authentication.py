"""What a client authenticates with, again on every connection, and who waits to hear that it did.

A server answers at once, before the replies to requests that came earlier; the answers keep their
own order, so they are matched with what was sent here and never with the line of requests.  A lost
connection costs nothing: the credential goes out on the next one, and its callers wait for that.
"""

from __future__ import annotations

from collections import deque

from zkwire.errors import AuthFailedError
from zkwire.session import own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.session.request import Request


class Credential:
    """One scheme and its secret, and the calls that asked for it."""

    __slots__ = ("requests", "scheme", "secret")

    def __init__(self, scheme: str, secret: bytes) -> None:
        self.scheme = scheme
        self.secret = secret
        self.requests: deque[Request] = deque()


class Authentication:
    """All credentials of a session."""

    __slots__ = ("_known", "_sent")

    def __init__(self) -> None:
        self._known: list[Credential] = []
        self._sent: deque[Credential] = deque()  # on this connection, not answered

    def __iter__(self) -> Iterator[Request]:
        """The calls that wait."""
        return (request for credential in self._known for request in credential.requests)

    @property
    def answered(self) -> bool:
        """Whether the server has answered all that was sent."""
        return not self._sent

    def add(self, scheme: str, secret: bytes) -> Credential:
        """The credential with these values; a new one joins the others."""
        for known in self._known:
            if (known.scheme, known.secret) == (scheme, secret):
                return known
        self._known.append(Credential(scheme, secret))
        return self._known[-1]

    def send(self, credential: Credential) -> bytes:
        """The frame with a credential."""
        self._sent.append(credential)
        return own_frames.authentication(credential.scheme, credential.secret)

    def restart(self) -> list[bytes]:
        """The frames with all credentials, for a new connection."""
        self._sent.clear()
        return [self.send(credential) for credential in self._known]

    def overdue(self, now: float) -> Iterator[Request]:
        """The calls whose deadline has passed, each to be ended at once; their credentials stay."""
        for credential in self._known:
            while credential.requests and (credential.requests[0].deadline or now + 1) <= now:
                yield credential.requests[0]
                credential.requests.popleft()  # late: an interrupt finds it here until it has ended

    def receive(self, code: int) -> Iterator[Request]:
        """The calls that end with an answer, each to be ended at once.  Raises AuthFailedError."""
        credential = self._sent.popleft() if self._sent else None
        if code:
            what = f" of scheme {credential.scheme!r}" if credential else ""
            raise AuthFailedError(f"the server rejected the credentials{what}")
        while credential is not None and credential.requests:
            yield credential.requests[0]
            credential.requests.popleft()
