"""A session driven by hand: the test is its driver, its clock and its server.

A :class:`Script` does what a driver does, on a clock that only the test moves, and speaks the
server's part with the encoders of the records. Nothing happens by itself: bytes leave the session
in :meth:`Script.flush`, answers reach it in the methods named after them, and time passes in
:meth:`Script.advance` (as a driver lets it pass) or :meth:`Script.jump` (as a machine that sleeps).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from zkwire.errors import ZooKeeperError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.operations import Operations
from zkwire.session.hosts import HostList
from zkwire.session.request import Failed, Request
from zkwire.session.session import Session
from zkwire.session.trace import TraceFrame, Tracer
from zkwire.session.waitable import Waitable, Watch
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State
from zkwire.wire.ops import OPS, Op, WatchKind

if TYPE_CHECKING:
    from zkwire.session.waitable import Waker

SESSION_ID = 0x1000_0000_0000_0007
PASSWD = bytes(range(16))
TIMEOUT = 9.0  # asked for and granted; its thirds are exact
START = 1000.0
STAT = r.Stat(11, 12, 13, 14, 1, 2, 3, 0, 5, 0, 16)

ANSWERS: dict[Op, Record | None] = {
    ops.CREATE: r.CreateResponse("/created"),
    ops.CREATE2: r.Create2Response("/created", STAT),
    ops.DELETE: None,
    ops.EXISTS: r.ExistsResponse(STAT),
    ops.GET_DATA: r.GetDataResponse(b"data", STAT),
    ops.SET_DATA: r.SetDataResponse(STAT),
    ops.GET_CHILDREN: r.GetChildrenResponse(("one", "two")),
    ops.GET_CHILDREN2: r.GetChildren2Response(("one", "two"), STAT),
    ops.SYNC: r.SyncResponse("/"),
    ops.REMOVE_WATCHES: None,
    ops.ADD_WATCH: r.ErrorResponse(0),
    ops.SET_ACL: r.SetACLResponse(STAT),
    ops.GET_ACL: r.GetACLResponse((), STAT),
    ops.CLOSE_SESSION: None,
}

R = TypeVar("R", bound=Record)


def reply_frame(xid: int, zxid: int = 0, error: int = 0, body: bytes = b"") -> bytes:
    """One reply of a server."""
    return frame(r.ReplyHeader(xid, zxid, error).encode() + body)


def event_frame(event: int, path: str, zxid: int = -1) -> bytes:
    """One notification of a server."""
    body = r.WatcherEvent(event, 3, path).encode()
    return reply_frame(ops.NOTIFICATION_XID, zxid, 0, body)


def welcome_frame(
    session_id: int = SESSION_ID,
    timeout: float = TIMEOUT,
    passwd: bytes | None = PASSWD,
    read_only: bool | None = False,
) -> bytes:
    """A server's answer to a connect request; ``read_only`` None is an old server's."""
    milliseconds = round(timeout * 1000)
    return frame(r.ConnectResponse(0, milliseconds, session_id, passwd, read_only).encode())


GONE = welcome_frame(session_id=0, timeout=0, passwd=bytes(16))


class Steady(Random):
    """No randomness: hosts stay in their order, pauses are of full length."""

    def random(self) -> float:
        return 1.0

    def shuffle(self, x: Any) -> None:
        return None


@dataclass(frozen=True)
class Sent:
    """One frame that the session has handed out, and when."""

    name: str
    xid: int
    body: bytes
    at: float

    def read(self, kind: type[R]) -> R:
        """The request's record."""
        return kind.decode(self.body)

    def connect_request(self) -> r.ConnectRequest:
        assert self.name == "connect", self
        return self.read(r.ConnectRequest)

    def set_watches(self) -> r.SetWatches:
        assert self.name == "set_watches", self
        return self.read(r.SetWatches)

    def set_watches2(self) -> r.SetWatches2:
        assert self.name == "set_watches2", self
        return self.read(r.SetWatches2)


def cut_frames(data: bytes) -> list[bytes]:
    """The bodies of the frames in ``data``, which must be whole."""
    bodies, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        assert 0 <= length <= len(data) - at - 4, "the session has sent half a frame"
        bodies.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return bodies


@dataclass(eq=False)
class Claim:
    """A hold that writes down what it is told."""

    name: str = "claim"
    log: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    released: int = 0

    def _lose(self, message: str) -> list[Waker]:
        self.told.append(message)
        return [lambda: self.log.append(self.name)]

    def _let_go(self) -> list[Waker]:
        self.released += 1
        return []

    @property
    def lost(self) -> bool:
        return bool(self.told)


class _Asking(Operations):
    """The operations of a client whose replies are the calls themselves."""

    def __init__(self, script: Script, chroot: str) -> None:
        self._script = script
        self._chroot = chroot

    def _submit(self, call: Request) -> Request:
        return self._script.submit(call)

    def _own(self, watch: Watch) -> None:
        watch._owner = self._script


class Script:
    """See the module's docstring."""

    def __init__(
        self, *, servers: int = 1, timeout: float = TIMEOUT, chroot: str = "", **options: Any
    ) -> None:
        hosts = HostList([("server", number) for number in range(1, servers + 1)], Steady())
        self.session = Session(hosts, timeout=timeout, chroot=chroot, **{"first_xid": 1, **options})
        self.now = START
        self.zxid = 0x100
        self.sent: list[Sent] = []  # on the present connection
        self.written = 0  # bytes handed out on it
        self.log: list[str] = []
        self.calls: list[Request] = []  # all that were submitted
        self._ask = _Asking(self, chroot)

    # --- the driver -------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.session.state

    def dial(self) -> None:
        """Reach a server; the pause before that passes."""
        if self.state is State.NOT_STARTED:
            self.session.start(self.now)
        elif self.state is State.DISCONNECTED:
            self.now = max(self.now, self.session.act_at)
            self.session.on_deadline(self.now)
        assert self.session.target is not None
        self.session.connection_made(self.now)
        self.sent, self.written = [], 0

    def reach(self) -> list[Sent]:
        """Reach a server; what the session says to it first."""
        self.dial()
        return self.flush()

    def flush(self) -> list[Sent]:
        """Everything that the session wants to send now, as frames."""
        data = b""
        while self.session.has_output:
            piece = self.session.data_to_send(self.now)
            assert piece, "has_output without output"
            data += piece
        new = [
            self._parse(body, not self.sent and not n) for n, body in enumerate(cut_frames(data))
        ]
        self.written += len(data)
        self.sent += new
        return new

    def _parse(self, body: bytes, first: bool) -> Sent:
        if first:
            return Sent("connect", 0, body, self.now)
        xid, opcode = struct.unpack_from(">ii", body)
        return Sent(OPS[opcode].name, xid, body[8:], self.now)

    def names(self) -> list[str]:
        """The names of the frames that the session sends now."""
        return [sent.name for sent in self.flush()]

    def lose(self, written: int | None = None, why: str = "cut") -> None:
        """The connection breaks; the kernel had taken ``written`` of its bytes, else all."""
        taken = self.written if written is None else written
        self.session.connection_lost(self.now, taken, self.session.broken or why)

    def drop_if_broken(self) -> bool:
        """End a connection that the session no longer wants, as every driver must."""
        broken = self.session.broken is not None
        if broken:
            self.lose()
        return broken

    def advance(self, seconds: float) -> None:
        """Let time pass as a driver does: every deadline is kept, what is broken is dropped."""
        end, steps = self.now + seconds, 0
        while (due := self.session.next_deadline()) is not None and due <= end:
            steps += 1
            assert steps < 10_000, "the deadlines do not move on"
            self.now = max(self.now, due)
            self.session.on_deadline(self.now)
            self.drop_if_broken()
            self.flush()
        self.now = end

    def jump(self, seconds: float) -> None:
        """Let time pass in which this process does not run."""
        self.now += seconds

    def wake(self) -> list[str]:
        """Call the wakers that are due; returns what has been logged since the last time."""
        for waker in self.session.take_callbacks():
            waker()
        logged, self.log = self.log, []
        return logged

    def log_when_ready(self, waitable: Waitable, name: str) -> None:
        """Have ``name`` logged when ``waitable`` is ready."""
        assert not waitable.ready
        waitable._add_waker(lambda: self.log.append(name))

    # --- the owner of watches ---------------------------------------------------------------------

    def await_delivery(self) -> None:
        """There is one thread."""

    def wait(self, waitable: Waitable, timeout: float | None) -> bool:
        assert timeout == 0, "a test would wait forever"
        return waitable.ready

    async def ready(self, waitable: Waitable) -> None:
        assert waitable.ready, "a test would wait forever"

    def close_watch(self, watch: Watch) -> None:
        self.session.forget_watch(watch)

    def dispatch(self, function: Callable[[], object]) -> None:
        function()

    # --- callers ----------------------------------------------------------------------------------

    def submit(self, call: Request) -> Request:
        self.session.submit(call, self.now)
        self.calls.append(call)
        return call

    @property
    def oldest(self) -> Request | None:
        """The call that the server has to answer next."""
        return next((call for call in self.calls if call.sent and not call.ready), None)

    def call(self, verb: str, *arguments: Any, **named: Any) -> Request:
        """Submit one operation under its public name."""
        call = getattr(self._ask, verb)(*arguments, **named)
        assert isinstance(call, Request)
        return call

    def send(self, verb: str, *arguments: Any, **named: Any) -> Request:
        """Submit one operation, and send all that waits."""
        call = self.call(verb, *arguments, **named)
        self.flush()
        return call

    def guard(self, path: str, watch: Watch, czxid: int | None = None) -> Request:
        """Submit a get_children2 whose watch is in the table at once, to guard a node."""
        watch._owner = self
        body = r.GetChildren2Request.pack(path, True)
        czxid = STAT.czxid if czxid is None else czxid
        return self.submit(
            Request(ops.GET_CHILDREN2, path, body, None, watch, path, WatchKind.CHILD, czxid)
        )

    def watching(self, verb: str, path: str) -> Watch:
        """A watch that has been set by an answered read of a node that exists."""
        watch = Watch()
        self.answer(self.call(verb, path, watch=watch))
        assert armed(watch)
        return watch

    def watching_missing(self, path: str) -> Watch:
        """A watch that has been set by an exists of a node that is not there."""
        watch = Watch()
        self.answer(self.call("exists", path, watch=watch), error=NO_NODE)
        assert armed(watch)
        return watch

    def persistent(self, path: str, *, recursive: bool = False) -> Watch:
        """A watch that has been set by an answered add_watch."""
        watch = Watch()
        self.answer(self.call("add_watch", path, watch, recursive=recursive))
        assert armed(watch)
        return watch

    def traced(self) -> list[TraceFrame]:
        """From now on what goes over the wire is written down in the list."""
        frames: list[TraceFrame] = []
        self.session.trace = Tracer(frames.append)
        return frames

    # --- the server -------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Bytes arrive."""
        if data:
            self.session.receive_data(data, self.now)

    def welcome(self, **answer: Any) -> None:
        """The server accepts the session; see :func:`welcome_frame`."""
        self.feed(welcome_frame(**answer))

    def gone(self) -> None:
        """The server does not know the session."""
        self.feed(GONE)

    def restore(self) -> list[Sent]:
        """The server answers everything that comes before the first request; returns that."""
        sent = self.flush()
        for one in sent:
            if one.xid in {ops.AUTH_XID, ops.SET_WATCHES_XID}:
                self.feed(reply_frame(one.xid))
        return sent

    def greet(self, **answer: Any) -> None:
        """Reach a server, which accepts the session."""
        self.reach()
        self.welcome(**answer)

    def greet_again(self, **answer: Any) -> None:
        """Lose a connection and reach a server, which accepts the session."""
        self.lose()
        self.greet(**answer)

    def connect(self, **answer: Any) -> None:
        """Go from wherever the session stands without a connection to a usable one."""
        self.greet(**answer)
        self.restore()
        assert self.state.usable, self.state
        self.flush()

    def reconnect(self, **answer: Any) -> None:
        """Lose a connection and make the next one."""
        self.lose()
        self.connect(**answer)

    def close(self) -> Request:
        """Begin to close the session in an orderly way."""
        call = self.session.close(self.now)
        assert call is not None
        return call

    def reply_to(
        self,
        call: Request,
        answer: Record | None = None,
        *,
        error: int = 0,
        zxid: int | None = None,
    ) -> bytes:
        """The bytes that answer a call: with its op's usual answer if nothing else is given."""
        if not call.sent:
            self.flush()
        self.zxid += 1
        record = answer if answer is not None or error else ANSWERS[call.op]
        body = record.encode() if record is not None else b""
        return reply_frame(call.xid, self.zxid if zxid is None else zxid, error, body)

    def answer(self, call: Request, answer: Record | None = None, **header: Any) -> None:
        """The server answers a call; ``header`` as for :meth:`reply_to`."""
        self.feed(self.reply_to(call, answer, **header))

    def serve(self, sent: Sent, *, error: int = 0) -> None:
        """The server answers a request that the session has made itself."""
        self.zxid += 1
        self.feed(reply_frame(sent.xid, self.zxid, error))

    def event(self, event: int, path: str, zxid: int = -1) -> None:
        """The server reports a change."""
        self.feed(event_frame(event, path, zxid))

    def pong(self) -> None:
        """The server answers a ping."""
        self.feed(reply_frame(ops.PING_XID, self.zxid + 1000))


NO_NODE = -101
NO_AUTH = -102


def armed(watch: Watch) -> bool:
    """Whether the watch is set, or a read that may set it is under way, and nothing has come."""
    return not watch.ready


def events(watch: Watch) -> list[Event]:
    """The events that have reached a watch, taken out of it."""
    seen: list[Event] = []
    while True:
        try:
            event = watch.wait(0)
        except (RuntimeError, ZooKeeperError):
            return seen
        if event is None:
            return seen
        seen.append(event)


def types(watch: Watch) -> list[EventType | int]:
    """The types of the events that have reached a watch, taken out of it."""
    return [event.type for event in events(watch)]


def failure(call: Request) -> type[ZooKeeperError] | None:
    """The class of the error that a call has ended with; None if it was answered."""
    assert call.ready, f"{call.op} has not ended"
    error = call.error()
    return None if error is None else type(error)


def maybe_applied(call: Request) -> bool:
    """What the error of a failed call says about its effect."""
    assert isinstance(call.outcome, Failed)
    error = call.error()
    assert error is not None
    return error.maybe_applied


def usable_again(script: Script) -> bool:
    """Whether the next connection carries a call to its answer."""
    if script.session.broken:
        script.lose()
    if not script.state.usable:
        script.connect()
    call = script.call("exists", "/next")
    script.flush()
    while (oldest := script.oldest) is not None:
        script.answer(oldest)
    return failure(call) is None


TERMINAL = [state for state in State if state.terminal]


def script_in(state: State) -> Script:
    """A session in this state; one that has been connected before, where that is possible."""
    script = Script()
    if state is not State.NOT_STARTED:
        script.connect(read_only=state is State.CONNECTED_READ_ONLY)
    if state in {State.DISCONNECTED, State.CONNECTING, State.HANDSHAKE, State.EXPIRED}:
        script.lose()
    match state:
        case State.CONNECTING:
            script.advance(script.session.act_at - script.now)
        case State.HANDSHAKE:
            script.reach()
        case State.EXPIRED:
            script.reach()
            script.gone()
        case State.AUTH_FAILED:
            script.feed(reply_frame(ops.AUTH_XID, 0, -115))
        case State.CLOSED:
            script.session.closed()
    assert script.state is state, script.state
    script.wake()
    return script


class Answer:
    """A reply that has come already."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, None, Any]:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer
        yield
