"""The code in docs/atlas.md runs as it stands, and prints what its table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import Client

PAGE = Path(__file__).resolve().parents[2] / "docs" / "atlas.md"
PRINTED = (
    "told: another client has made /mine\n",
    "kazoo: the connection was lost; executed or not\n"
    "zkwire: sent, and the answer was lost: True\n",
    "the holder says: True\n",
)
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("block", "printed"), list(zip(BLOCKS, PRINTED, strict=True)))
def test_block_runs(
    block: str,
    printed: str,
    zookeeper: ZooKeeperServer,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
    own = re.sub(r'"/(mine|by-|lock)', rf'"{fresh_path}/\1', block)
    exec(own.replace("127.0.0.1:2181", zookeeper.hosts), {})
    assert printed in capsys.readouterr().out
