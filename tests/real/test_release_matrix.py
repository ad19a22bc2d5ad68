"""What docs/operations.md says of each release: here of those that an embedded server plays.

Whatever has a row there is so tried as on each of them, where no such release is installed.
"""

from __future__ import annotations

import pytest

from tests.interop.matrix import table
from tests.support.embedded_servers import EmbeddedServer
from tests.support.server_control import ZooKeeperServer
from zkwire import testing


def of_calls(column: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Without the rows that need servers of their own."""
    return {part: column[part] for part in table.PARTS}


def test_the_column_of_this_release(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    line = "{}.{}.".format(*zookeeper.release)
    columns = {name: column for name, column in table.stored().items() if name.startswith(line)}
    if not columns:
        pytest.skip(f"no column for {line}x: the stored ones are {', '.join(table.stored())}")
    ((_, column),) = columns.items()
    assert table.outcomes(zookeeper, fresh_path) == of_calls(column)


@pytest.mark.parametrize(("release", "column"), table.stored().items(), ids=table.stored())
def test_an_embedded_server_plays_it(release: str, column: dict[str, dict[str, str]]) -> None:
    """The column that was seen on a real server is the one of the embedded server."""
    version = release.rpartition(".")[0]
    with testing.Server(version=version, tick=0.2, timeouts=(0.1, 60.0)) as server:  # type: ignore[arg-type]
        played = table.outcomes(EmbeddedServer(server, server.close), "/matrix")
    assert played == of_calls(column)
