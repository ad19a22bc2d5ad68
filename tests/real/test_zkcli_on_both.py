"""ZooKeeper's own shell sees the same on the embedded server as on a real one.

The part of `tests/interop/other_clients/compare.py` that takes two seconds and nothing but Java.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.interop.other_clients.clients import NoClientError, provide_zkcli
from tests.interop.other_clients.conversation import transcript
from tests.interop.other_clients.differences import differences
from tests.support.embedded_servers import EmbeddedBackend
from tests.support.server_control import Backend

pytestmark = [pytest.mark.apache, pytest.mark.since("3.7")]


def test_the_answers_are_alike(backend: Backend, tmp_path: Path) -> None:
    try:
        command = [*provide_zkcli(), "--brief"]
    except NoClientError as error:
        unavailable(str(error))
    with (
        backend.standalone() as real,
        EmbeddedBackend().standalone() as embedded,
        ThreadPoolExecutor(2) as pool,
    ):
        sides = (real.hosts, tmp_path / "real"), (embedded.hosts, tmp_path / "embedded")
        said = list(pool.map(lambda side: transcript(command, *side), sides))
    assert said[0][-1].startswith("persistent: ")
    assert differences(*said) == []
