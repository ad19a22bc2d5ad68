"""Where programs run that are not plain scripts: uvloop, a loop that runs already, a zip file.

gevent and gunicorn are in test_gevent.py, forked children in test_client_forks.py.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path
from typing import Any

import pytest

from tests.support.lock_command import Teller
from zkwire import AsyncClient, AsyncSequentialLock, Client, OutcomeUnknownError, Watch
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 60.0


async def use(client: AsyncClient) -> None:
    """A watch, and a lock, which end as they should."""
    watch = Watch()
    await client.exists("/loops", watch=watch)
    await client.create("/loops", b"1", ephemeral=True)
    assert (await watch).path == "/loops"
    async with AsyncSequentialLock(client, "/lock") as lock:
        assert lock.held


@pytest.fixture(scope="module")
def uvloop() -> Any:
    """It keeps two descriptors for the life of the process from its first run on."""
    module = pytest.importorskip("uvloop")
    module.run(asyncio.sleep(0))
    return module


def test_uvloop_with_a_cut_in_the_middle(server: Server, uvloop: Any) -> None:

    async def main(hosts: str) -> None:
        async with asyncio.timeout(LONGEST), AsyncClient(hosts) as client:
            proxy.on("create", action=cut_after)
            with pytest.raises(OutcomeUnknownError):
                await client.create("/lost", ephemeral=True)
            await use(client)
            assert type(asyncio.get_running_loop()).__module__ == "uvloop"

    with FaultProxy(server.hosts) as proxy:
        uvloop.run(main(proxy.hosts))


def test_a_client_for_threads_in_a_loop_that_runs(server: Server) -> None:
    """As in a cell of Jupyter, where the loop waits for the cell."""

    async def cell() -> bytes:
        with Client(server.hosts) as client:
            client.create("/cell", b"1", ephemeral=True)
            return client.get_data("/cell").data

    assert asyncio.run(cell()) == b"1"


def test_a_client_for_asyncio_from_cell_to_cell(server: Server) -> None:
    """As with await at the top of each cell: one loop, which runs on between them."""
    with asyncio.Runner() as runner:
        client = AsyncClient(server.hosts)
        runner.run(client.connect())
        runner.run(use(client))
        runner.run(client.close())


@pytest.fixture(params=[".py", ".pyc"])
def archive(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The command in a zip file, which has its source or nothing but what that is compiled to."""
    file, copy = tmp_path / "zkwire.pyz", tmp_path / "copy"
    shutil.copytree(ROOT / "zkwire", copy / "zkwire", ignore=shutil.ignore_patterns("__pycache__"))
    if request.param == ".pyc":
        assert compileall.compile_dir(copy, quiet=1, legacy=True)
        for source in copy.rglob("*.py"):
            source.unlink()
    zipapp.create_archive(copy, file, main="zkwire.__main__:main")
    return file


def test_the_command_runs_from_a_zip_file(server: Server, archive: Path) -> None:

    def run(*words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-I", archive, *words],
            cwd=archive.parent, capture_output=True, text=True, timeout=LONGEST, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (status, "")
        return done.stdout

    assert run("--version").startswith("zkwire ")
    assert run("--server", server.hosts, "create", "/zip", "text") == "/zip\n"
    assert run("--server", server.hosts, "get", "/zip") == "text"
    assert "lost-reply" in run("lesson")
    assert run("--server", server.hosts, "lock", "/lock", "sh", "-c", "exit 7", status=7) == ""


def test_a_killed_lock_command_in_a_zip_file_leaves_no_command(
    server: Server, tmp_path: Path, archive: Path
) -> None:
    """Its watchdog is in the zip file, too, where Python runs no file."""
    teller = Teller(tmp_path / "tell")
    teller.program = ["-I", os.path.relpath(archive)]  # the watchdog runs in another folder
    script = (
        "exec 3>$TELL; trap 'echo TERM >&3; exit' TERM; echo ready >&3; sleep 30 & wait;"
        "echo left alone >&3"
    )
    with teller.run(server.hosts, "lock", "/lock", "sh", "-c", script) as process:
        events = teller.events()
        assert next(events) == "ready"
        process.kill()
        assert list(events) == ["TERM"]
