"""The proxy of the spy: it forwards, and puts down what passes.

Decides which number a message has and what its faults are; must not know what is in it.  The
threads of the relays only put events into a queue: decoding and writing never hold up a frame, and
a frame leaves when it is whole, untouched.
"""

from __future__ import annotations

import threading
from argparse import ArgumentTypeError
from collections.abc import Iterable
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import NamedTuple

import zkwire
from zkwire.cli.command import duration
from zkwire.cli.output import host_port
from zkwire.cli.spy.message import operations
from zkwire.errors import ProtocolError, SessionExpiredError, ZooKeeperError
from zkwire.jute.records import ConnectRequest, ConnectResponse
from zkwire.testing.proxy.faults import Action, Cut, Gate, Hold, Send, Step, Wait
from zkwire.testing.proxy.frames import Frame
from zkwire.testing.proxy.proxy import resolve
from zkwire.testing.proxy.relay import Address, Relay

Steps = list[tuple[Frame, tuple[Step, ...]]]


class Event(NamedTuple):
    """What has happened: a frame, or else ``what`` (open, close, fault) and its ``detail``.

    The detail of a frame is "lost" if a fault has kept it from its receiver.
    """

    number: int
    time: float
    connection: int
    what: str
    detail: str
    frame: Frame | None = None


class Tap:
    """One listener for each upstream server; ``events`` are put down in the order of their time.

    OSError if a name cannot be resolved or an address not be listened on.
    """

    def __init__(self, upstreams: list[str], faults: Faults, listen: tuple[str, int]) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.start: float = monotonic()
        self._faults = faults
        self._lock = threading.Lock()
        self._numbers = 0
        self._holds = 0
        self._connections: dict[tuple[int, int], int] = {}  # by relay and its own number
        self._count = 0
        self._ended: set[int] = set()
        self._sessions: dict[int, tuple[Address, int, bytes]] = {}  # by connection
        self._ending: list[threading.Thread] = []
        self._relays: list[Relay] = []
        host, port = listen
        try:
            for index, address in enumerate([resolve(upstream) for upstream in upstreams]):
                place = host, port + index if port else 0
                choose, see = partial(self._choose, index), partial(self._observe, index)
                relay = Relay(address, choose, lambda: None, listen=place, observe=see)
                self._relays.append(relay)
        except BaseException:
            self.close()
            raise
        self.hosts = [host_port(host, relay.port) for relay in self._relays]

    @property
    def connections(self) -> int:
        """How many there are."""
        return sum(len(relay.connections) for relay in self._relays)

    def settle(self) -> None:
        """Return when what had come in by now has been seen."""
        for relay in self._relays:
            relay.call(lambda: None)

    def close(self) -> None:
        """End all connections and threads."""
        for relay in self._relays:
            relay.close()
        for thread in self._ending:
            thread.join()
        for connection in sorted(set(self._connections.values()) - self._ended):
            self._put(connection, "close", "spy")

    def freeze(self, fault: Timed, frozen: bool) -> None:
        """Begin a black hole, or end it."""
        self.hold(frozen)
        self._put(0, "fault", fault.spec if frozen else f"{fault.spec} is over")

    def expire_all(self, fault: Timed) -> None:
        """End all sessions of open connections."""
        with self._lock:
            sessions = {s[1]: c for c, s in self._sessions.items() if c not in self._ended}
        for connection in sessions.values():
            self._put(connection, "fault", fault.spec)
            self._expire(connection, None)

    # --- in the threads of the relays -------------------------------------------------------------

    def _choose(self, relay: int, arrivals: Iterable[tuple[Frame, Action | None]]) -> Steps:
        chosen: Steps = []
        with self._lock:
            for arrival, promised in arrivals:
                number = self._connections[relay, arrival.connection]
                self._numbers += 1
                frame = arrival._replace(connection=number, number=self._numbers)
                steps, spec, gate = self._faults.steps(frame, promised)
                lost = "" if any(isinstance(step, Send) for step in steps) else "lost"
                self.events.put(Event(self._numbers, frame.time, number, "frame", lost, frame))
                if frame.kind == "connect":
                    self._note_session(self._relays[relay].upstream, frame)
                if spec is not None:
                    self._numbers += 1
                    fault = Event(self._numbers, frame.time, number, "fault", spec)
                    self.events.put(fault)
                if gate is not None:
                    self._expire(number, gate)
                chosen.append((frame, steps))
        return chosen

    def _observe(self, relay: int, index: int, what: str, detail: str) -> None:
        if what == "open":
            with self._lock:
                self._count += 1
                connection = self._connections[relay, index] = self._count
            self._put(connection, "open", detail)
            return
        connection = self._connections[relay, index]
        if what == "closed":
            del self._connections[relay, index]
        if connection not in self._ended:
            self._ended.add(connection)
            by = {"c2s": "client", "s2c": "server", "": "spy"}.get(detail, f"server: {detail}")
            self._put(connection, "close", by)
        if what == "closed":
            self._ended.discard(connection)
            self._sessions.pop(connection, None)

    def _put(self, connection: int, what: str, detail: str) -> None:
        with self._lock:
            self._numbers += 1
            self.events.put(Event(self._numbers, monotonic(), connection, what, detail))

    # --- the end of sessions ----------------------------------------------------------------------

    def _note_session(self, upstream: Address, frame: Frame) -> None:
        kind = ConnectRequest if frame.direction == "c2s" else ConnectResponse
        try:
            greeting = kind.decode(frame.raw, 4)
        except ProtocolError:
            return
        if greeting.session_id:
            session = (upstream, greeting.session_id, greeting.passwd or b"")
            self._sessions[frame.connection] = session

    def _expire(self, connection: int, gate: Gate | None) -> None:
        """End the session in a thread of its own, and then let the frame at the gate pass."""
        thread = threading.Thread(target=self._end, args=(connection, gate), daemon=True)
        self._ending.append(thread)
        thread.start()

    def hold(self, frozen: bool) -> None:
        """Hold everything; what is held twice is released twice."""
        with self._lock:
            self._holds += 1 if frozen else -1
        for relay in self._relays:
            relay.call(partial(setattr, relay, "frozen", self._holds > 0))

    def _end(self, connection: int, gate: Gate | None) -> None:
        try:
            with self._lock:
                session = self._sessions.get(connection)
            # A client that heard of the move before the end would take its session back.
            self.hold(True)
            if session is None or not end_session(*session):
                self._put(connection, "fault", "expire: there is no session")
        except ZooKeeperError as error:
            self._put(connection, "fault", f"expire: {error}")
        except RuntimeError:  # the relays are closed
            return
        finally:
            if gate is not None:
                gate.release()
            with suppress(RuntimeError):
                self.hold(False)


# --- ending ---------------------------------------------------------------------------------------
# How the spy ends a session: it does what its client could do, and closes it.
#
# A server moves the session to the new connection and then closes it, so its ephemeral nodes are
# gone and the client hears "expired" when it connects again: as after an expiry, and at once.

_SECONDS = 10.0


def end_session(address: Address, session_id: int, password: bytes) -> bool:
    """End it on this server; whether it was there.  ZooKeeperError if it cannot be reached."""
    session = zkwire.Credentials(session_id, password)
    client = zkwire.Client(host_port(*address[1][:2]), resume=session)
    with closing(client), suppress(SessionExpiredError):
        client.connect(_SECONDS)
        return True
    return False


# --- faults ---------------------------------------------------------------------------------------
# What ``--fault`` asks for: its words, and the steps that the proxy then takes for a frame.
#
# A fault is aimed at a request (``cut-after:set_data#3``), at all that passes (``delay:200ms``,
# ``split:1``), or at a time since the start (``blackhole:5s@3s``).  The requests of an operation
# are counted over all connections.  The steps are those of :mod:`zkwire.testing.proxy.faults`.

KINDS = (
    "drop-reply:OP[#N], cut-after:OP[#N], cut-before:OP[#N], expire[:OP[#N]], expire@TIME, "
    "delay:TIME, blackhole:TIME[@TIME], split:BYTES"
)
AIMED = ("drop-reply", "cut-after", "cut-before", "expire")


class Timed(NamedTuple):
    """A fault at a time: ``seconds`` long, ``at`` seconds behind the start."""

    spec: str
    kind: str
    at: float
    seconds: float


class _Reply:
    """The action for the reply to a request that a fault was aimed at."""

    def __init__(self, spec: str, steps: tuple[Step, ...]) -> None:
        self.spec, self.steps = spec, steps

    def __call__(self, frame: Frame) -> tuple[Step, ...]:
        return self.steps


class _Aimed:
    """A fault for the nth request of some operations; none of them: of any but pings."""

    def __init__(self, spec: str, kind: str, what: str) -> None:
        self.spec, self.kind = spec, kind
        word, number, nth = what.partition("#")
        if number and not (nth.isascii() and nth.isdigit() and int(nth) > 0):
            raise ValueError(f"{nth!r} is not a number from 1 on")
        self._ops = operations(word) if word else ()
        self._left = int(nth) if number else 1
        if "watch" in self._ops and kind not in {"cut-after", "cut-before"}:
            raise ValueError("a watch event has no reply; cut-before and cut-after take one")

    def hits(self, frame: Frame) -> bool:
        """Whether this is the frame; each is counted once."""
        event = frame.kind == "notification"
        if frame.direction == "s2c" and not event:
            return False
        op = "watch" if event else frame.op
        if op not in self._ops if self._ops else frame.kind != "request":
            return False
        self._left -= 1
        return self._left == 0

    def steps(self, frame: Frame) -> tuple[tuple[Step, ...], Gate | None]:
        """What to do with the frame that it has hit, and where that waits for ``expire``."""
        send = Send(frame.raw)
        if self.kind == "cut-before":
            return (Cut(),), None
        if self.kind == "expire":
            gate = Gate()
            return (Hold(gate, frame), send), gate
        if frame.direction == "s2c":  # cut-after an event
            return (send, Cut()), None
        dropped: tuple[Step, ...] = () if self.kind == "drop-reply" else (Cut(),)
        return (send._replace(reply=_Reply(self.spec, dropped)),), None


class Faults:
    """All faults of a run; ValueError for one that cannot be understood."""

    def __init__(self, specs: list[str]) -> None:
        self.timed: list[Timed] = []
        self._aimed: list[_Aimed] = []
        self._delay = 0.0
        self._size = 0
        for spec in specs:
            try:
                self._add(spec)
            except (ValueError, ArgumentTypeError) as error:
                raise ValueError(f"--fault {spec}: {error}") from None

    def steps(
        self, frame: Frame, promised: Action | None
    ) -> tuple[tuple[Step, ...], str | None, Gate | None]:
        """The steps for a frame, the fault that has hit it, and where it waits for ``expire``."""
        hits = [fault for fault in self._aimed if fault.hits(frame)]
        spec, gate = None, None
        steps: tuple[Step, ...] = (Send(frame.raw),)
        if isinstance(promised, _Reply):
            spec, steps = promised.spec, promised.steps
        elif hits:
            steps, gate = hits[0].steps(frame)
            waits = isinstance(steps[0], Send) and steps[0].reply is not None
            spec = None if waits else hits[0].spec
        if self._delay and frame.direction == "s2c" and steps:
            steps = (Wait(frame.time + self._delay), *steps)
        if self._size:
            steps = tuple(
                step._replace(size=self._size) if isinstance(step, Send) else step for step in steps
            )
        return steps, spec, gate

    def _add(self, spec: str) -> None:
        kind, _, what = spec.partition(":")
        kind, at, time = kind.partition("@")
        if kind == "expire" and at and not what:
            self.timed.append(Timed(spec, kind, duration(time), 0.0))
        elif kind in AIMED and not at and (what or kind == "expire"):
            self._aimed.append(_Aimed(spec, kind, what))
        elif kind == "delay" and not at:
            self._delay = duration(what)
        elif kind == "split" and not at:
            if not (what.isascii() and what.isdigit() and int(what) > 0):
                raise ValueError("split takes a number of bytes from 1 on, such as split:1")
            self._size = int(what)
        elif kind == "blackhole" and not at:
            seconds, _, time = what.partition("@")
            self.timed.append(Timed(spec, kind, duration(time or "0"), duration(seconds)))
        else:
            raise ValueError(f"the faults are {KINDS}")
