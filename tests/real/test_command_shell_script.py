"""A script for the shell, in zkCli's words, on any server."""

from __future__ import annotations

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire.cli.main import main

SCRIPT = """
create {0} hello  # a comment
cd {0}
create -e -s n- '' world:anyone:cdrwa
create -c container
ls
get -w .
set -v 0 . 'two words'; get .
sync .
getAcl n-0000000000
getAllChildrenNumber .
delete container
ls -w .
stat -w gone
create gone
deleteall .
"""


@pytest.mark.since("3.5")
def test_a_life_of_nodes(
    zookeeper: ZooKeeperServer, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-s", zookeeper.hosts, "shell", "-k", "-c", SCRIPT.format(fresh_path)]
    assert main(words) == 1  # by stat, of a node that is not there yet
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        fresh_path,
        f"{fresh_path}/n-0000000000",
        f"{fresh_path}/container",
        "container",
        "n-0000000000",
        "hello",
        "1",
        "two words",
        "world:anyone:cdrwa",
        "2",
        "n-0000000000",
        f"{fresh_path}/gone",
    ]
    events = [line for line in err.splitlines() if line.startswith("watch: ")]
    assert events[0] == f"watch: changed {fresh_path}"
    assert set(events[1:]) == {
        f"watch: created {fresh_path}/gone",
        f"watch: children {fresh_path}",
    }
    assert len(err.splitlines()) == 4
