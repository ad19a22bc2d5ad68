"""What the tests of the locks share: a stage with a server, a proxy and clients; the usual looks.

A lock "behind the proxy" is the one to which things happen; everybody else on the stage talks to
the server directly, so that the proxy's log and counts are about one client alone.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Generic, Self, TypeAlias, TypeVar

import pytest

from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    AsyncClient,
    BlockingLock,
    Client,
    NodeExistsError,
    NonBlockingLock,
    NoNodeError,
    SequentialLock,
    UnimplementedError,
    digest_auth,
)
from zkwire.aio.driver import LoopDriver
from zkwire.blocking.driver import ThreadDriver
from zkwire.jute.frames import frame
from zkwire.jute.records import ConnectRequest, ConnectResponse, ReplyHeader, RequestHeader
from zkwire.recipes.locks import GRANTS
from zkwire.testing.proxy import Action, FaultProxy, Frame
from zkwire.testing.proxy.frames import describe_rule
from zkwire.testing.proxy.proxy import _Once
from zkwire.wire import ops

T = TypeVar("T")

Lock: TypeAlias = NonBlockingLock | BlockingLock | SequentialLock
Kind: TypeAlias = type[NonBlockingLock] | type[BlockingLock] | type[SequentialLock]

ALL_KINDS: tuple[Kind, ...] = (NonBlockingLock, BlockingLock, SequentialLock)
WAITING_KINDS: tuple[Kind, ...] = (BlockingLock, SequentialLock)
SINGLE_KINDS: tuple[Kind, ...] = (NonBlockingLock, BlockingLock)


def _each_of(kinds: tuple[Kind, ...]) -> pytest.MarkDecorator:
    """A test for each; to a real server the non-blocking lock is the blocking one."""
    own = pytest.mark.own_server
    named = [
        pytest.param(kind, id=kind.__name__, marks=own if kind is NonBlockingLock else ())
        for kind in kinds
    ]
    return pytest.mark.parametrize("kind", named)


all_kinds = _each_of(ALL_KINDS)
waiting_kinds = _each_of(WAITING_KINDS)
single_kinds = _each_of(SINGLE_KINDS)

# No wait of a test is longer; a shared machine may pause for seconds.
PATIENCE = 25.0
# What a third party may need for a lock that is free. Less than a client takes to give a silent
# connection up (two thirds of LONG): a wake-up that was lost must not be healed by that.
GRACE = 8.0
A_WHILE = 0.2  # seconds, in which even a busy machine comes to the next request
# How much later than its deadline a timed call may return, and how long a shared machine may stand
# still meanwhile. Together less than a third of LONG, when pings show a client what has become of
# its connection: whoever waits for anything but its deadline takes longer.
SLACK = 0.25
PAUSE = 4.0
# A session that nothing is to happen to, and one that is to be outlived; but not by a pause.
LONG = 15.0
SHORT = 3.0

ALICE = digest_auth("alice", "secret")
ROOT = Path(__file__).resolve().parents[2]


class Running(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._value: T
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-call", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    @property
    def ended(self) -> bool:
        """Whether the call has returned or raised."""
        return not self._thread.is_alive()

    def result(self, timeout: float = PATIENCE) -> T:
        """What the call returns or raises; TimeoutError if it does neither in time."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._function} has not ended within {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value


def calm(client: Client, server: ZooKeeperServer) -> Client:
    """The client, which knows by then what an old server lacks: to find out costs a connection."""
    if server.release < (3, 5):
        with contextlib.suppress(UnimplementedError):
            client.create_with_stat("/")
        client.connect()
    return client


class Stage:
    """A server, a proxy before it, and clients on both ways; everything ends with the stage.

    ``observer`` is a client that several stages share, and that must outlive them.
    """

    def __init__(self, server: ZooKeeperServer, observer: Client | None = None) -> None:
        self.server = server
        self.hosts = server.hosts
        self._exit = ExitStack()
        self.proxy = self._exit.enter_context(LockProxy(upstream=server.hosts))
        self.observer = observer or calm(self.client(direct=True), server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._exit.close()

    def heal(self) -> None:
        """No fault from now on."""
        self.proxy.clear()
        self.proxy.refuse(False)
        self.proxy.black_hole(False)

    def client(self, *, timeout: float = LONG, direct: bool = False, chroot: str = "") -> Client:
        """A connected client, behind the proxy unless ``direct``."""
        hosts = self.hosts if direct else self.proxy.hosts
        client = Client(hosts + chroot, session_timeout=timeout)
        self._exit.callback(client.close)
        client.connect()
        return client

    def lock(self, kind: Kind, path: str, *, timeout: float = LONG) -> Lock:
        """A lock on a client of its own, behind the proxy."""
        if not kind.__name__.endswith("SequentialLock"):
            make_path(self.observer, path + GRANTS)
        return kind(self.client(timeout=timeout), path)

    def rival(self, kind: Kind, path: str) -> Lock:
        """A lock on a client of its own, out of the proxy's reach."""
        return kind(self.client(direct=True), path)

    def expire(self, client: Client) -> None:
        """End the session of a client behind the proxy, without asking the client.

        The server closes the client's connection as soon as there is a second one; if the client
        came back at once, it would close that one, too.
        """
        self.proxy.refuse()
        end_session(self.hosts, *client.credentials)
        self.proxy.refuse(False)

    def nodes(self, path: str) -> list[str]:
        """The node of every contender on ``path``: the children, or the lock itself; in order."""
        try:
            names, stat = self.observer.get_children_with_stat(path)
        except NoNodeError:
            return []
        if stat.ephemeral_owner:
            return [path]
        return sorted((f"{path}/{name}" for name in names), key=lambda node: node[-10:])

    def wait_no_nodes(self, path: str, seconds: float = GRACE) -> None:
        """Wait until no contender is left on ``path``."""
        poll(f"no node is left below {path}", lambda: not self.nodes(path) or None, seconds)


# --- the usual looks ------------------------------------------------------------------------------


def acquire_as_third_party(stage: Stage, kind: Kind, path: str) -> int:
    """Somebody new gets the lock soon and gives it up; the fence."""
    lock = kind(stage.observer, path)
    try:
        acquire_soon(lock, PATIENCE)
    except TimeoutError as error:
        raise AssertionError(f"a third party cannot acquire; nodes: {stage.nodes(path)}") from error
    lock.release()
    return lock.fence


def acquire_soon(lock: Lock, seconds: float = GRACE) -> None:
    """Acquire a lock that is free or about to be; a non-blocking one is tried again and again."""
    if isinstance(lock, NonBlockingLock):
        poll(f"{lock!r} is acquired", lambda: lock.try_acquire() or None, seconds)
    elif not lock.acquire(seconds):
        raise TimeoutError(f"{lock!r} is not acquired within {seconds} s")


def assert_exclusive(holder: Lock, *others: Lock) -> None:
    """``holder`` holds, and nobody else claims to at the same time."""
    assert holder.held
    claims = [other for other in others if other.held]
    # Only if the holder held before and after the look was there an overlap.
    assert not (claims and holder.held), f"both {holder!r} and {claims!r} claim to hold"


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and how many seconds it took."""
    started = time.monotonic()
    result = call()
    return result, time.monotonic() - started


def assert_in_time(timeout: float, *seconds: float) -> None:
    """Calls with this time limit have kept it, the machine's pauses apart.

    A pause makes some of several calls late, and never all of them; so the best one shows what the
    code does, and the worst one that it waited for nothing else.
    """
    assert max(seconds) < timeout + SLACK + PAUSE, f"limit {timeout} s: {seconds}"
    if len(seconds) > 1:
        assert min(seconds) < timeout + SLACK, f"limit {timeout} s: {seconds}"


def guards_at_once(client: Client | AsyncClient, *, alone: bool = True) -> None:
    """Have the guards of its locks asked for when they are acquired, not a moment later.

    What the client sends must not depend on the clock where it is counted.  They leave by
    themselves, or if not ``alone`` with what is asked for next.
    """
    driver: Any = client._driver
    defer = driver.defer

    def at_once(stand: Callable[[], object]) -> None:
        if alone:
            stand()
            driver.flush()
        else:
            put_off(driver)
            defer(stand)

    driver.defer = at_once


def put_off(driver: ThreadDriver | LoopDriver) -> None:
    """What is to be done shortly: with the next request, however slow the machine is at that."""
    if isinstance(driver, LoopDriver):
        timer = driver._deferred_timer
        driver._deferred_timer = timer or driver.start().call_later(A_WHILE, driver._call_deferred)
    elif driver.io is not None:
        driver.io.call_deferred_at = driver.io.call_deferred_at or driver.now() + A_WHILE
        driver.wake()


def watch_table_size(client: Client) -> int:
    """How many watches the client believes to be set."""
    return client._session.watch_count


def watch_count(server: ZooKeeperServer) -> int:
    """How many watches the server has, of all clients and kinds."""
    found = re.search(r"^zk_watch_count\s+(\d+)$", server.four_letter("mntr"), re.MULTILINE)
    assert found
    return int(found[1])


# --- what the proxy has seen ----------------------------------------------------------------------


def answers(frames: Iterable[Frame], op: str, error: int = 0) -> list[Frame]:
    """The replies to requests of an operation that ended with this error code."""
    return [f for f in frames if f.direction == "s2c" and f.op == op and f.error == error]


def requests(frames: Iterable[Frame]) -> list[Frame]:
    """The requests, pings and handshakes not included."""
    return [frame for frame in frames if frame.number is not None]


def wait_until_waiting(stage: Stage, nth: int = 1, op: str = "get_data") -> None:
    """Wait until the ``nth`` look at a predecessor has been answered, so its watch is set."""
    stage.proxy.wait_for(lambda frames: len(answers(frames, op)) >= nth, PATIENCE)


def assert_no_blind_repeat(frames: list[Frame]) -> None:
    """No lost sequential create was repeated without a sync and a listing, answered, in between.

    The name of such a create is its attempt's alone, until the server puts the number behind it.
    On one connection no answer is lost, and what was refused may be repeated.
    """
    answered = {id(f.request): f.error for f in frames if f.direction == "s2c"}
    creates: dict[str, Frame] = {}
    for place, create in enumerate(frames):
        path = create.path or ""
        if create.number is None or create.op != "create2" or not path.endswith("-"):
            continue
        first, creates[path] = creates.get(path), create
        if first is None or first.connection == create.connection or answered.get(id(first)):
            continue
        between = [
            f.op
            for f in frames[frames.index(first) : place]
            if f.connection == create.connection and id(f) in answered
        ]
        looked = "sync" in between and "get_children" in between[between.index("sync") :]
        assert looked, f"{create} repeats {first} after {between}"


# --- a second connection to somebody's session ----------------------------------------------------


def end_session(hosts: str, session_id: int, passwd: bytes) -> None:
    """Resume a session on a connection of one's own and close it, in one write.

    LookupError if it is over.
    """
    host, _, port = hosts.partition(",")[0].rpartition(":")
    request = ConnectRequest(0, 0, 20_000, session_id, passwd, False)
    close = RequestHeader(1, ops.CLOSE_SESSION.opcode)
    with (
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as connection,
        connection.makefile("rb") as reader,
    ):
        connection.sendall(frame(request.encode()) + frame(close.encode()))
        if ConnectResponse.decode(_next_frame(reader)).session_id != session_id:
            raise LookupError(f"the session {session_id:#x} is over already")
        assert ReplyHeader.decode(_next_frame(reader)).err == 0


def _next_frame(reader: IO[bytes]) -> bytes:
    prefix = reader.read(4)
    length = int.from_bytes(prefix, "big")
    body = reader.read(length)
    if len(prefix) < 4 or len(body) < length:
        raise EOFError("the connection has ended")
    return body


# --- small things ---------------------------------------------------------------------------------


def assert_strictly_rising(numbers: Iterable[int]) -> None:
    """Each number is higher than the one before."""
    pairs = [(a, b) for a, b in itertools.pairwise(numbers) if a >= b]
    assert not pairs, f"not rising: {pairs}"


def make_path(client: Client, path: str) -> None:
    """Create a node and what is missing above it."""
    names = path.strip("/").split("/")
    for depth in range(1, len(names) + 1):
        with contextlib.suppress(NodeExistsError):
            client.create("/" + "/".join(names[:depth]))


@contextlib.contextmanager
def holding(lock: Any) -> Iterator[Any]:
    """As ``with lock``, for any lock that is free; ``with`` does not acquire a lease."""
    assert lock.acquire(GRACE)
    try:
        yield lock
    finally:
        lock.release()


# --- what the requests of a lock are for ----------------------------------------------------------

# A lock of one node sends multis that create and delete it; tests call them as the fair lock's.
_FIRST = slice(8, 12)  # of a request: behind xid and type
_MEANING = {ops.CREATE.opcode: "create2", ops.DELETE.opcode: "delete"}


def meaning(frame: Frame) -> str:
    """What a request, or the request of a reply, is for."""
    asked = frame if frame.request is None else frame.request
    if asked.op != "multi":
        return asked.op
    return _MEANING.get(int.from_bytes(asked.body[_FIRST]), "multi")


class LockProxy(FaultProxy):
    """A proxy whose rules for `create2` and `delete` are for locks of one node, too."""

    def on(self, op: str, *, action: Action, nth: int = 1, reply: bool = False) -> None:
        if op not in _MEANING.values():
            super().on(op, action=action, nth=nth, reply=reply)
            return

        def chosen(frame: Frame) -> bool:
            return frame.direction == "c2s" and meaning(frame) == op

        description = describe_rule(op, nth, {op}, reply=reply)
        self.rule(_Once(chosen, description, nth, action, reply))
