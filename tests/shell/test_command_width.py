"""At a terminal of 80 columns no table wraps, and no line of progress does."""

from __future__ import annotations

import pytest

from tests.support.terminal import ZKWIRE, Terminal
from zkwire import Client
from zkwire.testing import Server

LOOKS = (
    "ls -l /; tree -l /; stat /a; get --hex /a; acl get /; quota set /a -n 9; quota get /a; "
    "count /; config; whoami; ephemerals; doctor; who /e; watch /a --initial --timeout 10ms; help; "
    "create /jobs; create -s /jobs/job- x; set /a y"
)


def shown_by(*words: str) -> str:
    """What a command shows, of which no line is too long."""
    with Terminal(*ZKWIRE, *words) as terminal:
        assert terminal.status() == 0
        assert [line for line in terminal.lines if len(line) > 80] == []
        return "\n".join(terminal.lines)


@pytest.fixture
def filled(server: Server) -> Server:
    with Client(server.hosts) as client:
        client.create("/a", bytes(range(256)))
        client.create("/departement-of-names", b"x" * 300)
        for number in range(40):
            client.create(f"/departement-of-names/{number:020}", b"y" * number)
    return server


def test_what_is_shown_fits(filled: Server) -> None:
    with Client(filled.hosts) as client:
        client.create("/e", ephemeral=True)
        text = shown_by("-s", filled.hosts, "shell", "-c", LOOKS)
    assert "belongs to session" in text
    assert "1 of 1 servers can be used" in text
    assert "/jobs/job-0000000000" in text


def test_what_the_spy_shows_fits(filled: Server) -> None:
    path = "/departement-of-names"
    words = ["spy", filled.hosts, "--hex", "--data", "text", "--"]
    assert "close by the" in shown_by(*words, *ZKWIRE, "-s", "{}", "-q", "copy", path, "/copied")
