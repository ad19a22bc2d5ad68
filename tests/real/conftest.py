"""What many of these tests begin with."""

from __future__ import annotations

import pytest

from tests.support.lock_helpers import Stage
from zkwire import Client


@pytest.fixture
def stage(tidy: Stage) -> Stage:
    """A server behind a proxy; what is left below ``fresh_path`` is removed."""
    return tidy


@pytest.fixture
def client(stage: Stage) -> Client:
    """A client behind the stage's proxy."""
    return stage.client()
