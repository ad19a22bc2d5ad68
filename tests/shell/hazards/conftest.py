"""What the tests of hazards share: an embedded server for each file, and a stage for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shell.hazards.staging import EmbeddedStage
from zkwire import testing


@pytest.fixture(scope="module")
def embedded() -> Iterator[testing.Server]:
    """A server in this process, whatever the other tests run on."""
    with testing.Server(tick=0.2, timeouts=(0.1, 60.0)) as server:
        yield server


@pytest.fixture
def stage(embedded: testing.Server) -> Iterator[EmbeddedStage]:
    """That server behind a proxy, and nothing left on it but what a test has left by intent."""
    with EmbeddedStage(embedded) as stage:
        yield stage
    embedded.clear()
