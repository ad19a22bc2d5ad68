"""What Python has not on Windows is not asked for: it is taken away, and programs run."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.snippets import ROOT, run_python
from zkwire import AsyncClient, Client, SequentialLock
from zkwire.testing import Server

HOSTS = "127.0.0.1:2181"
SECONDS = 30.0


def on_windows(*words: str, given: str = "", status: int = 0) -> str:
    """What a program prints that runs without all that."""
    ran = run_python("-W", "error", "-m", "tests.support.windows", *words, given=given)
    assert (ran.returncode, ran.stderr) == (status, "")
    return ran.stdout


@pytest.fixture
def hosts() -> Iterator[str]:
    with Server() as server:
        yield server.hosts


def test_the_first_lock_and_asyncio_of_the_readme(hosts: str) -> None:
    text = (ROOT / "README.md").read_text().replace(HOSTS, hosts)
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (lock,) = [each for each in programs if "lock.acquire(timeout=5.0)" in each]
    assert on_windows("-c", lock).startswith("fencing token: ")
    (tasks,) = [each for each in programs if "asyncio.run(main())" in each]
    tasks = tasks.replace(
        "asyncio.run(main())",
        "with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as r: r.run(main())",
    )
    assert on_windows("-c", tasks) == "/jobs/99 /jobs\nnow done\n"


def test_a_lock_is_held_for_a_command_or_until_the_input_ends(hosts: str) -> None:
    program = "import os; print(os.environ['ZKWIRE_LOCK_PATH']); raise SystemExit(7)"
    words = ("-m", "zkwire", "--server", hosts, "lock", "/locks/report")
    printed = on_windows(*words, "--", sys.executable, "-c", program, status=7)
    assert printed.startswith("/locks/report/")
    assert on_windows(*words, given="some input\n").startswith("/locks/report/")
    with Client(hosts) as client:
        assert SequentialLock(client, "/locks/report").try_acquire()


def test_a_command_is_ended_when_its_lock_is_lost() -> None:
    with Server() as server:
        words = ["-m", "zkwire", "--server", server.hosts, "lock", "/lock", "--", sys.executable]
        program = "import time; print('running', flush=True); time.sleep(60)"
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.windows", *words, "-c", program],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as held:
            assert held.stdout is not None
            assert held.stdout.readline() == "running\n"
            (session,) = server.sessions
            server.expire(session.session_id)
            _, said = held.communicate(timeout=SECONDS)
        assert held.returncode == 122
        assert "/lock is lost" in said


def test_a_loop_that_cannot_wait_for_sockets_is_refused_by_name() -> None:
    class Proactor(asyncio.SelectorEventLoop):
        add_reader = asyncio.AbstractEventLoop.add_reader

    async def main() -> None:
        async with AsyncClient(HOSTS):
            pass

    with (
        asyncio.Runner(loop_factory=Proactor) as runner,
        pytest.raises(RuntimeError, match="Proactor cannot wait for a socket; on Windows use"),
    ):
        runner.run(main())
