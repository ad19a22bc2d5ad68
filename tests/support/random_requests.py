"""Random requests for the differential test: few names, so that they collide.

What is not generated, because answers depend on more than the requests:

* a create with a TTL mode and no ttl inside a multi: it is refused as unreadable, but what stood
  before it in the multi confuses the real server's later checks (its change records stay);
* a create_container with an ephemeral flag: it makes a container, which the real server takes for
  ephemeral as long as the transaction is on its way;
* a request behind a set_acl that has not been answered: the real server's change record keeps the
  old ACL, so it depends on the moment by which one the next write is judged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.testing.server.credentials import digest_id
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Perms


@dataclass
class Request:
    """One request, the same for all sides but for the zxid that a set_watches counts from."""

    op: ops.Op
    body: Callable[[int], bytes]  # from the side's first zxid
    text: str

    def frame(self, xid: int, base: int) -> bytes:
        return frame(r.RequestHeader(xid, self.op.opcode).encode() + self.body(base))

    def __str__(self) -> str:
        return f"{self.op.name} {self.text}"


def plain(op: ops.Op, record: Record | None = None) -> Request:
    """A request that is the same everywhere."""
    body = b"" if record is None else record.encode()
    return Request(op, lambda _: body, repr(record))


def multi_body(parts: Iterable[tuple[ops.Op, Record]]) -> bytes:
    pieces = [r.MultiHeader(op.opcode, False, -1).encode() + q.encode() for op, q in parts]
    return b"".join(pieces) + r.MultiHeader(-1, True, -1).encode()


_ANYONE = r.Id("world", "anyone")
_DIGESTS = [r.Id("digest", digest_id(secret)) for secret in (b"u:p", b"v:p")]
SECRETS = (b"u:p", b"v:p", b"nocolon")
ACLS: tuple[tuple[r.ACL, ...] | None, ...] = (
    *[OPEN_ACL_UNSAFE] * 12,
    READ_ACL_UNSAFE,
    (r.ACL(Perms.ALL, r.Id("auth", "")),),
    (r.ACL(Perms.ALL, r.Id("auth", "")), r.ACL(Perms.READ, _ANYONE)),
    (r.ACL(Perms.ALL, _DIGESTS[0]),),
    (r.ACL(Perms.ALL & ~Perms.ADMIN, _ANYONE), r.ACL(Perms.ADMIN, _DIGESTS[1])),
    (r.ACL(Perms.ALL & ~Perms.READ, _ANYONE),),
    (r.ACL(Perms.ALL, r.Id("ip", "127.0.0.1")),),
    (r.ACL(Perms.ALL, r.Id("ip", "127.0.0.0/8")), r.ACL(Perms.READ, _ANYONE)),
    (r.ACL(Perms.ALL, r.Id("ip", "10.0.0.0/8")), r.ACL(Perms.DELETE, _ANYONE)),
    (r.ACL(Perms.READ, _ANYONE), r.ACL(Perms.READ, _ANYONE), r.ACL(Perms.ALL, _ANYONE)),
    (r.ACL(0, _ANYONE),),
    (r.ACL(Perms.ALL, r.Id("world", "somebody")),),
    (r.ACL(Perms.ALL, r.Id("sasl", "u")),),
    (r.ACL(Perms.ALL, r.Id("digest", "nocolon")),),
    (r.ACL(Perms.ALL, r.Id("digest", "a:b:c")),),
    (r.ACL(Perms.ALL, r.Id("ip", "127.0.0.1/33")),),
    (r.ACL(Perms.ALL, r.Id("ip", "nowhere")),),
    (),
    None,
)
DATA: tuple[bytes | None, ...] = (None, b"", b"x", b"y" * 40)
ODD_PATHS = ("", "x", "/", "//", "/.", "{0}/", "{0}//a", "{0}/../a", "{0}/a\0b", "{0}/\x7f", "a/b",
             "{0}/\u00e9", "{0}/\ue000", "{0}/...", "/zookeeper", "/zookeeper/quota",
             "/zookeeper/config")  # fmt: skip
TTLS = (1, 100_000, 2**40 - 1, 2**40, 0, -1, -5)
NAMES = ("a", "b", "c")


class Generator:
    """Makes requests that collide often: few names, and paths that exist more often than not."""

    def __init__(self, rng: random.Random, root: str, known: Callable[[], Iterable[str]]) -> None:
        self.rng = rng
        self.root = root
        self._known = known

    def path(self) -> str:
        """Never the root itself: without it there would be nothing left to try."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.03:
            return rng.choice(ODD_PATHS).format(self.root)
        if chance < 0.65:
            inside = [path for path in self._known() if path.startswith(self.root + "/")]
            if inside:
                return rng.choice(inside)
        return "/".join([self.root, *rng.choices(NAMES, k=rng.choice((1, 1, 1, 2, 2, 3)))])

    def new_path(self) -> str:
        """A path that may be free."""
        if self.rng.random() < 0.3:
            return f"{self.path()}/{self.rng.choice(NAMES)}"
        return self.path()

    def version(self) -> int:
        return self.rng.choice((-1, -1, -1, 0, 0, 1, 2, -2))

    def create(self, *, in_multi: bool = False) -> tuple[ops.Op, Record]:
        rng = self.rng
        path, data, acl = self.new_path(), rng.choice(DATA), rng.choice(ACLS)
        op = rng.choice((ops.CREATE, ops.CREATE, ops.CREATE2, ops.CREATE_CONTAINER, ops.CREATE_TTL))
        if op is ops.CREATE_TTL:
            flags, ttl = rng.choice((5, 5, 6, 0, 1, 7)), rng.choice(TTLS)
            if flags not in {5, 6} and ttl < 0:
                ttl = 1  # else the real server dies of it
            return op, r.CreateTTLRequest(path, data, acl, flags, ttl)
        usual = (0, 0, 0, 1, 1, 2, 3, 4, 7 if in_multi else 5, -1)
        flags = rng.choice((0, 2, 4, 4, 7) if op is ops.CREATE_CONTAINER else usual)
        return op, r.CreateRequest(path, data, acl, flags)

    def write(self, *, in_multi: bool = False) -> tuple[ops.Op, Record]:
        kind = self.rng.random()
        if kind < 0.45:
            return self.create(in_multi=in_multi)
        if kind < 0.7:
            return ops.DELETE, r.DeleteRequest(self.path(), self.version())
        return ops.SET_DATA, r.SetDataRequest(self.path(), self.rng.choice(DATA), self.version())

    def multi(self) -> Request:
        """Mostly operations that succeed, so that the last ones are reached."""
        parts: list[tuple[ops.Op, Record]] = []
        for _ in range(self.rng.choice((0, 1, 2, 2, 3, 5))):
            if self.rng.random() < 0.3:
                parts.append((ops.CHECK, r.CheckVersionRequest(self.path(), self.version())))
            else:
                parts.append(self.write(in_multi=True))
        body = multi_body(parts)
        return Request(ops.MULTI, lambda _: body, repr([q for _, q in parts]))

    def multi_read(self) -> Request:
        """Reads of nodes that are there or not; one that is none refuses them all."""
        parts: list[tuple[ops.Op, Record]] = []
        for _ in range(self.rng.choice((0, 1, 2, 3, 5))):
            path, watch = self.path(), self.rng.random() < 0.5
            data = ops.GET_DATA, r.GetDataRequest(path, watch)
            children = ops.GET_CHILDREN, r.GetChildrenRequest(path, watch)
            parts.append(self.rng.choice((data, children)))
        if self.rng.random() < 0.05:
            parts.append((ops.DELETE, r.DeleteRequest(self.path(), -1)))
        body = multi_body(parts)
        return Request(ops.MULTI_READ, lambda _: body, repr([q for _, q in parts]))

    def set_watches(self, last_zxid: int) -> Request:
        """Watches as after a reconnect; the zxid counts from the start of the scenario."""
        since = max(1, last_zxid - self.rng.randrange(12))
        op = self.rng.choice((ops.SET_WATCHES, ops.SET_WATCHES2))
        count = 3 if op is ops.SET_WATCHES else 5
        lists = [tuple(self.path() for _ in range(self.rng.randrange(4))) for _ in range(count)]

        def body(base: int) -> bytes:
            if op is ops.SET_WATCHES:
                return r.SetWatches(base + since, *lists).encode()
            return r.SetWatches2(base + since, *lists).encode()

        return Request(op, body, f"since {since}: {lists}")

    def watch(self) -> Request:
        """What is about watches alone: few paths, so that their modes collide."""
        rng = self.rng
        path = rng.choice((self.root, "/", *[self.path() for _ in range(4)]))
        if rng.random() < 0.1:
            path = rng.choice(("", "x", "a/b", "//", "/a/"))
        kinds: tuple[Callable[[], Request], ...] = (
            lambda: plain(ops.ADD_WATCH, r.AddWatchRequest(path, rng.choice((0, 0, 1, 1, 2, -1)))),
            lambda: plain(ops.CHECK_WATCHES, r.CheckWatchesRequest(path, rng.randrange(7))),
            lambda: plain(ops.REMOVE_WATCHES, r.RemoveWatchesRequest(path, rng.randrange(7))),
        )
        return rng.choices(kinds, (4, 2, 3))[0]()

    def read(self) -> Request:
        rng, path, watch = self.rng, self.path(), self.rng.random() < 0.6
        kinds: tuple[Callable[[], Request], ...] = (
            lambda: plain(ops.EXISTS, r.ExistsRequest(path, watch)),
            lambda: plain(ops.GET_DATA, r.GetDataRequest(path, watch)),
            lambda: plain(ops.GET_CHILDREN, r.GetChildrenRequest(path, watch)),
            lambda: plain(ops.GET_CHILDREN2, r.GetChildren2Request(path, watch)),
            lambda: plain(ops.GET_ACL, r.GetACLRequest(path)),
            lambda: plain(ops.SYNC, r.SyncRequest(path)),
            lambda: plain(ops.GET_EPHEMERALS, r.GetEphemeralsRequest(path)),
            lambda: plain(ops.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest(path)),
            lambda: plain(ops.WHO_AM_I),
            self.multi_read,
        )
        weights = (5, 5, 4, 4, 2, 1, 1, 1, 1, 2)
        return rng.choices(kinds, weights)[0]()

    def request(self, last_zxid: int) -> Request:
        chance = self.rng.random()
        if chance < 0.4:
            return plain(*self.write())
        if chance < 0.44:
            acl = self.rng.choice(ACLS)
            return plain(ops.SET_ACL, r.SetACLRequest(self.path(), acl, self.version()))
        if chance < 0.52:
            return self.multi()
        if chance < 0.55:
            return self.set_watches(last_zxid)
        if chance < 0.56:
            return self.garbled()
        if chance < 0.66:
            return self.watch()
        return self.read()

    def garbled(self) -> Request:
        """A body that cannot be read: cut short, or with a null where none may be.

        Never one with a TTL: a real server dies of some of them.  A create with a null path but
        flags that do not exist is refused for its flags; the embedded server reads no such path.
        """
        while (written := self.write())[0] is ops.CREATE_TTL:
            pass
        op, record = written
        body = record.encode()
        choices = [body[:-5], b""]
        if "flags" not in record.__fields__:
            choices.append(b"\xff\xff\xff\xff" + body[4:])
        bad = self.rng.choice(choices)
        return Request(op, lambda _: bad, f"garbled {bad!r}")
