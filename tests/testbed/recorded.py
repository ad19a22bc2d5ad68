"""What real servers answer to conversations, kept as numbers; the embedded server answers alike.

    python3 -m tests.testbed.recorded        asks the real servers of this machine, and writes it

Here too both servers are compared whole, as in `tests/real/test_differential.py`; what is kept of
each step is a checksum of all that was heard up to it. Replayed without a real server a first other
number shows the step at which the embedded one no longer answers as those have. After a change of
the requests it must be written anew, with a server of each version (`ZOOKEEPER_HOME`).
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.support.differential import (
    TIMEOUT_MS,
    Batch,
    Close,
    Open,
    Player,
    Reattach,
    Step,
    play_at_random,
)
from tests.support.differential_sides import EmbeddedSide, RealSide, Side, playing
from tests.support.installed_servers import every_release, find_installed
from tests.support.random_requests import Request, multi_body, plain
from tests.support.server_control import Backend, Settings, ZooKeeperServer
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.rules import DELETE_CONTAINER, Version
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, Perms

FILE = Path(__file__).with_suffix(".txt")
WALKS, WALK_REQUESTS = 24, 400
VERSIONS: tuple[Version, ...] = ("3.8", "3.9")
"""Older ones do not know `who_am_i`, which the comparison asks for."""
TICK = 0.2
LONGEST = 60.0  # Settings: maxSessionTimeout


def alone(backend: Backend) -> AbstractContextManager[ZooKeeperServer]:
    """A server that nobody else uses: no other transactions may come in between.

    It runs without an ensemble's request processors: 3.8.0's CommitProcessor sometimes, once in
    some ten thousand batches, waits forever with a committed request in its hands.
    """
    return backend.standalone(Settings(java_flags=("-Dznode.container.checkIntervalMs=3600000",)))


def embedded(seed: object, version: Version) -> Processor:
    timeouts = (2 * TICK, LONGEST)
    return Processor(rng=random.Random(str(seed)), tick=TICK, timeouts=timeouts, version=version)


class Recorded(Player):
    """Plays steps, and fails at the first after which it has heard something else than expected."""

    def __init__(self, sides: list[Side], name: str, expected: Sequence[str] | None) -> None:
        super().__init__(sides, name)
        self.numbers: list[str] = []
        self._expected = expected
        self._heard = 0

    def play(self, step: Step) -> None:
        super().play(step)
        self.numbers.append(f"{self._heard & 0xFFFF:04x}")
        if self._expected is not None:
            now = slice(len(self.numbers) - 1, len(self.numbers))
            differs = f"{self.name}: a real server answers otherwise, or is asked something else\n"
            differs += "\n".join(self.log)
            assert list(self._expected[now]) == self.numbers[now], differs

    def _compare(self, what: str, shown: list[Any]) -> None:
        super()._compare(what, shown)
        heard = shown[0][1:] if isinstance(shown[0], tuple) else shown[0]  # without the request
        self._heard = crc32(repr((what, heard)).encode(), self._heard)


Play = Callable[[list[Side], str, "Sequence[str] | None"], Recorded]


def walk(sides: list[Side], name: str, expected: Sequence[str] | None) -> Recorded:
    """Random steps of three sessions."""
    (own,) = (side for side in sides if isinstance(side, EmbeddedSide))
    player = Recorded(sides, name, expected)
    play_at_random(player, lambda: own.processor.state.tree.nodes, name, WALK_REQUESTS)
    return player


def conversation(steps: Iterable[Step]) -> Play:
    """Fixed steps; the session 0 is open at their begin."""
    every = (Open(0, TIMEOUT_MS, False), *steps)

    def play(sides: list[Side], name: str, expected: Sequence[str] | None) -> Recorded:
        player = Recorded(sides, name, expected)
        try:
            for step in every:
                player.play(step)
        finally:
            player.end()
        return player

    return play


def one_by_one(requests: Iterable[Request]) -> Iterator[Step]:
    yield from (Batch(0, (request,)) for request in requests)


ADDRESSES = (
    "127.0.0.1/", "127.0.0.1/8", "126.0.0.0/7", "126.0.0.0/8", "1.2.3.4/0", "127.0.0.1/ 8",
    "127.0.0.1/+8", "127.0.0.1/-0", "127.0.0.1/-1", "127.0.0.1/33", "127.0.0.1/1_0", "1.2.3.4/8/8",
    "/8", "", "127.1", "127.0.0.1.", "127.000.000.001", "0127.0.0.1", "127.0.0.+1", "127.0.0.-1",
    "127.0.0.256", "127.0.0.1 ", "\uff11\uff12\uff17.0.0.1", "::1",
)  # fmt: skip


def addresses() -> Iterator[Step]:
    """Which of them an access list takes, and whom it means."""
    for number, address in enumerate(ADDRESSES):
        acl = (r.ACL(Perms.ALL, r.Id("ip", address)),)
        yield from one_by_one(
            (
                plain(ops.CREATE, r.CreateRequest(f"/{number}", b"", acl, 0)),
                plain(ops.GET_DATA, r.GetDataRequest(f"/{number}", False)),
            )
        )


NULL = b"\xff\xff\xff\xff"
TEXTS = (b"/\xff", b"/\xff\xfe", b"/\xed\xa0\x80", b"/\xf0\x9f", b"/\xf0\x9f\x98\x80", b"\xff", b"")


def texts() -> list[Request]:
    """Paths and ids that no client writes: ill-formed, null, and behind counts that are none.

    No watch on null: it is accepted, and keeps a real server from ending its connection.
    """
    raw_sync = ops.Op("raw sync", ops.SYNC.opcode, None, None)  # compared byte by byte
    found = [garbled(raw_sync, NULL)]
    for data in TEXTS:
        path, one, some = sized(data), sized(data) + b"\1", struct.pack(">i", 1)
        found += [garbled(raw_sync, path), garbled(ops.EXISTS, one), garbled(ops.GET_DATA, one)]
        found += [garbled(ops.GET_ACL, path), garbled(ops.DELETE, path + NULL)]
        found += [
            garbled(ops.SET_DATA, path + NULL + NULL),
            garbled(ops.ADD_WATCH, path + bytes(4)),
        ]
        found.append(garbled(ops.SET_WATCHES, bytes(8) + (some + path) * 3))
        found.append(garbled(ops.REMOVE_WATCHES, path + struct.pack(">i", 3)))
        found.append(garbled(ops.CREATE, path + NULL + entries(sized(b"world") + sized(b"anyone"))))
    schemes = [sized(name) for name in (b"auth", b"world", b"digest", b"ip", b"nobody's")]
    ids = [scheme + NULL for scheme in schemes]
    ids += [NULL + NULL, NULL + sized(b"x"), sized(b"digest") + sized(b"\xff:x")]
    ids.append(sized(b"digest") + sized("\U0001f600:x".encode()))
    for number, name in enumerate(ids):
        node = f"/text-{number}"
        found.append(garbled(ops.CREATE, sized(node.encode()) + NULL + entries(name)))
        found.append(plain(ops.GET_ACL, r.GetACLRequest(node)))
        found.append(plain(ops.DELETE, r.DeleteRequest(node, -1)))
    for count in (-1, -2, -7):
        size = struct.pack(">i", count)
        found.append(garbled(ops.SET_WATCHES, bytes(8) + size * 3))
        found.append(garbled(ops.CREATE, sized(b"/n") + NULL + size + bytes(4)))
    return found


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def entries(name: bytes) -> bytes:
    """The rest of a create behind the data: what somebody may do, and what anybody may."""
    anyone = sized(b"world") + sized(b"anyone")
    return struct.pack(">ii", 2, 31) + name + struct.pack(">i", 31) + anyone + bytes(4)


def garbled(op: ops.Op, body: bytes) -> Request:
    return Request(op, lambda _: body, repr(body))


def odd_watches() -> Iterator[Step]:
    """Watches of what is no path: everything but firing works, and looking may stumble."""
    odd = ("", "x", "a/b", "//", "/")
    look = [
        plain(ops.CHECK_WATCHES, r.CheckWatchesRequest(path, kind))
        for path in (*odd, "y", "a/c", "//a", "/a/")
        for kind in range(7)
    ]
    for mode in (0, 1):
        yield Batch(0, tuple(plain(ops.ADD_WATCH, r.AddWatchRequest(p, mode)) for p in odd))
        yield Batch(0, tuple(look))
    remove = [plain(ops.REMOVE_WATCHES, r.RemoveWatchesRequest(path, 3)) for path in odd]
    yield Batch(0, (*remove, *look))


QUOTA = "/zookeeper/quota"


def quota_of(path: str) -> list[tuple[ops.Op, Record]]:
    """Never of the root: that ends a real server."""
    made = [QUOTA + path, f"{QUOTA}{path}/zookeeper_limits", f"{QUOTA}{path}/zookeeper_stats"]
    return [make(node, ops.CREATE2) for node in made]


def make(path: str, op: ops.Op = ops.CREATE, flags: int = 0) -> tuple[ops.Op, Record]:
    return op, r.CreateRequest(path, b"four", OPEN_ACL_UNSAFE, flags)


def write(path: str, data: bytes) -> tuple[ops.Op, Record]:
    return ops.SET_DATA, r.SetDataRequest(path, data, -1)


def remove(path: str) -> tuple[ops.Op, Record]:
    return ops.DELETE, r.DeleteRequest(path, -1)


QUOTA_STEPS = (
    *(make("/q"), make("/q/a"), *quota_of("/q"), make("/q/b"), make("/qq"), remove("/q/b")),
    *(make("/q/b", flags=1), make("/q/n-", flags=2), make("/q/c", ops.CREATE_CONTAINER, 4)),
    *(write("/q/a", b"longer than before"), write("/q", b"")),
    *(write(f"{QUOTA}/q/zookeeper_stats", b"count=100,bytes=1000"), make("/q/d")),
    *(write(f"{QUOTA}/q/zookeeper_stats", b"bytes=7"), make("/q/e")),
    *(write(f"{QUOTA}/q/zookeeper_stats", b"count=7,bytes=1=;countHardLimit=9"), make("/q/f")),
    *(write(f"{QUOTA}/q/zookeeper_stats", b""), make("/q/g")),
    *(remove(f"{QUOTA}/q/zookeeper_limits"), make("/q/h")),
    *(make(f"{QUOTA}/q/zookeeper_limits"), make("/q/i")),
    *(remove(f"{QUOTA}/q/zookeeper_stats"), make("/q/j"), make(f"{QUOTA}/q/zookeeper_stats")),
    *(*quota_of("/q/a"), make("/q/a/x"), make("/q/k")),
    *(*quota_of("/none"), make("/none"), remove("/none")),
    *(*quota_of("/zookeeper"), make("/zookeeper/x"), make(f"{QUOTA}/zookeeper_stats")),
)


def quotas() -> Iterator[Step]:
    """What is counted, where; after each step everything that counts is read."""
    kept = [f"/zookeeper/quota{p}/zookeeper_stats" for p in ("/q", "/q/a", "/none", "/zookeeper")]
    look = [plain(ops.GET_DATA, r.GetDataRequest(path, True)) for path in kept]
    for op, record in QUOTA_STEPS:
        yield Batch(0, (plain(op, record), *look))
    twice = [make("/q/multi"), make("/q/multi")]
    for parts in (twice, [make("/q/multi"), (ops.DELETE, r.DeleteRequest("/q/k", -1))]):
        yield Batch(0, (garbled(ops.MULTI, multi_body(parts)), *look))
    yield Close(0)
    yield Open(1, TIMEOUT_MS, False)
    yield Batch(1, tuple(look))


def seldom() -> Iterator[Step]:
    """Requests that chance hardly makes: who has several names, all of a TTL, reads of writes."""
    secrets = [r.AuthPacket(0, "digest", b"%s:p" % name) for name in (b"u", b"v", b"w", b"alice")]
    yield from one_by_one(plain(ops.AUTH, secret) for secret in secrets)
    ann, anyone = r.Id("digest", "ann:hash"), r.Id("world", "anyone")
    names = ((1, ann), (31, r.Id("auth", "")), (1, anyone), (1, ann))
    lists = [[r.ACL(perms, name) for perms, name in names]]
    lists += [
        [r.ACL(1, anyone), r.ACL(31, ann)],
        [r.ACL(1, r.Id("ip", text)) for text in ("::1", "::/0")],
    ]
    requests = [plain(ops.WHO_AM_I)]
    for number, acl in enumerate(lists):
        requests += [plain(ops.CREATE, r.CreateRequest(f"/{number}", b"", tuple(acl), number % 2))]
        requests += [plain(ops.GET_ACL, r.GetACLRequest(f"/{number}"))]
    for number, (flags, ttl) in enumerate(
        ((5, 1), (6, 2**40 - 1), (5, 2**40), (5, 0), (0, 1), (7, 1))
    ):
        ttl_request = r.CreateTTLRequest(f"/t{number}", b"", OPEN_ACL_UNSAFE, flags, ttl)
        requests += [plain(ops.CREATE_TTL, ttl_request)]
    requests += [
        plain(ops.GET_EPHEMERALS, r.GetEphemeralsRequest(p)) for p in (None, "", "/", "/1", "x")
    ]
    reads, config = (ops.GET_DATA, r.GetDataRequest("/", False)), "/zookeeper/config"
    gone = ops.DELETE, r.DeleteRequest("/a", -1)
    in_reads: list[list[tuple[ops.Op, Record]]] = [[gone], [reads, gone], [reads, reads]]
    in_writes: list[list[tuple[ops.Op, Record]]] = [
        *(
            [make("/m"), reads],
            [],
            [make("/m", flags=-1)],
            [make("/m", flags=5)],
            [make("/m", flags=6)],
        ),
        [(ops.CREATE, r.CreateRequest("/m", b"", None, 0))],
    ]
    requests += [garbled(ops.MULTI_READ, multi_body(parts)) for parts in in_reads]
    requests += [garbled(ops.MULTI, multi_body(parts)) for parts in in_writes]
    requests += [
        plain(ops.EXISTS, r.ExistsRequest(config, False)),
        plain(ops.GET_DATA, r.GetDataRequest(config, False)),
    ]
    requests += [plain(ops.SET_DATA, r.SetDataRequest(config, b"x", -1))]
    yield from one_by_one(requests)


def of_servers() -> Iterator[Step]:
    """What servers alone ask each other; one request may end the connection."""
    requests = [plain(ops.CHECK, r.CheckVersionRequest(p, 7)) for p in ("/", "/none", "none")]
    requests += [garbled(ops.CHECK, b"\xff\xff\xff\xff\0\0\0\0"), plain(ops.CHECK)]
    requests += [plain(DELETE_CONTAINER, r.SyncRequest(p)) for p in ("/a", "/", "none")]
    for request in (*requests, plain(DELETE_CONTAINER)):
        yield from one_by_one((request,))
        yield Reattach(0, TIMEOUT_MS, False)


def known_to_it() -> Iterator[Step]:
    yield from one_by_one((plain(ops.AUTH, r.AuthPacket(0, "digest", b"u:p")), *texts()))


CONVERSATIONS: dict[str, Play] = {
    **{f"walk-{number}": walk for number in range(WALKS)},
    "addresses": conversation(addresses()),
    "odd-watches": conversation(odd_watches()),
    "quotas": conversation(quotas()),
    "seldom": conversation(seldom()),
    "of-servers": conversation(of_servers()),
    "texts": conversation(one_by_one(texts())),
    "texts-with-auth": conversation(known_to_it()),
}


def stored() -> dict[tuple[str, str], list[str]]:
    """The numbers, by the version and the conversation."""
    lines = map(str.split, FILE.read_text().splitlines())
    return {(version, name): numbers for version, name, *numbers in lines}


def replay(version: Version, name: str) -> None:
    """AssertionError where the embedded server answers otherwise than a real one has."""
    expected = stored()[version, name]
    player = CONVERSATIONS[name]([EmbeddedSide(embedded(name, version))], name, expected)
    assert player.numbers == expected


def asked(server: ZooKeeperServer, name: str, expected: Sequence[str] | None) -> list[str]:
    """Hold a conversation with a real server and the embedded one, which must answer alike."""
    sides: list[Side] = [EmbeddedSide(embedded(name, playing(server)))]
    sides.append(RealSide(server.host, server.port))
    return CONVERSATIONS[name](sides, name, expected).numbers


def record() -> None:
    """Ask both servers; a difference between them ends it. What is not here stays as stored."""
    found = stored()
    for release in every_release():
        os.environ["ZKWIRE_TEST_RELEASE"] = release
        for name in CONVERSATIONS if release[:3] in VERSIONS else ():
            with alone(find_installed()) as server:
                found[playing(server), name] = asked(server, name, None)
                print(release, name, flush=True)
    lines = [" ".join([*key, *found[key]]) for key in product(VERSIONS, CONVERSATIONS)]
    FILE.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    record()
