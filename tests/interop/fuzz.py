"""Any bytes give replies or a `ProtocolError`, in bounded time and memory: the targets of fuzzing.

`tests/testbed/test_fuzz.py` runs them, mutates what `fuzz_corpus` has recorded, and prints what it
finds as a conversation and mutations; `check.py long` has it look at many more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from tests.interop.fuzz_corpus import (
    AUTH,
    SASL_USERS,
    SEED,
    TALKS,
    Recording,
)
from tests.support.scripted import NO_NODE, SESSION_ID, Script, welcome_frame
from zkwire.errors import ProtocolError, ZooKeeperError
from zkwire.jute.frames import FrameSplitter
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

DECODERS: tuple[type[Record] | type[MultiResponse], ...] = (*RECORDS, MultiResponse)


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
    processor.receive(other, len(greeting).to_bytes(4, "big") + greeting, 3600.0)
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
            for frame, _ in conversation.receive(way, piece, 0.0):
                passed += frame.raw
                repr(frame)
        assert passed + b"".join(conversation.rest(way)) == b"".join(pieces)


class Target(NamedTuple):
    """What is run, and with which bytes of which conversations."""

    run: Callable[[Sequence[bytes]], None]
    seeds: dict[str, tuple[bytes, ...]]


def targets(recordings: Sequence[Recording]) -> dict[str, Target]:
    """Every target by its name."""
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
