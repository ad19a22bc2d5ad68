"""The code in the pages about recipes runs as it stands, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import Client

DOCS = Path(__file__).resolve().parents[2] / "docs"
PRINTED = {
    "counter": ["1\n-9\nTrue\n7 True\n"],
    "barriers": ["False\nTrue\n", "worker 0 is inside /step\n"],
    "locks": ["True\nTrue\n", "True\nTrue\n"],
    "once-per": ["cleaning up\nFalse\n"],
}
BLOCKS = [
    (block, printed)
    for page, expected in PRINTED.items()
    for block, printed in zip(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL),
        expected,
        strict=True,
    )
]


@pytest.mark.parametrize(("block", "printed"), BLOCKS)
def test_block_runs(
    block: str,
    printed: str,
    zookeeper: ZooKeeperServer,
    fresh_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
    exec(block.replace("127.0.0.1:2181", zookeeper.hosts + fresh_path), {})
    assert printed in capsys.readouterr().out
