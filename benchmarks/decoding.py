"""Decoding alone, without a connection: a Stat, a GetData reply, ten thousand names."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any

from benchmarks.jobs import Job, Outcome
from benchmarks.measure import timed

NAMES = 10_000
STAT = pack(">qqqqiiiqiiq", 11, 12, 1_700_000_000_000, 1_700_000_000_001, 3, 4, 0, 0, 100, 0, 13)
MATERIAL = (
    STAT,
    pack(">i100s", 100, b"x" * 100) + STAT,
    pack(">i", NAMES) + b"".join(pack(">i10s", 10, b"n%09d" % n) for n in range(NAMES)),
)
KINDS = ("decode stat", "decode data", "decode names")

Decoder = Callable[[bytes, int], Any]


def specials(
    decoders: Callable[[], tuple[Decoder, Decoder, Decoder]],
) -> dict[str, Callable[[Job], Outcome]]:
    """The three jobs; `decoders` is called when the first is to be done."""

    def make(number: int) -> Callable[[Job], Outcome]:
        return lambda job: _decode(decoders()[number], MATERIAL[number], job.count)

    return {kind.replace(" ", "_"): make(number) for number, kind in enumerate(KINDS)}


def _decode(decode: Decoder, data: bytes, count: int) -> Outcome:
    def work() -> None:
        for _ in range(count):
            decode(data, 0)

    return timed(count, work)


def zkwire_decoders() -> tuple[Decoder, Decoder, Decoder]:
    from zkwire.jute import records

    return records.Stat.decode, records.GetDataResponse.decode, records.GetChildrenResponse.decode


def kazoo_decoders() -> tuple[Decoder, Decoder, Decoder]:
    from kazoo.protocol import serialization as s

    def stat(data: bytes, offset: int) -> Any:
        return s.ZnodeStat._make(s.stat_struct.unpack_from(data, offset))

    return stat, s.GetData.deserialize, s.GetChildren.deserialize
