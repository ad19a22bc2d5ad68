"""Code of the pages that is followed by ``<!-- prints: ... -->`` prints that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import Client

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"```python\n((?:(?!```).)*)```\n<!-- prints: (.*?) -->", re.DOTALL)
BLOCKS = [
    pytest.param(block, json.loads(printed), id=page.stem)
    for page in sorted(DOCS.glob("*.md"))
    for block, printed in BLOCK.findall(page.read_text())
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
