"""Answers in a form in which the sides can be compared: what may differ is left out.

zxids count from the start of the scenario, a session id is its session's number, times are left
out, children and other sets are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.differential_sides import Link
from tests.support.random_requests import Request
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.wire import ops


@dataclass
class View:
    """One side's numbers, for the comparison."""

    link: Link
    base: int
    aliases: dict[int, int]

    def zxid(self, zxid: int) -> int:
        return zxid - self.base if zxid > 0 else zxid

    def stat(self, stat: r.Stat) -> tuple[Any, ...]:
        owner = self.aliases.get(stat.ephemeral_owner, stat.ephemeral_owner)
        zxids = tuple(map(self.zxid, (stat.czxid, stat.mzxid, stat.pzxid)))
        return (*zxids, stat.version, stat.cversion, stat.aversion, owner, *stat[8:10])

    def value(self, value: Any) -> Any:
        if isinstance(value, r.Stat):
            return self.stat(value)
        if isinstance(value, tuple) and not isinstance(value, Record):
            return tuple(sorted(map(self.value, value)))
        return value

    def body(self, request: Request, data: bytes) -> Any:
        if request.op in {ops.MULTI, ops.MULTI_READ}:
            return self.multi(data)
        kind: Any = request.op.reply
        if kind is None:
            return data
        record = kind.decode(data)
        if isinstance(record, r.GetACLResponse):
            return record.acl, self.stat(record.stat)  # in its order, as it was given
        return self.stat(record) if kind is r.Stat else tuple(map(self.value, record))

    def multi(self, data: bytes) -> list[Any]:
        found: list[Any] = []
        header, at = r.MultiHeader.unpack(data)
        while not header.done:
            kind = _RESULTS[header.type]
            if kind is None:
                found.append(tuple(header))
            else:
                record, at = kind.unpack(data, at)
                found.append((tuple(header), tuple(map(self.value, record))))
            header, at = r.MultiHeader.unpack(data, at)
        assert at == len(data)
        return found


_RESULTS: dict[int, type[Record] | None] = {
    -1: r.ErrorResponse,
    ops.CREATE.opcode: r.CreateResponse,
    ops.CREATE2.opcode: r.Create2Response,
    ops.SET_DATA.opcode: r.SetDataResponse,
    ops.GET_DATA.opcode: r.GetDataResponse,
    ops.GET_CHILDREN.opcode: r.GetChildrenResponse,
    ops.DELETE.opcode: None,
    ops.CHECK.opcode: None,
}
