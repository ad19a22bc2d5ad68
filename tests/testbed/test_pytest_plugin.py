"""The fixtures work in somebody else's test, and cost nothing until they are used."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "zkwire.testing.pytest_plugin"
THEIRS = """
import threading

def test_client(zkwire_client, zkwire_server):
    zkwire_client.create("/a", b"x")
    assert zkwire_client.get_data("/a").data == b"x"
    assert "/a" in zkwire_server.tree.nodes

def test_server_is_empty_again(zkwire_server):
    assert "/a" not in zkwire_server.tree.nodes

def test_nothing_is_left():
    assert [t.name for t in threading.enumerate() if t.name.startswith("zkwire")] == []
"""


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    # An installed package has it by its entry point, and pytest takes no plugin twice.
    installed = any(point.name == "zkwire" for point in entry_points(group="pytest11"))
    named = [] if installed else ["-p", PLUGIN]
    done = python("-m", "pytest", "-q", "-W", "error", *named, folder=tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_loading_it_imports_no_client(tmp_path: Path) -> None:
    loaded = "'socket' in sys.modules, 'zkwire.testing.server.server' in sys.modules"
    code = f"import sys, {PLUGIN}; print({loaded})"
    before = python("-c", "import sys, pytest; print('socket' in sys.modules)", folder=tmp_path)
    done = python("-c", code, folder=tmp_path)
    assert done.stdout.split() == [before.stdout.strip(), "False"], done.stderr
