"""docs/how-to/embed.md: its commands are run, and programs with what they leave."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "embed.md").read_text()
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
_, LOCK, ASYNC, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
VENDORED = "agent._vendor.zkwire"
NEVER = """
import sys
import agent._vendor.zkwire as embedded
for unwanted in ("asyncio", "socket", "threading", "zkwire"):
    assert unwanted not in sys.modules, unwanted
try:
    embedded.{missing}
except ModuleNotFoundError:
    print("left out")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's commands were run, and nothing else is."""
    shutil.copytree(ROOT / "zkwire", tmp_path / "zkwire", ignore=shutil.ignore_patterns("__py*"))
    shutil.copy(ROOT / "LICENSE", tmp_path)
    subprocess.run(["sh", "-ec", COMMANDS], cwd=tmp_path, check=True)
    shutil.rmtree(tmp_path / "zkwire")
    return tmp_path


def run(folder: Path, program: str, server: Server) -> str:
    code = re.sub(r"\bfrom zkwire\b", f"from {VENDORED}", program)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:2181", server.hosts)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_lock_of_the_readme_runs_with_the_copy(folder: Path, server: Server) -> None:
    assert run(folder, LOCK, server).startswith("fencing token: ")
    assert run(folder, ASYNC, server).endswith("now done\n")
    assert (folder / "agent" / "_vendor" / "zkwire" / "LICENSE").exists()
    assert (folder / "agent" / "_vendor" / "zkwire" / "py.typed").exists()


@pytest.mark.parametrize(
    ("left_out", "missing", "program"),
    [("aio", "AsyncClient", LOCK), ("blocking", "Client", ASYNC)],
)
def test_one_client_works_without_the_other(
    left_out: str, missing: str, program: str, folder: Path, server: Server
) -> None:
    copy = folder / "agent" / "_vendor" / "zkwire"
    shutil.rmtree(copy / left_out)
    (copy / "trio.py").unlink()
    assert run(folder, program, server)
    assert run(folder, NEVER.format(missing=missing), server) == "left out\n"


def test_the_core_works_without_the_parts_that_use_sockets(folder: Path, server: Server) -> None:
    copy = folder / "agent" / "_vendor" / "zkwire"
    for part in ("aio", "blocking", "net"):
        shutil.rmtree(copy / part)
    core = (ROOT / "docs" / "core.md").read_text()
    io_layer, use = re.findall(r"```python\n(.*?)```", core, re.DOTALL)
    assert run(folder, io_layer + use, server) == "b'1'\nEventType.NODE_DATA_CHANGED\n"


def test_every_folder_of_the_package_is_in_the_table() -> None:
    table = PAGE.partition("## What can be left out")[2].partition("\n\nA name")[0]
    named = set(re.findall(r"`(\w+)/?(?:\.py)?`", table))
    core = {"jute", "wire", "session", "operations", "recipes", "errors", "__init__", "py"}
    found = {path.stem for path in (ROOT / "zkwire").iterdir() if not path.name.startswith("__py")}
    assert found - core == named
