"""What docs/operations.md says of the release that this runs on; an embedded server plays one."""

from __future__ import annotations

import pytest

from tests.matrix import table
from tests.support.server_control import ZooKeeperServer


def test_the_column_of_this_release(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    line = "{}.{}.".format(*zookeeper.release)
    columns = {name: column for name, column in table.stored().items() if name.startswith(line)}
    if not columns:
        pytest.skip(f"no column for {line}x: the stored ones are {', '.join(table.stored())}")
    ((_, column),) = columns.items()
    assert table.outcomes(zookeeper, fresh_path) == column
