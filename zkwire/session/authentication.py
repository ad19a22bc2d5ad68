"""The credentials of a session, sent on every connection, and the requests that wait for them.

Decides which credential an answer is for and which requests that ends; it must not know when one is
sent.  A server answers credentials at once, before the replies to earlier requests.  Their answers
keep their own order, so they are matched with the credentials sent on this connection and not with
the unanswered requests.  A lost connection ends nothing: the credential is sent on the next one.
"""

from __future__ import annotations

from collections import deque

from zkwire.errors import AuthFailedError
from zkwire.jute.records import AuthPacket
from zkwire.session import own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.session.request import Request


class Credential:
    """One scheme and its secret, and the requests that wait for the answer."""

    __slots__ = ("requests", "scheme", "secret")

    def __init__(self, scheme: str, secret: bytes) -> None:
        self.scheme: str = scheme
        self.secret: bytes = secret
        self.requests: deque[Request] = deque()


class Authentication:
    """All credentials of a session."""

    __slots__ = ("_known", "_sent")

    def __init__(self) -> None:
        self._known: list[Credential] = []
        self._sent: deque[Credential] = deque()  # on this connection, not answered

    def __iter__(self) -> Iterator[Request]:
        """The requests that wait."""
        return (request for waiting in self.waiting for request in waiting)

    @property
    def answered(self) -> bool:
        """Whether the server has answered all that was sent."""
        return not self._sent

    def submit(self, request: Request) -> Credential:
        """The credential that an ``auth`` request holds; its answer ends the request."""
        packet = AuthPacket.decode(request.body)
        credential = self.add(packet.scheme, packet.auth or b"")
        credential.requests.append(request)
        return credential

    def add(self, scheme: str, secret: bytes) -> Credential:
        """The credential with these values, known already or new."""
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

    @property
    def waiting(self) -> list[deque[Request]]:
        """The requests that wait for each credential; it stays when these have ended."""
        return [credential.requests for credential in self._known]

    def receive(self, code: int) -> Iterator[Request]:
        """The requests that an answer ends, to be ended one by one.  Raises AuthFailedError."""
        credential = self._sent.popleft() if self._sent else None
        if code:
            what = f" of scheme {credential.scheme!r}" if credential else ""
            raise AuthFailedError(f"the server rejected the credentials{what}")
        while credential is not None and credential.requests:
            yield credential.requests[0]
            credential.requests.popleft()
