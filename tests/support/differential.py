"""Play the same steps to two servers and compare all that comes back.

A *step* is one thing that a session does: connect, come back, send a batch of requests in one
write, close.  Each step goes to all sides and what comes back is compared frame by frame: header,
error, body, and where the events stand between the replies.  The frames are built from the records
and taken apart again here, so servers are compared, not clients.

zxids count from the start of the scenario, a session id is its session's number, times are left
out, children and other sets are sorted; what is heard of the nodes of a closed session is compared
as a set: they go in the order of a Java hash set.  Everything else must be equal.  What is not
generated, `tests/support/random_requests.py` says.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.differential_sides import SILENCE, Link, Side
from tests.support.random_requests import SECRETS, Generator, Request, plain
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE

TIMEOUT_MS = 30_000


@dataclass(frozen=True)
class Open:
    """A new session, which has this number from now on."""

    actor: int
    timeout: int
    read_only: bool | None


@dataclass(frozen=True)
class Reattach:
    """The session comes back; with ``intruded``, somebody has tried a wrong password before."""

    actor: int
    timeout: int
    intruded: bool


@dataclass(frozen=True)
class Batch:
    """Requests in one write."""

    actor: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Close:
    """The end of a session, and what all others hear of it."""

    actor: int


Step = Open | Reattach | Batch | Close


class Difference(AssertionError):
    """The sides do not agree."""


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


@dataclass
class Actor:
    """One session, with a connection to each side."""

    number: int
    ids: list[int]
    passwds: list[bytes]
    views: list[View] = field(default_factory=list[View])
    xid: int = 0


class Player:
    """Plays steps; raises Difference at the first one."""

    def __init__(self, sides: list[Side], name: str) -> None:
        self.sides = sides
        self.name = name
        self.requests = 0
        self.events = 0
        self.last_zxid = 0
        self.errors: dict[tuple[str, int], int] = {}
        self.log: deque[str] = deque(maxlen=40)
        self._actors: dict[int, Actor] = {}
        self._bases = [0] * len(sides)
        self._aliases: list[dict[int, int]] = [{} for _ in sides]
        self._links: list[Link] = []

    def play(self, step: Step) -> None:
        if isinstance(step, Open):
            actor = Actor(step.actor, [0] * len(self.sides), [bytes(16)] * len(self.sides))
            self._greet(actor, step.timeout, read_only=step.read_only)
            self._actors[step.actor] = actor
        elif isinstance(step, Reattach):
            self._reattach(self._actors[step.actor], step)
        elif isinstance(step, Batch):
            self._batch(self._actors[step.actor], step.requests)
        else:
            self._close(self._actors.pop(step.actor))

    def end(self) -> None:
        """End all sessions, without a look at the answers: none may expire in a later play."""
        bye = frame(r.RequestHeader(1, ops.CLOSE_SESSION.opcode).encode())
        for actor in self._actors.values():
            for view in actor.views:
                with suppress(OSError):
                    view.link.exchange(bye, None)
        for link in self._links:
            link.close()

    # --- connections --------------------------------------------------------------------------

    def _greet(self, actor: Actor, timeout: int, *, read_only: bool | None = False) -> None:
        """Connect every side; the answers must agree, and bring the actor its numbers."""
        self._note(f"session {actor.number}: connect, timeout={timeout}, read_only={read_only}")
        answers, views = [], []
        for index, side in enumerate(self.sides):
            link = self._connect(side)
            request = r.ConnectRequest(
                0, 0, timeout, actor.ids[index], actor.passwds[index], read_only
            )
            (raw,) = link.exchange(frame(request.encode()), 1)
            if raw in (b"", SILENCE):
                raise self._difference("no answer to a handshake", [f"{side.name} is silent"])
            answer = r.ConnectResponse.decode(raw)
            answers.append((answer.time_out, answer.session_id != 0, answer.read_only))
            if actor.ids[index] not in {0, answer.session_id}:
                raise self._difference("another session", [str(answer)])
            actor.ids[index], actor.passwds[index] = answer.session_id, answer.passwd or b""
            self._aliases[index].setdefault(answer.session_id, actor.number)
            views.append(View(link, self._bases[index], self._aliases[index]))
        actor.views = views
        self._compare("handshake", answers)
        if not self._bases[0]:
            self._find_bases(views)

    def _connect(self, side: Side) -> Link:
        link = side.connect()
        self._links.append(link)
        return link

    def _find_bases(self, views: list[View]) -> None:
        """Count zxids from here: the first session's own transaction is number 0."""
        for index, view in enumerate(views):
            raw = r.RequestHeader(1, ops.WHO_AM_I.opcode).encode()
            (reply,) = view.link.exchange(frame(raw), 1)
            self._bases[index] = view.base = r.ReplyHeader.unpack(reply)[0].zxid

    def _reattach(self, actor: Actor, step: Reattach) -> None:
        """The old connection ends; a server drops the events that it has not written by then."""
        self._batch(actor, (plain(ops.WHO_AM_I),))  # behind them
        old = actor.views
        if step.intruded:
            self._intrude(actor)
        self._greet(actor, step.timeout)
        rests = [view.link.exchange(b"", None) for view in old]
        self._compare_streams(old, rests, ())
        self._forget(old)

    def _intrude(self, actor: Actor) -> None:
        """A wrong password ends the session's connection, and is refused."""
        self._note(f"session {actor.number}: wrong password")
        answers = []
        for index, side in enumerate(self.sides):
            request = r.ConnectRequest(0, 0, TIMEOUT_MS, actor.ids[index], b"wrong", False)
            frames = self._connect(side).exchange(frame(request.encode()), None)
            answers.append([body and tuple(r.ConnectResponse.decode(body)) for body in frames])
        self._compare("wrong password", answers)

    def _close(self, actor: Actor) -> None:
        """End a session; what the others hear of it is compared as a set."""
        self._batch(actor, (plain(ops.CLOSE_SESSION),), ends=True, ordered=False)
        for other in self._actors.values():
            self._batch(other, (plain(ops.WHO_AM_I),), ordered=False)

    def _forget(self, views: list[View]) -> None:
        for view in views:
            self._links.remove(view.link)
            view.link.close()

    # --- requests -----------------------------------------------------------------------------

    def _batch(
        self,
        actor: Actor,
        requests: tuple[Request, ...],
        *,
        ends: bool = False,
        ordered: bool = True,
    ) -> None:
        """Send requests in one write to each side, and compare all that comes back."""
        self.requests += len(requests)
        first = actor.xid + 1
        actor.xid += len(requests)
        for index, request in enumerate(requests):
            self._note(f"session {actor.number} xid {first + index}: {request}")
        streams = []
        for view in actor.views:
            data = b"".join(q.frame(first + i, view.base) for i, q in enumerate(requests))
            streams.append(view.link.exchange(data, None if ends else len(requests)))
        self._compare_streams(actor.views, streams, requests, ordered=ordered)
        if ends:
            self._forget(actor.views)

    def _compare_streams(
        self,
        views: list[View],
        streams: list[list[bytes]],
        requests: tuple[Request, ...],
        *,
        ordered: bool = True,
    ) -> None:
        shown = [
            self._show(view, stream, requests) for view, stream in zip(views, streams, strict=True)
        ]
        if not ordered:
            shown = [sorted(stream, key=repr) for stream in shown]
        for position in range(max(map(len, shown))):
            frames = [s[position] if position < len(s) else "nothing" for s in shown]
            self._compare(f"frame {position} of the answer", frames)

    def _show(self, view: View, stream: list[bytes], requests: tuple[Request, ...]) -> list[Any]:
        """One side's frames in a form that can be compared with the other's."""
        shown: list[Any] = []
        waiting = iter(requests)
        for raw in stream:
            if raw in (b"", SILENCE):
                shown.append(raw)
                continue
            header, at = r.ReplyHeader.unpack(raw)
            if header.xid == ops.NOTIFICATION_XID:
                self.events += 1
                zxid = view.zxid(header.zxid)
                shown.append(("event", zxid, header.err, *r.WatcherEvent.decode(raw, at)))
                continue
            request = next(waiting)
            zxid = view.zxid(header.zxid)
            self.last_zxid = max(self.last_zxid, zxid)
            key = (request.op.name, header.err)
            self.errors[key] = self.errors.get(key, 0) + 1
            body = raw[at:] if header.err else view.body(request, raw[at:])
            shown.append((str(request), header.xid, zxid, header.err, body))
        return shown

    # --- differences --------------------------------------------------------------------------

    def _note(self, line: str) -> None:
        self.log.append(line)

    def _compare(self, what: str, shown: list[Any]) -> None:
        if any(other != shown[0] for other in shown[1:]):
            raise self._difference(what, [repr(s) for s in shown])

    def _difference(self, what: str, shown: list[str]) -> Difference:
        answers = "\n".join(
            f"  {side.name:>8}: {text}" for side, text in zip(self.sides, shown, strict=False)
        )
        requests = "\n".join(f"  {line}" for line in self.log)
        return Difference(f"{self.name}, {what}:\n{answers}\nthe last requests:\n{requests}")


# --- random steps ---------------------------------------------------------------------------------

SESSIONS = 3
BATCH = 16


def play_at_random(
    player: Player, known: Callable[[], Iterable[str]], seed: str, requests: int
) -> None:
    """At least so many requests, below a root of their own; leaves no session."""
    try:
        for step in steps(player, known, random.Random(seed), seed, requests):
            player.play(step)
    finally:
        player.end()


def steps(
    player: Player, known: Callable[[], Iterable[str]], rng: random.Random, seed: str, requests: int
) -> Iterator[Step]:
    """Random ones, each made when those before have been played."""
    root = f"/{zlib.crc32(seed.encode()):08x}-{0:06d}"
    generator = Generator(rng, root, known)

    def opened(actor: int) -> Step:
        timeout = rng.choice((TIMEOUT_MS, TIMEOUT_MS + 1, 10**6))
        return Open(actor, timeout, rng.choice((None, False, True)))

    def batch() -> tuple[Request, ...]:
        made: list[Request] = []
        for _ in range(rng.randrange(1, BATCH)):
            made.append(generator.request(player.last_zxid))
            if made[-1].op is ops.SET_ACL:
                break
        return tuple(made)

    actors = list(range(SESSIONS))
    yield from map(opened, actors)
    yield Batch(0, (plain(ops.CREATE, r.CreateRequest(root, b"", OPEN_ACL_UNSAFE, 0)),))
    while player.requests < requests:
        number = rng.randrange(SESSIONS)
        chance = rng.random()
        if chance < 0.85:
            yield Batch(actors[number], batch())
        elif chance < 0.91:
            timeout = rng.choice((TIMEOUT_MS, TIMEOUT_MS + 200))
            yield Reattach(actors[number], timeout, rng.random() < 0.2)
        elif chance < 0.95:
            # In a batch of its own: a real server's answer to it overtakes others.
            packet = r.AuthPacket(0, "digest", rng.choice(SECRETS))
            yield Batch(actors[number], (plain(ops.AUTH, packet),))
        else:
            yield Close(actors.pop(number))
            actors.append(max(actors) + 1 if actors else 0)
            yield opened(actors[-1])
    yield from map(Close, actors)
