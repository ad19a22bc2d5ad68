"""Each program of the documents runs as it is printed: no name is missing, no import left out.

Other tests say what each prints and does; here each runs by itself, in a process of its own, as it
does for a reader who has copied it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_control import poll
from tests.support.snippets import HOSTS, ROOT, Snippet, snippets, undefined
from zkwire import Client
from zkwire.testing import Server

pytest.importorskip("trio")
pytest.importorskip("anyio")

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
    "agent._vendor": "a copy of zkwire: tests/shell/test_embedding.py",
    "sys.argv": "a file, named on the command line",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_no_name_is_missing(tmp_path: Path) -> None:
    assert len(SNIPPETS) > 60
    broken = Snippet("page.md", 3, "from zkwire import Client\nserve(Client)\n", alone=True)
    found = undefined([*SNIPPETS, broken], tmp_path)
    assert found == ["page.md:3, line 2: F821 Undefined name `serve`"]


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
def test_the_programs_of_a_page_run_as_printed(page: str, server: Server) -> None:
    """In the order of the page, on one server: a later one may need nodes of an earlier one."""
    folder = "/" + page.replace("/", "-")
    with Client(server.hosts) as client:
        client.create(folder)
    for snippet in runnable():
        for _ in range((page == snippet.page) + (page == snippet.page == "README.md")):
            errors = run(snippet.code, server, server.hosts + folder)
            assert "Traceback" not in errors, f"{snippet.name}\n{errors}"
