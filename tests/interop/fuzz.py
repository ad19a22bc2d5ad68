"""Any bytes give replies or a `ProtocolError`, in bounded time and memory: the targets of fuzzing.

`tests/testbed/test_fuzz.py` runs them.  `TALKS` says what a client asks; a recording is what then
goes over the wire between a session and the embedded server, frame by frame, and is the same in
every run, so that a finding is told by a conversation's name and its mutations.  A mutation is
three numbers, which a fuzzer can make and shrink.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import zkwire
from tests.support.scripted import NO_NODE, SESSION_ID, Script, cut_frames, welcome_frame
from zkwire.errors import ProtocolError, ZooKeeperError
from zkwire.jute.frames import FrameSplitter, frame
from zkwire.jute.multi import MultiResponse
from zkwire.jute.record import Record
from zkwire.jute.records import RECORDS, ConnectRequest
from zkwire.session.request import Request
from zkwire.testing.proxy.relay import Conversation
from zkwire.testing.server.processor import Processor

SLOWEST = 5.0
"""CPU seconds for one input: a bound for what is quadratic, not for a busy machine."""
MOST_OUTPUT = 2**20
"""Bytes that the server may answer to a conversation of some kilobytes."""
SEED = 1  # of the embedded server: a processor with the same one hands out the same sessions
AUTH = zkwire.digest_auth("bob", "secret")
SASL_USERS = {"bob": "secret"}

DECODERS: tuple[type[Record] | type[MultiResponse], ...] = (*RECORDS, MultiResponse)

# --- conversations --------------------------------------------------------------------------------

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


def one(ask: Ask) -> None:
    """What is asked behind a login, and on the next connection."""
    ask.exists("/")


TALKS: dict[str, Callable[[Ask], None]] = {"nodes": nodes, "watches": watches, "multis": multis}


class Recording(NamedTuple):
    """One connection: for the server, for the client; whole frames, the handshakes first."""

    name: str
    c2s: Sequence[bytes]
    s2c: Sequence[bytes]


def record(name: str, talk: Callable[[Ask], None], *, sasl: bool = False) -> list[Recording]:
    """Hold a conversation, over two connections; in the end the client closes its session."""
    processor = Processor(rng=random.Random(SEED), sasl_users=SASL_USERS if sasl else None)
    script, made = Script(sasl=sasl), []
    if not sasl:
        script.session.add_auth(*AUTH)
    for number, ask in enumerate((talk, one)):
        script.dial()
        ask(script._ask)
        if number:
            script.close()
        made.append(Recording(f"{name}-{number}", *_exchanged(script, processor)))
        script.lose()
    return made


def _exchanged(script: Script, processor: Processor) -> tuple[list[bytes], list[bytes]]:
    """The frames of both sides until neither has anything more to say."""
    connection, session, c2s, s2c = (
        processor.connect(),
        script.session,
        list[bytes](),
        list[bytes](),
    )
    mechanism = zkwire.DigestMD5("bob", "secret")
    mechanism._cnonce = b"nonce"
    login = mechanism.exchange("server")
    while True:
        if session.challenge is not None:
            try:
                session.sasl_token(login.send(session.challenge or None))  # type: ignore[arg-type]
            except StopIteration:
                session.sasl_done(script.now)
        data = b""
        while session.has_output:
            data += session.data_to_send(script.now)
        if not data:
            return c2s, s2c
        script.written += len(data)
        processor.receive(connection, data, script.now)
        said = connection.take_output()
        c2s += map(frame, cut_frames(data))
        s2c += map(frame, cut_frames(said))
        script.feed(said)


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


# --- the targets: each raises if something is wrong -----------------------------------------------


def decoder(pieces: Sequence[bytes]) -> None:
    """Every record from every frame: a value that survives a round trip, or a ProtocolError."""
    splitter = FrameSplitter()
    with suppress(ProtocolError):
        for piece in pieces:
            for data, start, end in splitter.feed(piece):
                for skipped in (0, 8, 16):  # the whole, behind a request's header, behind a reply's
                    for kind in DECODERS:
                        _decode(kind, data, min(start + skipped, end), end)


def _decode(kind: type[Record] | type[MultiResponse], data: bytes, at: int, end: int) -> None:
    if issubclass(kind, Record):
        with suppress(ProtocolError):
            record = kind.decode(data[at:end])
            again = kind.decode(record.encode())
            # nan is not equal to itself, and there is none in the protocol
            assert again == record, (record, again)
    else:
        with suppress(ProtocolError):
            kind.decode(data, at, end)


def session(pieces: Sequence[bytes], talk: str = "nodes") -> None:
    """A client that has asked what the conversation asks; then bytes of a server."""
    script = Script()
    script.session.add_auth(*AUTH)
    TALKS[talk](script._ask)
    script.dial()
    script.flush()
    if talk == "watches" and len(pieces) % 2:
        script.feed(welcome_frame())  # so that what is broken in the handshake hides nothing else
        script.flush()
    _hear(script, pieces)
    _end(script)


def restoration(pieces: Sequence[bytes]) -> None:
    """The next connection of a client that has watches to restore."""
    script = Script()
    script.session.add_auth(*AUTH)
    script.connect()
    for path in ("/w", "/missing"):
        script.watching("get_data", path)
    script.persistent("/", recursive=True)
    script.call("exists", "/")
    script.lose()
    script.dial()
    script.flush()
    _hear(script, pieces)
    _end(script)


def _hear(script: Script, pieces: Sequence[bytes]) -> None:
    outcomes: dict[Request, object] = {}
    for piece in pieces:
        script.feed(piece)
        script.flush()
        script.advance(0.001)
        for call in script.calls:
            if call.ready:
                assert outcomes.setdefault(call, call.outcome) is call.outcome, "ended twice"


def _go_on(script: Script) -> None:
    """The next connection, to the session that the bytes have made, carries a call."""
    script.connect(session_id=script.session.session_id or SESSION_ID)
    call = script.call("exists", "/next")
    script.flush()
    while (oldest := script.oldest) is not None:
        script.answer(oldest, error=NO_NODE)
    assert call.value() is None


def _end(script: Script) -> None:
    """Whatever has happened, there is a next connection, and every call ends."""
    script.lose()
    if not script.state.terminal:
        _go_on(script)
    script.session.closed()
    for call in script.calls:
        assert call.ready
        with suppress(ZooKeeperError):
            call.value()


def server(pieces: Sequence[bytes], *, sasl: bool = False) -> None:
    """The embedded server without its sockets: it answers in frames, and goes on for others."""
    processor = Processor(rng=random.Random(SEED), sasl_users=SASL_USERS if sasl else None)
    connection = processor.connect()
    said = b""
    for number, piece in enumerate(pieces):
        processor.receive(connection, piece, number * 0.01)
        said += connection.take_output()
        assert len(said) < MOST_OUTPUT
    _is_frames(said, pieces)
    processor.lost(connection)
    processor.advance(3600.0)
    other = processor.connect(now=3600.0)
    greeting = ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode()
    processor.receive(other, frame(greeting), 3600.0)
    assert other.take_output(), "nobody else is served any more"


def _is_frames(said: bytes, asked: Sequence[bytes]) -> None:
    word = b"".join(asked)[:4]
    if word.isalpha():
        return  # a four-letter word has text for an answer
    splitter = FrameSplitter()
    for _ in splitter.feed(said):
        pass
    assert not splitter.missing, "the server has said half a frame"


def server_with_sasl(pieces: Sequence[bytes]) -> None:
    """The same, for who has to log in."""
    server(pieces, sasl=True)


def proxy(pieces: Sequence[bytes]) -> None:
    """What tells the proxy's frames apart: no byte is lost or made up."""
    for way in ("c2s", "s2c"):
        conversation = Conversation(0)
        passed = b""
        for piece in pieces:
            for passing, _ in conversation.receive(way, piece, 0.0):
                passed += passing.raw
                repr(passing)
        assert passed + b"".join(conversation.rest(way)) == b"".join(pieces)


class Target(NamedTuple):
    """What is run, and with which bytes of which conversations."""

    run: Callable[[Sequence[bytes]], None]
    seeds: dict[str, Sequence[bytes]]


def targets() -> dict[str, Target]:
    """Every target by its name."""
    recordings = [each for name, talk in TALKS.items() for each in record(name, talk)]
    recordings += record("sasl", one, sasl=True)
    c2s = {r.name: r.c2s for r in recordings}
    s2c = {r.name: r.s2c for r in recordings}
    made = {
        "decoder": Target(decoder, {f"{n}-{way}": f for way, side in (("c2s", c2s), ("s2c", s2c))
                                    for n, f in side.items()}),
        "server": Target(server, c2s),
        "server_with_sasl": Target(server_with_sasl, {"sasl-0": c2s["sasl-0"]}),
        "restoration": Target(restoration, {n: f for n, f in s2c.items() if n.endswith("-1")}),
        "proxy": Target(proxy, {**c2s, **{f"{n}-s2c": f for n, f in s2c.items()}}),
    }  # fmt: skip
    for talk in TALKS:

        def of_talk(pieces: Sequence[bytes], talk: str = talk) -> None:
            session(pieces, talk)

        made[f"session_{talk}"] = Target(of_talk, {f"{talk}-0": s2c[f"{talk}-0"]})
    return made


def run(target: Target, pieces: Sequence[bytes]) -> None:
    """One input, in bounded time."""
    began = time.process_time()
    target.run(pieces)
    spent = time.process_time() - began
    assert spent < SLOWEST, f"{spent:.1f} s for {sum(map(len, pieces))} bytes"
