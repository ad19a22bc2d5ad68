"""Values of the protocol that callers see: states, events, access lists, results.

Numbers are the protocol's (``Watcher.Event``, ``Watcher.WatcherType`` and ``ZooDefs`` of the Java
client).  This module decides how they look in Python; it must not know sessions or requests.
"""

from __future__ import annotations

from enum import Enum, Flag, IntEnum, IntFlag

from zkwire.jute.record import Long, Record, Secret
from zkwire.jute.records import ACL, Id, Stat

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

_new: Any = tuple.__new__  # pyright: ignore


class State(Enum):
    """The state of a client's session.  The last three are terminal: they do not change."""

    NOT_STARTED = "not started"
    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    CONNECTED = "connected"
    CONNECTED_READ_ONLY = "connected read-only"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"
    AUTH_FAILED = "authentication failed"
    CLOSED = "closed"

    @property
    def terminal(self) -> bool:
        """Whether no state can follow: the client is done.

        The session may live on until its timeout in AUTH_FAILED, and in CLOSED (after ``detach``,
        or when no server could be told).
        """
        return self in _TERMINAL

    @property
    def usable(self) -> bool:
        """Whether requests are sent at once."""
        return self in _USABLE


_TERMINAL = frozenset({State.EXPIRED, State.AUTH_FAILED, State.CLOSED})
_USABLE = frozenset({State.CONNECTED, State.CONNECTED_READ_ONLY})


class _Named:
    """A number whose text is its name, as of any Enum; a number's format shows the number."""

    __slots__ = ()
    __str__: Callable[..., str] = Enum.__str__

    def __format__(self, spec: str) -> str:
        if spec and spec[-1] in "bcdeEfFgGnoxX%":
            return format(int(self), spec)  # type: ignore[call-overload]
        return format(str(self), spec)


class EventType(_Named, IntEnum):
    """What has fired a watch.

    NONE: nothing happened to the node, but the session has ended.  REREAD, for persistent watches
    only: the client has reconnected; what happened meanwhile is not reported, so read again.  The
    last three: ``remove_watches`` has removed the watch.
    """

    REREAD = -2
    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class WatchType(_Named, IntEnum):
    """Which watches ``remove_watches`` removes."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class Event(Record):
    """One watch event: its type, the node's path, and the client's state when it arrived.

    ``zxid`` is that of the transaction if the server sends it (3.9 and later), else None.  An event
    of a type that zkwire does not know, from a newer server, reaches no watch.
    """

    type: EventType | int
    path: str
    state: State
    zxid: int | None = None


class Credentials(Record):
    """A session's id and password: a client that has both can continue the session, or end it."""

    session_id: Long
    passwd: Secret


def session_name(session_id: int) -> str:
    """A session id as the server's own logs write it."""
    return f"0x{session_id & 0xFFFFFFFFFFFFFFFF:x}"


class Perms(_Named, IntFlag):
    """What an ACL entry allows."""

    __str__ = Flag.__str__  # which has a text for no permissions, too

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


_WORLD = Id("world", "anyone")
OPEN_ACL_UNSAFE = (ACL(Perms.ALL, _WORLD),)
READ_ACL_UNSAFE = (ACL(Perms.READ, _WORLD),)
CREATOR_ALL_ACL = (ACL(Perms.ALL, Id("auth", "")),)


DIGEST = "digest"


def digest_auth(user: str, password: str) -> tuple[str, bytes]:
    """What ``add_auth(*...)`` and ``Client(auth=[...])`` take to authenticate as this user.

    The password is sent in clear text: use TLS.
    """
    return DIGEST, _user_and_password(user, password)


def digest_id(user: str, password: str) -> Id:
    """This user in an access list: ``ACL(Perms.ALL, digest_id("alice", "secret"))``.

    The list holds a hash in place of the password (Java's
    ``DigestAuthenticationProvider.generateDigest``); it does not authenticate anything.
    """
    from base64 import b64encode
    from hashlib import sha1

    joined = _user_and_password(user, password)
    digest = b64encode(sha1(joined, usedforsecurity=False).digest())
    return Id(DIGEST, f"{user}:{digest.decode()}")


def _user_and_password(user: str, password: str) -> bytes:
    for name, text in (("user", user), ("password", password)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    if not user or ":" in user:
        raise ValueError("user must not be empty and must not contain ':'")
    return f"{user}:{password}".encode()


class _WithStat(tuple["T", Stat]):
    """A value and a node's stat, both of one moment."""

    __slots__ = ()

    def __getnewargs__(self) -> tuple[T, Stat]:  # for copy and pickle
        return self[0], self[1]

    @property
    def stat(self) -> Stat:
        """The node's stat at the same moment."""
        return self[1]


class DataAndStat(_WithStat[bytes]):
    """What get_data returns: ``data, stat = client.get_data(path)``."""

    __slots__ = ()
    __match_args__ = ("data", "stat")

    def __new__(cls, data: bytes, stat: Stat) -> DataAndStat:
        return _new(cls, (data, stat))

    @property
    def data(self) -> bytes:
        """The node's data; b"" also where it is null, see :attr:`is_null`."""
        return self[0]

    @property
    def is_null(self) -> bool:
        """Whether the node has null in the place of its data, as ``create(path, None)`` writes it.

        A server keeps null and b"" apart.  To a program that does not ask for it they are alike.
        """
        return False


class NullAndStat(DataAndStat):
    """A node whose data is null, and its stat; equal to the one with empty data."""

    __slots__ = ()

    @property
    def is_null(self) -> bool:
        """Yes."""
        return True


class AclAndStat(_WithStat[list[ACL]]):
    """What get_acl returns: ``acl, stat = client.get_acl(path)``.

    ``stat.aversion`` is the version for set_acl.
    """

    __slots__ = ()
    __match_args__ = ("acl", "stat")

    def __new__(cls, acl: list[ACL], stat: Stat) -> AclAndStat:
        return _new(cls, (acl, stat))

    @property
    def acl(self) -> list[ACL]:
        """The entries; hashes of passwords are in it only if the client may change it."""
        return self[0]


class PathAndStat(_WithStat[str]):
    """What create_with_stat returns: ``path, stat = client.create_with_stat(path)``."""

    __slots__ = ()
    __match_args__ = ("path", "stat")

    def __new__(cls, path: str, stat: Stat) -> PathAndStat:
        return _new(cls, (path, stat))

    @property
    def path(self) -> str:
        """The path of the new node, with its sequence number if it is sequential."""
        return self[0]


class ChildrenAndStat(_WithStat[list[str]]):
    """What get_children_with_stat returns: ``names, stat = ...``, the stat of the parent."""

    __slots__ = ()
    __match_args__ = ("children", "stat")

    def __new__(cls, children: list[str], stat: Stat) -> ChildrenAndStat:
        return _new(cls, (children, stat))

    @property
    def children(self) -> list[str]:
        """The names of the children, in no particular order."""
        return self[0]
