"""What many of these tests begin with."""

from __future__ import annotations

import pytest

from tests.real.test_lock_sweep import Place
from tests.support.lock_helpers import Stage
from tests.support.server_control import ZooKeeperServer
from zkwire import Client


@pytest.fixture
def place(
    zookeeper: ZooKeeperServer,
    observer: Client,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
) -> Place:
    return Place(zookeeper, observer, fresh_path, capsys)


@pytest.fixture
def client(stage: Stage) -> Client:
    """A client behind the stage's proxy."""
    return stage.client()
