"""The code in the README and in docs/client.md runs as it stands, on a real server."""

import re
from pathlib import Path

import pytest

from zkwire import Client

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = [
    block
    for text in (README, (ROOT / "docs" / "client.md").read_text())
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
COLUMN = "\N{MULTIPLICATION SIGN} kazoo"
NAMES = ["loss", "lock", "asyncio", "watch", "multi", "connect"]


@pytest.mark.real
@pytest.mark.smoke
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=name, marks=pytest.mark.since("3.6") if name == "multi" else [])
        for name, block in zip(NAMES, BLOCKS, strict=True)
    ],
)
def test_block_runs(
    block: str, zookeeper: object, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = zookeeper.hosts  # type: ignore[attr-defined]
    with Client(hosts) as client:
        client.create(fresh_path)
    exec(block.replace("127.0.0.1:2181", hosts + fresh_path), {})
    printed = capsys.readouterr().out
    expected = {"fencing token: ", "NODE_DATA_CHANGED", "BadVersionError", "now "}
    assert any(text in printed for text in expected)
    assert "stop:" not in printed
    assert "False" not in printed


@pytest.mark.parametrize("work", ["get, one at a time", "free lock, acquire and release"])
def test_a_get_and_a_lock_take_a_seventh_to_a_third_of_kazoos_time(work: str) -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in table]
    column = next(row.index(COLUMN) for row in rows if COLUMN in row)
    (figure,) = [row[column] for row in rows if row[1:2] == [work]]
    assert 0.14 < float(figure) < 0.35


def test_each_error_of_the_table_exists() -> None:
    import zkwire

    for name in re.findall(r"`(\w+Error)`", README):
        assert issubclass(getattr(zkwire, name), zkwire.ZooKeeperError)
