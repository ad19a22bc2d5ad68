"""docs/watching.md is true: its code runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import Client

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "watching.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
PRINTED = [
    "no limit\nversion 0: 10\nversion 1: 20\n",
    "b'20'\nNone\n",
    "[]\n['b']\n['a', 'b']\n",
    "configured: None\nconfigured: b'on'\n",
    "the limit is 20\nthe limit is 30\n",
    "b'99' True\n",
]


def test_code_runs_and_prints_what_it_says(
    zookeeper: ZooKeeperServer, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        for block, printed in zip(BLOCKS, PRINTED, strict=True):
            exec(block.replace("127.0.0.1:2181", zookeeper.hosts + fresh_path), {})
            found = capsys.readouterr().out
            assert found == printed or found == printed.replace("configured: None\n", "")
        client.delete_tree(fresh_path)


def test_what_comments_say_is_printed() -> None:
    said = [comment for block in BLOCKS for comment in re.findall(r"print\(.*\)  # (.*)", block)]
    printed = "".join(PRINTED).splitlines()
    assert said
    for comment in said:
        assert any(comment.startswith(line) for line in printed), comment
