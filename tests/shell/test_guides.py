"""The tutorial, the guides and the explanations: their code runs, and prints what they say."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Certificate
from tests.support.snippets import HOSTS, ROOT, blocks
from zkwire import Client, State
from zkwire.cli.command import DEFAULT_SERVER
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


def test_the_server_of_the_tutorial_is_the_default_one(server: Server) -> None:
    assert DEFAULT_SERVER == HOSTS
    with Client(server.hosts) as client:
        assert client.session_timeout == 10.0
