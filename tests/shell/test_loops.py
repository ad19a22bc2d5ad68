"""Where programs run that are no plain scripts: uvloop, a running loop, a zip file, gevent."""

from __future__ import annotations

import asyncio
import compileall
import os
import re
import shutil
import socket
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
    code = program.replace("{hosts!r}", repr(server.hosts))
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST, check=False, cwd=ROOT
    )


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


APPLICATION = """
from zkwire import Client
client = Client({hosts!r})

def application(environ, start_response):
    children = client.get_children("/")
    start_response("200 OK", [("Content-Length", str(len(str(children))))])
    return [str(children).encode()]
"""


def test_a_client_of_a_module_that_gunicorn_loads_before_its_workers(
    server: Server, tmp_path: Path
) -> None:
    text = APPLICATION.replace("{hosts!r}", repr(server.hosts))
    (tmp_path / "application.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "gunicorn", "--preload", "-k", "gevent", "-b", "127.0.0.1:0"]
    command += ["--pythonpath", f"{ROOT},{tmp_path}", "application"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as gunicorn:
        try:
            assert gunicorn.stderr is not None
            listening = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")
            port = next(
                int(found[1]) for line in gunicorn.stderr if (found := listening.search(line))
            )
            with socket.create_connection(("127.0.0.1", port), LONGEST) as asking:
                asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = b"".join(iter(lambda: asking.recv(4096), b""))
            assert b"['zookeeper']" in answer
        finally:
            gunicorn.terminate()
            gunicorn.communicate(timeout=LONGEST)
