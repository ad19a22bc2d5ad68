"""Packets of a capture: classic pcap and pcapng, as tcpdump and Wireshark write them.

A file that ends inside a packet has all packets before that one; what cannot be is a ValueError
with its offset.  Must not know what is in a packet.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The magic number of a classic file as its first bytes: byte order and units in a second.
_CLASSIC = {
    bytes.fromhex("a1b2c3d4"): (">", 10**6),
    bytes.fromhex("d4c3b2a1"): ("<", 10**6),
    bytes.fromhex("a1b23c4d"): (">", 10**9),
    bytes.fromhex("4d3cb2a1"): ("<", 10**9),
}
_NG = bytes.fromhex("0a0d0d0a")
_ORDERS = {bytes.fromhex("1a2b3c4d"): ">", bytes.fromhex("4d3c2b1a"): "<"}
MAGIC = frozenset({*_CLASSIC, _NG})
_LARGEST = 16 * 1024 * 1024  # of a packet; libpcap writes no larger ones
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 1, 2, 3, 6
_RESOLUTION, _OFFSET = 9, 14  # options of an interface


class Packet(NamedTuple):
    """One packet: seconds, the type of the link, the bytes, and how many it had on the wire."""

    time: float
    link: int
    data: bytes
    size: int


class Interface(NamedTuple):
    """Where packets of a pcapng file come from: link, units in a second, seconds to add."""

    link: int
    units: float
    offset: int


class PacketFile:
    """The packets of ``data``; ``cut`` is true once the end was found to be missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._order = "<"
        self._interfaces: list[Interface] = []
        self.cut: bool = False

    def packets(self) -> Iterator[Packet]:
        """All packets in the order of the file; ValueError for what is no capture."""
        if self._data[:4] == _NG:
            return self._of_blocks()
        return self._of_records()

    def _of_records(self) -> Iterator[Packet]:
        if self._data[:4] not in _CLASSIC:
            raise ValueError("this is no capture")
        order, units = _CLASSIC[self._data[:4]]
        if len(self._data) < 24:
            self.cut = True
            return
        link = struct.unpack_from(order + "I", self._data, 20)[0] & 0x0FFF_FFFF
        head, at = struct.Struct(order + "IIII"), 24
        while self._has(at, head.size):
            seconds, fraction, length, size = head.unpack_from(self._data, at)
            if length > _LARGEST or fraction >= units:
                raise ValueError(f"offset {at}: this cannot be the beginning of a packet")
            at += head.size
            if not self._has(at, length):
                self.cut = True
                return
            data = self._data[at : at + length]
            yield Packet(seconds + fraction / units, link, data, max(size, length))
            at += length

    def _of_blocks(self) -> Iterator[Packet]:
        at = 0
        while self._has(at, 12):
            if self._data[at : at + 4] == _NG:
                self._begin_section(at)
            kind, length = self._unpack("II", at)
            if not 12 <= length <= 2 * _LARGEST or length % 4:
                raise ValueError(f"offset {at}: a block cannot have {length} bytes")
            if not self._has(at, length):
                return
            yield from self._block(kind, at, self._data[at + 8 : at + length - 4])
            at += length

    def _begin_section(self, at: int) -> None:
        order = _ORDERS.get(self._data[at + 8 : at + 12])
        if order is None:
            raise ValueError(f"offset {at}: a section of an unknown byte order")
        self._order = order
        self._interfaces = []

    def _block(self, kind: int, at: int, body: bytes) -> Iterator[Packet]:
        try:
            if kind == _INTERFACE:
                self._interfaces.append(self._interface(body))
            elif kind in (_PACKET, _OLD_PACKET):
                yield self._packet(body, "I" if kind == _PACKET else "H2x")
            elif kind == _SIMPLE_PACKET:
                (size,) = struct.unpack_from(self._order + "I", body)
                # It has no time: that of the file's beginning, which loses the distances alone.
                yield Packet(0.0, self._interfaces[0].link, body[4 : 4 + size], size)
        except (struct.error, IndexError):
            raise ValueError(f"offset {at}: a block that cannot be") from None

    def _interface(self, body: bytes) -> Interface:
        (link,) = struct.unpack_from(self._order + "H", body)
        units, offset, at = 10.0**6, 0, 8
        while at + 4 <= len(body):
            code, length = struct.unpack_from(self._order + "HH", body, at)
            if code == 0:
                break
            if code == _RESOLUTION and length == 1:
                exponent = body[at + 4]
                units = 2.0 ** (exponent & 0x7F) if exponent & 0x80 else 10.0**exponent
            elif code == _OFFSET and length == 8:
                (offset,) = struct.unpack_from(self._order + "q", body, at + 4)
            at += 4 + length + -length % 4
        return Interface(link, units, offset)

    def _packet(self, body: bytes, number: str) -> Packet:
        head = struct.Struct(self._order + number + "IIII")
        numbers: tuple[int, ...] = head.unpack_from(body)
        index, high, low, length, size = numbers
        interface = self._interfaces[index]
        if length > len(body) - head.size:
            raise IndexError
        data = body[head.size : head.size + length]
        time = ((high << 32) + low) / interface.units + interface.offset
        return Packet(time, interface.link, data, max(size, length))

    def _has(self, at: int, length: int) -> bool:
        """Whether so many bytes are there; if there are only some of them, the end is cut."""
        if at + length <= len(self._data):
            return True
        self.cut |= at < len(self._data)
        return False

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self._order + form, self._data, at)
