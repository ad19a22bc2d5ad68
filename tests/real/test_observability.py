"""What a client shows of itself: trace, log and reprs; and that no secret is in any of them."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from zkwire import (
    AuthFailedError,
    BlockingLock,
    Check,
    Client,
    Create,
    DigestMD5,
    NonBlockingLock,
    SequentialLock,
    SetData,
    State,
    TraceFrame,
    Watch,
    ZooKeeperError,
    digest_auth,
    testing,
)

PATIENCE = 30.0


class Trace(list[TraceFrame]):
    """Keeps what a client traces."""

    def __call__(self, frame: TraceFrame) -> None:
        self.append(frame)


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
