"""What a wrong argument is: TypeError or ValueError, before anything is sent.

Each function returns its argument, or what is sent for it.  It must not know the operation.
"""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Sequence

# A server keeps a TTL in 40 bits, in milliseconds (Java's EphemeralType.TTL).
LONGEST_TTL = 2**40 - 1

PERSISTENT, EPHEMERAL, SEQUENTIAL, CONTAINER, TTL = 0, 1, 2, 4, 5

_ACL_HINTS: dict[type, str] = {
    r.ACL: "; put it into a list",
    bool: "; ephemeral=... and so on have names",
}


def check_data(data: bytes) -> bytes:
    """``data`` if it is bytes."""
    if not isinstance(data, bytes):
        hint = "; use .encode()" if isinstance(data, str) else ""
        raise TypeError(f"data must be bytes, not {type(data).__name__}{hint}")
    return data


def check_node_data(data: bytes | None) -> bytes | None:
    """``data`` if a node can have it: bytes, or None for null."""
    return data if data is None else check_data(data)


def check_version(version: int) -> int:
    """``version`` if it is a version or -1."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"version must be an int, not {type(version).__name__}")
    if not -1 <= version <= 0x7FFFFFFF:
        raise ValueError(f"version must be -1 (any) or 0 to 2**31-1, not {version}")
    return version


def check_acl(acl: Sequence[r.ACL], name: str = "acl") -> tuple[r.ACL, ...]:
    """An access list as a tuple, not empty, which a server refuses; ``name`` is the argument's."""
    if acl is OPEN_ACL_UNSAFE:
        return OPEN_ACL_UNSAFE
    if isinstance(acl, r.ACL) or not isinstance(acl, list | tuple):
        given = type(acl)
        hint = _ACL_HINTS.get(given, "")
        raise TypeError(f"{name} must be a list or tuple of ACL, not {given.__name__}{hint}")
    if not acl:
        raise ValueError(f"{name} must not be empty")
    for entry in acl:
        if not isinstance(entry, r.ACL) or not isinstance(entry.id, r.Id):
            raise TypeError(f"{name} must hold ACL(perms, Id(scheme, id)), not {entry!r}")
        if not (isinstance(entry.id.scheme, str) and isinstance(entry.id.id, str)):
            raise TypeError(f"{name}: scheme and id must be str: {entry!r}")
        if not isinstance(entry.perms, int) or not 0 <= entry.perms <= 31:
            raise ValueError(f"{name}: perms must be 0 to 31: {entry!r}")
    return tuple(acl)


def check_flag(name: str, flag: bool) -> bool:
    """``flag`` if it is True or False: "no", taken for its truth, would mean yes."""
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be True or False, not {flag!r}")
    return flag


def check_ttl(ttl: float) -> int:
    """A time to live, given in seconds, in milliseconds.

    A wrong one must not be sent: it ends the server's process, and that cannot read its log again.
    """
    if not isinstance(ttl, int | float) or isinstance(ttl, bool):
        raise TypeError(f"ttl must be a number of seconds, not {type(ttl).__name__}")
    if not 0.001 <= ttl <= LONGEST_TTL / 1000:
        raise ValueError(f"ttl must be 0.001 to {LONGEST_TTL / 1000} seconds, not {ttl}")
    return min(max(1, round(ttl * 1000)), LONGEST_TTL)


def check_create_mode(
    ephemeral: bool, sequential: bool, container: bool, ttl: float | None
) -> tuple[int, int | None]:
    """The flags of a create request, and the TTL in milliseconds if there is one."""
    if not (ephemeral.__class__ is sequential.__class__ is container.__class__ is bool):
        check_flag("ephemeral", ephemeral)
        check_flag("sequential", sequential)
        check_flag("container", container)
    if not container and ttl is None:
        return EPHEMERAL * ephemeral + SEQUENTIAL * sequential, None
    if ephemeral or (container and ttl is not None):
        raise ValueError("a node is ephemeral, or a container, or has a ttl: not two of them")
    if ttl is not None:
        return TTL + sequential, check_ttl(ttl)
    if sequential:
        raise ValueError("a container cannot be sequential")
    return CONTAINER, None


def check_text(name: str, text: str) -> str:
    """``text`` if it is a str."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    return text
