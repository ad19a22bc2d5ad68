"""ZooKeeper's own shell sees the same on the embedded server as on a real one.

The part of `tests/interop/other_clients/compare.py` that takes nothing but Java.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import unavailable
from tests.interop.other_clients import zkcli
from tests.interop.other_clients.clients import NoClientError
from tests.interop.other_clients.compare import differences
from tests.support.real_servers import EmbeddedBackend
from tests.support.server_control import Backend

pytestmark = [pytest.mark.apache, pytest.mark.since("3.7")]


def test_the_answers_are_alike(backend: Backend) -> None:
    try:
        zkcli.provide()
    except NoClientError as error:
        unavailable(str(error))
    with (
        backend.standalone() as real,
        EmbeddedBackend().standalone() as embedded,
        ThreadPoolExecutor(2) as pool,
    ):
        hosts = (real.hosts, embedded.hosts)
        said = list(pool.map(zkcli.transcript, hosts))
    assert said[0][-1].startswith("persistent: ")
    assert differences(*said) == []
