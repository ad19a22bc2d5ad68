"""The embedded server answers as real ones have: what they said is kept, see `recorded.py`."""

from __future__ import annotations

import pytest

from tests.testbed import recorded
from zkwire.testing.server.rules import Version


@pytest.mark.parametrize("version", recorded.VERSIONS)
def test_embedded_server_answers_as_recorded_from_real_ones(version: Version) -> None:
    for name in recorded.CONVERSATIONS:
        recorded.replay(version, name)
