"""One process with Curator for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import unavailable
from tests.interop.curator.process import Curator, NoCuratorError, find_curator, running
from tests.support.server_control import ZooKeeperServer


@pytest.fixture(scope="module")
def curator(zookeeper: ZooKeeperServer) -> Iterator[Curator]:
    try:
        find_curator()
    except NoCuratorError as error:
        unavailable(str(error))
    with running(zookeeper.hosts) as started:
        yield started
