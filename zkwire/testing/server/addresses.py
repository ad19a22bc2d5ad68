"""The networks of ``ip`` entries in an access list, as ``IPAuthenticationProvider`` reads them.

Only 3.9 understands IPv6 (``ipv6``).  No version understands a zone ("%eth0") or the mixed notation
("::ffff:1.2.3.4"), so no entry matches a client whose address has a zone.

It must not know connections.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, TypeAlias

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_INTEGER: Final = re.compile(r"[+-]?\d{1,99}")  # int() refuses thousands of digits
_GROUP: Final = re.compile(r"[+-]?[\da-fA-F]+")
_GROUPS, _LONGEST_GROUP = 8, 4


def contains(expression: str, address: str, *, ipv6: bool) -> bool:
    """Whether the entry ``expression`` matches a client with this address."""
    wanted, client = network(expression, ipv6=ipv6), network(address, ipv6=ipv6)
    if wanted is None or client is None or wanted.version != client.version:
        return False
    return client.network_address in wanted


def network(expression: str, *, ipv6: bool) -> _Network | None:
    """The network of address[/bits]; None if the server does not understand it."""
    address, slash, bits = expression.partition("/")
    packed = _packed_6(address) if ipv6 and ":" in address else _packed_4(address)
    if packed is None:
        return None
    longest = 8 * len(packed)
    length = _number(bits, longest) if slash else longest
    return None if length < 0 else ipaddress.ip_network((packed, length), strict=False)


def as_java(address: str) -> str:
    """An address as Java writes it: IPv6 in full."""
    bare, percent, scope = address.partition("%")
    try:
        groups = ipaddress.IPv6Address(bare).exploded.split(":")
    except ValueError:
        return address
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + scope


def _packed_4(address: str) -> bytes | None:
    parts = [_number(part, 0xFF) for part in address.split(".")]
    return None if len(parts) != 4 or -1 in parts else bytes(parts)


def _packed_6(address: str) -> bytes | None:
    """At most one "::", for at least one group; a group may have a sign, as any number in Java."""
    parts = [part.split(":") if part else [] for part in address.split("::")]
    groups = [group for part in parts for group in part]
    missing = _GROUPS - len(groups)
    if len(parts) > 2 or (missing != 0 if len(parts) == 1 else missing < 1):
        return None
    if not all(len(group) <= _LONGEST_GROUP and _GROUP.fullmatch(group) for group in groups):
        return None
    filled = [*parts[0], *["0"] * missing, *(parts[1] if len(parts) == 2 else ())]
    return b"".join((int(group, 16) & 0xFFFF).to_bytes(2, "big") for group in filled)


def _number(text: str, most: int) -> int:
    """The number that Integer.parseInt returns, if it is from 0 to ``most``; otherwise -1."""
    number = int(text) if _INTEGER.fullmatch(text) else -1
    return number if 0 <= number <= most else -1
