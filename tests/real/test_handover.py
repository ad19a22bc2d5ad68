"""A session that one client leaves and another goes on with."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from typing import Any, cast

import pytest

from tests.support.family_helpers import looked, watches_children
from tests.support.lock_helpers import Running, Stage
from tests.support.recipe_samples import lock as lock_of
from zkwire import (
    Client,
    ConnectionLossError,
    Credentials,
    NodeExistsError,
    SessionExpiredError,
    State,
)
from zkwire.blocking.sync import run
from zkwire.jute.frames import SEND_LIMIT

PATIENCE = 30.0


def owner(client: Client, path: str) -> int | None:
    """Whose ephemeral node it is; None if there is none."""
    stat = client.exists(path)
    return None if stat is None else stat.ephemeral_owner


def test_a_wrong_password(stage: Stage, fresh_path: str) -> None:
    first = stage.client()
    first.create(fresh_path, ephemeral=True)
    wrong = Credentials(first.session_id, bytes(16))
    intruder = Client(stage.hosts, resume=wrong)
    with pytest.raises(SessionExpiredError):
        intruder.connect(PATIENCE)
    intruder.close()
    for _ in range(50):  # a server ends the connection before it looks at the password
        with suppress(ConnectionLossError):
            assert owner(first, fresh_path) == first.session_id
            break
    assert first.state is State.CONNECTED


KINDS = ("BlockingLock", "SequentialLock", "ReadWriteLock.write", "Semaphore")


@pytest.mark.since("3.5")
@pytest.mark.parametrize("rivals", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_hazard_B34_a_session_that_is_resumed_does_not_wait_for_itself(
    stage: Stage, fresh_path: str, kind: str, rivals: int
) -> None:
    """Its own node stands there, from before a crash; also if a rival waits between the two."""
    first, rival = stage.client(direct=True), lock_of(kind, stage.client(), fresh_path)
    assert lock_of(kind, first, fresh_path).acquire(PATIENCE)
    kept = first.credentials
    run(first._driver.close(1.0, detach=True))  # as it was when the process died
    waiting = [Running(lambda: rival.acquire(PATIENCE))] if rivals else []
    for _ in waiting:
        if kind == "Semaphore":
            stage.proxy.wait_for(lambda seen: watches_children(seen, f"{fresh_path}/leases"))
        else:
            stage.proxy.wait_for(looked)
    with Client(stage.hosts, resume=kept) as again:
        lock = lock_of(kind, again, fresh_path)
        assert not lock.try_acquire()
        with pytest.raises(NodeExistsError, match="own, from before this client has res") as caught:
            lock.acquire(PATIENCE)
        assert owner(again, str(caught.value.path)) == again.session_id
        again.delete(str(caught.value.path))
        for running in waiting:
            assert running.result()
            rival.release()
        assert lock.acquire(PATIENCE)


# --- what credentials show ------------------------------------------------------------------------


def test_credentials_hide_the_password_and_can_be_copied(stage: Stage, client: Client) -> None:
    kept = client.credentials
    assert len(kept.passwd) == 16
    for text in (repr(kept), str(kept), f"{kept}", repr([kept]), repr({"a": kept})):
        assert "<hidden>" in text
        assert repr(kept.passwd)[2:-1] not in text
        assert kept.passwd.hex() not in text
    assert str(kept.session_id) in repr(kept)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert copy.copy(kept) == kept
    assert kept == client.credentials
    resumed = Client(stage.hosts, resume=kept)
    assert repr(kept.passwd)[2:-1] not in repr(resumed)
    resumed.close()


WRONG: list[tuple[Any, type[Exception], str]] = [
    ((1, b"x"), TypeError, "resume must be Credentials"),
    (7, TypeError, "resume must be Credentials"),
    (Credentials(0, bytes(16)), ValueError, "names no session"),
    (Credentials(5, cast(Any, "SECRET")), TypeError, "an int and bytes"),
    (Credentials(cast(Any, "5"), b"SECRET"), TypeError, "an int and bytes"),
    (Credentials(2**63, b"SECRET"), ValueError, "resume cannot be sent"),
    (Credentials(5, b"SECRET" * SEND_LIMIT), ValueError, "resume cannot be sent"),
]


def test_what_cannot_be_resumed() -> None:
    for resume, kind, message in WRONG:
        with pytest.raises(kind, match=message) as caught:
            Client("127.0.0.1:1", resume=resume)
        assert "SECRET" not in str(caught.value)
