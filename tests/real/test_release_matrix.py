"""What docs/operations.md says of each release, and docs/compatibility.md of servers' settings.

The embedded server plays each release, so a row is tried as on all of them wherever this runs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.matrix import settings, table
from tests.support.real_servers import EmbeddedServer
from tests.support.secure_servers import available
from tests.support.server_control import ZooKeeperServer
from zkwire import testing

QUICK = [case for case in settings.CASES if case.quick]


def test_the_column_of_this_release(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    line = "{}.{}.".format(*zookeeper.release)
    columns = {name: column for name, column in table.stored().items() if name.startswith(line)}
    if not columns:
        pytest.skip(f"no column for {line}x: the stored ones are {', '.join(table.stored())}")
    ((_, column),) = columns.items()
    assert table.outcomes(zookeeper, fresh_path) == column


@pytest.mark.parametrize(("release", "column"), table.stored().items(), ids=table.stored())
def test_an_embedded_server_plays_it(release: str, column: dict[str, dict[str, str]]) -> None:
    """The column that was seen on a real server is the one of the embedded server."""
    version = release.rpartition(".")[0]
    with testing.Server(version=version, tick=0.2, timeouts=(0.1, 60.0)) as server:  # type: ignore[arg-type]
        played = table.outcomes(EmbeddedServer(server, server.close), "/matrix")
    assert played == column


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
