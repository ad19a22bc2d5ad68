"""What a client shows of itself: trace, log and reprs; and that no secret is in any of them."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_helpers import Stage
from zkwire import (
    AuthFailedError,
    BlockingLock,
    Check,
    Client,
    Create,
    DigestMD5,
    NonBlockingLock,
    NoNodeError,
    SequentialLock,
    SetData,
    State,
    TraceFrame,
    Watch,
    ZooKeeperError,
    digest_auth,
    testing,
)
from zkwire.testing.proxy import Frame, cut_after

PATIENCE = 30.0


class Trace(list[TraceFrame]):
    """Keeps what a client traces."""

    def __call__(self, frame: TraceFrame) -> None:
        self.append(frame)


# --- the trace ------------------------------------------------------------------------------------

# The proxy sees which of the two restored the watches; their replies share one xid.
SAME = {"set_watches2": "set_watches"}
NO_PATH = {"notification", "ping", "auth", "connect"}


def assert_same(trace: list[TraceFrame], frames: list[Frame]) -> None:
    """Both have seen the same frames, in the same order in each direction."""
    for sent, direction in ((True, "c2s"), (False, "s2c")):
        traced, seen = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for t in trace:
            if t.sent is sent:
                traced.append((SAME.get(t.op, t.op), t.path, t.xid, t.size))
                traced[-1] += () if sent or t.op == "connect" else (t.zxid, t.error)
        for f in frames:
            if f.direction == direction:
                path = None if f.op in NO_PATH else f.path
                seen.append((SAME.get(f.op, f.op), path, f.xid or 0, len(f.body)))
                seen[-1] += () if sent or f.op == "connect" else (f.zxid, f.error)
        assert traced == seen


@pytest.mark.since("3.6")
def test_one_trace_for_each_frame_in_both_directions(stage: Stage, fresh_path: str) -> None:
    trace = Trace()
    # So long that nobody breaks the connection when the machine pauses, and that no ping is on its
    # way when it is cut.
    client = Client(stage.proxy.hosts, session_timeout=4.5, trace=trace)
    stage.proxy.reset()
    with client:
        client.create(fresh_path, b"data")
        watch = Watch()
        client.get_data(fresh_path, watch=watch)
        client.set_data(fresh_path, b"other")
        assert watch.wait(PATIENCE) is not None
        with pytest.raises(NoNodeError):
            client.delete(f"{fresh_path}/no")
        client.add_auth(*digest_auth("alice", "secret"))
        client.multi([Check(fresh_path)])
        replies = [client.pipeline.exists(f"{fresh_path}/{n}") for n in range(300)]
        assert [reply.result(PATIENCE) for reply in replies] == [None] * 300
        lasting = Watch()
        client.add_watch(fresh_path, lasting)
        client.get_children("/", watch=Watch())
        soon("pings", lambda: sum(f.op == "ping" and not f.sent for f in trace) >= 2, PATIENCE)
        stage.proxy.cut_all()
        assert lasting.wait(PATIENCE) is not None  # a REREAD: connected again
        client.delete(fresh_path)
    frames = stage.proxy.frames()
    assert_same(trace, frames)
    kinds = {frame.op for frame in trace}
    assert {"connect", "ping", "auth", "notification", "set_watches2", "multi"} <= kinds
    assert "close_session" in kinds
    assert_replies_follow(trace)


def assert_replies_follow(trace: list[TraceFrame]) -> None:
    """Times never go back; a reply says when its request was sent, which stands before it."""
    assert [frame.time for frame in trace] == sorted(frame.time for frame in trace)
    sent: dict[int, TraceFrame] = {}
    answered = 0
    for frame in trace:
        if frame.sent:
            sent[frame.xid] = frame
        elif frame.xid > 0:
            request = sent.pop(frame.xid)
            assert (request.op, request.path) == (frame.op, frame.path)
            assert frame.sent_at == request.time
            answered += 1
        else:
            assert frame.sent_at is None
    assert answered > 300


def test_a_lost_request_is_traced_and_has_no_reply(stage: Stage, fresh_path: str) -> None:
    trace = Trace()
    with Client(stage.proxy.hosts, trace=trace) as client:
        stage.proxy.on("create", action=cut_after)
        with pytest.raises(ZooKeeperError):
            client.create(fresh_path)
        client.connect(PATIENCE)
    assert [frame.sent for frame in trace if frame.op == "create"] == [True]
    assert sum(frame.op == "connect" for frame in trace) == 4
    assert stage.client()._session.trace is None, "nothing is traced for nobody"


@pytest.mark.own_server
@pytest.mark.parametrize("kind", ["trace", "listener"])
def test_a_listener_that_blocks_does_not_cost_the_session(
    stage: Stage, fresh_path: str, kind: str
) -> None:
    reached, go_on, heard = threading.Event(), threading.Event(), list[object]()

    def blocks(what: object) -> None:
        reached.set()
        assert go_on.wait(60.0)
        heard.append(what)

    def pongs(frames: list[Frame]) -> int:
        return sum(frame.op == "ping" and frame.direction == "s2c" for frame in frames)

    trace = blocks if kind == "trace" else None
    with Client(stage.proxy.hosts, session_timeout=3.0, trace=trace) as client:
        client.create(fresh_path, ephemeral=True)
        session = client.session_id
        if kind == "listener":
            client.add_state_listener(blocks)
            stage.proxy.cut_all()
        assert reached.wait(PATIENCE)
        assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE) is State.CONNECTED
        # For two session timeouts and more it is pings that keep the session.
        before = pongs(stage.proxy.frames())
        stage.proxy.wait_for(lambda frames: pongs(frames) >= before + 7, 60.0)
        stat = client.exists(fresh_path)
        assert stat is not None
        assert stat.ephemeral_owner == client.session_id == session
        assert heard == []
        go_on.set()
        soon("all is told", lambda: len(heard) >= 4, PATIENCE)


def test_a_trace_may_use_the_client_and_what_it_raises_is_reported(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    traced, asked = list[str](), list[Any]()

    def trace(frame: TraceFrame) -> None:
        traced.append(frame.op)
        if frame.op == "sync" and not frame.sent and not asked:
            asked.append(client.exists(fresh_path))
        raise ZeroDivisionError

    with Client(stage.proxy.hosts, trace=trace) as client:
        client.sync()
        soon("it has asked", lambda: traced.count("exists") == 2, PATIENCE)
    soon("all is traced", lambda: len(reported) >= 8, PATIENCE)
    assert asked == [None]
    assert traced == [op for op in ("connect", "sync", "exists", "close_session") for _ in "ab"]
    assert reported == [ZeroDivisionError] * len(traced)


# --- secrets --------------------------------------------------------------------------------------

PASSWORD = "uh3Bq9-digest-password"
SASL_PASSWORD = "Zk7Pw2-sasl-password"
DATA = b"Xw4Lm8-node-data"


def forms(secret: bytes) -> set[str]:
    """How a secret could show in a text."""
    return {
        repr(secret)[2:-1],
        secret.hex(),
        secret.hex(" "),
        base64.b64encode(secret).decode().rstrip("="),
        repr(list(secret))[1:-1],
    }


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The library's log at DEBUG: every record, in full."""
    texts: list[str] = []
    handler, logger = logging.Handler(logging.DEBUG), logging.getLogger("zkwire")
    monkeypatch.setattr(
        handler, "emit", lambda record: texts.extend([record.getMessage(), repr(vars(record))])
    )
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield texts
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_no_secret_shows_anywhere(log: list[str]) -> None:
    """On the embedded server, which has SASL users and can refuse what it is told to."""
    trace, shown = Trace(), log
    sasl = DigestMD5("bob", SASL_PASSWORD)
    auth = digest_auth("alice", PASSWORD)
    with (
        testing.Server(sasl_users={"bob": SASL_PASSWORD}) as server,
        Client(server.hosts, trace=trace, sasl=sasl, auth=[auth]) as client,
    ):
        passwd = client.credentials.passwd
        client.add_auth(*digest_auth("carol", PASSWORD))
        watch = Watch()
        client.create("/n", DATA)
        shown += [repr(client), repr(client.credentials), str(client.credentials), repr(sasl)]
        shown += [repr(client.get_data("/n", watch=watch).stat), repr(watch)]
        transaction = client.transaction()
        created = transaction.create("/m", DATA)
        shown += [repr(transaction), repr(created), repr(Create("/n", DATA)), repr(client.pipeline)]
        shown += [repr(client.pipeline.set_data("/n", DATA)), repr(client.pipeline)]
        for kind in (NonBlockingLock, BlockingLock, SequentialLock):
            shown.append(repr(kind(client, "/lock")))
        shown += errors(client, server)
        states: SimpleQueue[State] = SimpleQueue()
        client.add_state_listener(states.put)
        server.cut_all()
        assert states.get(timeout=PATIENCE) is State.DISCONNECTED
        client.connect(PATIENCE)
        client.sync()
        shown += errors(client, server)
        with (
            pytest.raises(AuthFailedError) as caught,
            Client(server.hosts, sasl=DigestMD5("bob", SASL_PASSWORD + "!"), trace=trace),
        ):
            pass
        shown += [str(caught.value), repr(caught.value), repr(caught.value.__dict__)]
    shown += [repr(frame) for frame in trace]
    assert {"auth", "sasl", "create", "set_data"} <= {frame.op for frame in trace}
    assert any("sasl" in text for text in log)
    text = "\n".join(shown)
    for secret in (PASSWORD.encode(), SASL_PASSWORD.encode(), DATA, passwd):
        for form in forms(secret):
            assert form not in text


def errors(client: Client, server: testing.Server) -> list[str]:
    """What is in the errors of operations that carry data and secrets."""
    found = []
    calls: list[Callable[[], object]] = [
        lambda: client.set_data("/n/x", DATA),
        lambda: client.create("/n", DATA),
        lambda: client.multi([SetData("/n", DATA), Check("/n", 999)]),
        lambda: client.create("/n", DATA.decode()),  # type: ignore[arg-type]
        lambda: client.create("/n", DATA * 100_000),
        lambda: client.add_auth("digest", PASSWORD),  # type: ignore[arg-type]
        lambda: client.add_auth("digest", PASSWORD.encode() * 100_000),
    ]
    for call in calls:
        with pytest.raises((ZooKeeperError, TypeError, ValueError)) as caught:
            call()
        error: BaseException | None = caught.value
        while error is not None:
            found += [str(error), repr(error), repr(vars(error))]
            error = error.__cause__
    for code in (-5, -999):
        server.refuse_next("set_data", code)
        with pytest.raises(ZooKeeperError) as refused:
            client.set_data("/n", DATA)
        found += [str(refused.value), repr(refused.value)]
    return found
