"""Where programs run that are no plain scripts: uvloop, a running loop, a zip file, gevent."""

from __future__ import annotations

import asyncio
import compileall
import shutil
import subprocess
import zipapp
from pathlib import Path
from typing import Any

import pytest

from tests.support.snippets import ROOT, run_python
from zkwire import AsyncClient, AsyncSequentialLock, OutcomeUnknownError, Watch
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after

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
        done = run_python("-I", archive, *words, cwd=archive.parent)
        assert (done.returncode, done.stderr) == (status, "")
        return done.stdout

    assert run("--version").startswith("zkwire ")
    assert run("--server", server.hosts, "create", "/zip", "text") == "/zip\n"
    assert run("--server", server.hosts, "get", "/zip") == "text"
    assert "lost-reply" in run("lesson")
    assert run("--server", server.hosts, "lock", "/lock", "sh", "-c", "exit 7", status=7) == ""


# --- under the patches of gevent and eventlet -----------------------------------------------------


USE = """
import threading

def use(number):
    for _ in range(20):
        client.exists("/")
    watch = Watch()
    client.exists(f"/{number}", watch=watch)
    client.create(f"/{number}", ephemeral=True)
    assert watch.wait(10).path == f"/{number}"
    called = threading.Event()
    client.get_data(f"/{number}", watch=lambda _: called.set())
    client.set_data(f"/{number}", b"")
    assert called.wait(10)
    with SequentialLock(client, "/lock"):
        pass
    with again:
        inside.append(number)
        green.sleep(0.01)
        assert inside.pop() == number and not inside

inside = []
with green.Timeout(30):
    for task in [green.spawn(use, number) for number in range(3)]:
        (task.wait if hasattr(task, "wait") else task.get)()
    replies = [client.pipeline.get_data("/") for _ in range(500)]
    assert {reply.result().data for reply in replies} == {b""}
client.close()
print("done")
"""
MAKE = "client = Client({hosts!r}); again = ReentrantLock(client, '/again')\n"
PATCH = "from gevent import monkey; monkey.patch_all(); import gevent as green\n"
EVENTLET = "import eventlet as green; green.monkey_patch()\n"
IMPORT = "from zkwire import Client, ReentrantLock, SequentialLock, Watch\n"
ORDERS = {
    "patched first": PATCH + IMPORT + MAKE + USE,
    "imported before": IMPORT + PATCH + MAKE + USE,
    "made before": IMPORT + MAKE + PATCH + USE,
    "patched by eventlet": EVENTLET + IMPORT + MAKE + USE,
}


def run(program: str, server: Server) -> subprocess.CompletedProcess[str]:
    return run_python("-W", "ignore", "-c", program.replace("{hosts!r}", repr(server.hosts)))


@pytest.mark.parametrize("order", ORDERS)
def test_hazard_A53_a_client_is_used_after_the_patch(server: Server, order: str) -> None:
    done = run(ORDERS[order], server)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


CALLS = [
    "client.exists('/')",
    "client.pipeline.exists('/')",
    "watch.wait()",
    "SequentialLock(client, '/lock').acquire()",
    "client.connect()",
    "client.wait_for_state(State.EXPIRED)",
]


def test_a_client_that_was_used_before_the_patch_refuses_and_names_the_cure(server: Server) -> None:
    program = f"""{IMPORT}
from zkwire import State
{MAKE}
watch = Watch()
client.exists("/", watch=watch)
{PATCH}
for call in {CALLS!r}:
    try:
        eval(call)
    except RuntimeError as error:
        assert "make the client after it" in str(error), error
        print("refused")
client.close()
"""
    done = run(program, server)
    assert done.stdout == "refused\n" * len(CALLS), done.stderr
    assert done.returncode == 0
