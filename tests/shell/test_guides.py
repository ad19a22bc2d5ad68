"""The pages of the documentation: their code runs, by itself too, and does what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Certificate
from tests.support.server_control import poll
from tests.support.snippets import HOSTS, ROOT, Snippet, blocks, run_python, snippets
from zkwire import Client
from zkwire.testing import Server
from zkwire.testing.server.tls import make_context

DOCS = ROOT / "docs"
PRINTED = {
    "index": ["now there: b'paid'\n"],
    "tutorial": [
        "['config']\nb'limit=10' 0\n",
        "['w0000000000']\n[]\n",
        "NODE_DATA_CHANGED b'on'\n",
        "held: True for 10 more seconds\n",
    ],
    "watches": ["NODE_DATA_CHANGED\nb'a=3'\n"],
    "how-fast": ["1000\n{b'1'}\n"],
    "fences": ["there is time for one step\n", "True False\n", "b'done'\n"],
    "how-to/leader-election": ["leading, with the fence 4\n"],
    "how-to/hold-a-lock": ["working, with the fence 6\n"],
    "how-to/registration": ["['10.0.0.5:8080']\n"],
    "how-to/configuration": ["the limits are None\n"],
    "how-to/cron-lock": ["this machine writes the report\n"],
    "how-to/work-queue": ["working on b'report 17'\n"],
    "how-to/rolling-restart": ["restarted\n"],
    "how-to/kazoo-programs": ["kazoo: b'paid'\nzkwire: b'paid'\n"],
    "how-to/testing": ["", "the server has it: True\n"],
}


EXPLANATIONS = ("index", "tutorial", "sessions", "watches", "fences", "design", "how-fast")
"""Pages beside the guides; those about one recipe or command have tests of their own."""


class EndError(Exception):
    """Raised by what a program forever prints, to end it."""


def print_and_end(*what: object) -> None:
    print(*what)
    raise EndError


@pytest.mark.parametrize("page", PRINTED)
def test_code_runs_and_prints_what_it_says(
    page: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for block, printed in zip(blocks(page), PRINTED[page], strict=True):
        code = block.replace(HOSTS, server.hosts).replace("lost.wait(1.0)", "lost.wait(0.0)")
        for_ever = "Supervisor" in block
        with pytest.raises(EndError) if for_ever else nullcontext():
            exec(code, {"print": print_and_end} if for_ever else {})
        assert capsys.readouterr().out == printed


def test_tls(
    authority: Authority, shown: Certificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks("how-to/tls")
    context = make_context(str(shown.both), None, str(authority.file), optional=False)
    with Server(tls=context) as server:
        for name, there in (
            ("authority.pem", authority.file),
            ("client.pem", authority.sign("client").both),
            ("zk1.example.org:2281", server.hosts),
        ):
            block = block.replace(name, str(there))
        exec(block, {})
    assert "x509" in capsys.readouterr().out


def test_each_page_with_code_is_run() -> None:
    elsewhere = {"how-to/forks", "how-to/observe", "how-to/tls", "how-to/trio"}
    guides = {f"how-to/{page.stem}" for page in (DOCS / "how-to").glob("*.md")}
    with_code = {page for page in guides | {*EXPLANATIONS} if blocks(page)}
    assert with_code == {*PRINTED} | elsewhere


# --- each program by itself -----------------------------------------------------------------------

SNIPPETS = list(snippets())
LASTS = 2.0
"""Seconds after its first session in which a program that is meant to go on has shown no error."""
LONG = 60.0
ELSEWHERE = {
    "docs/how-to/tls.md": "tests/shell/test_guides.py, with certificates",
    "docs/security.md": "tests/real/test_secure_servers.py, with certificates and logins",
    "docs/how-to/testing.md": "tests/shell/test_guides.py, under pytest",
}
NEEDS = {
    "KazooClient": "another server's address in it",
    "ZooKeeperContainer": "Docker: tests/real/test_zookeeper_container.py",
    "pytest": "pytest",
    "agent._vendor": "a copy of zkwire, see below",
    "sys.argv": "a file, named on the command line",
}


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    with Server() as server:
        yield server


def runnable() -> list[Snippet]:
    return [
        snippet
        for snippet in SNIPPETS
        if snippet.page not in ELSEWHERE and not any(word in snippet.code for word in NEEDS)
    ]


def run(code: str, server: Server, hosts: str) -> str:
    """What the program has written as errors; one that goes on is ended after a while."""
    endless = any(word in code for word in ("Supervisor", "while True", "on_event", "for seen in"))
    known = {session.session_id for session in server.sessions}

    def begun() -> bool | None:
        return any(session.session_id not in known for session in server.sessions) or None

    with subprocess.Popen(
        [sys.executable, "-c", code.replace(HOSTS, hosts)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
    ) as process:  # fmt: skip
        if endless:
            poll("it has begun", lambda: begun() or process.poll(), LONG)
        try:
            return process.communicate("\n", timeout=LASTS if endless else LONG)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            assert endless, "it has not ended"
            return process.communicate()[1]


@pytest.mark.parametrize("page", sorted({snippet.page for snippet in runnable()}))
def test_the_programs_of_a_page_run_as_printed(page: str, one_server: Server) -> None:
    """In the order of the page, on one server: a later one may need nodes of an earlier one."""
    pytest.importorskip("trio")
    pytest.importorskip("anyio")
    folder = "/" + page.replace("/", "-")
    with Client(one_server.hosts) as client:
        client.create(folder)
    for snippet in runnable():
        for _ in range((page == snippet.page) + (page == snippet.page == "README.md")):
            errors = run(snippet.code, one_server, one_server.hosts + folder)
            assert "Traceback" not in errors, f"{snippet.name}\n{errors}"


SHELL, USE = blocks("core")


# --- docs/how-to/embed.md -------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "how-to" / "embed.md").read_text()
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
LOCK, ASYNC = blocks("README.md")[1:3]
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


def run_in(folder: Path, program: str, server: Server) -> str:
    code = re.sub(r"\bfrom zkwire\b", f"from {VENDORED}", program)
    code = code.replace(HOSTS, server.hosts)
    done = run_python("-W", "error", "-c", code, cwd=folder, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_lock_of_the_readme_runs_with_the_copy(folder: Path, server: Server) -> None:
    assert run_in(folder, LOCK, server).startswith("fencing token: ")
    assert run_in(folder, ASYNC, server).endswith("now done\n")
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
    assert run_in(folder, program, server)
    assert run_in(folder, NEVER.format(missing=missing), server) == "left out\n"


def test_the_core_works_without_the_parts_that_use_sockets(folder: Path, server: Server) -> None:
    copy = folder / "agent" / "_vendor" / "zkwire"
    for part in ("aio", "blocking", "net"):
        shutil.rmtree(copy / part)
    assert run_in(folder, SHELL + USE, server) == "b'1'\nEventType.NODE_DATA_CHANGED\n"
