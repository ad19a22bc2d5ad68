"""docs/cache.md is true: its code runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import Client

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "cache.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
PRINTED = [
    "added /services b''\nadded /services/mail b'host-1'\n",
    "['mail']\nb'host-1' 0\nFalse 2 True\n",
    "10\n",
    "['mail']\n",
    "added /services\n",
]


def test_code_runs_and_prints_what_it_says(
    zookeeper: ZooKeeperServer, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        for block, printed in zip(BLOCKS, PRINTED, strict=True):
            exec(block.replace("127.0.0.1:2181", zookeeper.hosts + fresh_path), {})
            assert capsys.readouterr().out == printed
        client.delete_tree(fresh_path)


def test_what_comments_say_is_printed() -> None:
    said = [comment for block in BLOCKS for comment in re.findall(r"print\(.*\)  # (.*)", block)]
    assert said
    assert set(said) <= set("".join(PRINTED).splitlines())
