"""The options of a client: which there are, and what a wrong one is.

TypeError or ValueError, when the client is made.
"""

from __future__ import annotations

from zkwire.jute.records import ACL, AuthPacket, ConnectRequest
from zkwire.operations.nodes import HEADER_BYTES, too_large
from zkwire.session.liveness import LEAST_MARGINS
from zkwire.session.waitable import check_timeout
from zkwire.wire.model import Credentials
from zkwire.wire.ops import AUTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from ssl import SSLContext
    from typing import Any, TypedDict

    from zkwire.net.observer import Observer
    from zkwire.net.sasl import Mechanism
    from zkwire.session.trace import TraceFrame

    class ClientOptions(TypedDict, total=False):
        """See :class:`zkwire.Client`."""

        session_timeout: float | timedelta
        operation_timeout: float | None
        auth: Sequence[tuple[str, bytes]]
        default_acl: Sequence[ACL]
        sasl: Mechanism | None
        tls: SSLContext | None
        read_only: bool
        shuffle_hosts: bool
        follow_reconfig: bool
        receive_limit: int
        send_limit: int
        lease_margin: float
        trace: Callable[[TraceFrame], object] | None
        observer: Observer | None


# The greetings, and a request or a reply of a few names, fit into less.
LEAST_LIMIT = 1024

# Seconds.  Unconfigured servers grant 20 ticks (40 s) at most; other clients take milliseconds, so
# that a larger number is nearly always a mistake, and a timedelta is none.
LONGEST_SESSION = 3600
_LONGEST_SENT = 0x7FFFFFFF / 1000


def check_session_timeout(timeout: float | timedelta) -> float:
    """``timeout`` in seconds: from 0.001 to an hour; as a timedelta as long as can be sent."""
    has_unit = hasattr(timeout, "total_seconds")  # datetime is expensive to load
    given: Any = timeout
    seconds = check_timeout("session_timeout", given.total_seconds() if has_unit else given)
    if seconds is None:
        raise TypeError("session_timeout must be a number of seconds, not None")
    if not 0.001 <= seconds <= (_LONGEST_SENT if has_unit else LONGEST_SESSION):
        message = f"session_timeout must be 0.001 to {LONGEST_SESSION} seconds, not {timeout}"
        if not has_unit and LONGEST_SESSION < seconds <= _LONGEST_SENT:
            message += (
                f": {timeout} milliseconds are {seconds / 1000:g}; for a longer session, where "
                f"the server's maxSessionTimeout allows it: timedelta(seconds={timeout})"
            )
        raise ValueError(message)
    return seconds


def check_lease_margin(margin: float, session_timeout: float) -> float:
    """``margin`` itself if so long a session can have it: 0 (none) to a fifth of the timeout."""
    checked = check_timeout("lease_margin", margin)
    if checked is None:
        raise TypeError("lease_margin must be a number of seconds, not None")
    if checked * LEAST_MARGINS > session_timeout:
        raise ValueError(
            f"lease_margin must be at most a fifth of session_timeout, {session_timeout} s, else "
            f"locks would be lost while the server answers; not {margin}"
        )
    return checked


def check_limit(name: str, limit: int) -> int:
    """``limit`` itself if it is a number of bytes that the client's own frames fit into."""
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"{name} must be an int, not {type(limit).__name__}")
    if not LEAST_LIMIT <= limit <= 0x7FFFFFFF:
        raise ValueError(f"{name} must be {LEAST_LIMIT} to 2**31-1 bytes, not {limit}")
    return limit


def check_auth(auth: Sequence[tuple[str, bytes]], send_limit: int) -> Sequence[tuple[str, bytes]]:
    """``auth`` itself if it is a sequence of (scheme, secret) pairs that can be sent."""
    message = (
        "auth must be a list or tuple of (scheme, secret) pairs, a str and bytes each, such as "
        '[digest_auth("user", "password")]'
    )
    if not isinstance(auth, list | tuple):
        raise TypeError(message)
    for pair in auth:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(message)
        if not isinstance(pair[0], str) or not isinstance(pair[1], bytes):
            raise TypeError(message)
        try:
            body = AuthPacket.pack(0, *pair)
        except ValueError as error:
            raise ValueError(f"auth cannot be sent: {error}") from None
        if len(body) + HEADER_BYTES > send_limit:
            raise too_large(AUTH, None, len(body) + HEADER_BYTES, send_limit)
    return auth


def check_resume(resume: Credentials | None, send_limit: int) -> Credentials | None:
    """``resume`` itself if it is what :attr:`Client.credentials` returned."""
    if resume is None:
        return None
    if not isinstance(resume, Credentials):
        raise TypeError(f"resume must be Credentials, not {type(resume).__name__}")
    if resume.session_id == 0:
        raise ValueError("resume names no session: its client had not connected")
    if not isinstance(resume.session_id, int) or not isinstance(resume.passwd, bytes):
        raise TypeError("resume must be Credentials of an int and bytes")
    try:
        size = len(ConnectRequest.pack(0, 0, 0, *resume, False))
    except ValueError as error:
        raise ValueError(f"resume cannot be sent: {error}") from None
    if size > send_limit:
        raise ValueError(f"resume cannot be sent: its password has {len(resume.passwd)} bytes")
    return resume


def check_observers(
    trace: Callable[[TraceFrame], object] | None, observer: Observer | None
) -> None:
    """Raise TypeError if one of them cannot be called as it will be."""
    if trace is not None:
        check_callable("trace", trace)
    if observer is not None:
        from zkwire.net.observer import check_observer

        check_observer(observer)


def check_callable(name: str, function: object) -> None:
    """Raise TypeError if it cannot be called."""
    if not callable(function):
        raise TypeError(f"{name} must be callable, not {type(function).__name__}")


def check_sasl(mechanism: Mechanism | None) -> Mechanism | None:
    """``mechanism`` itself if it has an exchange to offer."""
    if mechanism is not None and not callable(getattr(mechanism, "exchange", None)):
        raise TypeError(
            f"sasl must be a mechanism such as DigestMD5, not {type(mechanism).__name__}"
        )
    return mechanism


def check_tls(context: SSLContext | None) -> SSLContext | None:
    """``context`` itself if connections can be made with it."""
    if context is not None:
        from zkwire.net.tls import check_context

        check_context(context)
    return context
