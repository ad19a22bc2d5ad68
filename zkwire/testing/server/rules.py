"""The options of an embedded server: its version, and what its operator has switched on.

Decides what each version lacks and does differently; must not know requests or connections.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, get_args

from zkwire.jute.frames import SEND_LIMIT
from zkwire.jute.records import SyncRequest
from zkwire.wire import ops

Version = Literal["3.4", "3.5", "3.6", "3.7", "3.8", "3.9"]

# Operations of servers only: no client has them.
DELETE_CONTAINER: Final = ops.Op("delete_container", 20, SyncRequest, None, since="3.5.1")
CREATE_SESSION: Final = ops.Op("create_session", -10, None, None)


class Behaviour(TypedDict, total=False):
    """The options that `Server` and `Ensemble` share with the processor.

    ``version``: behave as a server of this line, "3.4" to "3.9".  An operation that came later is
    unknown: the server answers it with -6 (Unimplemented), before the answers to requests that were
    sent with it, and closes the connection; it does not carry out later requests.  It cannot read a
    multi with such an operation.  "3.4" has no ``/zookeeper/config``.  "3.8", the default, is 3.8.0
    as in Debian; "3.9" is 3.9.5: it keeps the modes of watches apart, adds the zxid to events,
    removes watches of the types 4 and 5, requires READ for ``exists``, understands IPv6 in access
    lists, and refuses a create in a multi without an ACL or with unknown flags.
    ``unknown_opcodes``: further opcodes that the server does not know.
    ``extended_types``, on by default, allows nodes with a time to live.
    ``read_only``: start without a quorum; `set_read_only` changes it.
    ``local_sessions``, on by default: without them a read-only server refuses new sessions.
    ``sasl_users``: passwords by user name, for DIGEST-MD5; without them there is no SASL.
    ``enforce_auth``: schemes ("sasl", "digest", ...).  A request of a connection that has not
    authenticated with one of them is answered with -124, and the connection is closed.
    ``super_password``: a client that authenticates as ``super:<password>`` (digest) may do
    everything.
    ``reconfig`` switches reconfiguration on.
    ``handshake_timeout``: a connection without a session is closed after this many seconds, or up
    to twice as many.
    ``jute_maxbuffer``: a request of more bytes ends its connection.
    """

    version: Version
    unknown_opcodes: Collection[int]
    extended_types: bool
    read_only: bool
    local_sessions: bool
    sasl_users: Mapping[str, str] | None
    enforce_auth: Collection[str]
    super_password: str | None
    reconfig: bool
    handshake_timeout: float
    jute_maxbuffer: int


@dataclass
class Rules:
    """A :class:`Behaviour` with all defaults, and what follows from it.

    ``unknown`` are the opcodes that the server does not know; ``schemes`` are those of the schemes
    "sasl" and "x509" that it knows.
    """

    version: Version = "3.8"
    unknown_opcodes: Collection[int] = ()
    extended_types: bool = True
    read_only: bool = False
    local_sessions: bool = True
    sasl_users: Mapping[str, str] | None = None
    enforce_auth: Collection[str] = ()
    super_password: str | None = None
    reconfig: bool = False
    handshake_timeout: float = 10.0
    jute_maxbuffer: int = SEND_LIMIT

    def __post_init__(self) -> None:
        if self.version not in (known := get_args(Version)):
            raise ValueError(f"unknown version {self.version!r}: not one of {', '.join(known)}")
        if not 0 < self.handshake_timeout < math.inf:
            given = self.handshake_timeout
            raise ValueError(f"handshake_timeout must be above 0 and finite: {given!r}")
        for name in ("extended_types", "read_only", "local_sessions", "reconfig"):
            if not isinstance(flag := getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {flag!r}")
        at = tuple(map(int, self.version.split(".")))
        later = [op for op in (*ops.OPS.values(), DELETE_CONTAINER) if op.release[:2] > at]
        self.unknown: frozenset[int] = frozenset(
            {*self.unknown_opcodes, *(op.opcode for op in later)}
        )
        self.before_39: bool = self.version != "3.9"
        self.has_config: bool = self.version != "3.4"
        self.schemes: set[str] = {"sasl"} if self.sasl_users is not None else set()
