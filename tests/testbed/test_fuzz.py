"""Any bytes give replies or a `ProtocolError`, in bounded time and memory.

`TALKS` says what a client asks; a recording is what then goes over the wire between a session and
the embedded server, frame by frame.  It is the same in every run, and so are the mutations, but for
`check.py long`, where they are more, and new.  A mutation is three numbers, which hypothesis makes
and shrinks.
"""

from __future__ import annotations

import gc
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zkwire
from tests.support.examples import ROUNDS, examples
from tests.support.scripted import NO_NODE, SESSION_ID, Script, cut_frames, welcome_frame
from zkwire.errors import ZooKeeperError
from zkwire.jute.frames import FrameSplitter, frame
from zkwire.jute.records import ConnectRequest
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
    assert not splitter.partial, "the server has said half a frame"


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


# --- the tests ------------------------------------------------------------------------------------

BOUNDED = settings(derandomize=ROUNDS == 1, deadline=None, suppress_health_check=list(HealthCheck))
TARGETS = targets()
NUMBER = st.integers(0, 2**16 - 1)
MUTATIONS = st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=6)
SOUP = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.binary(max_size=120).map(lambda body: struct.pack(">i", len(body)) + body),
    ),
    max_size=8,
)
# What may be kept beyond what an honest conversation of the same length needs.
SPARE_BYTES = 512 * 1024


def fuzzed(*names: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """The test runs once for each of these targets."""
    return pytest.mark.parametrize("name", names)


def examine(name: str, count: int = 200) -> None:
    """Mutated conversations, and soup behind the first frames of one."""
    target = TARGETS[name]
    seeds = st.sampled_from(sorted(target.seeds))

    @settings(BOUNDED, max_examples=examples(count))
    @given(seeds, MUTATIONS)
    def mutated(seed: str, mutations: list[Mutation]) -> None:
        run(target, mutate(target.seeds[seed], mutations))

    @settings(BOUNDED, max_examples=examples(count // 3))
    @given(seeds, st.integers(0, 3), SOUP)
    def soup(seed: str, honest: int, pieces: list[bytes]) -> None:
        run(target, [*target.seeds[seed][:honest], *pieces])

    for _ in range(ROUNDS):
        mutated()
        soup()


@fuzzed(*(f"session_{talk}" for talk in TALKS), "restoration")
def test_session(name: str) -> None:
    """The state machine, with calls of every kind on their way."""
    examine(name)


@fuzzed("server", "server_with_sasl")
def test_server(name: str) -> None:
    """The embedded server."""
    examine(name)


def test_proxy() -> None:
    """What tells the fault proxy's frames apart."""
    examine("proxy")


@fuzzed("session_nodes", "session_watches", "session_multis", "server", "restoration")
def test_claims_cost_nothing(name: str) -> None:
    """Every number of every conversation that could be a length or a count, made a huge one."""
    target = TARGETS[name]
    for seed, frames in target.seeds.items():
        honest = peak(target, frames)
        for index, at in lengths(frames):
            claim = (2**31 - 1, 2**26, 2**20 - 1)[(index + at) % 3]
            lying = frames[index][:at] + struct.pack(">i", claim) + frames[index][at + 4 :]
            kept = peak(target, [*frames[:index], lying, *frames[index + 1 :]])
            assert kept < honest + SPARE_BYTES, (seed, index, at, claim)


def lengths(frames: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where a number stands that fits into what follows it: the frame, and the offset in it."""
    return [
        (index, at)
        for index, raw in enumerate(frames)
        for at in range(len(raw) - 3)
        if 0 < int.from_bytes(raw[at : at + 4], "big") <= len(raw) - at - 4
    ]


def peak(target: Target, pieces: Sequence[bytes]) -> int:
    """How many bytes were in use at the most; frames of the past do not count."""
    gc.collect(0)
    tracemalloc.start()
    try:
        target.run(pieces)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
