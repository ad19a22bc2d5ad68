"""A program of another client that hangs or fails is ended, and its transcript says so."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.other_clients.conversation import transcript
from zkwire.testing import Server

HANGS = """
import subprocess, sys
print("nodes: create /a = ok", flush=True)
subprocess.run([sys.executable, "-c", "import time; time.sleep(3600)"])
"""
FAILS = "print('nodes: create /a = ok'); raise SystemExit(3)"
CUT_OFF = """
import sys
from zkwire import Client, Watch
with Client(sys.argv[1]) as client:
    watch = Watch()
    client.create("/a")
    client.get_data("/a", watch=watch)
    print("! cut /a", flush=True)
    sys.stdin.readline()
    print("cut: event =", watch.wait(60).type.name)
    print("cut: data =", client.get_data("/a")[0].decode())
"""


def said(program: str, log: Path, limit: float = 60.0) -> list[str]:
    with Server() as server:
        return transcript([sys.executable, "-c", program], server.hosts, log, limit)


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    lines = said(HANGS, tmp_path / "log", limit=1.0)
    assert lines[-1] == "end: not done within 1 s; see log"


def test_a_program_that_fails_is_not_done(tmp_path: Path) -> None:
    expected = ["nodes: create /a = ok", "end: not done but with status 3; see log"]
    assert said(FAILS, tmp_path / "log") == expected


def test_a_node_is_written_while_a_client_is_cut_off(tmp_path: Path) -> None:
    lines = said(CUT_OFF, tmp_path / "log")
    assert lines == ["cut: event = NODE_DATA_CHANGED", "cut: data = from elsewhere"]
