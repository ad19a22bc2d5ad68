"""What docs/compatibility.md says of the servers' settings: of some, on the release at hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.matrix import settings
from tests.support.secure_servers import available
from tests.support.server_control import ZooKeeperServer

QUICK = [case for case in settings.CASES if case.quick]


@pytest.mark.apache
def test_settings_are_met_as_the_table_says(zookeeper: ZooKeeperServer) -> None:
    line = "{}.{}.".format(*zookeeper.release)
    columns = [found for name, found in settings.stored().items() if name.startswith(line)]
    if not columns:
        pytest.skip(f"the table has no {line}x: {', '.join(settings.stored())}")
    cases = [case for case in QUICK if case.title in columns[0]]
    with available(), ThreadPoolExecutor(3) as pool:
        found = dict(zip([c.title for c in cases], pool.map(settings.outcomes, cases), strict=True))
    assert found == {case.title: columns[0][case.title] for case in cases}
