"""Any sequence of what callers, servers, networks and clocks do, against a model of the session.

The model is what a reader of the documentation would expect: a queue, a line of unanswered
requests, a set of watches and a lease. It looks at the session only from outside. After every step
both must agree on what was sent, how each call ended, which watch has fired and who still holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.examples import examples
from tests.support.scripted import (
    NO_NODE,
    SESSION_ID,
    TIMEOUT,
    Claim,
    Script,
    Sent,
    failure,
    reply_frame,
    types,
    welcome_frame,
)
from zkwire.errors import GarbledError, NotSentError, OutcomeUnknownError, error_for
from zkwire.jute.frames import frame
from zkwire.jute.records import AuthPacket
from zkwire.session.request import Answered, Refused, Request
from zkwire.session.states import TRANSITIONS
from zkwire.session.waitable import Watch
from zkwire.wire import ops
from zkwire.wire.model import EventType, State
from zkwire.wire.ops import WatchKind

PATHS = st.sampled_from(["/a", "/b"])
READS = st.sampled_from(["get_data", "exists", "get_children", "get_children_with_stat"])
WRITES = st.sampled_from(["create", "delete", "sync"])
SECONDS = st.sampled_from([0.125, 1.0, 3.0, 4.5, 9.0, 20.0])
CODES = st.sampled_from([0, 0, 0, 0, NO_NODE, NO_NODE, -102, -5, -118, -112, -115])
FATAL = {-112, -115}
# Before it has lived so long nothing ends a session: there is little to see behind an end.
LEAST_STEPS = 30
FIRES = {
    EventType.NODE_CREATED: {WatchKind.DATA, WatchKind.EXIST},
    EventType.NODE_DATA_CHANGED: {WatchKind.DATA, WatchKind.EXIST},
    EventType.NODE_CHILDREN_CHANGED: {WatchKind.CHILD},
    EventType.NODE_DELETED: {WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD},
}
ONE_SHOT = (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD)
WAITING = {State.CONNECTING, State.HANDSHAKE, State.DISCONNECTED}
BROKEN = [
    b"\xff\xff\xff\xff",
    frame(b"short"),
    reply_frame(0, 7),
    reply_frame(2**30, 7),
    reply_frame(-9, 7),
    reply_frame(ops.NOTIFICATION_XID, 7, 0, b"\0"),
]


class TimedClaim(Claim):
    """A hold that knows whether it was told too early."""

    allowed: Callable[[], bool] = staticmethod(lambda: True)

    def _lose(self, message: str) -> list[Callable[[], object]]:
        assert self.allowed(), "a hold was lost while the session was surely alive"
        return super()._lose(message)


class Unanswered(NamedTuple):
    """A request on the wire: where it ends there, and when it was sent."""

    call: Request
    end: int
    at: float


@dataclass
class Model:
    """What is expected of the session."""

    queue: list[Request] = field(default_factory=list)
    line: list[Unanswered] = field(default_factory=list)
    restoring: list[Sent] = field(default_factory=list)
    position: int = 0
    greeted: bool = False
    closing: Request | None = None
    steps: int = 0
    last_xid: int = 0
    last_zxid: int = 0
    secrets: list[bytes] = field(default_factory=list)
    opened: float = 0.0
    contact: float | None = None
    accepted: bool = False
    timeout: float = TIMEOUT
    pings: list[float] = field(default_factory=list)
    watches: set[tuple[WatchKind, str, Watch]] = field(default_factory=set)
    fired: dict[Watch, list[EventType]] = field(default_factory=dict)
    seen: dict[Watch, list[EventType | int]] = field(default_factory=dict)
    ended: dict[Request, object] = field(default_factory=dict)
    woken: dict[Request, int] = field(default_factory=dict)


class Driven(Script):
    """A script whose every sending and losing the machine looks at."""

    def __init__(self, machine: SessionMachine) -> None:
        super().__init__(servers=2)
        self._machine = machine

    def flush(self) -> list[Sent]:
        sent = super().flush()
        self._machine.check_sent(sent)
        return sent

    def lose(self, written: int | None = None, why: str = "cut") -> None:
        taken = self.written if written is None else written
        check = self._machine.expect_loss(taken)
        super().lose(taken, why)
        check()


class SessionMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.script = Driven(self)
        self.session = self.script.session
        self.watches: list[Watch] = []
        self.claims: list[TimedClaim] = []
        self.last_state = State.NOT_STARTED

    @initialize(fresh=st.sampled_from([False, False, False, True]))
    def begin(self, fresh: bool) -> None:
        """Most runs begin on a usable connection; which rules a run may use is drawn, too."""
        if not fresh:
            self.connect()

    def check_sent(self, sent: list[Sent]) -> None:
        for one in sent:
            self.model.position += len(one.body) + (4 if one.name == "connect" else 12)
            if one.name == "connect":
                self._check_greeting(one)
            elif one.name in {"auth", "set_watches"}:
                assert one.xid in {ops.AUTH_XID, ops.SET_WATCHES_XID}
                assert self.model.greeted
                if not self.session.usable or one.name == "auth":
                    self.model.restoring.append(one)
            elif one.name == "ping":
                assert self.session.usable
                self.model.pings.append(one.at)
            else:
                self._check_request(one)

    def _check_greeting(self, one: Sent) -> None:
        request = one.connect_request()
        assert self.model.position == len(one.body) + 4, "the connect request is not the first"
        assert request.last_zxid_seen == self.model.last_zxid
        assert request.session_id == (SESSION_ID if self.model.accepted else 0)

    def _check_request(self, one: Sent) -> None:
        assert self.session.usable
        call = self.model.queue.pop(0)
        assert one.name == call.op.name
        assert one.xid == self.model.last_xid + 1
        self.model.last_xid = one.xid
        self.model.line.append(Unanswered(call, self.model.position, one.at))

    def expect_loss(self, written: int) -> Callable[[], None]:
        """Note how each call must end when the connection breaks now; returns the check."""
        unknown, unsent, closing = list[Request](), list[Request](), False
        if self.session.usable:
            lost = [*self.model.line, *(Unanswered(call, 2**62, 0) for call in self.model.queue)]
            for one in lost:
                if one.call is self.model.closing:
                    closing = True
                else:
                    (unknown if one.end <= written else unsent).append(one.call)
            self.model.queue = [call for call in [self.model.closing] if call and closing]
        self.model.line, self.model.restoring, self.model.pings = [], [], []
        self.model.greeted = False
        connected = "lost" in TRANSITIONS[self.session.state]

        def check() -> None:
            assert not connected or self.session.state is State.DISCONNECTED
            assert {failure(call) for call in unknown} <= {OutcomeUnknownError, GarbledError}
            assert {failure(call) for call in unsent} <= {NotSentError}

        return check

    def _may_submit(self) -> bool:
        return not self.session.ended and self.model.closing is None

    def _submitted(self, call: Request) -> None:
        self.model.queue.append(call)
        self.model.woken[call] = 0
        call._add_waker(lambda: self._count(call))

    def _count(self, call: Request) -> None:
        self.model.woken[call] += 1

    @precondition(_may_submit)
    @rule(verb=WRITES, path=PATHS, at_once=st.booleans())
    def submit(self, verb: str, path: str, at_once: bool) -> None:
        self._submitted(self.script.call(verb, path))
        if at_once:
            self.script.flush()

    @precondition(_may_submit)
    @rule(verb=READS, path=PATHS, which=st.integers(0, 3), at_once=st.booleans())
    def submit_watching(self, verb: str, path: str, which: int, at_once: bool) -> None:
        self._submitted(self.script.call(verb, path, watch=self._watch(which)))
        if at_once:
            self.script.flush()

    def _watch(self, which: int) -> Watch:
        """One of the last, or a new one."""
        watch = self.watches[-which] if 0 < which <= len(self.watches) else Watch()
        if watch not in self.watches:
            self.watches.append(watch)
            self.model.fired[watch], self.model.seen[watch] = [], []
        return watch

    @precondition(lambda self: bool(self.model.queue))
    @rule(which=st.integers(0, 5))
    def abandon_queued(self, which: int) -> None:
        call = self.model.queue[which % len(self.model.queue)]
        if call is not self.model.closing:
            assert self.session.withdraw(call)
            assert failure(call) is NotSentError
            self.model.queue.remove(call)

    @precondition(lambda self: bool(self.model.line))
    @rule()
    def abandon_sent(self) -> None:
        call = self.model.line[0].call
        assert not self.session.withdraw(call)
        assert not call.ready

    @rule(secret=st.sampled_from([b"u:p", b"v:p", b"w:p"]))
    def add_auth(self, secret: bytes) -> None:
        if secret not in self.model.secrets:
            self.model.secrets.append(secret)
        self.session.add_auth("digest", secret)

    @rule()
    def begin_hold(self) -> None:
        claim = TimedClaim()
        claim.allowed = lambda: (
            self.session.ended or self.session._closing or self.script.now >= self._lease()
        )
        self.session.hold(claim)
        self.claims.append(claim)

    @precondition(lambda self: bool(self.claims))
    @rule(which=st.integers(0, 3))
    def end_hold(self, which: int) -> None:
        self.session.unhold(self.claims.pop(which % len(self.claims)))

    def _may_end(self) -> bool:
        return self.model.steps >= LEAST_STEPS

    @precondition(lambda self: self._may_submit() and self._may_end())
    @rule()
    def close(self) -> None:
        call = self.session.close(self.script.now)
        if call is None:
            assert self.session.state is State.CLOSED
        else:
            self._submitted(call)
            self.model.closing = call
            assert all(claim.lost for claim in self.claims), "before the request is sent"

    @precondition(lambda self: self.session.state in {State.NOT_STARTED, State.DISCONNECTED})
    @rule()
    def dial(self) -> None:
        self.script.dial()
        self.model.position, self.model.opened = 0, self.script.now
        self.script.flush()
        self._drop_overdue()

    @precondition(lambda self: self.session.state is State.CONNECTING)
    @rule()
    def dialled(self) -> None:
        self.dial()

    @precondition(lambda self: self.session.state in {State.NOT_STARTED, *WAITING})
    @rule()
    def connect(self) -> None:
        """The whole way to a usable connection."""
        if self.session.state is not State.HANDSHAKE:
            self.dial()
        if self._greetable():
            self.greet("welcome", TIMEOUT)
        self.script.flush()
        while self.model.restoring:
            self.restore()
        assert self.session.usable

    @rule()
    def flush(self) -> None:
        self.script.flush()

    @precondition(lambda self: "lost" in TRANSITIONS[self.session.state])
    @rule(
        share=st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]),
        slack=st.integers(-1, 1),
        again=st.booleans(),
    )
    def lose(self, share: float, slack: int, again: bool) -> None:
        written = round(self.script.written * share) + slack
        self.script.lose(max(0, min(self.script.written, written)))
        if again:
            self.connect()

    def _feed(self, data: bytes) -> None:
        self.script.feed(data, [1, 3, len(data) // 2])
        self._check_holds()
        self.script.drop_if_broken()

    @precondition(lambda self: self._greetable())
    @rule(
        answer=st.sampled_from(["welcome"] * 6 + ["refused", "gone", "foreign"]),
        timeout=st.sampled_from([TIMEOUT, TIMEOUT, 3.0]),
    )
    def greet(self, answer: str, timeout: float) -> None:
        known = self.model.accepted
        if answer in {"gone", "foreign"} and not self._may_end():
            answer = "welcome"
        if answer == "welcome" or (answer == "foreign" and not known):
            self.model.greeted = True
            self._feed(welcome_frame(timeout=timeout))
            self.model.timeout, self.model.accepted = timeout, True
            self._heard(self.model.opened)
            self._check_restoration()
        elif answer == "refused":
            self._feed(reply_frame(0, 0, -119))
            assert self.session.state is State.DISCONNECTED
        else:
            self._feed(welcome_frame(session_id=0 if answer == "gone" else 99))
            closing = self.model.closing is not None
            ended = State.CLOSED if closing else State.EXPIRED
            assert self.session.state is (ended if known else State.DISCONNECTED)

    def _greetable(self) -> bool:
        return self.session.state is State.HANDSHAKE and not self.model.greeted

    def _check_restoration(self) -> None:
        auth = len(self.model.secrets)
        restoration = self.script.flush()[: auth + 1]
        names = [sent.name for sent in takewhile(lambda one: one.xid < 0, restoration)]
        assert names == ["auth"] * auth + ["set_watches"] * bool(self.model.watches)
        sent = [one.read(AuthPacket).auth for one in restoration[:auth]]
        assert sent == self.model.secrets
        if self.model.watches:
            request = restoration[auth].set_watches()
            assert request.relative_zxid == self.model.last_zxid
            lists = (request.data_watches, request.exist_watches, request.child_watches)
            for kind, paths in zip(ONE_SHOT, lists, strict=True):
                assert len(paths) == len(set(paths))
                assert set(paths) == {path for k, path, _ in self.model.watches if k is kind}

    @precondition(lambda self: bool(self.model.restoring))
    @rule()
    def restore(self) -> None:
        self.script.flush()
        waited = not self.session.usable
        self._feed(reply_frame(self.model.restoring.pop(0).xid, 0x7FFF))
        assert self.session.usable == (not waited or not self.model.restoring)

    @precondition(lambda self: bool(self.model.line))
    @rule(code=CODES, zxid=st.integers(-1, 3))
    def answer(self, code: int, zxid: int) -> None:
        one = self.model.line.pop(0)
        call, zxid = one.call, self.model.last_zxid + zxid
        if call is self.model.closing or (code in FATAL and not self._may_end()):
            code = 0
        self.model.last_zxid = max(self.model.last_zxid, zxid)
        if call.watch is not None:
            self._settle(call, call.watch, code)
        self._feed(self.script.reply_to(call, error=code, zxid=zxid))
        self._heard(one.at)
        self._check_answer(call, code)

    @precondition(lambda self: self.session.usable)
    @rule(codes=st.lists(st.sampled_from([0, 0, NO_NODE]), min_size=1, max_size=5))
    def exchange(self, codes: list[int]) -> None:
        """Some requests are sent and answered."""
        self.script.flush()
        for code in codes:
            if self.model.line:
                self.answer(code, 1)

    def _heard(self, sent_at: float) -> None:
        self.model.contact = max(self.model.contact or 0.0, sent_at)

    def _check_answer(self, call: Request, code: int) -> None:
        assert isinstance(call.outcome, Refused if self._refused(call, code) else Answered)
        if self._refused(call, code):
            assert failure(call) is type(error_for(code, None, None))
        if code == -112:
            assert self.session.state is State.EXPIRED
        elif code == -115:
            assert self.session.state is State.AUTH_FAILED
        elif code == -118:
            assert self.session.state is State.DISCONNECTED
        elif call is self.model.closing:
            assert self.session.state is State.CLOSED

    @staticmethod
    def _refused(call: Request, code: int) -> bool:
        return code != 0 and not (code == NO_NODE and call.op is ops.EXISTS)

    def _settle(self, call: Request, watch: Watch, code: int) -> None:
        kind = call.watch_kind
        if code == 0 and kind is WatchKind.EXIST:
            kind = WatchKind.DATA
        elif code != 0 and not (code == NO_NODE and kind is WatchKind.EXIST):
            return
        self.model.watches.add((kind, call.watch_path, watch))

    @precondition(lambda self: self.session.usable or bool(self.model.restoring))
    @rule(event=st.sampled_from(sorted(FIRES)), path=PATHS)
    def event(self, event: EventType, path: str) -> None:
        hit = {e for e in self.model.watches if e[0] in FIRES[event] and e[1] == path}
        self.model.watches -= hit
        for watch in {watch for _, _, watch in hit}:
            self.model.fired[watch].append(event)
        self.script.event(event, path, zxid=0x7FFF)
        self._check_holds()

    @precondition(lambda self: bool(self.model.pings))
    @rule()
    def pong(self) -> None:
        pinged_at = self.model.pings.pop(0)
        self._feed(reply_frame(ops.PING_XID, 0x7FFF))
        self._heard(pinged_at)

    @precondition(lambda self: "expire" in TRANSITIONS[self.session.state])
    @rule(garbage=st.sampled_from(BROKEN), again=st.booleans())
    def garbage(self, garbage: bytes, again: bool) -> None:
        self._feed(garbage)
        assert self.session.state is State.DISCONNECTED
        if again:
            self.connect()

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        self.script.advance(seconds)
        self._drop_overdue()
        head = self.model.queue[0] if self.model.queue else None
        if head is not None and self.session.state in WAITING:
            assert head.deadline is not None
            assert head.deadline > self.script.now
        if self.session.state is not State.NOT_STARTED:
            self._check_holds()

    @rule(seconds=SECONDS)
    def sleep(self, seconds: float) -> None:
        self.script.jump(seconds)

    def _drop_overdue(self) -> None:
        """Calls that have ended because no server was reached were overdue."""
        for call in [call for call in self.model.queue if call.ready]:
            assert not self.session.usable or self.session.ended
            assert failure(call) is NotSentError or self.session.ended
            assert call.deadline is not None
            assert call.deadline <= self.script.now
            self.model.queue.remove(call)

    def _lease(self) -> float:
        return 0.0 if self.model.contact is None else self.model.contact + self.model.timeout

    def _check_holds(self) -> None:
        if self.script.now >= self._lease():
            assert all(claim.lost for claim in self.claims)

    @invariant()
    def ends_are_final(self) -> None:
        self.model.steps += 1
        if self.last_state.terminal:
            assert self.session.state is self.last_state
        self.last_state = self.session.state
        if self.session.ended:
            assert all(call.ready for call in self.script.calls)
            assert all(watch.ready for watch in self.watches)
            assert all(len(claim.told) == 1 for claim in self.claims)
            assert not self.session.has_output
            self.model.queue, self.model.line, self.model.restoring = [], [], []
            self.model.pings = []

    @invariant()
    def every_call_ends_once_and_wakes_once(self) -> None:
        self.script.wake()
        for call, woken in self.model.woken.items():
            assert woken == call.ready
            if call.ready:
                assert self.model.ended.setdefault(call, call.outcome) is call.outcome
            else:
                assert call not in self.model.ended

    @invariant()
    def every_unended_call_is_somewhere(self) -> None:
        alive = [call for call in self.model.woken if not call.ready]
        known = {one.call for one in self.model.line} | set(self.model.queue)
        assert set(alive) <= known

    @invariant()
    def watches_hear_what_the_model_says(self) -> None:
        for watch in self.watches:
            self.model.seen[watch] += types(watch)
            assert self.model.seen[watch] == self.model.fired[watch]
        for _, _, watch in self.model.watches:
            assert self.session.ended or not watch.ready

    @invariant()
    def the_lease_is_the_models(self) -> None:
        expected = 0.0 if self.session.ended else self._lease()
        assert self.session.lease_deadline == expected
        assert self.session.last_zxid == self.model.last_zxid

    @invariant()
    def there_is_always_a_next_deadline(self) -> None:
        idle = self.session.ended or self.session.state is State.NOT_STARTED
        assert (self.session.next_deadline() is None) == idle

    @invariant()
    def only_a_connection_has_output(self) -> None:
        assert not self.session.has_output or "expire" in TRANSITIONS[self.session.state]

    @invariant()
    def counts_agree(self) -> None:
        if not self.session.ended:
            assert self.session.queued == len(self.model.queue)
            assert self.session.unanswered == len(self.model.line)

    def teardown(self) -> None:
        self.session.closed()
        self.ends_are_final()
        self.every_call_ends_once_and_wakes_once()
        self.watches_hear_what_the_model_says()


MANY = settings(derandomize=True, deadline=None, max_examples=examples(250), stateful_step_count=60)


def test_known_A1_A2_A3_A5_A7_A8_A9_A17_any_sequence_is_as_the_model() -> None:
    """Watches come back and fire once, zxids are those of replies, nothing meets the wrong call."""
    run_state_machine_as_test(SessionMachine, settings=MANY)
