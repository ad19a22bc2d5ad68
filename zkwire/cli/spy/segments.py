"""TCP segments in packets: Ethernet, Linux cooked and loopback links, IPv4 and IPv6.

``segment_of`` never raises: what is no TCP, or too short for it, is None.  Of fragments of IP none
is taken; ``is_fragment`` tells them.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.spy.packet_file import Packet

    Place = tuple[str, int]

FIN, SYN, RST, ACK = 1, 2, 4, 16
_TCP, _FRAGMENT = 6, 44
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN = frozenset({0x8100, 0x88A8, 0x9100})
_EXTENSIONS = frozenset({0, 43, 60})  # of IPv6: hop by hop, routing, destination
# The types of links: https://www.tcpdump.org/linktypes.html
_ETHERNET, _COOKED, _COOKED2 = 1, 113, 276
_LOOPBACK = frozenset({0, 108})
_RAW = frozenset({12, 14, 101, 228, 229})
LINKS = frozenset({_ETHERNET, _COOKED, _COOKED2, *_LOOPBACK, *_RAW})


class Segment(NamedTuple):
    """One segment; ``size`` is that of its data on the wire, of which the capture may have less."""

    time: float
    source: Place
    target: Place
    number: int
    flags: int
    data: bytes
    size: int


def segment_of(packet: Packet) -> Segment | None:
    """The TCP segment in a packet."""
    at = _network(packet)
    if at is None:
        return None
    try:
        found = _internet(packet.data, at, packet.size)
        if found is None:
            return None
        source, target, at, end = found
        ports, number, offset, flags = _tcp(packet.data, at)
        data = packet.data[at + offset : end]
        size = max(end - at - offset, 0)
        return Segment(
            packet.time, (source, ports[0]), (target, ports[1]), number, flags, data, size
        )
    except (struct.error, ValueError, IndexError):
        return None


def is_fragment(packet: Packet) -> bool:
    """Whether the packet is a fragment of IP."""
    at, data = _network(packet), packet.data
    if at is None or len(data) < at + 8:
        return False
    if data[at] >> 4 == 4:
        return bool(int.from_bytes(data[at + 6 : at + 8], "big") & 0x3FFF)
    return data[at] >> 4 == 6 and data[at + 6] == _FRAGMENT


def _network(packet: Packet) -> int | None:
    """Where IP begins; None if it is another protocol."""
    data, link = packet.data, packet.link
    if link in _RAW:
        return 0
    if link in _LOOPBACK:
        return 4
    if link == _COOKED:
        return 16 if _is_ip(data, 14) else None
    if link == _COOKED2:
        return 20 if _is_ip(data, 0) else None
    if link != _ETHERNET:
        return None
    at = 12
    while int.from_bytes(data[at : at + 2], "big") in _VLAN:
        at += 4
    return at + 2 if _is_ip(data, at) else None


def _is_ip(data: bytes, at: int) -> bool:
    return int.from_bytes(data[at : at + 2], "big") in (_IPV4, _IPV6)


def _internet(data: bytes, at: int, size: int) -> tuple[str, str, int, int] | None:
    """Both addresses, where TCP begins, and where the packet ended on the wire."""
    if data[at] >> 4 == 4:
        total, fragment, protocol = struct.unpack_from(">2xH2xHxB", data, at)
        if protocol != _TCP or fragment & 0x3FFF:
            return None
        # The length is 0 where the network card will cut the segment to pieces.
        end = at + total if total else size
        addresses = data[at + 12 : at + 16], data[at + 16 : at + 20]
        at += (data[at] & 15) * 4
    elif data[at] >> 4 == 6:
        length, following = struct.unpack_from(">4xHB", data, at)
        end = at + 40 + length if length else size
        addresses = data[at + 8 : at + 24], data[at + 24 : at + 40]
        at += 40
        while following in _EXTENSIONS:
            following, length = data[at], data[at + 1]
            at += 8 + length * 8
        if following != _TCP:
            return None
    else:
        return None
    source, target = (str(ipaddress.ip_address(address)) for address in addresses)
    return source, target, at, end


def _tcp(data: bytes, at: int) -> tuple[tuple[int, int], int, int, int]:
    """The ports, the number of the first byte, where the data begins, and the flags."""
    source, target, number, offset, flags = struct.unpack_from(">HHI4xBB", data, at)
    offset = (offset >> 4) * 4
    if offset < 20:
        raise ValueError(offset)
    return (source, target), number, offset, flags
