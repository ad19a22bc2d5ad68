"""The code in the README runs as it stands, on a real server."""

import re
from pathlib import Path

import pytest

from zkwire import Client

ROOT = Path(__file__).resolve().parents[2]
COLUMN = "\N{MULTIPLICATION SIGN} kazoo"
ALL_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
BLOCKS = [block for block in ALL_BLOCKS if "Supervisor" not in block]
"""Those for ever are examples of docs/supervisor.md, too: `tests/shell/test_supervisor_doc.py`."""


def test_there_is_code_to_run() -> None:
    assert len(BLOCKS) == 7


@pytest.mark.real
@pytest.mark.smoke
@pytest.mark.parametrize(
    "block",
    [
        *BLOCKS[:4],
        pytest.param(BLOCKS[4], marks=pytest.mark.since("3.6")),
        BLOCKS[5],
    ],
    ids=["loss", "lock", "asyncio", "watch", "multi", "connect"],
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


def test_block_about_testing_runs() -> None:
    exec(BLOCKS[6], {})


def test_figures_are_those_of_the_benchmarks() -> None:
    measured = (ROOT / "benchmarks" / "README.md").read_text().splitlines()
    head = next(line for line in measured if COLUMN in line)
    column = [cell.strip() for cell in head.split("|")].index(COLUMN)
    shown = re.findall(r"^\| (.+) \| ([\d.]+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(shown) == 4
    for name, figure in shown:
        (row,) = [line for line in measured if line.startswith(f"| {name} |")]
        assert row.split("|")[column].strip() == figure


def test_each_error_of_the_table_exists() -> None:
    import zkwire

    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`(\w+Error)`", text):
        assert issubclass(getattr(zkwire, name), zkwire.ZooKeeperError)
