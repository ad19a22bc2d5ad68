"""Real conversations for fuzzing, and how they are mutated.

`TALKS` says what a client asks. A recording is what then went over the wire between the client and
the embedded server, frame by frame; they are kept in `fuzz_corpus.txt`, so that a finding can be
told by a conversation's name and its mutations. ``python3 -m tests.interop.fuzz_corpus`` makes it
anew.

A mutation is three numbers, so that a fuzzer of any kind can make, keep and shrink them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import zkwire
from zkwire.testing import FaultProxy, Server

FILE = Path(__file__).parent / "fuzz_corpus.txt"
SEED = 1  # of the embedded server: a processor with the same one hands out the same sessions
AUTH = zkwire.digest_auth("bob", "secret")
SASL_USERS = {"bob": "secret"}
SECONDS = 20.0

Ask = Any  # what has the operations, and answers with something to wait for


def nodes(ask: Ask) -> None:
    """Each read and write of single nodes, done and refused."""
    ask.create("/a", b"x" * 40)
    ask.create("/a/e", b"", ephemeral=True)
    ask.create_with_stat("/a/s-", b"\xff", ephemeral=True, sequential=True)
    ask.create("/a", b"")
    ask.set_data("/a", b"y", version=0)
    ask.set_data("/a", b"z", version=0)
    ask.exists("/a")
    ask.get_data("/a")
    ask.get_children("/a")
    ask.get_children_with_stat("/a")
    ask.sync("/a")
    ask.get_acl("/a")
    ask.set_acl("/a", [zkwire.ACL(zkwire.Perms.ALL, zkwire.digest_id("bob", "secret"))])
    ask.get_ephemerals("/")
    ask.get_all_children_number("/")
    ask.who_am_i()
    ask.get_config()
    ask.delete("/a/e")
    ask.delete("/a")
    ask.get_data("/none")


def watches(ask: Ask) -> None:
    """Watches of each kind; some fire, some are left for the next connection."""
    ask.create("/w", b"")
    ask.exists("/missing", watch=zkwire.Watch())
    ask.get_data("/w", watch=zkwire.Watch())
    ask.get_children("/w", watch=zkwire.Watch())
    ask.add_watch("/p", zkwire.Watch())
    ask.add_watch("/r", zkwire.Watch(), recursive=True)
    ask.create("/p", b"")
    ask.create("/r", b"")
    ask.create("/r/child", b"")
    ask.create("/w/child", b"")
    ask.set_data("/w", b"1")
    ask.delete("/w/child")
    ask.get_data("/w", watch=zkwire.Watch())
    ask.get_children("/w", watch=zkwire.Watch())
    ask.exists("/other", watch=zkwire.Watch())


def multis(ask: Ask) -> None:
    """Several at once, done and refused, and reads."""
    ask.multi(
        [
            zkwire.Create("/m", b"x"),
            zkwire.Create("/m/s-", b"", sequential=True),
            zkwire.SetData("/m", b"y"),
        ]
    )
    ask.multi([zkwire.Check("/m", 1), zkwire.Delete("/none")])
    ask.multi([])
    ask.multi_read([zkwire.GetData("/m"), zkwire.GetChildren("/m"), zkwire.GetData("/none")])


TALKS: dict[str, Callable[[Ask], None]] = {"nodes": nodes, "watches": watches, "multis": multis}


class Recording(NamedTuple):
    """One connection: for the server, for the client; whole frames, the handshakes first."""

    name: str
    c2s: tuple[bytes, ...]
    s2c: tuple[bytes, ...]


# --- recording ------------------------------------------------------------------------------------


def record() -> list[Recording]:
    """Hold every conversation once; each over two connections, and one with a login."""
    made: list[Recording] = []
    for name, talk in TALKS.items():
        with (
            Server(seed=SEED) as server,
            FaultProxy(server.hosts) as proxy,
            zkwire.Client(proxy.hosts, auth=[AUTH]) as client,
        ):
            made += _held(name, client, proxy, talk)
    with (
        Server(seed=SEED, sasl_users=SASL_USERS) as server,
        FaultProxy(server.hosts) as proxy,
        zkwire.Client(proxy.hosts, sasl=zkwire.DigestMD5("bob", "secret")) as client,
    ):
        client.exists("/")
        client.close()
        made += _of(proxy, "sasl")
    return made


def _held(
    name: str, client: zkwire.Client, proxy: FaultProxy, talk: Callable[[Ask], None]
) -> list[Recording]:
    client.connect(SECONDS)
    talk(client.pipeline)
    client.sync("/")
    proxy.cut_all()
    again = False
    while not again:
        with suppress(zkwire.ConnectionLossError):  # the cut may not have been noticed yet
            again = client.exists("/") is not None
    client.close()
    return _of(proxy, name)


def _of(proxy: FaultProxy, name: str) -> list[Recording]:
    frames = proxy.frames()
    made = []
    for number in sorted({frame.connection for frame in frames}):
        ways = [
            tuple(f.raw for f in frames if f.connection == number and f.direction == way)
            for way in ("c2s", "s2c")
        ]
        made.append(Recording(f"{name}-{number}", *ways))
    return made


def save(recordings: Sequence[Recording]) -> None:
    """Write the file."""
    lines = []
    for name, c2s, s2c in recordings:
        lines += [f"{name} c2s {raw.hex()}" for raw in c2s]
        lines += [f"{name} s2c {raw.hex()}" for raw in s2c]
    FILE.write_text("\n".join(lines) + "\n")


def load() -> list[Recording]:
    """Read the file."""
    ways: dict[str, dict[str, list[bytes]]] = {}
    for line in FILE.read_text().splitlines():
        name, way, raw = line.split()
        ways.setdefault(name, {"c2s": [], "s2c": []})[way].append(bytes.fromhex(raw))
    return [Recording(name, tuple(w["c2s"]), tuple(w["s2c"])) for name, w in ways.items()]


# --- mutations ------------------------------------------------------------------------------------

Mutation = tuple[int, int, int]
"""Which kind, where, and what with; any numbers from 0 on."""

NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 4, 15, 16, 255, 2**16, 2**20, 2**26, 2**26 + 1, 2**31 - 1)


def mutate(frames: Sequence[bytes], mutations: Sequence[Mutation]) -> list[bytes]:
    """Frames after these mutations, one after the other; the pieces need not be frames any more."""
    pieces = list(frames)
    for kind, where, value in mutations:
        if pieces:
            KINDS[kind % len(KINDS)](pieces, where, value)
    return pieces


Mutate = Callable[[list[bytes], int, int], None]


def _fitted(piece: bytes) -> bytes:
    """With a length that fits."""
    return struct.pack(">i", len(piece) - 4) + piece[4:] if len(piece) >= 4 else piece


def _edit(change: Callable[[bytes, int, int], bytes]) -> Mutate:
    """A change of one piece, at an offset in it."""

    def mutation(pieces: list[bytes], where: int, value: int) -> None:
        index = where % len(pieces)
        piece = pieces[index]
        pieces[index] = change(piece, (where // len(pieces)) % (len(piece) or 1), value)

    return mutation


def _put(new: bytes, piece: bytes, at: int) -> bytes:
    return piece[:at] + new + piece[at + len(new) :]


def _flip(piece: bytes, at: int, value: int) -> bytes:
    return _put(bytes([piece[at] ^ 1 << value % 8]), piece, at) if piece else piece


def _put_byte(piece: bytes, at: int, value: int) -> bytes:
    return _put(bytes([value % 256]), piece, at)


def _put_number(piece: bytes, at: int, value: int) -> bytes:
    return _put(struct.pack(">i", NUMBERS[value % len(NUMBERS)]), piece, at)


def _cut(piece: bytes, at: int, value: int) -> bytes:
    """End it early; if ``value`` is odd its length is made to fit."""
    return _fitted(piece[:at]) if value % 2 else piece[:at]


def _lengthen(piece: bytes, at: int, value: int) -> bytes:
    """Put bytes in, with a length that fits."""
    return _fitted(piece[:at] + bytes([value % 256]) * (1 + value % 37) + piece[at:])


def _open_up(piece: bytes, _: int, value: int) -> bytes:
    """Another operation, or another xid: what no single flip reaches."""
    return _put(struct.pack(">i", (value // 3) % 128 - 16), piece, 4 + value % 3 * 4)


def _repeat(pieces: list[bytes], where: int, value: int) -> None:
    pieces.insert(value % (len(pieces) + 1), pieces[where % len(pieces)])


def _remove(pieces: list[bytes], where: int, _: int) -> None:
    del pieces[where % len(pieces)]


def _swap(pieces: list[bytes], where: int, value: int) -> None:
    one, other = where % len(pieces), value % len(pieces)
    pieces[one], pieces[other] = pieces[other], pieces[one]


def _splice(pieces: list[bytes], where: int, value: int) -> None:
    """The end of one piece behind the beginning of another."""
    end = pieces[value % len(pieces)]
    _edit(lambda piece, at, _: _fitted(piece[:at] + end[at:]))(pieces, where, value)


KINDS: tuple[Mutate, ...] = (
    *map(_edit, (_flip, _put_byte, _put_number, _put_number, _cut, _lengthen)),
    *(_repeat, _remove, _swap, _splice, _edit(_open_up)),
)

if __name__ == "__main__":
    save(record())
