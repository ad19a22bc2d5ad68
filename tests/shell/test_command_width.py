"""At a terminal of 80 columns no table wraps, and no line of progress does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from zkwire import Client
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 80
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LOOKS = (
    "ls -l /; tree -l /; stat /a; get --hex /a; acl get /; quota set /a -n 9; quota get /a; "
    "count /; config; whoami; ephemerals; doctor; who /e; watch /a --initial --timeout 10ms; help; "
    "decode fffffffe0000000b; create /jobs; create -s /jobs/job- x; set /a y"
)
ITSELF = [sys.executable, "-m", "zkwire"]


def shown_by(words: list[str]) -> tuple[list[str], str]:
    """The lines on the screen, standard error included, and all of it as it came."""
    screen, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(screen, 65536):
                pieces.append(piece)
        except OSError:  # Linux: no process has the other end any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    try:
        process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT
        )
    finally:
        os.close(theirs)
    assert process.wait(100) == 0
    reader.join(100)
    os.close(screen)
    text = ESCAPES.sub("", b"".join(pieces).decode())
    return [part for line in text.split("\n") for part in line.rstrip("\r").split("\r")], text


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
        lines, text = shown_by([*ITSELF, "-s", filled.hosts, "shell", "-c", LOOKS])
    assert "belongs to session" in text
    assert "1 of 1 servers can be used" in text
    assert "/jobs/job-0000000000" in text
    assert [line for line in lines if len(line) > COLUMNS] == []


def test_what_the_spy_shows_fits(filled: Server) -> None:
    path = "/departement-of-names"
    words = ["spy", filled.hosts, "--hex", "--data", "text", "--stats", "--by", "path", "--"]
    lines, text = shown_by([*ITSELF, *words, *ITSELF, "-s", "{}", "-q", "copy", path, "/copied"])
    assert "p50 ms" in text
    assert [line for line in lines if len(line) > COLUMNS] == []
