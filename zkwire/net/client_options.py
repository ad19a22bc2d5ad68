"""The options of the clients that a supervisor makes: those of a client, without ``resume``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from ssl import SSLContext
    from typing import TypedDict

    from zkwire.jute.records import ACL
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
