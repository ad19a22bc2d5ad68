"""The pages of the documentation: their code runs, by itself too, and prints what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Certificate
from tests.support.server_control import poll
from tests.support.snippets import HOSTS, ROOT, Snippet, blocks, snippets, undefined
from zkwire import Client, State
from zkwire.session.states import TRANSITIONS
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


def test_what_the_text_says_is_printed() -> None:
    text = "".join((DOCS / f"{page}.md").read_text() for page in PRINTED)
    sentences = re.findall(r"^It prints (.*?)[.,] ?", text, re.MULTILINE)
    said = [words for sentence in sentences for words in re.findall(r"`(.*?)`", sentence)]
    printed = "".join(line for lines in PRINTED.values() for line in lines)
    assert len(said) >= 4
    assert [words for words in said if words not in printed] == []


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


def test_the_states_are_those_of_the_transitions() -> None:
    text = (DOCS / "sessions.md").read_text()
    rows = re.findall(r"^\| `([A-Z_]+)` \| .* \| (.*) \|$", text, re.MULTILINE)
    assert {name: re.findall(r"`(.*?)`", following) for name, following in rows} == {
        state.name: list(dict.fromkeys(after.name for after in TRANSITIONS[state].values()))
        for state in State
    }


# --- each program by itself -----------------------------------------------------------------------

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
def one_server() -> Iterator[Server]:
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
def test_the_programs_of_a_page_run_as_printed(page: str, one_server: Server) -> None:
    """In the order of the page, on one server: a later one may need nodes of an earlier one."""
    folder = "/" + page.replace("/", "-")
    with Client(one_server.hosts) as client:
        client.create(folder)
    for snippet in runnable():
        for _ in range((page == snippet.page) + (page == snippet.page == "README.md")):
            errors = run(snippet.code, one_server, one_server.hosts + folder)
            assert "Traceback" not in errors, f"{snippet.name}\n{errors}"
