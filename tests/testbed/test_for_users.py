"""What docs/testing.md offers for the tests of users: its code runs, and so do the fixtures."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.snippets import ROOT, blocks

TEXT = (ROOT / "docs" / "testing.md").read_text()
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


def test_code_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    printed = []
    for block in blocks("testing"):
        exec(block, names)
        printed.append(capsys.readouterr().out)
    server, broken, proxy, refused, found, right = printed
    assert broken == "State.DISCONNECTED\nexpired: only a new client goes on\n"
    assert server.startswith("NoNodeError\n['/', '/zookeeper'")
    assert proxy.startswith("True\n['connect', 'create', ")
    assert proxy.endswith("['request 2 of delete']\n")
    assert "'/mine'" not in server
    assert "states" in right
    assert re.search(r"\['cut [ab]'\]\n$", right)
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    for text, output in zip(shown, (refused, found), strict=True):
        for line in text.splitlines():
            assert line.removesuffix("...") in output


def test_the_modules_that_it_names_are_there() -> None:
    names = set(re.findall(r"zkwire\.testing\.(\w+)", TEXT))
    assert {"proxy", "simulation"} <= names
    for name in names:
        import_module(f"zkwire.testing.{name}")
