"""What many tests of the embedded server and of the proxy begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.embedded import Peer, connected
from tests.testbed.stage import TIMEOUT, End, Stage


@pytest.fixture
def peer() -> Peer:
    """A new session on a processor of its own."""
    return connected()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    # On a slow machine the time for a peer to close must not run out and turn a FIN into a RST.
    monkeypatch.setattr("zkwire.testing.proxy.relay._LINGER", TIMEOUT)
    with Stage() as stage:
        yield stage


@pytest.fixture
def ends(stage: Stage) -> tuple[End, End]:
    return stage.connect()


@pytest.fixture
def client(ends: tuple[End, End]) -> End:
    return ends[0]


@pytest.fixture
def server(ends: tuple[End, End]) -> End:
    return ends[1]
